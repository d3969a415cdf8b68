//! What the benchmarks of the timeline share: a store, a timeline over it, and destinations that are functions of this
//! process. What is measured is everything but the call of a destination.
//!
//! A message's id begins with the time that it is due at, in milliseconds: so whoever is called knows how late it is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::try_join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::queue::Queue;
use crate::env::{self, Env};
use crate::model::destination::{DEFAULT_TERMS, Destination, Destinations, LaneLimits};
use crate::model::ids::{MessageId, RuntimeId};
use crate::model::message::NewMessage;
use crate::model::names::DestinationName;
use crate::model::queue::{QueueClass, QueueClasses};
use crate::model::reading::RunRecord;
use crate::model::retry::RetryPolicy;
use crate::model::time::Timestamp;
use crate::publish::{ClaimedMessage, NativeAnswer, NativeCall, Publisher};
use crate::rig::mariadb::MariaDb;
use crate::store::{CLAIM_ROWS_MAX, Disposition, Finish, Finished};
use crate::timeline::{AFTER_PANIC, CheckpointOptions, CheckpointPlace, Floors, Timeline, TimelineOptions};

/// Messages that one execution emits.
const MESSAGES_PER_FINISH: usize = 100;
/// Executions that end side by side.
const FINISHES_AT_ONCE: u32 = CLAIM_ROWS_MAX;
/// Between two reports of how far it is.
const REPORT: Duration = Duration::from_secs(5);
/// Between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(5);
/// Nothing that is waited for takes this long.
const PATIENCE: Duration = Duration::from_secs(1_800);
/// As a host has them by default.
const CLAIMED_MAX: usize = 1_024;
const MEMORY_BYTES: usize = 64 << 20;

/// A store, and what goes out of it.
pub(super) struct Outbound {
    pub(super) queue: Queue,
    destinations: Arc<Destinations>,
    in_flight_max: usize,
    pub(super) seen: Arc<Seen>,
    /// Ends what destinations wait for.
    pub(super) over: CancellationToken,
    events: u64,
}

/// How late messages were, by destination.
#[derive(Default)]
pub(super) struct Seen(Mutex<BTreeMap<DestinationName, Vec<i64>>>);

/// A timeline that runs.
pub(super) struct Running {
    pub(super) timeline: Timeline,
    publisher: Publisher,
    stop: CancellationToken,
}

/// Lateness, in milliseconds.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(super) struct Lateness {
    pub(super) messages: usize,
    pub(super) early: usize,
    pub(super) p50_ms: i64,
    pub(super) p99_ms: i64,
    pub(super) max_ms: i64,
}

impl Seen {
    fn record(&self, message: &ClaimedMessage, now: Timestamp) {
        let late = now.as_millis() - due_millis(message.id);
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.get_mut(&message.destination) {
            Some(of_destination) => of_destination.push(late),
            None => drop(seen.insert(message.destination.clone(), vec![late])),
        }
    }

    /// How many have arrived at destinations of which `counts` says so.
    pub(super) fn count(&self, counts: impl Fn(&str) -> bool) -> usize {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|(name, _)| counts(name.as_str())).map(|(_, late)| late.len()).sum()
    }

    /// What has arrived there so far, which is forgotten.
    pub(super) fn take(&self, counts: impl Fn(&str) -> bool) -> Lateness {
        let seen = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut late: Vec<i64> =
            seen.into_iter().filter(|(name, _)| counts(name.as_str())).flat_map(|(_, late)| late).collect();
        late.sort_unstable();
        let at = |part: f64| {
            let place = (late.len() as f64 * part).ceil() as usize;
            late.get(place.saturating_sub(1)).copied().unwrap_or(0)
        };
        Lateness {
            messages: late.len(),
            early: late.iter().filter(|late| **late < 0).count(),
            p50_ms: at(0.50),
            p99_ms: at(0.99),
            max_ms: at(1.0),
        }
    }
}

