//! The batch-read protocol, by a guest that keeps to it and by one that does not: what is wrong stands in the keys.

use std::collections::BTreeSet;

use expect_test::{Expect, expect};
use http::StatusCode;
use http::header::{HeaderMap, HeaderValue};
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::model::pack::Reader;
use crate::model::reading::{Reading, RecordedReads};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn reader(generation: &LoadedGeneration) -> Reader {
    generation.manifest().reader("records").unwrap().clone()
}

fn keys(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

fn answer(body: &str) -> ReadResponse {
    let mut headers = HeaderMap::new();
    headers.insert("set-cookie", HeaderValue::from_static("session=1"));
    ReadResponse { status: StatusCode::OK, headers, body: Bytes::copy_from_slice(body.as_bytes()) }
}

async fn encode(generation: &LoadedGeneration, asked: &[&str]) -> Result<ReadRequest, Failure> {
    generation.encode_read(&reader(generation), &keys(asked), NOW, soon()).await
}

async fn decode(generation: &LoadedGeneration, asked: &[&str], body: &str) -> Result<Decoded, Failure> {
    generation.decode_read(&reader(generation), &keys(asked), answer(body), NOW, soon()).await
}

fn soon() -> Instant {
    deadline(AMPLE)
}

fn fails<T: std::fmt::Debug>(result: Result<T, Failure>, expected: Expect) {
    expected.assert_eq(&result.unwrap_err().to_string());
}

fn wishing(reader: &str, asked: &[&str]) -> Event {
    event("hostile", &[], json!({ "do": "prepare_read_of", "reader": reader, "keys": asked }).to_string())
}

#[tokio::test]
async fn a_flow_asks_encodes_decodes_and_gets_its_records() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    let event = event("hostile", &[], json!({ "do": "prepare_read", "keys": ["a", "b", "a"] }).to_string());
    let Prepared::Run { state, reads } = generation.prepare(&event, 1, soon()).await.unwrap() else { panic!() };
    assert_eq!(reads.len(), 1);
    assert_eq!(reads[0].keys, ["a", "b"], "each once");

    let request = encode(&generation, &["a", "b"]).await.unwrap();
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/records"));
    assert_eq!((request.host.as_str(), &request.body[..]), ("records.example", &br#"["a","b"]"#[..]));
    let decoded = decode(&generation, &["a", "b"], r#"{"a":"1"}"#).await.unwrap();
    assert_eq!(decoded.records["a"], "1");

    let name = &reader(&generation).name;
    let reading = |key: &str, value| Reading { reader: name.clone(), key: key.to_owned(), value };
    let readings = [reading("a", Some(Bytes::from_static(b"1"))), reading("b", None)];
    let output = generation.run(&event, 1, state, &readings, soon()).await.unwrap();
    assert_eq!(output.note.as_deref(), Some("a=1, b is not there"));
}

// GST-4
#[tokio::test]
async fn what_an_event_asks_for_is_in_the_manifest_and_bounded() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    let prepared = async |event| generation.prepare(&event, 1, soon()).await;
    fails(
        prepared(wishing("strangers", &["a"])).await,
        expect!["bad_output: asked reader `strangers`, which is not in the manifest's `readers` [records]"],
    );
    let long = "x".repeat(513);
    fails(
        prepared(wishing("records", &[&long])).await,
        expect!["bad_output: asked reader `records` for a key of 513 bytes: 1 to 512 are allowed"],
    );
    fails(
        prepared(wishing("records", &[""])).await,
        expect!["bad_output: asked reader `records` for a key of 0 bytes: 1 to 512 are allowed"],
    );
    let many: Vec<String> = (0..1_001).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    fails(
        prepared(wishing("records", &many)).await,
        expect!["bad_output: asked for 1001 keys: at most 1000 are read for one event"],
    );
    let Prepared::Run { reads, .. } = prepared(wishing("records", &[])).await.unwrap() else { panic!() };
    assert!(reads.is_empty(), "no key, no read");
}

// GST-4: no guest chooses where it reads, or with what credentials.
#[tokio::test]
async fn a_request_goes_to_the_manifests_hosts_with_the_hosts_secrets_or_not_at_all() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    fails(
        encode(&generation, &["encode-host"]).await,
        expect![
            "bad_output: reader `records` asked for the host `elsewhere.example`, which is not among its `hosts` [records.example, records.example:8443]"
        ],
    );
    fails(
        encode(&generation, &["encode-secret"]).await,
        expect![
            "bad_output: the request for reader `records` has the header `authorization`, which is the host's to set"
        ],
    );
    fails(
        encode(&generation, &["encode-trace"]).await,
        expect![
            "bad_output: the request for reader `records` has another method than GET, HEAD, POST, PUT, PATCH or DELETE"
        ],
    );
    fails(
        encode(&generation, &["encode-path"]).await,
        expect![
            "bad_output: the request for reader `records` has a path that is none: it begins with `/`, and is escaped"
        ],
    );
}

// GST-1, GST-3
#[tokio::test]
async fn a_guest_that_fails_at_encoding_or_decoding_says_how() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    fails(encode(&generation, &["a", "encode-reject"]).await, expect!["rejected: this key has no request"]);
    for asked in ["encode-loop", "decode-loop"] {
        let failure = match asked.starts_with("encode") {
            true => encode(&generation, &[asked]).await.unwrap_err(),
            false => decode(&generation, &[asked], "{}").await.unwrap_err(),
        };
        assert_eq!(failure.class, FailureClass::OutOfFuel, "{failure}");
    }
    let panicked = decode(&generation, &["decode-panic"], "{}").await.unwrap_err();
    assert_eq!(panicked.class, FailureClass::Panic);
    assert!(panicked.message.contains("cannot be decoded"), "{panicked}");
    assert_eq!(decode(&generation, &["decode-abort"], "{}").await.unwrap_err().class, FailureClass::Trap);
    let retry = decode(&generation, &["decode-retry"], "{}").await.unwrap_err();
    assert_eq!(retry.class, FailureClass::Retry { delay: Some(Duration::from_secs(7)) });
    fails(
        decode(&generation, &["a"], "no JSON").await,
        expect!["retry: the answer is not the JSON that was expected: a syntax error at line 1 column 2"],
    );
    assert_eq!(encode(&generation, &["encode-large"]).await.unwrap_err().class, FailureClass::BadOutput);
    fails(
        decode(&generation, &["decode-large"], "{}").await,
        expect!["bad_output: returned 1048588 bytes: `limits.output_kib` allows 262144"],
    );
    // Nothing is left of it.
    assert!(decode(&generation, &["a"], "{}").await.is_ok());
}

