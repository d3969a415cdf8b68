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
mod backoff;
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
mod numbered;
mod placement;
mod quarantine;
mod recovery;
mod schedule;
mod session;
mod shard;
mod signals;
mod source;
mod status;
mod surroundings;
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
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::checkpoint::Checkpoints;
use self::database::{FILES_MAX, Memory};
use self::inquiry::Inquiry;
use self::placement::Presence;
use self::shard::Shard;
use self::status::ShardStatus;
use self::surroundings::{Surroundings, Watched};
use crate::env::{self, Env};
use crate::lanes::{Held, WorkPlan};
use crate::model::destination::{Destinations, terms_of};
use crate::model::ids::RuntimeId;
use crate::model::message::MessageEntry;
use crate::model::names::{DestinationName, Namespace};
use crate::model::retry::RetryPolicy;
use crate::publish::Publisher;
use crate::store::{CheckpointRow, ShardId, Store};

/// The longest that a session takes to answer an inquiry: one batch of its index.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How long a request for a checkpoint waits for it. Slower checkpoints are made all the same.
const CHECKPOINT_ANSWER_MAX: Duration = Duration::from_secs(25);

/// Settings of the timeline.
#[derive(Debug, Clone)]
pub struct TimelineOptions {
    /// The directory of the indexes, one RocksDB a shard.
    pub directory: PathBuf,
    /// The time of a shard lease.
    pub lease: Duration,
    /// The longest pause between two looks at the feed without a hint.
    pub poll: Duration,
    /// Messages that a shard may have claimed at once.
    pub claimed_max: usize,
    /// Block cache and write buffers of all shards together, in bytes.
    pub memory_bytes: usize,
    /// Resources that stay free on the host: below them less is sent at once, far below them nothing.
    pub floors: Floors,
    /// Retries of a shard whose actor panicked.
    pub after_panic: RetryPolicy,
    /// Namespaces' shares of service, at most [`crate::lanes::WEIGHT_MAX`]; 1 for a namespace that is not listed.
    pub namespace_weights: BTreeMap<Namespace, u32>,
    /// The widest clock interval that messages are published under.
    pub clock_uncertainty_max: Duration,
    /// Copies of indexes, for owners without an index of their own.
    pub checkpoints: CheckpointOptions,
}

/// The shards of this host; clones share them.
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

/// Answer to a checkpoint request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// The checkpoint is recorded.
    Made(CheckpointRow),
    /// The checkpoint is still being made.
    UnderWay,
    /// The checkpoint could not be made, for this reason.
    Failed(String),
    /// This host does not own the shard.
    NotHere,
}

/// A shard, as the rest of the host reaches it.
struct ShardHandle {
    status: Arc<ShardStatus>,
    /// Closed once the shard's thread is done.
    done: watch::Receiver<()>,
}

