//! The timeline: Delay Shards, each a single-writer actor over a RocksDB of its own. The only user of rocksdb.
//!
//! ```text
//!   SQL feed ──source──> session ──claims──> publisher ──settlements──> session
//!                          │  ^
//!                     index│  │schedule: lanes, deficit round robin
//!                          v  │
//!                         RocksDB
//! ```
//!
//! Invariants:
//! - RocksDB holds an index of what SQL holds: deleting its directory loses nothing, and a value in it that is not as
//!   it was written has the whole index set aside and built again.
//! - An index that is found, here or as a checkpoint, is brought up to date with SQL before anything is claimed from
//!   it.
//! - A shard has one owner. What an owner claims is admitted under its lease's epoch; one that lost its lease publishes
//!   nothing and records nothing.
//! - Nothing is published before its time, by a clock that says how far it can be trusted.
//! - Memory is bounded by lanes and claims, not by messages that wait.
//!
//! It must not decide what an attempt makes of a message (`model::message` does) nor call a destination (`publish`
//! does).

mod actor;
mod capacity;
mod checkpoint;
mod claims;
mod clock;
mod compared;
mod database;
mod figures;
mod frame;
#[cfg(test)]
mod fuse;
mod gates;
mod index;
mod inquiry;
mod keys;
mod lease;
mod placement;
mod quarantine;
mod recovery;
mod schedule;
mod session;
mod shard;
mod signals;
mod source;
mod values;
mod watchers;

pub use actor::{AFTER_PANIC, AfterTrouble, ShardTrouble};
pub use capacity::Floors;
pub use checkpoint::{CheckpointOptions, CheckpointPlace, S3Place};
pub use inquiry::{LaneView, ShardView, WorkWait};
pub use session::RestoredFrom;
pub use signals::describe;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::actor::Remains;
use self::capacity::HostFigures;
use self::checkpoint::Checkpoints;
use self::clock::TimeSource;
use self::database::{FILES_MAX, Memory};
use self::gates::Gates;
use self::inquiry::{Inquiries, Inquiry};
use self::lease::LeaseKeeper;
use self::placement::{Placement, Presence};
use self::shard::Shard;
use self::watchers::look_after;
use crate::env::{self, Env};
use crate::lanes::{Held, Supply, WorkPlan};
use crate::model::destination::{Destinations, terms_of};
use crate::model::ids::RuntimeId;
use crate::model::message::MessageEntry;
use crate::model::names::{DestinationName, Namespace};
use crate::model::retry::RetryPolicy;
use crate::publish::Publisher;
use crate::store::{CheckpointRow, ShardId, Store};

/// How long a shard's session may take to answer: a batch of its index, at the most.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How long whoever asks for a checkpoint waits for it. Longer ones are made all the same.
const CHECKPOINT_ANSWER_MAX: Duration = Duration::from_secs(25);

/// How the timeline is kept.
#[derive(Debug, Clone)]
pub struct TimelineOptions {
    /// The directory; one RocksDB a shard in it.
    pub directory: PathBuf,
    /// How long a shard lease lasts.
    pub lease: Duration,
    /// The longest pause between two looks at the feed when nothing calls.
    pub poll: Duration,
    /// Messages that a shard may have claimed at once.
    pub claimed_max: usize,
    /// Block cache and write buffers of all shards together, in bytes.
    pub memory_bytes: usize,
    /// What should stay free on the host. With less of it, less is sent at once; with next to none, nothing is.
    pub floors: Floors,
    /// How often, and when, a shard is opened again whose actor panics.
    pub after_panic: RetryPolicy,
    /// Tenants' shares of service, at most [`crate::lanes::WEIGHT_MAX`]; that of one that is not here is 1.
    pub namespace_weights: BTreeMap<Namespace, u32>,
    /// The widest clock interval that messages are published under.
    pub clock_uncertainty_max: Duration,
    /// Copies for owners that find no index of their own.
    pub checkpoints: CheckpointOptions,
}

/// The shards of this runtime; clones share them.
#[derive(Clone)]
pub struct Timeline {
    shards: Arc<[ShardHandle]>,
    destinations: watch::Receiver<Arc<Destinations>>,
    wake: watch::Sender<u64>,
}

/// Why the timeline cannot start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TimelineError(pub String);

/// What came of asking for a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// It counts.
    Made(CheckpointRow),
    /// It is still being made.
    UnderWay,
    /// It could not be made.
    Failed(String),
    /// The shard is not this runtime's.
    NotHere,
}

struct ShardHandle {
    active: Arc<AtomicBool>,
    elsewhere: Arc<AtomicBool>,
    inquiries: watch::Receiver<Inquiries>,
    trouble: watch::Receiver<Option<ShardTrouble>>,
    /// Closed once the shard's thread is done.
    done: watch::Receiver<()>,
}

