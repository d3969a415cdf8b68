use std::net::TcpListener;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, StatusCode};
use sha2::Sha256;

use super::*;
use crate::env::{Clock, ManualClock};
use crate::model::event::Header;
use crate::model::ids::MessageId;
use crate::model::message::Outcome;
use crate::model::url::UrlError;
use crate::outbound::client_config;
use crate::outbound::sink::{Answer, Received, Sink};

/// Long enough for a loaded machine to send a request, short enough to wait for.
const DEADLINE: Duration = Duration::from_secs(2);
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
const IDLE_CONNECTIONS_MAX: usize = 4;

fn destination(url: &str) -> Destination {
    Destination { deadline: DEADLINE, ..Destination::new("sink".parse().unwrap(), url.parse().unwrap()) }
}

fn adapter_behind(guard: Guard, destination: &Destination) -> Result<HttpAdapter, UrlError> {
    let limits = HttpLimits {
        response_bytes_max: RESPONSE_BYTES_MAX,
        idle_connections_max: IDLE_CONNECTIONS_MAX,
        idle_timeout: Duration::from_secs(60),
    };
    let destinations = [destination.clone()].into_iter().collect();
    let tls = client_config("publish.ca_file", None).unwrap();
    HttpAdapter::new(guard, tls, &destinations, limits, Env::system())
}

fn loopback_allowed() -> Guard {
    Guard::new(&["127.0.0.0/8".to_owned()], &[]).unwrap()
}

/// An adapter that may call loopback, and a destination at `address`.
fn to(address: std::net::SocketAddr) -> (HttpAdapter, Destination) {
    let destination = destination(&format!("http://{address}/hook?token=hidden"));
    (adapter_behind(loopback_allowed(), &destination).unwrap(), destination)
}

fn relied_on() -> Reliance {
    Reliance::new(|| Duration::MAX, Env::system().clock)
}

fn payload() -> Payload {
    Payload {
        id: MessageId::from_bytes([1; 16]),
        idempotency_key: "msg_1".to_owned(),
        content_type: "application/json".to_owned(),
        headers: Vec::new(),
        body: Bytes::from_static(br#"{"a":1}"#),
    }
}

async fn verdict_on(answer: Answer) -> Verdict {
    let sink = Sink::start(move |_| answer.clone()).await;
    let (adapter, destination) = to(sink.address);
    adapter.call(&destination, &[], payload(), &relied_on()).await
}

#[tokio::test]
async fn the_receivers_status_is_the_verdict() {
    let sink = Sink::start(|received| Answer::status(received.header("x-want").unwrap().parse().unwrap())).await;
    let (adapter, destination) = to(sink.address);
    for status in [200, 204, 302, 404, 408, 410, 429, 500, 503] {
        let want = Header { name: "x-want".to_owned(), value: Bytes::from(status.to_string()) };
        let verdict = adapter.call(&destination, &[], Payload { headers: vec![want], ..payload() }, &relied_on()).await;
        let expected =
            Verdict::answered(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), &[], Env::system().now());
        assert_eq!(verdict, expected);
    }
}

#[tokio::test]
async fn the_receiver_can_verify_what_it_gets_with_either_secret() {
    let mut sink = Sink::start(|_| Answer::status(200)).await;
    let (adapter, destination) = to(sink.address);
    let keys = [b"the old one".as_slice(), b"the new one"];
    let secrets = keys.map(|key| Secret::new(format!("whsec_{}", STANDARD.encode(key)).into_bytes()));
    let verdict = adapter.call(&destination, &secrets, payload(), &relied_on()).await;
    assert_eq!(verdict.outcome(), Outcome::Published);

    let received = sink.next().await;
    assert_eq!(received.request_line, "POST /hook?token=hidden HTTP/1.1");
    assert_eq!(received.body, payload().body);
    assert_eq!(received.header("content-type"), Some("application/json"));
    assert_eq!(received.header("host"), Some(sink.address.to_string().as_str()));
    let signatures: Vec<&str> = received.header("webhook-signature").unwrap().split(' ').collect();
    assert_eq!(signatures, keys.map(|key| signature(key, &received)));
}