impl Timeline {
    /// Starts the shards' actors, which follow `destinations` and stop when `stop` is cancelled. An actor acquires its
    /// shard once the lease of a dead owner is over.
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
        let checkpoints = Checkpoints::open(options.checkpoints.clone(), store.clone(), env.clone());
        let checkpoints = Arc::new(checkpoints.await.map_err(TimelineError)?);
        let (wake, woken) = watch::channel(0);
        let watched = Watched {
            destinations: destinations.clone(),
            gates: surroundings::watch_gates(&store, &stop),
            supply: surroundings::watch_host(&options, &publisher, &memory, &stop),
            wake: woken.clone(),
        };
        let presence =
            Presence { store: store.clone(), env: env.clone(), runtime, duration: options.lease, wake: woken };
        let around = Arc::new(Surroundings {
            time: surroundings::time_source(&store, &env, &stop),
            placement: surroundings::placement(presence, &stop),
            options: options.clone(),
            runtime,
            store,
            publisher,
            env,
            memory,
            checkpoints,
            work,
            stop,
        });
        let mut shards = Vec::new();
        for id in (0..around.store.shard_count()).map(ShardId) {
            let shard = Shard::new(id, Arc::clone(&around), watched.clone());
            let status = Arc::clone(&shard.status);
            let done = actor::start(shard).map_err(|error| cannot(&error))?;
            shards.push(ShardHandle { status, done });
        }
        Ok(Self { shards: shards.into(), destinations, wake })
    }

    /// A hint that the feed has something new, or that time has passed.
    pub fn wake(&self) {
        self.wake.send_modify(|calls| *calls = calls.wrapping_add(1));
    }

    /// Whether every shard has caught up with its feed and publishes from here.
    pub fn is_active(&self) -> bool {
        self.shards.iter().all(|shard| shard.status.is_active())
    }

    /// Whether every shard has an owner, here or on another host.
    pub fn is_looked_after(&self) -> bool {
        self.shards.iter().all(|shard| shard.status.is_owned())
    }

    /// The shards whose actors have panicked here since the start.
    pub fn troubles(&self) -> Vec<ShardTrouble> {
        self.shards.iter().filter_map(|shard| shard.status.trouble()).collect()
    }

    /// The subset of them that is down now and has no other owner.
    pub fn troubles_now(&self) -> Vec<ShardTrouble> {
        let down = self.shards.iter().filter(|shard| !shard.status.is_owned());
        let troubles = down.filter_map(|shard| shard.status.trouble());
        troubles.filter(|trouble| trouble.next != AfterTrouble::Opened).collect()
    }

    /// Whether this host can call a destination.
    pub fn can_call(&self, destination: &DestinationName) -> bool {
        terms_of(&self.destinations.borrow(), destination).is_some()
    }

    /// The shards that this host owns, and their lanes. Shards are asked at once; a shard that does not answer in time
    /// is left out.
    pub async fn look(&self) -> Vec<(ShardView, Vec<LaneView>)> {
        let asked = self.shards.iter().map(|shard| shard.ask(Inquiry::Look));
        futures_util::future::join_all(asked).await.into_iter().flatten().collect()
    }

    /// Why a waiting message of a shard would not be admitted if it were due. `None` if this host does not own the
    /// shard.
    pub async fn why(&self, shard: ShardId, message: MessageEntry) -> Option<Held> {
        let shard = self.shards.get(usize::from(shard.0))?;
        shard.ask(|reply| Inquiry::Why(Box::new(message), reply)).await
    }

    /// Makes a checkpoint of a shard now.
    pub async fn checkpoint(&self, shard: ShardId) -> Asked {
        let Some(shard) = self.shards.get(usize::from(shard.0)) else { return Asked::NotHere };
        let Some(session) = shard.status.inquiries() else { return Asked::NotHere };
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

    /// Returns once every actor has settled its claims, flushed its index and given up its shard.
    pub async fn stopped(&self) {
        for shard in self.shards.iter() {
            let mut done = shard.done.clone();
            while done.changed().await.is_ok() {}
        }
    }
}

impl ShardHandle {
    /// Asks the shard's session; `None` without a session here, or without an answer in time.
    async fn ask<A>(&self, inquiry: impl FnOnce(oneshot::Sender<A>) -> Inquiry) -> Option<A> {
        let session = self.status.inquiries()?;
        let (reply, answer) = oneshot::channel();
        session.try_send(inquiry(reply)).ok()?;
        tokio::time::timeout(ANSWER_MAX, answer).await.ok()?.ok()
    }
}

/// The work classes of one shard, whose queues take no more than its part of the memory.
fn work_plan(options: &TimelineOptions, shards: u16) -> Result<WorkPlan, TimelineError> {
    session::plan(options.claimed_max, options.memory_bytes / usize::from(shards.max(1))).map_err(|error| {
        TimelineError(format!(
            "the timeline's shards cannot do their work: {error}: lower `timeline.claimed_max`, or raise `timeline.memory_mib`"
        ))
    })
}

/// File descriptors that this many shards take at the most, with the connections to the object store.
pub fn descriptors(shards: u16) -> usize {
    usize::from(shards) * FILES_MAX.unsigned_abs() as usize + checkpoint::CONNECTIONS_MAX
}

#[cfg(test)]
mod tests;