impl Timeline {
    /// Starts the shards' actors, which follow `destinations`; they acquire their shards, which takes until the leases
    /// of a dead owner are over, and stop when `stop` is cancelled.
    pub async fn start(
        options: TimelineOptions,
        runtime: RuntimeId,
        destinations: watch::Receiver<Arc<Destinations>>,
        store: Store,
        publisher: Publisher,
        env: Env,
        stop: CancellationToken,
    ) -> Result<Self, TimelineError> {
        let cannot = |error: &dyn std::fmt::Display| {
            TimelineError(format!("the timeline cannot be kept in {}: {error}", options.directory.display()))
        };
        let work = work_plan(&options, store.shard_count())?;
        std::fs::create_dir_all(&options.directory).map_err(|error| cannot(&error))?;
        let memory = Arc::new(Memory::new(options.memory_bytes));
        let weights = Arc::new(options.namespace_weights.clone());
        let checkpoints = Checkpoints::open(options.checkpoints.clone(), store.clone(), env.clone());
        let checkpoints = Arc::new(checkpoints.await.map_err(TimelineError)?);
        let (wake, woken) = watch::channel(0);
        let gates = watch_gates(&store, &stop);
        let time = time_source(&store, &env, &stop);
        let supply = watch_host(&options, &publisher, &memory, &stop);
        let presence =
            Presence { store: store.clone(), env: env.clone(), runtime, duration: options.lease, wake: woken.clone() };
        let placement = placement(presence, &stop);
        let mut shards = Vec::new();
        for id in (0..store.shard_count()).map(ShardId) {
            let active = Arc::new(AtomicBool::new(false));
            let elsewhere = Arc::new(AtomicBool::new(false));
            let (inquiries_in, inquiries) = watch::channel(None);
            let keeper = LeaseKeeper {
                store: store.clone(),
                env: env.clone(),
                runtime,
                duration: options.lease,
                placement: placement.clone(),
                wake: woken.clone(),
            };
            let shard = Shard {
                id,
                path: options.directory.join(format!("shard-{:05}", id.0)),
                memory: memory.clone(),
                checkpoints: checkpoints.clone(),
                keeper,
                destinations: destinations.clone(),
                gates: gates.clone(),
                store: store.clone(),
                publisher: publisher.clone(),
                env: env.clone(),
                poll: options.poll,
                claimed_max: options.claimed_max,
                weights: weights.clone(),
                work,
                supply: supply.clone(),
                time: time.clone(),
                clock_uncertainty_max: options.clock_uncertainty_max,
                active: active.clone(),
                elsewhere: elsewhere.clone(),
                inquiries: inquiries_in,
                wake: woken.clone(),
                stop: stop.clone(),
                remains: Remains::default(),
            };
            let (told, trouble) = watch::channel(None);
            let done = actor::start(shard, options.after_panic, told).map_err(|error| cannot(&error))?;
            shards.push(ShardHandle { active, elsewhere, inquiries, trouble, done });
        }
        Ok(Self { shards: shards.into(), destinations, wake })
    }

    /// A hint that the feed has something new, or that time has passed.
    pub fn wake(&self) {
        self.wake.send_modify(|calls| *calls = calls.wrapping_add(1));
    }

    /// Whether every shard has caught up with its feed and is publishing what is due, from here.
    pub fn is_active(&self) -> bool {
        self.shards.iter().all(|shard| shard.active.load(Ordering::Acquire))
    }

    /// Whether every shard is looked after, from here or by another runtime.
    pub fn is_looked_after(&self) -> bool {
        let here_or_elsewhere =
            |shard: &ShardHandle| shard.active.load(Ordering::Acquire) || shard.elsewhere.load(Ordering::Acquire);
        self.shards.iter().all(here_or_elsewhere)
    }

    /// The shards whose actors have panicked here since the start.
    pub fn troubles(&self) -> Vec<ShardTrouble> {
        self.shards.iter().filter_map(|shard| shard.trouble.borrow().clone()).collect()
    }

    /// Of these, the ones that are down now, and are not looked after elsewhere.
    pub fn troubles_now(&self) -> Vec<ShardTrouble> {
        let is_down =
            |shard: &&ShardHandle| !shard.active.load(Ordering::Acquire) && !shard.elsewhere.load(Ordering::Acquire);
        let troubles = self.shards.iter().filter(is_down).filter_map(|shard| shard.trouble.borrow().clone());
        troubles.filter(|trouble| trouble.next != AfterTrouble::Opened).collect()
    }

    /// Whether this runtime can call a destination.
    pub fn can_call(&self, destination: &DestinationName) -> bool {
        terms_of(&self.destinations.borrow(), destination).is_some()
    }

    /// The shards that this runtime owns, and their lanes. One that does not answer in time is left out; they are asked
    /// at once.
    pub async fn look(&self) -> Vec<(ShardView, Vec<LaneView>)> {
        let asked = self.shards.iter().map(|shard| shard.ask(Inquiry::Look));
        futures_util::future::join_all(asked).await.into_iter().flatten().collect()
    }

