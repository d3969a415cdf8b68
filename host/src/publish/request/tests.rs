use super::*;
use crate::model::ids::MessageId;
use crate::model::message::RESERVED_HEADERS;

const NOW: Timestamp = Timestamp::from_millis(1_649_367_553_999);

fn payload(headers: &[(&str, &[u8])]) -> Payload {
    Payload {
        id: MessageId::from_bytes([1; 16]),
        idempotency_key: "msg_1".to_owned(),
        content_type: "application/json".to_owned(),
        headers: headers
            .iter()
            .map(|(name, value)| Header { name: (*name).to_owned(), value: Bytes::copy_from_slice(value) })
            .collect(),
        body: Bytes::from_static(b"{}"),
    }
}

fn build_one(payload: Payload) -> Result<Request<Full<Bytes>>, Unsendable> {
    build(&"http://sink.example/hook?token=hidden".parse().unwrap(), payload, &[], NOW)
}

#[test]
fn a_message_is_posted_with_its_headers_and_the_hosts() {
    let request = build_one(payload(&[("x-a", b"1"), ("x-a", b"2"), ("x-bytes", &[0xff])])).unwrap();
    assert_eq!(request.method(), Method::POST);
    assert_eq!(request.uri().path_and_query().unwrap().as_str(), "/hook?token=hidden");
    let headers = request.headers();
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["user-agent"], concat!("forebay/", env!("CARGO_PKG_VERSION")));
    assert_eq!(headers["webhook-id"], "msg_1");
    assert_eq!(headers["webhook-timestamp"], "1649367553");
    assert_eq!(headers.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(headers["x-bytes"].as_bytes(), [0xff]);
    assert!(!headers.contains_key("webhook-signature"), "a destination without a secret is not signed for");
}

#[test]
fn headers_that_are_the_hosts_or_the_connections_are_refused_in_any_spelling() {
    for reserved in
        RESERVED_HEADERS.into_iter().chain(["proxy-authorization", "webhook-id", "webhook-signature", "webhook-x"])
    {
        for name in [reserved.to_owned(), reserved.to_uppercase()] {
            let refused = build_one(payload(&[(&name, b"x")]));
            assert!(matches!(refused, Err(Unsendable::Message(_))), "{name}: {refused:?}");
        }
    }
}

#[test]
fn a_message_has_so_many_headers_and_no_more() {
    let headers = |count| vec![("x-a", b"1".as_slice()); count];
    assert!(build_one(payload(&headers(HEADERS_MAX))).is_ok());
    assert!(matches!(build_one(payload(&headers(HEADERS_MAX + 1))), Err(Unsendable::Message(_))));
    assert!(build_one(payload(&headers(100_000))).is_err());
}

#[test]
fn what_could_end_a_header_early_is_refused_and_not_shown() {
    let refusals = [
        build_one(payload(&[("x-a", b"secret\r\nx-b: 1")])),
        build_one(payload(&[("x-a\r\nx-b", b"secret")])),
        build_one(payload(&[("", b"secret")])),
        build_one(Payload { content_type: "text/secret\n".to_owned(), ..payload(&[]) }),
        build_one(Payload { idempotency_key: "secret\r\n".to_owned(), ..payload(&[]) }),
        build_one(Payload { idempotency_key: "secretä".to_owned(), ..payload(&[]) }),
        build_one(Payload { idempotency_key: " secret".to_owned(), ..payload(&[]) }),
        build_one(Payload { idempotency_key: String::new(), ..payload(&[]) }),
    ];
    for refused in refusals {
        let error = refused.unwrap_err();
        assert!(matches!(error, Unsendable::Message(_)));
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn a_secret_that_signs_nothing_is_the_operators_fault_and_nothing_goes_out_unsigned() {
    let secrets = [Secret::new(b"whsec_not base64".to_vec())];
    let refused = build(&"http://sink.example/".parse().unwrap(), payload(&[]), &secrets, NOW);
    assert_eq!(refused.unwrap_err(), Unsendable::Secret(BadSecret));
}
