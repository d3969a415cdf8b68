use super::*;

fn secrets() -> Vec<Secret> {
    vec![Secret::new(*b"secret"), Secret::new(*b"older")]
}

fn meta() -> Handshake {
    Handshake::Meta { secret: "token".parse().unwrap() }
}

fn of_query(handshake: &Handshake, method: Method, query: &str) -> Option<Result<Reply, Refusal>> {
    let uri: Uri = format!("/in/acme/p?{query}").parse().unwrap();
    asked(handshake, &method, &uri).map(|asked| reply(asked, &secrets()))
}

fn text(text: &str) -> Option<Result<Reply, Refusal>> {
    Some(Ok(Reply::Text(text.to_owned())))
}

// ADM-4
#[test]
fn a_challenge_in_the_address_is_sent_back_decoded_by_its_own_handshake_only() {
    assert_eq!(of_query(&Handshake::Dropbox, Method::GET, "challenge=a%2Bb+c"), text("a+b c"));
    let graph = of_query(&Handshake::MicrosoftGraph, Method::POST, "validationToken=Validation%3a+Testing");
    assert_eq!(graph, text("Validation: Testing"));
    for (handshake, method, query) in [
        (Handshake::Dropbox, Method::POST, "challenge=x"),
        (Handshake::Dropbox, Method::GET, "validationToken=x"),
        (Handshake::MicrosoftGraph, Method::GET, "validationToken=x"),
        (Handshake::MicrosoftGraph, Method::POST, ""),
        (Handshake::X, Method::POST, "crc_token=x"),
        (Handshake::Slack, Method::GET, "challenge=x"),
        (meta(), Method::GET, "hub.mode=unsubscribe&hub.verify_token=secret&hub.challenge=1"),
    ] {
        assert_eq!(of_query(&handshake, method, query), None, "{handshake:?} {query}");
    }
}

// ADM-4
#[test]
fn a_challenge_with_a_token_is_sent_back_for_each_of_the_operators_and_for_no_other() {
    let of = |token: &str| {
        of_query(&meta(), Method::GET, &format!("hub.mode=subscribe&hub.verify_token={token}&hub.challenge=11582"))
    };
    assert_eq!((of("secret"), of("older")), (text("11582"), text("11582")));
    for wrong in ["", "Secret", "secre", "secret%00"] {
        assert_eq!(of(wrong), Some(Err(Refusal::HandshakeDenied)), "{wrong}");
    }
    let without = of_query(&meta(), Method::GET, "hub.mode=subscribe&hub.challenge=11582");
    assert_eq!(without, Some(Err(Refusal::HandshakeDenied)));
}

// ADM-4
#[test]
fn no_challenge_is_longer_than_it_may_be() {
    let longest = "x".repeat(CHALLENGE_BYTES_MAX);
    assert_eq!(of_query(&Handshake::Dropbox, Method::GET, &format!("challenge={longest}")), text(&longest));
    let refused = Some(Err(Refusal::HandshakeMalformed));
    assert_eq!(of_query(&Handshake::Dropbox, Method::GET, &format!("challenge={longest}x")), refused);
    let token = "x".repeat(SIGNED_TOKEN_BYTES_MAX);
    assert!(of_query(&Handshake::X, Method::GET, &format!("crc_token={token}")).unwrap().is_ok());
    for token in [format!("{token}x"), String::new(), "%7B%22forged%22%3A1%7D".to_owned(), "a+b".to_owned()] {
        assert_eq!(of_query(&Handshake::X, Method::GET, &format!("crc_token={token}")), refused, "{token}");
    }
    let body = format!(r#"{{"type":"url_verification","challenge":"{longest}x"}}"#);
    assert_eq!(reply_to_body(&Handshake::Slack, body.as_bytes(), || None), Err(Refusal::HandshakeMalformed));
}

// ADM-4
#[test]
fn a_token_is_answered_with_its_code_by_the_secret() {
    let crc = of_query(&Handshake::X, Method::GET, "crc_token=plain").unwrap().unwrap();
    assert_eq!(crc, Reply::Json(format!(r#"{{"response_token":"sha256={}"}}"#, BASE64.encode(&plain_code()))));
    let body = br#"{"event":"endpoint.url_validation","payload":{"plainToken":"plain"},"event_ts":1}"#;
    let secret = Secret::new(*b"secret");
    let zoom = reply_to_body(&Handshake::Zoom, body, || Some(&secret)).unwrap().unwrap();
    let Reply::Json(json) = zoom else { panic!("{zoom:?}") };
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json, json!({ "plainToken": "plain", "encryptedToken": HEXLOWER.encode(&plain_code()) }));
    assert_eq!(reply_to_body(&Handshake::Zoom, body, || None), Err(Refusal::SecretUnusable));
}

/// `printf plain | openssl dgst -sha256 -hmac secret`
fn plain_code() -> Vec<u8> {
    HEXLOWER.decode(b"a237566e044b73e6a1e54bd59974547487fa5f8143025ce0d04d82e7ee4c5e34").unwrap()
}

// ADM-4
#[test]
fn a_body_is_a_handshake_only_if_it_is_this_one() {
    let of = |handshake: &Handshake, body: &str| reply_to_body(handshake, body.as_bytes(), || None).unwrap();
    let slack = r#"{"token":"t","challenge":"3eZbrw1a","type":"url_verification"}"#;
    assert_eq!(of(&Handshake::Slack, slack), Some(Reply::Text("3eZbrw1a".to_owned())));
    assert_eq!(of(&Handshake::Discord, r#"{"version":1,"application_id":"1","type":0}"#), Some(Reply::Empty));
    let interaction = r#"{"application_id":"1","id":"12","token":"aW","type":1,"user":{"id":"1"},"version":1}"#;
    assert_eq!(of(&Handshake::Discord, interaction), Some(Reply::Json(r#"{"type":1}"#.to_owned())));
    for (handshake, delivery) in [
        (Handshake::Slack, r#"{"type":"event_callback","event":{"type":"url_verification","challenge":"x"}}"#),
        (Handshake::Slack, r#"{"type":"url_verification"}"#),
        (Handshake::Slack, "payload=x"),
        (Handshake::Discord, r#"{"version":1,"type":1,"event":{}}"#),
        (Handshake::Zoom, r#"{"event":"meeting.started","payload":{"plainToken":"x"}}"#),
        (Handshake::Dropbox, slack),
        (meta(), slack),
    ] {
        assert_eq!(of(&handshake, delivery), None, "{handshake:?} {delivery}");
    }
}
