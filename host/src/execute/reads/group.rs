//! The keys of one reader and tenant: in calls of at most as many as the reader takes, and in parts where one of them
//! may spoil a call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use metrics::{counter, histogram};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::caller::{CallOutcome, Caller, ReaderCall, Unread, judge};
use super::division::{Blame, Division, Share};
use crate::env::{self, Env};
use crate::execute::flow::Flow;
use crate::guest::Decoded;
use crate::model::failure::{Failure, FailureClass};
use crate::model::names::{Namespace, PackName, ReaderName};
use crate::model::pack::Reader;
use crate::model::time::Timestamp;

/// Calls of one reader that are under way at once.
const CALLS_AT_ONCE_MAX: usize = 8;
/// Readers whose calls are counted apart, before those that rest are forgotten.
const READERS_KEPT_MAX: usize = 64;

/// What was found for each key: a record, none, or why it is not known.
pub(super) type Found = HashMap<String, Result<Option<Bytes>, Failure>>;

/// What the reads of one pack share: who calls, how many calls at once, and what is counted.
pub(in crate::execute) struct Reads {
    pub(super) caller: Arc<dyn Caller>,
    pub(super) env: Env,
    pub(super) signals: ReadSignals,
    under_way: Mutex<HashMap<ReaderName, Arc<Semaphore>>>,
}

/// What is counted of a pack's reads.
#[derive(Debug, Clone)]
pub(super) struct ReadSignals {
    pack: PackName,
}

/// What the calls of a set of keys have in common.
pub(super) struct Group<'a> {
    pub(super) flow: &'a dyn Flow,
    pub(super) namespace: &'a Namespace,
    pub(super) reader: &'a Reader,
    /// What the guest's clock shows.
    pub(super) now: Timestamp,
    pub(super) deadline: Instant,
}

impl Reads {
    pub(in crate::execute) fn new(pack: &PackName, caller: Arc<dyn Caller>, env: Env) -> Self {
        Self { caller, env, signals: ReadSignals { pack: pack.clone() }, under_way: Mutex::default() }
    }

    /// What bounds the calls of this reader: one that is slow holds up itself.
    fn places(&self, reader: &ReaderName) -> Arc<Semaphore> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way.len() >= READERS_KEPT_MAX {
            under_way.retain(|_, places| Arc::strong_count(places) > 1);
        }
        Arc::clone(under_way.entry(reader.clone()).or_insert_with(|| Arc::new(Semaphore::new(CALLS_AT_ONCE_MAX))))
    }

    /// Reads a set of keys that one call may ask for. What is known comes as soon as it is: a key that nobody answers
    /// for does not keep the others waiting.
    pub(super) fn read<'a>(&'a self, group: Group<'a>, keys: Vec<String>) -> impl Stream<Item = Found> + Send + 'a {
        unfold((group, Division::of(keys)), move |(group, mut division)| async move {
            while let Some(keys) = division.next() {
                let found = match self.call(&group, &keys, &division).await {
                    Ok(decoded) => {
                        division.answered();
                        take(keys, decoded, group.reader)
                    }
                    Err(unread) => {
                        let blame = if env::has_passed(group.deadline) { Blame::All } else { unread.blame };
                        let ended = division.failed(keys, blame);
                        ended.into_iter().map(|key| (key, Err(unread.failure.clone()))).collect()
                    }
                };
                if !found.is_empty() {
                    return Some((found, (group, division)));
                }
            }
            None
        })
    }

    /// One call: the guest writes it, the host makes it, the guest reads its answer.
    async fn call(&self, group: &Group<'_>, keys: &[String], division: &Division) -> Result<Decoded, Unread> {
        let began = self.env.clock.monotonic();
        let result = self.exchange(group, keys, division).await;
        let outcome = result.as_ref().map_or_else(|unread| unread.outcome, |_| CallOutcome::Answered);
        let took = self.env.clock.monotonic().saturating_sub(began);
        self.signals.called(&group.reader.name, outcome, keys.len(), took);
        if let Ok(decoded) = &result
            && decoded.unasked > 0
        {
            self.signals.unasked(&group.reader.name, decoded.unasked);
        }
        result
    }

    async fn exchange(&self, group: &Group<'_>, keys: &[String], division: &Division) -> Result<Decoded, Unread> {
        let Group { flow, namespace, reader, now, deadline } = *group;
        let guest = |function| move |failure| Unread::guest(reader, function, failure);
        let request = flow.encode_read(reader, keys, now, deadline).await.map_err(guest("encode-read"))?;
        let places = self.places(&reader.name);
        let late = || Unread::failed(CallOutcome::TimedOut, reader, None, "its other calls took all the time");
        let place = timeout_at(deadline, places.acquire()).await.map_err(|_| late())?;
        let _place = place.expect("the semaphore is never closed");
        let call = ReaderCall { pack: &self.signals.pack, namespace, reader, request };
        let Share { parts, of } = division.share(keys.len());
        let response = self.caller.call(call, env::part_of_time_until(deadline, parts, of)).await?;
        judge(reader, response.status, &response.headers, self.env.now())?;
        flow.decode_read(reader, keys, response, now, deadline).await.map_err(guest("decode-read"))
    }
}

/// What an answer says of each key that was asked for.
fn take(keys: Vec<String>, mut decoded: Decoded, reader: &Reader) -> Found {
    let record = |key: String| {
        let record = if decoded.ambiguous.contains(&key) {
            let text = format!("reader `{}`, in decode-read: returned more than one record of a key", reader.name);
            Err(Failure::new(FailureClass::BadOutput, text))
        } else {
            Ok(decoded.records.remove(&key))
        };
        (key, record)
    };
    keys.into_iter().map(record).collect()
}

impl ReadSignals {
    fn labels(&self, reader: &ReaderName) -> [(&'static str, String); 2] {
        [("pack", self.pack.to_string()), ("reader", reader.to_string())]
    }

    fn called(&self, reader: &ReaderName, outcome: CallOutcome, keys: usize, took: Duration) {
        let [pack, name] = self.labels(reader);
        let labels = [pack, name, ("outcome", outcome.as_str().to_owned())];
        counter!("forebay_read_calls_total", &labels).increment(1);
        counter!("forebay_read_keys_total", &self.labels(reader)).increment(keys as u64);
        histogram!("forebay_read_seconds", &self.labels(reader)).record(took);
    }

    /// Events of one batch asked for so many keys that others asked for too.
    pub(super) fn merged(&self, reader: &ReaderName, keys: usize) {
        counter!("forebay_read_keys_merged_total", &self.labels(reader)).increment(keys as u64);
    }

    fn unasked(&self, reader: &ReaderName, records: usize) {
        counter!("forebay_read_records_unasked_total", &self.labels(reader)).increment(records as u64);
    }
}
