//! Batch reads over a real store, with a native flow whose records are `key=value` and a provider that does what a test
//! wants.

mod calling;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Method, StatusCode};
use tokio::time::Instant;

use super::*;
use crate::env::deadline;
use crate::execute::testing::{Harness, manifest};
use crate::execute::{ExecuteOptions, ExecutorParts, Executors, Flow};
use crate::guest::{Decoded, FlowOutput, Prepared, ReadRequest, ReadResponse};
use crate::model::event::Event;
use crate::model::failure::{Failure, FailureClass};
use crate::model::pack::{FailedHeadPolicy, GuestLimits, Manifest, Reader};
use crate::model::reading::{ReadWish, Reading, RecordedReads};
use crate::model::time::Timestamp;
use crate::model::work_item::WorkState;
use crate::store::WorkItemDetail;
use crate::store::testing::pack;

const AMPLE: Duration = Duration::from_secs(60);
/// Long enough for a store on a loaded machine, short enough to wait for.
const SHORT: Duration = Duration::from_millis(700);
/// Long enough that a sixth of what a call that is never answered leaves of it does for one that is, on a loaded
/// machine.
const PATIENT: Duration = Duration::from_secs(6);

fn reader(keys_max: u32) -> Reader {
    Reader {
        name: "records".parse().unwrap(),
        hosts: vec!["records.example".parse().unwrap()],
        keys_max,
        response_bytes_max: 1_024,
        timeout: None,
        decoded_statuses: vec![404],
        secret_headers: Vec::new(),
    }
}

/// Reads what the body names, `a,b`; its note is what was read. A body `hang` never ends `prepare`, `ignore` is
/// ignored.
struct ReadingFlow(Arc<Manifest>);

impl ReadingFlow {
    fn under(keys_max: u32, deadline: Duration) -> Arc<dyn Flow> {
        let limits = GuestLimits { deadline, ..GuestLimits::DEFAULT };
        Arc::new(Self(Arc::new(Manifest {
            readers: vec![reader(keys_max)],
            limits,
            ..manifest(FailedHeadPolicy::DEFAULT)
        })))
    }
}

fn wish(keys: &[&str]) -> Vec<ReadWish> {
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    if keys.is_empty() { Vec::new() } else { vec![ReadWish { reader: "records".parse().unwrap(), keys }] }
}

impl Flow for ReadingFlow {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.0
    }

    fn prepare<'a>(&'a self, event: &'a Event, _: u32, _: Instant) -> BoxFuture<'a, Result<Prepared, Failure>> {
        async move {
            match std::str::from_utf8(&event.body).unwrap() {
                "hang" => std::future::pending().await,
                "ignore" => Ok(Prepared::Ignore { reason: "of no interest".to_owned() }),
                keys => {
                    let keys: Vec<&str> = keys.split(',').filter(|key| !key.is_empty()).collect();
                    Ok(Prepared::Run { state: Bytes::new(), reads: wish(&keys) })
                }
            }
        }
        .boxed()
    }

    fn encode_read<'a>(
        &'a self,
        reader: &'a Reader,
        keys: &'a [String],
        _: Timestamp,
        _: Instant,
    ) -> BoxFuture<'a, Result<ReadRequest, Failure>> {
        let request = ReadRequest {
            method: Method::POST,
            host: reader.hosts[0].clone(),
            path: "/records?of=all".parse().unwrap(),
            headers: HeaderMap::new(),
            body: Bytes::from(keys.join(",")),
        };
        async move { Ok(request) }.boxed()
    }

    fn decode_read<'a>(
        &'a self,
        _: &'a Reader,
        _: &'a [String],
        response: ReadResponse,
        _: Timestamp,
        _: Instant,
    ) -> BoxFuture<'a, Result<Decoded, Failure>> {
        let text = String::from_utf8(response.body.to_vec()).unwrap();
        async move {
            if text.contains("unreadable") {
                return Err(Failure::new(FailureClass::Trap, "trapped over a record"));
            }
            let records = text.split(',').filter_map(|record| record.split_once('='));
            let records = records.map(|(key, value)| (key.to_owned(), Bytes::from(value.to_owned()))).collect();
            Ok(Decoded { records, ..Decoded::default() })
        }
        .boxed()
    }

    fn run<'a>(
        &'a self,
        _: &'a Event,
        _: u32,
        _: Bytes,
        readings: &'a [Reading],
        _: Instant,
    ) -> BoxFuture<'a, Result<FlowOutput, Failure>> {
        let told = |reading: &Reading| match &reading.value {
            Some(value) => format!("{}={}", reading.key, String::from_utf8_lossy(value)),
            None => format!("{} is not there", reading.key),
        };
        let note = readings.iter().map(told).collect::<Vec<_>>().join(", ");
        async move { Ok(FlowOutput { note: Some(note), ..FlowOutput::NOTHING }) }.boxed()
    }
}

