//! What is stored, what is refused, and what each is answered with.

use http::StatusCode;

use super::client::request;
use super::fixture::{NOW, Setup, World, base64_signature, delivery, github_route, name, plain_route, signature};
use crate::intake::IntakeOptions;
use crate::model::event::Header;
use crate::model::pack::{Answer, EventList, KeyRule, Ordering, QueueClassRule, Route};
use crate::model::queue::QueueClass;
use crate::model::verification::Verification;

// ADM-3, MAT-1
#[tokio::test]
async fn a_202_names_what_is_durable_and_it_is_what_was_sent() {
    let world = World::start(Setup::default()).await;
    let body = br#"{"repository": {"id": 9007199254740993}, "text": "caf\u00e9"}"#;
    let signature = signature(body);
    let headers = [
        ("X-GitHub-Event", "push"),
        ("X-GitHub-Delivery", "d-1"),
        ("X-Hub-Signature-256", &signature),
        ("Content-Type", "application/json; charset=utf-8"),
        ("X-Other", "not kept"),
    ];
    let reply = world.send(&request("POST", "/in/acme/github", &headers, body)).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/json"));

    let events = world.events().await;
    let [event] = events.as_slice() else { panic!("{events:?}") };
    let expected = serde_json::json!({
        "receipt": event.receipt_id.to_string(), "events": [event.id.to_string()], "duplicate": false,
    });
    assert_eq!(reply.json(), expected);
    assert_eq!(event.body.as_ref(), body);
    assert_eq!(event.delivery_key, "d-1");
    assert_eq!(event.source_key.as_deref(), Some("9007199254740993"));
    assert_eq!(event.content_type, "application/json; charset=utf-8");
    assert_eq!(event.received_at, NOW);
    let kept = |name: &str, value: &'static str| Header { name: name.to_owned(), value: value.into() };
    assert_eq!(event.headers, [kept("x-github-event", "push"), kept("x-github-delivery", "d-1")]);
    assert_eq!(world.answers(202, "stored"), 1);
}

// ADM-3
#[tokio::test]
async fn a_route_that_demands_an_empty_answer_gets_it_after_the_commit() {
    let demanding = Route {
        answer: Answer::Empty(StatusCode::NO_CONTENT),
        delivery_key: Some(KeyRule::Header(name("x-id"))),
        ..plain_route("empty")
    };
    let world = World::start(Setup { routes: vec![demanding], ..Setup::default() }).await;
    let first = world.send(&request("POST", "/in/acme/empty", &[("x-id", "1")], b"body")).await;
    assert_eq!((first.status, first.body.as_str()), (204, ""));
    assert_eq!(world.events().await.len(), 1);
    let again = world.send(&request("POST", "/in/acme/empty", &[("x-id", "1")], b"body")).await;
    assert_eq!((again.status, again.body.as_str()), (204, ""));
    assert_eq!(world.events().await.len(), 1);
    assert_eq!((world.answers(204, "stored"), world.answers(204, "duplicate")), (1, 1));
}

// ADM-4
#[tokio::test]
async fn what_is_refused_leaves_a_count_and_nothing_else() {
    let options = IntakeOptions { body_bytes_max: 100, ..Setup::default().options };
    let by_pointer = Route { delivery_key: Some(KeyRule::Pointer("/id".to_owned())), ..plain_route("pointer") };
    let routes = vec![github_route("github"), plain_route("plain"), by_pointer];
    let world = World::start(Setup { routes, options, ..Setup::default() }).await;
    let post = |path: &str, headers: &[(&str, &str)], body: &[u8]| request("POST", path, headers, body);
    let (wrong, right) = (signature(b"other"), signature(b"body"));
    let ids = ("x-github-delivery", "d-1");
    for (sent, status, code, reason) in [
        (post("/in/acme/github", &[ids], b"body"), 401, "unverified", "signature_missing"),
        (
            post("/in/acme/github", &[ids, ("x-hub-signature-256", &wrong)], b"body"),
            401,
            "unverified",
            "signature_wrong",
        ),
        (
            post("/in/acme/github", &[("x-hub-signature-256", &right)], b"body"),
            400,
            "delivery_key_missing",
            "delivery_key_missing",
        ),
        (post("/in/acme/pointer", &[], b"no json"), 400, "body_not_json", "body_not_json"),
        (post("/in/acme/absent", &[], b"body"), 404, "no_route", "no_route"),
        (post("/in/other/github", &[], b"body"), 404, "no_route", "no_route"),
        (post("/in/acme/plain", &[], &[b'x'; 101]), 413, "too_large", "too_large"),
        (post("/in/acme/plain", &[("content-encoding", "gzip")], b"body"), 415, "content_encoding", "content_encoding"),
        (request("GET", "/in/acme/plain", &[], b""), 405, "method_not_allowed", "method_not_allowed"),
    ] {
        let before = world.answers(status, reason);
        let reply = world.send(&sent).await;
        let shown = String::from_utf8_lossy(&sent).into_owned();
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{shown}");
        assert_eq!(world.answers(status, reason), before + 1, "{shown}");
    }
    assert!(world.events().await.is_empty());
    assert_eq!(world.metric("forebay_intake_in_flight"), 0.0);
    assert_eq!(world.metric("forebay_intake_bytes_in_flight"), 0.0);
}