/// As a receiver computes it, from what arrived.
fn signature(key: &[u8], received: &Received) -> String {
    let mut signed = Vec::new();
    for part in [received.header("webhook-id").unwrap(), received.header("webhook-timestamp").unwrap()] {
        signed.extend_from_slice(part.as_bytes());
        signed.push(b'.');
    }
    signed.extend_from_slice(&received.body);
    let mac = Hmac::<Sha256>::new_from_slice(key).unwrap().chain_update(&signed);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Sink::start(|_| Answer::status(200)).await;
    let location = format!("HTTP/1.1 307 Go\r\nlocation: http://{}/\r\ncontent-length: 0\r\n\r\n", elsewhere.address);
    let verdict = verdict_on(Answer::Raw(location)).await;
    assert_eq!((verdict.outcome(), verdict.status()), (Outcome::Permanent, Some(307)));
    assert_eq!(*elsewhere.open.borrow(), 0);
    assert!(!elsewhere.open.has_changed().unwrap(), "nobody ever connected");
}

// TL-6
#[tokio::test]
async fn no_answer_to_what_was_sent_leaves_the_outcome_unknown() {
    for answer in [
        Answer::Never,
        Answer::Close,
        Answer::BreakOff("HTTP/1.1 20".to_owned()),
        Answer::BreakOff("nonsense\r\n\r\n".to_owned()),
        Answer::Drip("HTTP/1.1 200 OK\r\nx-slow: ".to_owned()),
        Answer::Flood("HTTP/1.1 200 OK\r\nx-long: ".to_owned()),
    ] {
        let verdict = verdict_on(answer.clone()).await;
        assert_eq!(verdict.outcome(), Outcome::Unknown, "{answer:?}: {verdict:?}");
        assert!(matches!(verdict, Verdict::Unknown { .. }) && verdict.status().is_none());
        let error = verdict.error().unwrap();
        assert!(!error.contains("hidden") && !error.contains("msg_1"), "{error}");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_or_never_ends_changes_nothing_about_the_status() {
    for (status, outcome) in [(200, Outcome::Published), (500, Outcome::Retriable { retry_after: None })] {
        let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: 60000\r\n\r\n");
        for answer in [Answer::BreakOff(head.clone()), Answer::Drip(head)] {
            assert_eq!(verdict_on(answer).await.outcome(), outcome);
        }
    }
}

#[tokio::test]
async fn a_body_without_end_is_read_up_to_the_limit_and_never_decompressed() {
    for head in [
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n",
    ] {
        let mut sink = Sink::start(|_| Answer::Flood(head.to_owned())).await;
        let (adapter, destination) = to(sink.address);
        let verdict = adapter.call(&destination, &[], payload(), &relied_on()).await;
        assert_eq!(verdict.outcome(), Outcome::Published);
        // The rest of what the sink got rid of lies in socket buffers.
        let taken = sink.flooded.recv().await.unwrap();
        assert!(taken < 64 << 20, "{taken} bytes");
    }
}

// TL-6
#[tokio::test]
async fn what_was_never_sent_is_tried_again() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (adapter, destination) = to(closed);
    let refused = adapter.call(&destination, &[], payload(), &relied_on()).await;

    let plain = Sink::start(|_| Answer::status(200)).await;
    let tls = super::tests::destination(&format!("https://{}/", plain.address));
    let no_tls = adapter_behind(loopback_allowed(), &tls).unwrap().call(&tls, &[], payload(), &relied_on()).await;

    let nowhere = super::tests::destination("http://nowhere.invalid/");
    let no_name =
        adapter_behind(loopback_allowed(), &nowhere).unwrap().call(&nowhere, &[], payload(), &relied_on()).await;

    for verdict in [refused, no_tls, no_name] {
        assert_eq!(verdict.outcome(), Outcome::Retriable { retry_after: None }, "{verdict:?}");
        assert!(matches!(verdict, Verdict::Failed { .. }), "{verdict:?}");
    }
}

#[tokio::test]
async fn a_private_address_is_not_called_however_it_is_spelled() {
    let sink = Sink::start(|_| Answer::status(200)).await;
    let port = sink.address.port();
    for host in [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "169.254.169.254",
        "10.0.0.1",
        "[fd00::1]",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "127.0.0.1.",
    ] {
        let destination = destination(&format!("http://{host}:{port}/"));
        // Odd spellings do not even start.
        let Ok(adapter) = adapter_behind(Guard::new(&[], &[]).unwrap(), &destination) else { continue };
        let verdict = adapter.call(&destination, &[], payload(), &relied_on()).await;
        assert!(matches!(verdict, Verdict::Denied(_)), "{host}: {verdict:?}");
        assert_eq!(verdict.outcome(), Outcome::Permanent, "never retried");
    }
    assert!(!sink.open.has_changed().unwrap(), "nobody ever connected");
}

#[tokio::test]
async fn the_hosts_own_listeners_are_not_called() {
    let sink = Sink::start(|_| Answer::status(200)).await;
    let everywhere = format!("0.0.0.0:{}", sink.address.port()).parse().unwrap();
    let guard = Guard::new(&["127.0.0.0/8".to_owned()], &[everywhere]).unwrap();
    let destination = destination(&format!("http://{}/", sink.address));
    let verdict = adapter_behind(guard, &destination).unwrap().call(&destination, &[], payload(), &relied_on()).await;
    assert!(matches!(verdict, Verdict::Denied(_)), "{verdict:?}");
    assert_eq!(verdict.outcome(), Outcome::Permanent);
    assert!(!sink.open.has_changed().unwrap(), "nobody ever connected");
}

#[tokio::test]
async fn one_connection_serves_many_messages() {
    let sink = Sink::start(|_| Answer::Raw("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello".to_owned())).await;
    let (adapter, destination) = to(sink.address);
    for _ in 0..50 {
        assert_eq!(adapter.call(&destination, &[], payload(), &relied_on()).await.outcome(), Outcome::Published);
        assert_eq!(*sink.open.borrow(), 1);
    }
}

#[tokio::test]
async fn a_storm_leaves_no_connections_and_no_tasks_behind() {
    let answer = |received: &Received| match received.header("x-number").unwrap().parse::<usize>().unwrap() % 4 {
        0 => Answer::Close,
        1 => Answer::status(500),
        2 => Answer::BreakOff("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n".to_owned()),
        _ => Answer::status(200),
    };
    let mut sink = Sink::start(answer).await;
    let (adapter, destination) = to(sink.address);
    let tasks_before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let reliance = relied_on();
    let calls = (0..200).map(|number: usize| {
        let number = Header { name: "x-number".to_owned(), value: Bytes::from(number.to_string()) };
        adapter.call(&destination, &[], Payload { headers: vec![number], ..payload() }, &reliance)
    });
    futures_util::future::join_all(calls).await;
    sink.until_open(|open| *open <= IDLE_CONNECTIONS_MAX).await;
    drop(adapter);
    sink.until_open(|open| *open == 0).await;
    while tokio::runtime::Handle::current().metrics().num_alive_tasks() > tasks_before {
        tokio::task::yield_now().await;
    }
}

// TL-7
#[tokio::test]
async fn a_connection_that_takes_longer_than_the_lease_is_given_up() {
    // It accepts, and never says a word of TLS.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let destination = Destination {
        deadline: Duration::from_secs(600),
        ..destination(&format!("https://{}/", listener.local_addr().unwrap()))
    };
    let adapter = adapter_behind(loopback_allowed(), &destination).unwrap();
    let clock = Arc::new(ManualClock::at(crate::model::time::Timestamp::from_millis(0)));
    let lease = Duration::from_millis(200);
    let reliance = Reliance::new(move || lease, Arc::clone(&clock) as Arc<dyn Clock>);
    let call = adapter.call(&destination, &[], payload(), &reliance);
    let lost = async {
        listener.accept().await.unwrap();
        clock.advance(lease);
        // Somebody wakes it up, as after a pause of the whole process.
        std::future::pending::<()>().await;
    };
    let verdict = tokio::select! {
        verdict = call => verdict,
        () = lost => unreachable!(),
    };
    assert_eq!(verdict.outcome(), Outcome::Retriable { retry_after: None });
    assert_eq!(verdict.error().unwrap(), Overdue::Lease.to_string());
}