/// What a provider does with the keys of a call.
enum Reply {
    Answer(u16, String),
    Later(u16, &'static str),
    Never,
}

type Script = Box<dyn Fn(&[&str]) -> Reply + Send + Sync>;

/// A provider, and the calls that it had.
struct Provider {
    script: Script,
    calls: Mutex<Vec<(String, Vec<String>)>>,
}

impl Provider {
    fn new(script: impl Fn(&[&str]) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { script: Box::new(script), calls: Mutex::default() })
    }

    /// One that has every record.
    fn with_all() -> Arc<Self> {
        Self::new(|keys| Reply::Answer(200, records(keys)))
    }

    /// The keys of each call, in the order of the calls.
    fn calls(&self) -> Vec<Vec<String>> {
        self.calls.lock().unwrap().iter().map(|(_, keys)| keys.clone()).collect()
    }
}

fn records(keys: &[&str]) -> String {
    keys.iter().map(|key| format!("{key}=of {key}")).collect::<Vec<_>>().join(",")
}

impl Caller for Provider {
    fn call<'a>(&'a self, call: ReaderCall<'a>, deadline: Instant) -> BoxFuture<'a, Result<ReadResponse, Unread>> {
        let body = String::from_utf8(call.request.body.to_vec()).unwrap();
        let keys: Vec<&str> = body.split(',').collect();
        let noted = keys.iter().map(|key| (*key).to_owned()).collect();
        self.calls.lock().unwrap().push((call.namespace.to_string(), noted));
        let reply = (self.script)(&keys);
        let reader = call.reader;
        async move {
            let mut headers = HeaderMap::new();
            let (status, body) = match reply {
                Reply::Answer(status, body) => (status, body),
                Reply::Later(status, after) => {
                    headers.insert(RETRY_AFTER, HeaderValue::from_static(after));
                    (status, String::new())
                }
                Reply::Never => {
                    tokio::time::sleep_until(deadline).await;
                    let timed_out = Unread::failed(CallOutcome::TimedOut, reader, None, "no whole answer in time");
                    return Err(timed_out.by(Blame::KeyOrProvider));
                }
            };
            Ok(ReadResponse { status: StatusCode::from_u16(status).unwrap(), headers, body: Bytes::from(body) })
        }
        .boxed()
    }
}

/// Has events with these bodies worked off as one batch. Returns what became of each.
async fn worked_off<const N: usize>(
    flow: Arc<dyn Flow>,
    provider: &Arc<Provider>,
    bodies: [&str; N],
) -> (Harness, Vec<WorkItemDetail>) {
    let harness = Harness::new().await;
    harness.generations.insert(pack(), harness.generation, flow);
    let ids = harness.enqueue(bodies).await;
    let options = ExecuteOptions { slots: 32, ..ExecuteOptions::default() };
    let caller = Arc::clone(provider) as Arc<dyn Caller>;
    let executors = Executors::new(ExecutorParts { caller, ..harness.parts(options) });
    assert_eq!(harness.claim_into(&executors, 32).await, N);
    executors.idle().await;
    let mut ended = Vec::new();
    for id in ids {
        ended.push(harness.detail(id).await);
    }
    (harness, ended)
}

fn note(item: &WorkItemDetail) -> &str {
    item.note.as_deref().unwrap_or_else(|| panic!("{:?}", item.failure))
}

fn failure(item: &WorkItemDetail) -> (&'static str, &str) {
    let failure = item.failure.as_ref().unwrap_or_else(|| panic!("{:?}", item.note));
    (failure.class.as_str(), &failure.message)
}

// GST-2
#[tokio::test]
async fn what_a_batch_asks_for_is_read_with_one_call_and_each_event_gets_its_own() {
    let provider = Provider::with_all();
    let (_harness, ended) =
        worked_off(ReadingFlow::under(100, AMPLE), &provider, ["a,b", "b", "", "c,a,missing", "ignore"]).await;
    let notes: Vec<&str> = ended.iter().map(note).collect();
    let all = "c=of c, a=of a, missing=of missing";
    assert_eq!(notes, ["a=of a, b=of b", "b=of b", "", all, "of no interest"]);
    let calls = provider.calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    let mut asked = calls[0].clone();
    asked.sort();
    assert_eq!(asked, ["a", "b", "c", "missing"], "each once");
}

