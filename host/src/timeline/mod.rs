//! The timeline: Delay Shards, each a single-writer actor over a RocksDB of its own. The only user of rocksdb.
//!
//! RocksDB holds an index of what SQL holds: deleting its directory loses nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::env::Env;
use crate::model::destination::Destinations;
use crate::model::ids::RuntimeId;
use crate::publish::Publisher;
use crate::store::Store;

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
pub struct Timeline {}

/// Why the timeline cannot start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TimelineError(pub String);

impl Timeline {
    /// Acquires the shards and starts their actors; they stop when `stop` is cancelled.
    pub async fn start(
        options: TimelineOptions,
        runtime: RuntimeId,
        destinations: Arc<Destinations>,
        store: Store,
        publisher: Publisher,
        env: Env,
        stop: CancellationToken,
    ) -> Result<Self, TimelineError> {
        let _ = (options, runtime, destinations, store, publisher, env, stop);
        Ok(Self {})
    }

    /// A hint that the feed has something new.
    pub fn wake(&self) {}

    /// Whether every shard has caught up with its feed and is publishing what is due.
    pub fn is_active(&self) -> bool {
        todo!()
    }

    /// Returns once every actor has settled its claims, flushed, and given up its shard.
    pub async fn stopped(&self) {
        todo!()
    }
}
