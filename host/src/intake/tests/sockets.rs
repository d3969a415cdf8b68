//! HTTP as it really comes: chunked, lying, malformed, hostile.

use super::client::{head, request};
use super::fixture::{Setup, World, delivery, signature};
use crate::intake::IntakeOptions;
use crate::intake::server::HEAD_BYTES_MAX;

const PLAIN: &str = "/in/acme/plain";

/// A signed delivery, chunked in these pieces.
fn chunked(pieces: &[&str], more: &[(&str, &str)]) -> Vec<u8> {
    let signature = signature(pieces.concat().as_bytes());
    let headers =
        [&[("x-github-delivery", "d-1"), ("x-hub-signature-256", &signature), ("transfer-encoding", "chunked")], more]
            .concat();
    let mut bytes = head("POST", "/in/acme/github", &headers);
    for piece in pieces {
        bytes.extend(format!("{:x};ignored=extension\r\n{piece}\r\n", piece.len()).into_bytes());
    }
    bytes.extend_from_slice(b"0\r\nx-trailer: ignored\r\n\r\n");
    bytes
}

// ADM-4
#[tokio::test]
async fn a_chunked_body_is_verified_as_what_it_carries() {
    let world = World::start(Setup::default()).await;
    assert_eq!(world.send(&chunked(&["{\"a\"", ":", " 1}\r\n"], &[])).await.status, 202);
    assert_eq!(world.events().await[0].body.as_ref(), b"{\"a\": 1}\r\n");
}

// ADM-4: of the two ways to say where a body ends, chunks count, so no two readers disagree.
#[tokio::test]
async fn a_content_length_beside_chunks_does_not_count() {
    let world = World::start(Setup::default()).await;
    assert_eq!(world.send(&chunked(&["whole", " body"], &[("content-length", "3")])).await.status, 202);
    assert_eq!(world.events().await[0].body.as_ref(), b"whole body");
}

// ADM-4
#[tokio::test]
async fn a_truncated_body_is_a_400() {
    let world = World::start(Setup::default()).await;
    let mut cut_chunk = head("POST", PLAIN, &[("transfer-encoding", "chunked")]);
    cut_chunk.extend_from_slice(b"a\r\n01234");
    let mut bad_chunk = head("POST", PLAIN, &[("transfer-encoding", "chunked")]);
    bad_chunk.extend_from_slice(b"xyz\r\n01234");
    let mut cut_length = head("POST", PLAIN, &[("content-length", "10")]);
    cut_length.extend_from_slice(b"01234");
    for sent in [cut_chunk, bad_chunk, cut_length] {
        let mut connection = world.connect().await;
        connection.send(&sent).await;
        connection.finish_sending().await;
        let reply = connection.reply().await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "truncated_body"));
        connection.closed().await;
    }
    assert_eq!(world.answers(400, "truncated_body"), 3);
    assert!(world.events().await.is_empty());
}

// ADM-4: a content-length that is too small leaves bytes that are no request.
#[tokio::test]
async fn a_content_length_that_is_too_small_ends_the_connection_behind_the_answer() {
    let world = World::start(Setup::default()).await;
    let mut connection = world.connect().await;
    connection.send(&head("POST", PLAIN, &[("content-length", "4")])).await;
    connection.send(b"body\0and more\r\n\r\n").await;
    assert_eq!(connection.reply().await.status, 202);
    assert_eq!(connection.reply().await.status, 400);
    connection.closed().await;
    let events = world.events().await;
    assert_eq!((events.len(), events[0].body.as_ref()), (1, b"body".as_slice()));
}

// ADM-4
#[tokio::test]
async fn an_oversized_body_is_refused_before_it_is_sent_and_while_it_comes() {
    let options = IntakeOptions { body_bytes_max: 1_000, ..Setup::default().options };
    let world = World::start(Setup { options, ..Setup::default() }).await;

    let mut polite = world.connect().await;
    polite.send(&head("POST", PLAIN, &[("content-length", "1001"), ("expect", "100-continue")])).await;
    assert_eq!(polite.reply().await.status, 413, "and no 100 before it");

    let mut announced = world.connect().await;
    announced.send(&request("POST", PLAIN, &[], &[b'x'; 300_000])).await;
    assert_eq!(announced.reply().await.status, 413);
    announced.send(&request("POST", PLAIN, &[], b"small")).await;
    assert_eq!(announced.reply().await.status, 202, "the rest was read, so the connection goes on");

    let mut sent = head("POST", PLAIN, &[("transfer-encoding", "chunked")]);
    sent.extend(format!("{:x}\r\n", 1_000_000).into_bytes());
    sent.extend_from_slice(&[b'x'; 2_000]);
    let mut unannounced = world.connect().await;
    unannounced.send(&sent).await;
    assert_eq!(unannounced.reply().await.status, 413);

    let absurd = head("POST", PLAIN, &[("content-length", "18446744073709551615")]);
    assert_eq!(world.send(&absurd).await.status, 431, "such a number is no length, and already its head is refused");
    assert_eq!(world.events().await.len(), 1);
}

// ADM-4
#[tokio::test]
async fn expect_continue_is_answered_when_the_body_is_wanted() {
    let world = World::start(Setup::default()).await;
    let mut connection = world.connect().await;
    connection.send(&head("POST", PLAIN, &[("content-length", "4"), ("expect", "100-continue")])).await;
    assert_eq!(connection.reply().await.status, 100);
    connection.send(b"body").await;
    assert_eq!(connection.reply().await.status, 202);
}