#[tokio::test]
async fn what_the_provider_does_not_have_is_not_there() {
    let provider = Provider::new(|_| Reply::Answer(404, "a=1".to_owned()));
    let (_harness, ended) = worked_off(ReadingFlow::under(100, AMPLE), &provider, ["a,b"]).await;
    assert_eq!(note(&ended[0]), "a=1, b is not there");
}

#[tokio::test]
async fn a_call_asks_for_as_many_keys_as_the_reader_takes() {
    let provider = Provider::with_all();
    let (_harness, ended) = worked_off(ReadingFlow::under(2, AMPLE), &provider, ["a,b,c,d,e"]).await;
    assert_eq!(note(&ended[0]), "a=of a, b=of b, c=of c, d=of d, e=of e");
    let mut sizes: Vec<usize> = provider.calls().iter().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 2, 2]);
}

// GST-2: one bad key fails its events only.
#[tokio::test]
async fn a_key_that_spoils_a_call_fails_its_own_events_and_no_others() {
    for (status, body, class, said) in [
        (400, "", "read_refused", "answered 400"),
        (200, "unreadable", "trap", "in decode-read: trapped over a record"),
        (500, "", "read_failed", "answered 500"),
        (504, "", "read_failed", "answered 504"),
        (403, "", "read_failed", "answered 403"),
    ] {
        let provider = Provider::new(move |keys| match keys.contains(&"bad") {
            true => Reply::Answer(status, body.to_owned()),
            false => Reply::Answer(200, records(keys)),
        });
        let bodies = ["a", "b", "c,bad", "d", "e", "f", "g", "h", "bad", "i"];
        let (_harness, ended) = worked_off(ReadingFlow::under(100, AMPLE), &provider, bodies).await;
        for (item, body) in ended.iter().zip(bodies) {
            if body.contains("bad") {
                let (found, message) = failure(item);
                assert_eq!(found, class, "{message}");
                assert!(message.contains(said) && !message.contains("bad"), "{message}");
            } else {
                assert_eq!(note(item), format!("{body}=of {body}"));
            }
        }
        // Ten keys: halved until the bad one is alone, once another one shows that the provider is there.
        assert!(provider.calls().len() <= 11, "{:?}", provider.calls());
    }
}

#[tokio::test]
async fn a_provider_that_refuses_everything_is_called_a_bounded_number_of_times() {
    let provider = Provider::new(|_| Reply::Answer(400, String::new()));
    let keys: Vec<String> = (0..1_000).map(|n| format!("k{n}")).collect();
    let (_harness, ended) = worked_off(ReadingFlow::under(1_000, AMPLE), &provider, [keys.join(",").as_str()]).await;
    assert_eq!(ended[0].state, WorkState::Dead);
    assert!(provider.calls().len() <= 24, "{}", provider.calls().len());
}

#[tokio::test]
async fn a_provider_that_asks_for_time_gets_it_and_a_refusal_ends_the_event() {
    for (status, after, delay, calls) in [
        (429, "7", Some(7), 1),
        (503, "90", Some(90), 1),
        (401, "90", None, 1),
        // One of the two may be why: each is asked for alone.
        (500, "90", None, 3),
    ] {
        let provider = Provider::new(move |_| Reply::Later(status, after));
        let (harness, ended) = worked_off(ReadingFlow::under(100, AMPLE), &provider, ["a", "b"]).await;
        for item in &ended {
            assert_eq!((item.state, failure(item).0), (WorkState::Delayed, "read_failed"), "{status}");
            let waits = item.run_after.since(harness.now());
            match delay {
                Some(seconds) => assert_eq!(waits, Duration::from_secs(seconds), "{status}"),
                None => assert!(waits <= Duration::from_secs(1), "{status}: {waits:?}"),
            }
        }
        assert_eq!(provider.calls().len(), calls, "{status}");
    }
    for status in [302, 405, 422] {
        let provider = Provider::new(move |_| Reply::Answer(status, String::new()));
        let (_harness, ended) = worked_off(ReadingFlow::under(100, AMPLE), &provider, ["a"]).await;
        assert_eq!((ended[0].state, failure(&ended[0]).0), (WorkState::Dead, "read_refused"), "{status}");
        assert!(failure(&ended[0]).1.contains(&status.to_string()));
    }
}

