//! Calls over the network: a real server on loopback at the provider's end.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::env::Env;
use crate::model::pack::SecretHeader;
use crate::model::reading::ReaderOrigin;
use crate::outbound::sink::{Answer, Sink};
use crate::outbound::{Client, ClientOptions};
use crate::secrets::Secrets;

fn client(allowed: &[&str]) -> Client {
    let options = ClientOptions {
        allow_networks: allowed.iter().map(|network| (*network).to_owned()).collect(),
        ca_file: None,
        deny_addresses: Vec::new(),
        idle_connections_max: 1,
        idle_timeout: Duration::from_secs(1),
    };
    Client::new(&options).unwrap()
}

fn write_secret(directory: &Path, text: &str) {
    let folder = directory.join(format!("{}.pack", pack()));
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("records-token");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn authorized() -> Reader {
    let authorization = SecretHeader {
        name: http::header::AUTHORIZATION,
        prefix: "Bearer ".to_owned(),
        secret: "records-token".parse().unwrap(),
    };
    Reader { secret_headers: vec![authorization], timeout: Some(SHORT), ..reader(10) }
}

fn request(reader: &Reader) -> ReadRequest {
    ReadRequest {
        method: Method::POST,
        host: reader.hosts[0].clone(),
        path: "/records?a=1".parse().unwrap(),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"body"),
    }
}

/// Calls `sink` (or the manifest's host, without one), with secrets that hold this text.
async fn call(sink: Option<&Sink>, allowed: &[&str], secret: Option<&str>) -> Result<ReadResponse, Unread> {
    let directory = TempDir::new().unwrap();
    if let Some(text) = secret {
        write_secret(directory.path(), text);
    }
    let secrets = Secrets::open(directory.path(), Env::system()).unwrap();
    let origins = sink.map(|sink| ReaderOrigin {
        pack: pack(),
        reader: None,
        origin: format!("http://{}/proxy", sink.address).parse().unwrap(),
    });
    let caller = HttpCaller::new(client(allowed), secrets, origins.into_iter().collect());
    let (reader, namespace, pack) = (authorized(), "acme".parse().unwrap(), pack());
    let call = ReaderCall { pack: &pack, namespace: &namespace, reader: &reader, request: request(&reader) };
    caller.call(call, deadline(AMPLE)).await
}

async fn answered(answer: Answer) -> Unread {
    let sink = Sink::start(move |_| answer.clone()).await;
    call(Some(&sink), &["127.0.0.0/8"], Some("token")).await.unwrap_err()
}

// GST-4: the secret is the host's to add, and the newest is sent.
#[tokio::test]
async fn a_call_goes_where_the_operator_says_with_the_operators_secret() {
    let mut sink = Sink::start(|_| Answer::Raw("HTTP/1.1 200 Said\r\ncontent-length: 3\r\n\r\na=1".to_owned())).await;
    let response = call(Some(&sink), &["127.0.0.0/8"], Some("newest\nolder\n")).await.unwrap();
    assert_eq!((response.status, &response.body[..]), (StatusCode::OK, &b"a=1"[..]));
    let received = sink.next().await;
    assert_eq!(received.request_line, "POST /proxy/records?a=1 HTTP/1.1");
    assert_eq!(received.header("authorization"), Some("Bearer newest"));
    assert_eq!(received.header("host"), Some(sink.address.to_string().as_str()));
    assert_eq!(received.body, b"body");
}

#[tokio::test]
async fn without_its_secret_a_call_is_not_made_and_nothing_of_a_secret_is_said() {
    let sink = Sink::start(|_| Answer::status(200)).await;
    let missing = call(Some(&sink), &["127.0.0.0/8"], None).await.unwrap_err();
    assert_eq!(missing.outcome, CallOutcome::NoSecret);
    assert!(missing.failure.message.contains("there is no secret `records-token`"), "{}", missing.failure);
    let unsendable = call(Some(&sink), &["127.0.0.0/8"], Some("hunter2\u{1}")).await.unwrap_err();
    assert!(!unsendable.failure.message.contains("hunter2"), "{}", unsendable.failure);
}

// GST-4
#[tokio::test]
async fn a_private_address_is_not_called() {
    let sink = Sink::start(|_| Answer::status(200)).await;
    let denied = call(Some(&sink), &[], Some("token")).await.unwrap_err();
    assert_eq!((denied.outcome, denied.failure.class), (CallOutcome::Denied, FailureClass::ReadRefused));
    assert!(!denied.divisible);
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off_and_one_that_drips_ends_at_the_readers_timeout() {
    let flood = answered(Answer::Flood("HTTP/1.1 200 Said\r\ntransfer-encoding: chunked\r\n\r\n".to_owned())).await;
    assert_eq!(flood.outcome, CallOutcome::TooLong);
    let drip = answered(Answer::Drip("HTTP/1.1 200 Said\r\ncontent-length: 1000\r\n\r\n".to_owned())).await;
    assert_eq!((drip.outcome, drip.failure.class.as_str()), (CallOutcome::TimedOut, "read_failed"));
    let never = answered(Answer::Never).await;
    assert_eq!(never.outcome, CallOutcome::TimedOut);
    let closed = answered(Answer::Close).await;
    assert_eq!((closed.outcome, closed.failure.class.as_str()), (CallOutcome::Broken, "read_failed"));
}