// GST-3
#[tokio::test]
async fn an_answer_that_the_guest_cannot_hold_fails_the_call() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(20 * 1024 * 1024));
    assert_eq!(decode(&generation, &["a"], &large).await.unwrap_err().class, FailureClass::Memory);
}

#[tokio::test]
async fn records_that_nobody_asked_for_are_dropped_and_counted_and_two_of_a_key_are_none() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    let strangers = decode(&generation, &["decode-strangers"], "{}").await.unwrap();
    assert_eq!((strangers.records.len(), strangers.unasked), (1, 100));
    let twice = decode(&generation, &["decode-twice", "a"], "{}").await.unwrap();
    assert!(twice.records.is_empty());
    assert_eq!(twice.ambiguous, BTreeSet::from(["a".to_owned(), "decode-twice".to_owned()]));
}

// GST-5
#[tokio::test]
async fn a_rehearsal_reads_what_was_read_and_nothing_else() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    let event = event("hostile", &[], json!({ "do": "prepare_read", "keys": ["a"] }).to_string());
    let value = Some(Bytes::from_static(b"1"));
    let reading = Reading { reader: reader(&generation).name, key: "a".to_owned(), value };
    let kept = RecordedReads::Kept(vec![reading]);
    let first = generation.rehearse(&event, 1, &kept, soon()).await.outcome;
    assert_eq!(generation.rehearse(&event, 1, &kept, soon()).await.outcome.digest(), first.digest());
    let Outcome::Ran(output) = &first else { panic!("{first:?}") };
    assert_eq!(output.note.as_deref(), Some("a=1"));
    for missing in [RecordedReads::NONE, RecordedReads::TooLarge { count: 1, bytes: 1 << 20 }] {
        let outcome = generation.rehearse(&event, 1, &missing, soon()).await.outcome;
        assert!(
            matches!(&outcome, Outcome::Failed(failure) if failure.class == FailureClass::ReadRefused),
            "{outcome:?}"
        );
        assert_eq!(outcome.digest(), None);
    }
}