// ADM-4
#[tokio::test]
async fn a_body_without_content_encoding_is_accepted_when_it_says_so() {
    let world = World::start(Setup::default()).await;
    let sent = request("POST", "/in/acme/plain", &[("content-encoding", "Identity")], b"body");
    assert_eq!(world.send(&sent).await.status, 202);
}

#[tokio::test]
async fn a_route_without_a_delivery_key_takes_every_request_as_its_own() {
    let world = World::start(Setup::default()).await;
    for _ in 0..2 {
        let reply = world.send(&request("POST", "/in/acme/plain", &[], b"")).await;
        assert_eq!((reply.status, &reply.json()["duplicate"]), (202, &serde_json::json!(false)));
    }
    let events = world.events().await;
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event.delivery_key == event.receipt_id.to_string() && event.body.is_empty()));
}

#[tokio::test]
async fn a_delivery_without_its_source_key_is_kept_and_counted() {
    let world = World::start(Setup::default()).await;
    assert_eq!(world.send(&delivery("form", b"payload=%7B%7D")).await.status, 202);
    let events = world.events().await;
    assert_eq!((events.len(), &events[0].source_key), (1, &None));
    assert_eq!(world.metric("forebay_intake_unordered_total"), 1.0);
}

// ADM-5
#[tokio::test]
async fn the_same_delivery_twice_is_one_event() {
    let world = World::start(Setup::default()).await;
    let sent = delivery("d-1", br#"{"repository": {"id": 1}}"#);
    let first = world.send(&sent).await;
    let again = world.send(&sent).await;
    let mut expected = first.json();
    expected["duplicate"] = serde_json::json!(true);
    assert_eq!((again.status, again.json()), (first.status, expected));
    assert_eq!(world.events().await.len(), 1);
    assert_eq!((world.answers(202, "stored"), world.answers(202, "duplicate")), (1, 1));
}

// ADM-5
#[tokio::test]
async fn another_payload_under_the_same_key_is_reported_and_the_first_stays() {
    let world = World::start(Setup::default()).await;
    let first = world.send(&delivery("d-1", b"{\"first\": 1}")).await;
    let other = world.send(&delivery("d-1", b"{\"other\": 1}")).await;
    assert_eq!((other.status, other.code().as_str()), (409, "conflict"));
    assert_eq!(other.json()["error"]["event"], first.json()["events"][0]);
    let events = world.events().await;
    assert_eq!((events.len(), events[0].body.as_ref()), (1, b"{\"first\": 1}".as_slice()));
    assert_eq!(world.answers(409, "conflict"), 1);
}

// ADM-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_identical_deliveries_at_once_are_one_event() {
    const SENDERS: usize = 50;
    let world = World::start(Setup::default()).await;
    let sent = delivery("d-1", br#"{"repository": {"id": 1}}"#);
    let replies = futures_util::future::join_all((0..SENDERS).map(|_| world.send(&sent))).await;
    let events = world.events().await;
    assert_eq!(events.len(), 1);
    let firsts = replies.iter().filter(|reply| reply.json()["duplicate"] == false).count();
    assert_eq!(firsts, 1);
    for reply in &replies {
        assert_eq!((reply.status, &reply.json()["events"][0]), (202, &serde_json::json!(events[0].id.to_string())));
    }
}

// ADM-5: what names a delivery is namespace, route and key together.
#[tokio::test]
async fn one_key_on_two_routes_is_two_deliveries() {
    let keyed = |path| Route { delivery_key: Some(KeyRule::Header(name("x-id"))), ..plain_route(path) };
    let world = World::start(Setup { routes: vec![keyed("one"), keyed("two")], ..Setup::default() }).await;
    for path in ["/in/acme/one", "/in/acme/two"] {
        let reply = world.send(&request("POST", path, &[("x-id", "1")], path.as_bytes())).await;
        assert_eq!((reply.status, &reply.json()["duplicate"]), (202, &serde_json::json!(false)));
    }
    assert_eq!(world.events().await.len(), 2);
}

// QCL-1: a class is given at admission, by the route's rule.
#[tokio::test]
async fn a_delivery_is_of_the_class_that_its_route_says() {
    let queue_class = QueueClassRule::ByValue {
        place: KeyRule::Header(name("x-kind")),
        classes: [("import".to_owned(), QueueClass::Bulk)].into(),
        otherwise: QueueClass::Interactive,
    };
    let routes = vec![Route { queue_class, ..plain_route("mixed") }, plain_route("plain")];
    let world = World::start(Setup { routes, ..Setup::default() }).await;
    for (path, kind) in [("mixed", "import"), ("mixed", "import"), ("mixed", "click"), ("plain", "import")] {
        let request = request("POST", &format!("/in/acme/{path}"), &[("x-kind", kind)], b"{}");
        assert_eq!(world.send(&request).await.status, 202);
    }
    assert_eq!(world.claim_of(QueueClass::Bulk).await, 2);
    assert_eq!(world.claim_of(QueueClass::Interactive).await, 1);
    assert_eq!(world.claim_of(QueueClass::Default).await, 1);
}

// ADM-4: whatever a provider calls its body, and whatever bytes are in it, is stored as it came.
#[tokio::test]
async fn odd_bodies_and_content_types_are_stored_byte_for_byte() {
    let route = Route { ordering: Ordering::None, source_key: None, ..github_route("github") };
    let world = World::start(Setup { routes: vec![route], ..Setup::default() }).await;
    let bodies: [&[u8]; 6] =
        [b"", b"\xef\xbb\xbf{}", b"{}\r\n", b"a\0b\xff", "\u{2028}😀".as_bytes(), b"payload=%7B%22a%22%3A1e21%7D"];
    for (number, body) in bodies.iter().enumerate() {
        let (id, signature) = (number.to_string(), signature(body));
        let mut headers = vec![("x-github-delivery", id.as_str()), ("x-hub-signature-256", &signature)];
        headers.extend([("content-type", "text/x-odd; charset=\"utf-16\"")].into_iter().take(number));
        assert_eq!(world.send(&request("POST", "/in/acme/github", &headers, body)).await.status, 202);
    }
    let events = world.events().await;
    assert_eq!(events.len(), bodies.len());
    for event in events {
        let number: usize = event.delivery_key.parse().unwrap();
        assert_eq!(event.body.as_ref(), bodies[number]);
        assert_eq!(event.content_type, if number == 0 { "" } else { "text/x-odd; charset=\"utf-16\"" });
    }
}

// ADM-4
#[tokio::test]
async fn a_body_too_large_to_be_judged_in_place_is_judged_all_the_same() {
    let world = World::start(Setup::default()).await;
    let body = format!(r#"{{"pad": "{}", "repository": {{"id": 5}}}}"#, "x".repeat(900_000));
    assert_eq!(world.send(&delivery("large", body.as_bytes())).await.status, 202);
    let mut forged = delivery("forged", body.as_bytes());
    let last = forged.len() - 1;
    forged[last] = b' ';
    assert_eq!(world.send(&forged).await.status, 401);
    let events = world.events().await;
    assert_eq!((events.len(), events[0].source_key.as_deref()), (1, Some("5")));
}

// ADM-4: where a signature covers the address, the operator says what that is, and nobody else.
#[tokio::test]
async fn a_signed_address_is_the_operators_word() {
    let preset = crate::model::presets::preset("hubspot").unwrap();
    let verification = Verification::Signature { scheme: preset.scheme, secret: "github".parse().unwrap() };
    let list = EventList { pointer: String::new(), events_max: 100 };
    let route = || Route {
        verification: verification.clone(),
        delivery_key: preset.delivery_key.clone(),
        event_list: Some(list.clone()),
        ..plain_route("hubspot")
    };
    let change = |event: u64, at: u64| {
        format!(
            r#"{{"portalId":1,"subscriptionType":"contact.creation","objectId":5,"eventId":{event},"occurredAt":{at}}}"#
        )
    };
    let body = format!("[{},{}]", change(1, 1), change(1, 2)).into_bytes();
    let time = NOW.as_millis().to_string();
    let sent = |url: &str| {
        let signed = [format!("POST{url}/in/acme/hubspot?a=%2F").as_bytes(), &body, time.as_bytes()].concat();
        let signed = String::from_utf8(signed).unwrap().replacen("%2F", "/", 1);
        let headers = [
            ("x-hubspot-request-timestamp", time.as_str()),
            ("x-hubspot-signature-v3", &base64_signature(signed.as_bytes())),
        ];
        request("POST", "/in/acme/hubspot?a=%2F", &headers, &body)
    };
    let options = IntakeOptions { public_url: Some("https://hooks.example".to_owned()), ..Setup::default().options };
    let world = World::start(Setup { routes: vec![route()], options, ..Setup::default() }).await;
    assert_eq!(world.send(&sent("https://hooks.example")).await.status, 202);
    assert_eq!(world.events().await.len(), 2, "one event id, told apart by its time");
    assert_eq!(world.send(&sent("https://attacker.example")).await.status, 401);

    let world = World::start(Setup { routes: vec![route()], ..Setup::default() }).await;
    let reply = world.send(&sent("https://hooks.example")).await;
    assert_eq!((reply.status, world.answers(503, "public_url_unset")), (503, 1));
    assert!(world.events().await.is_empty());
}

// ADM-4
#[tokio::test]
async fn a_content_type_that_is_none_is_refused_and_one_at_the_bound_is_stored() {
    let world = World::start(Setup::default()).await;
    for (bytes, status) in [(1_024, 202), (1_025, 400), (70_000, 400)] {
        let content_type = "x".repeat(bytes);
        let answer = world.send(&request("POST", "/in/acme/plain", &[("content-type", &content_type)], b"body")).await;
        assert_eq!(answer.status, status, "{bytes}");
    }
    assert_eq!(world.answers(400, "content_type_too_long"), 2);
    assert_eq!(world.events().await.len(), 1);
}