/// A message that is due then.
pub(super) fn message(destination: &DestinationName, due_at: Timestamp, body: &Bytes, env: &Env) -> NewMessage {
    NewMessage {
        id: MessageId::new(due_at, env.id_entropy()),
        destination: destination.clone(),
        body: body.clone(),
        content_type: "application/json".to_owned(),
        headers: Vec::new(),
        ordering_key: None,
        idempotency_key: None,
        due_at,
        due_after: None,
        expire_at: None,
        action: None,
    }
}

/// The milliseconds that an id begins with.
fn due_millis(id: MessageId) -> i64 {
    id.as_bytes()[..6].iter().fold(0, |millis, byte| millis << 8 | i64::from(*byte))
}

impl Outbound {
    /// An empty one, with destinations of these names.
    pub(super) async fn open(
        server: Option<&MariaDb>,
        destinations: impl IntoIterator<Item = String>,
        in_flight_messages: u32,
        env: &Env,
    ) -> anyhow::Result<Self> {
        let destinations = destinations.into_iter().map(|name| destination(&name, in_flight_messages));
        let destinations: Destinations = destinations.collect::<anyhow::Result<_>>()?;
        Ok(Self {
            queue: Queue::open(server, env).await?,
            destinations: Arc::new(destinations),
            in_flight_max: CLAIMED_MAX,
            seen: Arc::default(),
            over: CancellationToken::new(),
            events: 0,
        })
    }

    /// Where shards have their indexes.
    pub(super) fn index_folder(&self) -> PathBuf {
        self.queue.folder().join("timeline")
    }

    /// The destinations, by name.
    pub(super) fn names(&self) -> Vec<DestinationName> {
        self.destinations.values().map(|destination| destination.name.clone()).collect()
    }

    /// Has executions emit messages, many at once. Returns how long that took, claims of the executions not counted.
    pub(super) async fn schedule(&mut self, what: &str, messages: Vec<NewMessage>) -> anyhow::Result<Duration> {
        let env = self.queue.env.clone();
        let count = messages.len();
        let executions = count.div_ceil(MESSAGES_PER_FINISH) as u64;
        self.events += 1;
        self.queue.fill(&format!("{what}-{}", self.events), executions, QueueClass::Default, |_| None).await?;
        let mut messages = messages.into_iter();
        let (mut took, mut reported, mut scheduled) = (Duration::ZERO, env.clock.monotonic(), 0);
        while scheduled < count {
            let items = self.queue.claim(FINISHES_AT_ONCE, QueueClasses::ALL).await?;
            ensure!(!items.is_empty(), "there is an execution for all messages");
            let finishes: Vec<Finish> = items
                .iter()
                .map(|item| {
                    let messages: Vec<NewMessage> = messages.by_ref().take(MESSAGES_PER_FINISH).collect();
                    scheduled += messages.len();
                    Finish {
                        work_item_id: item.id,
                        lease: item.lease,
                        epoch: item.epoch,
                        disposition: Disposition::Done {
                            note: None,
                            ignored: false,
                            messages,
                            record: RunRecord::none(),
                        },
                        successor: None,
                        now: env.now(),
                    }
                })
                .collect();
            let began = env.clock.monotonic();
            let finished = try_join_all(finishes.into_iter().map(|finish| self.queue.store.finish(finish))).await?;
            took += env.clock.monotonic() - began;
            ensure!(finished.iter().all(|finished| *finished == Finished::Applied), "an execution was not ended");
            if env.clock.monotonic() - reported >= REPORT {
                eprintln!("  {what}: {scheduled} of {count} messages are scheduled");
                reported = env.clock.monotonic();
            }
        }
        Ok(took)
    }

