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
//! - RocksDB holds an index of what SQL holds: deleting its directory loses nothing, and a value in it that is not as it
//!   was written has the whole index built again.
//! - A shard has one owner. What an owner claims is admitted under its lease's epoch; one that lost its lease publishes
//!   nothing and records nothing.
//! - Nothing is published before its time, by a clock that says how far it can be trusted.
//! - Memory is bounded by lanes and claims, not by messages that wait.
//!
//! It must not decide what an attempt makes of a message (`model::message` does) nor call a destination (`publish` does).

mod claims;
mod clock;
mod database;
mod frame;
mod gates;
mod index;
mod keys;
mod lease;
mod recovery;
mod schedule;
mod session;
mod shard;
mod signals;
mod source;
mod values;

pub use signals::describe;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::database::{FILES_MAX, Memory};
use self::lease::LeaseKeeper;
use self::shard::Shard;
use crate::env::{self, Env};
use crate::model::destination::Destinations;
use crate::model::ids::RuntimeId;
use crate::publish::Publisher;
use crate::store::{ShardId, Store};

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
    /// The widest clock interval that messages are published under.
    pub clock_uncertainty_max: Duration,
}

/// The shards of this runtime; clones share them.
#[derive(Clone)]
pub struct Timeline {
    shards: Arc<[ShardHandle]>,
    wake: watch::Sender<u64>,
}

/// Why the timeline cannot start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TimelineError(pub String);

struct ShardHandle {
    active: Arc<AtomicBool>,
    elsewhere: Arc<AtomicBool>,
    /// Closed once the shard's thread is done.
    done: watch::Receiver<()>,
}

impl Timeline {
    /// Starts the shards' actors; they acquire their shards, which takes until the leases of a dead owner are over, and
    /// stop when `stop` is cancelled.
    pub async fn start(
        options: TimelineOptions,
        runtime: RuntimeId,
        destinations: Arc<Destinations>,
        store: Store,
        publisher: Publisher,
        env: Env,
        stop: CancellationToken,
    ) -> Result<Self, TimelineError> {
        let cannot = |error: &dyn std::fmt::Display| {
            TimelineError(format!("the timeline cannot be kept in {}: {error}", options.directory.display()))
        };
        std::fs::create_dir_all(&options.directory).map_err(|error| cannot(&error))?;
        let memory = Arc::new(Memory::new(options.memory_bytes));
        let (wake, woken) = watch::channel(0);
        let (gates_seen, gates) = watch::channel(None);
        env::spawn("lane gates", gates::watch_gates(store.clone(), gates_seen, stop.clone()));
        let mut shards = Vec::new();
        for id in (0..store.shard_count()).map(ShardId) {
            let active = Arc::new(AtomicBool::new(false));
            let elsewhere = Arc::new(AtomicBool::new(false));
            let keeper = LeaseKeeper {
                store: store.clone(),
                env: env.clone(),
                runtime,
                duration: options.lease,
                wake: woken.clone(),
            };
            let shard = Shard {
                id,
                path: options.directory.join(format!("shard-{:05}", id.0)),
                memory: memory.clone(),
                keeper,
                destinations: destinations.clone(),
                gates: gates.clone(),
                store: store.clone(),
                publisher: publisher.clone(),
                env: env.clone(),
                poll: options.poll,
                claimed_max: options.claimed_max,
                clock_uncertainty_max: options.clock_uncertainty_max,
                active: active.clone(),
                elsewhere: elsewhere.clone(),
                wake: woken.clone(),
                stop: stop.clone(),
            };
            let done = start_thread(shard).map_err(|error| cannot(&error))?;
            shards.push(ShardHandle { active, elsewhere, done });
        }
        Ok(Self { shards: shards.into(), wake })
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

    /// Returns once every actor has settled its claims, flushed, and given up its shard.
    pub async fn stopped(&self) {
        for shard in self.shards.iter() {
            let mut done = shard.done.clone();
            while done.changed().await.is_ok() {}
        }
    }
}

/// How many file descriptors this many shards take at the most.
pub fn descriptors(shards: u16) -> usize {
    usize::from(shards) * FILES_MAX.unsigned_abs() as usize
}

/// Runs a shard on a thread of its own. The receiver closes when the thread ends, however it does.
fn start_thread(shard: Shard) -> std::io::Result<watch::Receiver<()>> {
    struct Ending {
        active: Arc<AtomicBool>,
        _done: watch::Sender<()>,
    }
    impl Drop for Ending {
        fn drop(&mut self) {
            self.active.store(false, Ordering::Release);
            if std::thread::panicking() {
                tracing::error!("a shard's actor panicked; its messages wait until the host is started again");
            }
        }
    }
    let (sender, done) = watch::channel(());
    let runtime = Handle::current();
    let ending = Ending { active: shard.active.clone(), _done: sender };
    std::thread::Builder::new().name(format!("shard-{}", shard.id.0)).spawn(move || {
        let _ending = ending;
        runtime.block_on(shard.run());
    })?;
    Ok(done)
}

#[cfg(test)]
mod tests;