// ADM-4
#[tokio::test]
async fn deliveries_are_posted_and_nothing_else() {
    let world = World::start(Setup::default()).await;
    for method in ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"] {
        let reply = world.send(&request(method, PLAIN, &[], b"")).await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")), "{method}");
    }
    let mut connection = world.connect().await;
    connection.send(b"HEAD /in/acme/plain HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    connection.finish_sending().await;
    // A response to HEAD has the head only, whose content-length speaks of a body that is not there.
    let text = connection.rest().await;
    assert!(text.starts_with("HTTP/1.1 405 ") && text.ends_with("\r\n\r\n"), "{text}");
    assert!(world.events().await.is_empty());
}

// ADM-4
#[tokio::test]
async fn an_address_that_is_almost_right_is_a_404_and_never_a_redirect() {
    let world = World::start(Setup::default()).await;
    for path in
        ["/in/acme/plain/", "//in/acme/plain", "/in//acme/plain", "/in/acme//plain", "/in/acme/Plain", "/", "/in"]
    {
        let reply = world.send(&request("POST", path, &[], b"body")).await;
        assert_eq!((reply.status, reply.header("location")), (404, None), "{path}");
    }
    let with_query = world.send(&request("POST", "/in/acme/plain?tenant=other", &[], b"body")).await;
    assert_eq!(with_query.status, 202, "a query is no part of the address");
    let absolute = world.send(&request("POST", "http://elsewhere/in/acme/plain", &[], b"body")).await;
    assert_eq!(absolute.status, 202, "nor is the host");
}

// ADM-4
#[tokio::test]
async fn hostile_signature_headers_are_a_401() {
    let world = World::start(Setup::default()).await;
    let long = "0".repeat(64 * 1024);
    let right = signature(b"body");
    let upper_name = ("X-HUB-SIGNATURE-256", right.as_str());
    let hostile: [&[(&str, &str)]; 7] = [
        &[("x-hub-signature-256", &long)],
        &[("x-hub-signature-256", "sha256=\u{e9}\u{2028}")],
        &[("x-hub-signature-256", "")],
        &[("x-hub-signature-256", "sha256=zz")],
        &[("x-hub-signature-256", &right), upper_name],
        &[("x-hub-signature-256", &right), ("x-hub-signature-256", "sha256=00")],
        &[("x-hub-signature", &right)],
    ];
    for headers in hostile {
        let headers = [&[("x-github-delivery", "d-1")], headers].concat();
        let reply = world.send(&request("POST", "/in/acme/github", &headers, b"body")).await;
        assert_eq!((reply.status, reply.code().as_str()), (401, "unverified"), "{:.300}", format!("{headers:?}"));
    }
    assert!(world.events().await.is_empty());
}

// ADM-4
#[tokio::test]
async fn what_is_not_http_is_a_400_or_431_and_counted() {
    let mut world = World::start(Setup::default()).await;
    // Exactly as much as is read: what lay unread behind it could reset the connection under the answer.
    let mut endless = b"POST /in/acme/plain HTTP/1.1\r\nx-endless: ".to_vec();
    endless.resize(HEAD_BYTES_MAX, b'x');
    for (sent, status) in [
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03 not http\r\n\r\n".to_vec(), 400),
        (b"POST /in/acme/plain HTTP/1.1\r\nbroken header\r\n\r\n".to_vec(), 400),
        (b"POST /in/acme/plain HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx".to_vec(), 400),
        (b"POST /in/acme/plain HTTP/1.1\r\ncontent-length: -1\r\n\r\n".to_vec(), 400),
        (b"POST /in/acme/plain HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n".to_vec(), 400),
        (endless, 431),
    ] {
        let mut connection = world.connect().await;
        connection.send(&sent).await;
        assert_eq!(connection.reply().await.status, status, "{:.80}", String::from_utf8_lossy(&sent));
        connection.closed().await;
    }
    assert!(world.events().await.is_empty());
    world.stopped().await;
    assert_eq!(world.metric("forebay_intake_malformed_heads_total"), 6.0);
}

#[tokio::test]
async fn requests_on_one_connection_are_answered_in_order_even_if_they_come_at_once() {
    let world = World::start(Setup::default()).await;
    let mut connection = world.connect().await;
    let pipelined = [delivery("d-1", b"{}"), request("GET", PLAIN, &[], b""), delivery("d-2", b"{}")].concat();
    connection.send(&pipelined).await;
    for status in [202, 405, 202] {
        assert_eq!(connection.reply().await.status, status);
    }
    assert_eq!(world.events().await.len(), 2);
}

#[tokio::test]
async fn a_sender_that_has_finished_sending_still_gets_its_answer() {
    let world = World::start(Setup::default()).await;
    let mut connection = world.connect().await;
    connection.send(&delivery("d-1", b"{}")).await;
    connection.finish_sending().await;
    assert_eq!(connection.reply().await.status, 202);
    connection.closed().await;
}

#[tokio::test]
async fn http_1_0_is_answered_and_closed() {
    let world = World::start(Setup::default()).await;
    let mut connection = world.connect().await;
    connection.send(b"POST /in/acme/plain HTTP/1.0\r\ncontent-length: 4\r\n\r\nbody").await;
    assert_eq!(connection.reply().await.status, 202);
    connection.closed().await;
}
