use http::HeaderValue;

use super::*;
use crate::intake::tests::fixture::plain_route;

const DELIVERY: HeaderName = HeaderName::from_static("x-delivery");
const SOURCE: HeaderName = HeaderName::from_static("x-source");

fn header(name: HeaderName) -> Option<KeyRule> {
    Some(KeyRule::Header(name))
}

fn pointer(text: &str) -> Option<KeyRule> {
    Some(KeyRule::Pointer(text.to_owned()))
}

fn route(delivery_key: Option<KeyRule>, source_key: Option<KeyRule>) -> Route {
    let ordering = if source_key.is_some() { Ordering::Source } else { Ordering::None };
    Route { delivery_key, source_key, ordering, ..plain_route("hooks") }
}

fn keys(delivery: Option<&str>, source: Option<&str>) -> Result<Keys, Refusal> {
    let queue_class = QueueClass::Default;
    Ok(Keys { delivery: delivery.map(str::to_owned), source: source.map(str::to_owned), queue_class })
}

fn headers(pairs: &[(HeaderName, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(name, HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

#[test]
fn keys_come_from_headers_and_from_the_body() {
    let request = headers(&[(DELIVERY, b"d-1"), (SOURCE, "café".as_bytes())]);
    let body = br#"{"id": "evt_1", "object": {"id": 9007199254740993}}"#;
    assert_eq!(find(&route(header(DELIVERY), header(SOURCE)), &request, b"not json"), keys(Some("d-1"), Some("café")));
    assert_eq!(
        find(&route(pointer("/id"), pointer("/object/id")), &request, body),
        keys(Some("evt_1"), Some("9007199254740993"))
    );
    assert_eq!(find(&route(header(DELIVERY), pointer("/id")), &request, body), keys(Some("d-1"), Some("evt_1")));
    assert_eq!(find(&route(pointer("/id"), header(SOURCE)), &request, body), keys(Some("evt_1"), Some("café")));
}

#[test]
fn a_route_without_rules_asks_for_nothing() {
    assert_eq!(find(&route(None, None), &HeaderMap::new(), b"\xff"), keys(None, None));
}

// ADM-4
#[test]
fn a_declared_delivery_key_has_to_be_there() {
    let missing = Err(Refusal::DeliveryKeyMissing);
    let by_header = route(header(DELIVERY), None);
    let twice = headers(&[(DELIVERY, b"1"), (DELIVERY, b"1")]);
    for request in [headers(&[]), headers(&[(DELIVERY, b"")]), headers(&[(DELIVERY, b"\xff")]), twice] {
        assert_eq!(find(&by_header, &request, b""), missing, "{request:?}");
    }
    let by_pointer = route(pointer("/id"), None);
    for body in [r#"{}"#, r#"{"id": null}"#, r#"{"id": ""}"#, r#"{"id": {}}"#, r#"[1]"#, "7"] {
        assert_eq!(find(&by_pointer, &HeaderMap::new(), body.as_bytes()), missing, "{body}");
    }
    for body in ["", "payload=%7B%7D", r#"{"id": 1"#] {
        assert_eq!(find(&by_pointer, &HeaderMap::new(), body.as_bytes()), Err(Refusal::BodyNotJson), "{body}");
    }
}

#[test]
fn a_missing_source_key_loses_no_delivery() {
    let request = headers(&[(DELIVERY, b"d-1")]);
    for body in [r#"{}"#, r#"{"object": {"id": true}}"#, "payload=%7B%7D", ""] {
        let found = find(&route(header(DELIVERY), pointer("/object/id")), &request, body.as_bytes());
        assert_eq!(found, keys(Some("d-1"), None), "{body}");
    }
    assert_eq!(find(&route(header(DELIVERY), header(SOURCE)), &request, b""), keys(Some("d-1"), None));
}

#[test]
fn a_route_that_does_not_order_has_no_source_key() {
    let unordered = Route { ordering: Ordering::None, ..route(header(DELIVERY), pointer("/id")) };
    let request = headers(&[(DELIVERY, b"d-1")]);
    assert_eq!(find(&unordered, &request, br#"{"id": 1}"#), keys(Some("d-1"), None));
}

#[test]
fn a_long_key_becomes_its_hash_and_stays_a_key_of_its_own() {
    let rule = route(header(DELIVERY), None);
    let of = |key: &str| find(&rule, &headers(&[(DELIVERY, key.as_bytes())]), b"").unwrap().delivery.unwrap();
    let longest = "k".repeat(KEY_BYTES_MAX);
    assert_eq!(of(&longest), longest);
    let (one, other) = (of(&format!("{longest}1")), of(&format!("{longest}2")));
    assert!(one.starts_with("sha256:") && one.len() == 71 && one != other);
}

// ADM-5: on every database. Some compare texts without the spaces behind them.
#[test]
fn a_key_that_ends_in_a_space_is_another_one_than_without() {
    let rule = route(pointer("/id"), None);
    let of = |id: &str| {
        let body = serde_json::json!({ "id": id }).to_string();
        find(&rule, &HeaderMap::new(), body.as_bytes()).unwrap().delivery.unwrap()
    };
    assert_eq!((of("a"), of(" a")), ("a".to_owned(), " a".to_owned()));
    let mut keys: Vec<String> = ["a ", "a  ", " ", "  "].map(of).to_vec();
    assert!(keys.iter().all(|key| key.starts_with("sha256:")), "{keys:?}");
    keys.dedup();
    assert_eq!(keys.len(), 4);
}

// QCL-1: the class is decided at admission, by what the manifest says.
#[test]
fn a_queue_class_is_the_routes_or_goes_by_a_value() {
    let class = |rule: QueueClassRule, request: &HeaderMap, body: &[u8]| {
        find(&Route { queue_class: rule, ..plain_route("hooks") }, request, body).unwrap().queue_class
    };
    assert_eq!(class(QueueClassRule::Fixed(QueueClass::Bulk), &HeaderMap::new(), b""), QueueClass::Bulk);
    let by = |place| QueueClassRule::ByValue {
        place,
        classes: [("import".to_owned(), QueueClass::Bulk), ("7".to_owned(), QueueClass::Default)].into(),
        otherwise: QueueClass::Interactive,
    };
    let by_header = |value: &[u8]| class(by(KeyRule::Header(SOURCE)), &headers(&[(SOURCE, value)]), b"not json");
    assert_eq!(by_header(b"import"), QueueClass::Bulk);
    assert_eq!(by_header(b"Import"), QueueClass::Interactive);
    let by_pointer = |body: &str| class(by(KeyRule::Pointer("/kind".to_owned())), &HeaderMap::new(), body.as_bytes());
    assert_eq!(by_pointer(r#"{"kind": "import"}"#), QueueClass::Bulk);
    assert_eq!(by_pointer(r#"{"kind": 7}"#), QueueClass::Default);
    for body in [r#"{"kind": null}"#, "{}", "not json", ""] {
        assert_eq!(by_pointer(body), QueueClass::Interactive, "{body}");
    }
}

// ADM-5
#[test]
fn a_key_of_several_values_tells_apart_what_one_of_them_does_not() {
    let rule = Some(KeyRule::Pointers(vec!["/a".to_owned(), "/b".to_owned()]));
    let key =
        |body: &str| find(&route(rule.clone(), None), &HeaderMap::new(), body.as_bytes()).map(|keys| keys.delivery);
    assert_eq!(key(r#"{"a":1,"b":"x"}"#), Ok(Some("1:1,1:x,".to_owned())));
    // However values are divided, each list has a key of its own.
    assert_ne!(key(r#"{"a":"1","b":"1:x,"}"#), key(r#"{"a":"1,1:1","b":"x"}"#));
    assert_eq!(key(r#"{"a":1}"#), Err(Refusal::DeliveryKeyMissing));
    assert_eq!(key("no JSON"), Err(Refusal::BodyNotJson));
    let source = find(&route(None, rule.clone()), &HeaderMap::new(), br#"{"a":1,"b":2}"#).unwrap().source;
    assert_eq!(source.as_deref(), Some("1:1,1:2,"));
}
