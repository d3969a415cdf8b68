//! Running a fixture: its events as one batch, with a provider that gives the answers of the fixture.
//!
//! The reads are merged, split and judged by the code of the host.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use http::{HeaderName, HeaderValue};
use serde::Serialize;
use tokio::time::Instant;

use crate::cli::fixture::RecordedAnswer;
use crate::env::{self, Env};
use crate::execute::{CallOutcome, Caller, Flow, ReaderCall, Unread, read_all};
use crate::guest::{Begun, Halfway, LoadedGeneration, Outcome, ReadResponse};
use crate::model::event::Event;
use crate::model::failure::Failure;
use crate::model::reading::Reading;

/// A request of the pack to a reader.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct RecordedCall {
    reader: String,
    request: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<String>,
    #[serde(skip_serializing_if = "serde_json::Value::is_null")]
    body: serde_json::Value,
}

/// A provider that gives its recorded answers in order, by reader, and records the calls.
pub(super) struct RecordedProvider {
    answers: Mutex<BTreeMap<String, VecDeque<ReadResponse>>>,
    calls: Mutex<Vec<RecordedCall>>,
}

impl RecordedProvider {
    pub(super) fn new(answers: BTreeMap<String, Vec<RecordedAnswer>>) -> anyhow::Result<Self> {
        let mut by_reader = BTreeMap::new();
        for (reader, answers) in answers {
            let answers = answers.into_iter().map(RecordedAnswer::response).collect::<anyhow::Result<VecDeque<_>>>();
            by_reader.insert(reader.clone(), answers.with_context(|| format!("answers of `{reader}`"))?);
        }
        Ok(Self { answers: Mutex::new(by_reader), calls: Mutex::default() })
    }

    fn answer(&self, call: &ReaderCall<'_>) -> Result<ReadResponse, Unread> {
        let request = &call.request;
        let header = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))
        };
        let body = match serde_json::from_slice(&request.body) {
            Ok(json) => json,
            Err(_) if request.body.is_empty() => serde_json::Value::Null,
            Err(_) => String::from_utf8_lossy(&request.body).into(),
        };
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(RecordedCall {
            reader: call.reader.name.to_string(),
            request: format!("{} https://{}{}", request.method, request.host, request.path),
            headers: request.headers.iter().map(header).collect(),
            body,
        });
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = answers.get_mut(call.reader.name.as_str()).and_then(VecDeque::pop_front);
        let response = next.ok_or_else(|| {
            Unread::refused(CallOutcome::Denied, call.reader, "the fixture has no answer for this call")
        })?;
        if response.body.len() as u64 > call.reader.response_bytes_max {
            return Err(Unread::too_long(call.reader));
        }
        Ok(response)
    }
}

impl Caller for RecordedProvider {
    fn call<'a>(&'a self, call: ReaderCall<'a>, _: Instant) -> BoxFuture<'a, Result<ReadResponse, Unread>> {
        ready(self.answer(&call)).boxed()
    }
}

/// Runs events as one batch. Returns the requests of the pack, and the outcome of each event.
pub(super) async fn rehearse(
    generation: &Arc<LoadedGeneration>,
    events: &[Event],
    provider: RecordedProvider,
) -> (Vec<RecordedCall>, Vec<Outcome>) {
    let deadline = || env::deadline(generation.manifest().limits.deadline);
    let mut begun = Vec::with_capacity(events.len());
    let mut asked = Vec::new();
    for event in events {
        let one = generation.rehearse_prepare(event, 1, deadline()).await;
        if let Begun::Halfway(Halfway { reads, .. }) = &one {
            asked.push((event.namespace.clone(), event.received_at, reads.clone()));
        }
        begun.push(one);
    }
    let provider = Arc::new(provider);
    let flow: Arc<dyn Flow> = Arc::clone(generation) as Arc<dyn Flow>;
    let caller = Arc::clone(&provider) as Arc<dyn Caller>;
    let read = read_all(&flow, generation.number(), asked, caller, Env::system(), deadline()).await;
    let mut readings = read.into_iter();
    let mut outcomes = Vec::with_capacity(events.len());
    for (event, one) in events.iter().zip(begun) {
        outcomes.push(match one {
            Begun::Ended(rehearsal) => rehearsal.outcome,
            Begun::Halfway(halfway) => {
                let readings: Result<Vec<Reading>, Failure> = readings.next().unwrap_or(Ok(Vec::new()));
                generation.rehearse_run(event, 1, halfway, readings, deadline()).await.outcome
            }
        });
    }
    let calls = std::mem::take(&mut *provider.calls.lock().unwrap_or_else(PoisonError::into_inner));
    (calls, outcomes)
}
