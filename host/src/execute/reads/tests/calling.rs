//! Calls over the network: a real server on loopback at the provider's end.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::env::Env;
use crate::model::pack::{GenerationNumber, SecretHeader};
use crate::model::reading::ReaderOrigin;
use crate::outbound::Client;
use crate::outbound::sink::{Answer, Sink};
use crate::secrets::Secrets;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

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

fn origin(sink: &Sink) -> ReaderOrigin {
    let origin = format!("http://{}/proxy", sink.address).parse().unwrap();
    ReaderOrigin { pack: pack(), reader: None, origin }
}

/// Calls `sink` (or the manifest's host, without one), with secrets that hold this text.
async fn call(sink: Option<&Sink>, allowed: &[&str], secret: Option<&str>) -> Result<ReadResponse, Unread> {
    let directory = TempDir::new().unwrap();
    if let Some(text) = secret {
        write_secret(directory.path(), text);
    }
    let secrets = Secrets::open(directory.path(), Env::system()).unwrap();
    let caller = HttpCaller::new(Client::allowing(allowed), secrets, sink.map(origin).into_iter().collect());
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
    assert_eq!(denied.blame, Blame::All);
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

// GST-2: one bad key fails its events only, whatever becomes of the call for it.
#[tokio::test]
async fn a_record_that_the_provider_comes_to_grief_over_fails_its_own_events_only() {
    for (over_it, class) in [
        (Answer::status(500), "read_failed"),
        (Answer::status(400), "read_refused"),
        (Answer::Close, "read_failed"),
        (Answer::BreakOff("HTTP/1.1 200 Said\r\ncontent-length: 10\r\n\r\na=".to_owned()), "read_failed"),
        (Answer::Never, "read_failed"),
    ] {
        let sink = Sink::start(move |received| {
            let body = String::from_utf8_lossy(&received.body);
            let keys: Vec<&str> = body.split(',').collect();
            if keys.contains(&"bad") {
                return over_it.clone();
            }
            let answer = records(&keys);
            Answer::Raw(format!("HTTP/1.1 200 Said\r\ncontent-length: {}\r\n\r\n{answer}", answer.len()))
        })
        .await;
        let directory = TempDir::new().unwrap();
        let secrets = Secrets::open(directory.path(), Env::system()).unwrap();
        let caller = Arc::new(HttpCaller::new(Client::allowing(&["127.0.0.0/8"]), secrets, vec![origin(&sink)]));
        let asked = ["a", "b", "c", "bad", "d", "e"];
        let events = asked.map(|key| ("acme".parse().unwrap(), NOW, wish(&[key]))).to_vec();
        let flow = ReadingFlow::under(100, AMPLE);
        let generation = GenerationNumber(1);
        let read = read_all(&flow, generation, events, caller, Env::system(), deadline(PATIENT)).await;
        for (key, readings) in asked.into_iter().zip(read) {
            match readings {
                Ok(readings) => assert_eq!(readings[0].value, Some(Bytes::from(format!("of {key}")))),
                Err(failure) => assert_eq!((key, failure.class.as_str()), ("bad", class), "{failure}"),
            }
        }
    }
}