    /// Starts a timeline; destinations answer as `answer` says, and with nothing more that they are waited for once it
    /// is over.
    pub(super) async fn start(&self, answer: fn(&str) -> Answer) -> anyhow::Result<Running> {
        let (seen, env, over) = (Arc::clone(&self.seen), self.queue.env.clone(), self.over.clone());
        let call: NativeCall = Arc::new(move |message: &ClaimedMessage| {
            seen.record(message, env.now());
            let over = over.clone();
            match answer(message.destination.as_str()) {
                Answer::Taken => std::future::ready(NativeAnswer::Taken).boxed(),
                Answer::Failed => std::future::ready(NativeAnswer::Failed).boxed(),
                Answer::TakenAfter(time) => async move {
                    tokio::select! {
                        () = env::sleep(time) => {}
                        () = over.cancelled() => {}
                    }
                    NativeAnswer::Taken
                }
                .boxed(),
            }
        });
        let env = &self.queue.env;
        let store = self.queue.store.clone();
        let publisher =
            Publisher::start_native(self.in_flight_max, &self.destinations, store.clone(), &call, env.clone());
        let options = TimelineOptions {
            directory: self.index_folder(),
            lease: Duration::from_secs(15),
            poll: Duration::from_millis(500),
            claimed_max: CLAIMED_MAX,
            memory_bytes: MEMORY_BYTES,
            floors: Floors::default(),
            after_panic: AFTER_PANIC,
            namespace_weights: BTreeMap::new(),
            clock_uncertainty_max: Duration::from_secs(1),
            checkpoints: CheckpointOptions {
                place: CheckpointPlace::Folder(self.queue.folder().join("checkpoints")),
                every: None,
                kept: 1,
            },
        };
        let runtime = RuntimeId::new(env.now(), env.id_entropy());
        let stop = CancellationToken::new();
        let (_, destinations) = watch::channel(Arc::clone(&self.destinations));
        let timeline =
            Timeline::start(options, runtime, destinations, store, publisher.clone(), env.clone(), stop.clone())
                .await?;
        Ok(Running { timeline, publisher, stop })
    }

    /// Waits until `done` says so of a count, and says on standard error how far it is.
    pub(super) async fn until(
        &self,
        what: &str,
        wanted: usize,
        mut done: impl AsyncFnMut() -> usize,
    ) -> anyhow::Result<()> {
        let clock = &self.queue.env.clock;
        let began = clock.monotonic();
        let mut reported = began;
        loop {
            let count = done().await;
            if count >= wanted {
                return Ok(());
            }
            let now = clock.monotonic();
            ensure!(now - began < PATIENCE, "{what}: {count} of {wanted}, and it does not go on");
            if now - reported >= REPORT {
                eprintln!("  {what}: {count} of {wanted}");
                reported = now;
            }
            env::sleep(LOOK).await;
        }
    }
}

/// What a destination does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    /// It takes every message at once.
    Taken,
    /// It takes none.
    Failed,
    /// It takes every message after so long.
    TakenAfter(Duration),
}

impl Running {
    /// Messages that its shards have applied and that wait, and changes that they have not applied.
    pub(super) async fn pending(&self) -> (usize, u64) {
        let views = self.timeline.look().await;
        let pending: u64 = views.iter().map(|(shard, _)| shard.pending).sum();
        (usize::try_from(pending).unwrap_or(usize::MAX), views.iter().map(|(shard, _)| shard.lag).sum())
    }

    /// Stops it, once what is in flight has settled.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.timeline.stopped().await;
        self.publisher.drain().await;
    }
}

fn destination(name: &str, in_flight_messages: u32) -> anyhow::Result<Destination> {
    Ok(Destination {
        deadline: Duration::from_secs(60),
        retry: RetryPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(600), failures_max: 100 },
        limits: LaneLimits { messages: in_flight_messages, ..DEFAULT_TERMS.limits },
        ..Destination::new(name.parse()?, http::Uri::from_static("http://native.invalid/"))
    })
}

/// The memory that this process has, in MiB; 0 where nobody says.
pub(super) fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().split(' ').next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1_024.0
}
