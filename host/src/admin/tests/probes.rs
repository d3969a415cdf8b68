//! The probes under load from other peers.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::super::access::REQUESTS_MAX;
use super::super::visitors::STRANGERS_MAX;
use super::super::{Stage, listener};
use super::{Desk, shown};
use crate::env;

const TOKEN: &str = "a-token-of-20-letters";
/// Longer than a probe, shorter than any wait that must not block it.
const PROMPT: Duration = Duration::from_secs(4);

async fn connect(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

async fn assert_probed(desk: &Desk) {
    for (path, status) in [("/healthz", 200), ("/readyz", 503)] {
        let answer = tokio::time::timeout(PROMPT, desk.get(path)).await.expect(path);
        assert_eq!(answer.status, status, "{path}: {}", shown(&answer));
        assert!(!shown(&answer).contains("busy"), "{path}: {}", shown(&answer));
    }
}

#[tokio::test]
async fn requests_that_take_all_there_is_leave_the_probes_theirs() {
    let desk = Desk::open(None).await;
    let unfinished = "POST /api/v1/lanes/gate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{";
    let mut busy = Vec::new();
    for _ in 0..REQUESTS_MAX {
        busy.push(connect(desk.address, unfinished).await);
    }
    // Until all of them have arrived.
    while desk.get("/api/v1/stats").await.status != 503 {}
    assert_probed(&desk).await;
}

#[tokio::test]
async fn connections_that_ask_nothing_leave_the_probes_theirs() {
    let desk = Desk::open(Some(TOKEN)).await;
    let mut idle = Vec::new();
    for _ in 0..2 * STRANGERS_MAX {
        idle.push(connect(desk.address, "GET /healthz HT").await);
    }
    assert_probed(&desk).await;
    // Admitted peers do not block a probe either.
    let headers = [("authorization", &*format!("Bearer {TOKEN}"))];
    let stats = tokio::time::timeout(PROMPT, desk.ask("GET", "/api/v1/stats", &headers, "")).await.unwrap();
    assert_eq!(stats.status, 200);
}

#[tokio::test]
async fn reasons_are_told_to_operators() {
    let desk = Desk::open(Some(TOKEN)).await;
    desk.stage.send_replace(Stage::Stopping);
    let told = r#"503 {"ready":false,"reasons":["the host is shutting down"]}"#;
    let held_back = r#"503 {"ready":false,"reasons":["send the admin token to see the reasons"]}"#;
    assert_eq!(shown(&desk.get("/readyz").await), held_back);
    assert_eq!(shown(&desk.ask("GET", "/readyz", &[("authorization", "Bearer wrong")], "").await), held_back);
    let headers = [("authorization", &*format!("Bearer {TOKEN}"))];
    assert_eq!(shown(&desk.ask("GET", "/readyz", &headers, "").await), told);
}

#[tokio::test]
async fn a_stranger_has_little_time_and_gets_one_answer() {
    let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listening.local_addr().unwrap();
    let stop = CancellationToken::new();
    let router = Router::new().fallback(async || "");
    let serving = env::spawn("admin", listener::serve(listening, router, Duration::from_millis(500), stop.clone()));
    let mut slow = connect(address, "GET / HTTP/1.1\r\nHost: localhost\r\n").await;
    let ended = tokio::time::timeout(PROMPT, slow.read(&mut [0; 1])).await.expect("it is ended soon");
    assert_eq!(ended.unwrap(), 0);
    let mut prompt = connect(address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let mut answer = String::new();
    prompt.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn a_stranger_that_does_not_take_its_answer_has_to_go() {
    let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listening.local_addr().unwrap();
    let stop = CancellationToken::new();
    // More than the send buffer of a peer.
    let router = Router::new().route("/large", get(async || vec![b'x'; 64 << 20])).fallback(async || "");
    let serving = env::spawn("admin", listener::serve(listening, router, Duration::from_millis(500), stop.clone()));
    let mut idle = Vec::new();
    for _ in 0..STRANGERS_MAX {
        idle.push(connect(address, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").await);
    }
    let mut prompt = connect(address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let mut answer = String::new();
    tokio::time::timeout(PROMPT, prompt.read_to_string(&mut answer)).await.expect("they have gone").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stop.cancel();
    serving.await.unwrap();
}