#[tokio::test]
async fn a_provider_that_is_down_is_not_asked_for_every_key() {
    for reply in [|| Reply::Answer(500, String::new()), || Reply::Never] {
        let provider = Provider::new(move |_| reply());
        let bodies = ["a,b,c", "d,e,f", "g,h", "i"];
        let (_harness, ended) = worked_off(ReadingFlow::under(100, SHORT), &provider, bodies).await;
        for item in &ended {
            assert_eq!(item.state, WorkState::Delayed);
            assert!(["deadline", "read_failed"].contains(&failure(item).0), "{:?}", item.failure);
        }
        let sizes: Vec<usize> = provider.calls().iter().map(Vec::len).collect();
        assert!(sizes[0] == 9 && sizes.len() <= 3, "two keys without an answer say enough: {sizes:?}");
    }
}

// GST-2: a wedged read ends at the deadline, its row is retried, and its neighbours notice nothing.
#[tokio::test]
async fn a_key_that_the_provider_never_answers_costs_its_own_event_its_deadline_and_others_nothing() {
    let provider = Provider::new(|keys| match keys.contains(&"slow") {
        true => Reply::Never,
        false => Reply::Answer(200, records(keys)),
    });
    let bodies = ["a", "b,slow", "c", "", "d", "e", "f"];
    let (_harness, ended) = worked_off(ReadingFlow::under(100, PATIENT), &provider, bodies).await;
    for (item, body) in ended.iter().zip(bodies) {
        if body.contains("slow") {
            assert_eq!(item.state, WorkState::Delayed, "{body}");
            assert!(["deadline", "read_failed"].contains(&failure(item).0), "{:?}", item.failure);
        } else {
            assert_eq!((item.state, item.attempt), (WorkState::Done, 1), "{body}: {:?}", item.failure);
        }
    }
    assert!(provider.calls().len() <= 9, "{:?}", provider.calls());
}

// GST-2
#[tokio::test]
async fn one_whose_prepare_hangs_holds_up_nobody_elses_reads() {
    let provider = Provider::with_all();
    let (_harness, ended) = worked_off(ReadingFlow::under(100, SHORT), &provider, ["a", "hang", "b"]).await;
    assert_eq!([note(&ended[0]), note(&ended[2])], ["a=of a", "b=of b"]);
    assert_eq!(failure(&ended[1]).0, "deadline");
}

// GST-5
#[tokio::test]
async fn what_was_read_is_on_record_with_the_hash_of_what_came_of_it() {
    let provider = Provider::with_all();
    let (harness, ended) = worked_off(ReadingFlow::under(100, AMPLE), &provider, ["a", "", "ignore"]).await;
    let shown = harness.store.event(ended[0].event_id).await.unwrap().unwrap().work_items.remove(0);
    let reading =
        Reading { reader: "records".parse().unwrap(), key: "a".to_owned(), value: Some(Bytes::from_static(b"of a")) };
    assert_eq!(shown.reads, RecordedReads::Kept(vec![reading]));
    let output = FlowOutput { note: Some("a=of a".to_owned()), ..FlowOutput::NOTHING };
    assert_eq!(shown.output_digest, Some(output.digest()));
    assert_eq!(ended[1].reads, RecordedReads::NONE);
    assert_eq!(ended[2].output_digest, Some(crate::guest::ignored_digest("of no interest")));
    assert_ne!(ended[1].output_digest, ended[2].output_digest);

    let large = "x".repeat(300 * 1_024);
    let provider = Provider::new(move |keys| Reply::Answer(200, format!("{}={large}", keys[0])));
    let (_harness, ended) = worked_off(ReadingFlow::under(100, AMPLE), &provider, ["a"]).await;
    assert!(matches!(ended[0].reads, RecordedReads::TooLarge { count: 1, bytes: 307_200.. }), "{:?}", ended[0].state);
}

#[tokio::test]
async fn keys_of_different_tenants_are_not_asked_for_together() {
    let (harness, provider) = (Harness::new().await, Provider::with_all());
    let flow = ReadingFlow::under(100, AMPLE);
    let events = [("acme", "a"), ("other", "a"), ("acme", "b")]
        .map(|(tenant, key)| (tenant.parse().unwrap(), harness.now(), wish(&[key])));
    let caller = Arc::clone(&provider) as Arc<dyn Caller>;
    let env = harness.env.clone();
    let read = read_all(&flow, harness.generation, events.to_vec(), caller, env, deadline(AMPLE)).await;
    assert!(read.iter().all(|readings| readings.as_ref().is_ok_and(|readings| readings.len() == 1)), "{read:?}");
    let calls: BTreeMap<String, Vec<String>> = provider.calls.lock().unwrap().iter().cloned().collect();
    assert_eq!(calls["acme"], ["a", "b"]);
    assert_eq!(calls["other"], ["a"]);
}