    /// Why a message that waits in a shard of this runtime is not admitted, were it due. `None` if the shard is not its
    /// own.
    pub async fn why(&self, shard: ShardId, message: MessageEntry) -> Option<Held> {
        let shard = self.shards.get(usize::from(shard.0))?;
        shard.ask(|reply| Inquiry::Why(Box::new(message), reply)).await
    }

    /// Has a checkpoint of a shard be made now.
    pub async fn checkpoint(&self, shard: ShardId) -> Asked {
        let Some(shard) = self.shards.get(usize::from(shard.0)) else { return Asked::NotHere };
        let Some(session) = shard.inquiries.borrow().clone() else { return Asked::NotHere };
        let (reply, answer) = oneshot::channel();
        if session.try_send(Inquiry::Checkpoint(reply)).is_err() {
            return Asked::Failed("other requests to the shard are waiting: try again".to_owned());
        }
        match tokio::time::timeout_at(env::deadline(CHECKPOINT_ANSWER_MAX), answer).await {
            Ok(Ok(Ok(row))) => Asked::Made(row),
            Ok(Ok(Err(error))) => Asked::Failed(error),
            Ok(Err(_ended)) => Asked::NotHere,
            Err(_elapsed) => Asked::UnderWay,
        }
    }

    /// Returns once every actor has settled its claims, flushed, and given up its shard.
    pub async fn stopped(&self) {
        for shard in self.shards.iter() {
            let mut done = shard.done.clone();
            while done.changed().await.is_ok() {}
        }
    }
}

impl ShardHandle {
    /// Asks the shard's session, if it has one here that answers in time.
    async fn ask<A>(&self, inquiry: impl FnOnce(oneshot::Sender<A>) -> Inquiry) -> Option<A> {
        let session = self.inquiries.borrow().clone()?;
        let (reply, answer) = oneshot::channel();
        session.try_send(inquiry(reply)).ok()?;
        tokio::time::timeout(ANSWER_MAX, answer).await.ok()?.ok()
    }
}

/// What each shard's writer may hold. Its queues take no more than its part of the memory.
fn work_plan(options: &TimelineOptions, shards: u16) -> Result<WorkPlan, TimelineError> {
    session::plan(options.claimed_max, options.memory_bytes / usize::from(shards.max(1))).map_err(|error| {
        TimelineError(format!(
            "the timeline's shards cannot do their work: {error}: lower `timeline.claimed_max`, or raise `timeline.memory_mib`"
        ))
    })
}

/// Which shards are to be had: all, or the ones that are placed here where runtimes share the store.
fn placement(presence: Presence, stop: &CancellationToken) -> Placement {
    if presence.store.is_shared() {
        Placement::shared(presence, stop.clone())
    } else {
        Placement::alone(&presence.store)
    }
}

/// The gates that are not open; none before they were read.
fn watch_gates(store: &Store, stop: &CancellationToken) -> watch::Receiver<Option<Arc<Gates>>> {
    let (gates, seen) = watch::channel(None);
    let (store, until) = (store.clone(), stop.clone());
    look_after("lane gates", gates, stop.clone(), move |gates| gates::watch_gates(store.clone(), gates, until.clone()));
    seen
}

/// What presses on every shard: known before the first one begins.
fn watch_host(
    options: &TimelineOptions,
    publisher: &Publisher,
    memory: &Arc<Memory>,
    stop: &CancellationToken,
) -> watch::Receiver<Supply> {
    let (directory, floors) = (options.directory.clone(), options.floors);
    let figures = HostFigures { directory, floors, publisher: publisher.clone(), memory: Arc::clone(memory) };
    let (supply, measured) = watch::channel(figures.measure());
    let until = stop.clone();
    look_after("timeline capacity", supply, stop.clone(), move |supply| figures.clone().watch(supply, until.clone()));
    measured
}

/// How many file descriptors this many shards take at the most, with the connections to the place of checkpoints.
pub fn descriptors(shards: u16) -> usize {
    usize::from(shards) * FILES_MAX.unsigned_abs() as usize + checkpoint::CONNECTIONS_MAX
}

/// The clock that messages are published by: the database's, where runtimes share it.
fn time_source(store: &Store, env: &Env, stop: &CancellationToken) -> TimeSource {
    if !store.keeps_time() {
        return TimeSource::System;
    }
    let (samples, seen) = watch::channel(None);
    let (store, env, until) = (store.clone(), env.clone(), stop.clone());
    look_after("database clock", samples, stop.clone(), move |samples| {
        clock::watch_database(store.clone(), env.clone(), samples, until.clone())
    });
    TimeSource::Database(seen)
}

#[cfg(test)]
mod tests;
