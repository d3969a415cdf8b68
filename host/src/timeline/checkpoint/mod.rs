//! Checkpoints: copies of shards' indexes in an object store, for owners that find no index of their own.
//!
//! ```text
//!   copy (links, on this disk) ──> digests ──> files ──> manifest ──> recorded in SQL ──> what is not needed is removed
//! ```
//!
//! A checkpoint is a manifest, which names files by their digests, and those files. A file that an earlier checkpoint
//! has is not uploaded again. Objects lie under the store's identity, the shard, and the epoch of the owner that wrote
//! them:
//!
//! ```text
//!   {store}/shard-00003/{epoch}/{digest}.file
//!   {store}/shard-00003/{epoch}/{number}.manifest
//! ```
//!
//! Invariants:
//! - What counts is what SQL has recorded, under the shard's lease and with the manifest's digest. An owner that has
//!   lost its lease may go on writing objects, and nobody will ever read them. A crash before the record leaves objects
//!   that a later owner removes; a crash after it leaves a checkpoint, and older objects that a later owner removes.
//! - An owner removes objects of its own epoch and of earlier ones only, and none that a checkpoint names which counted
//!   when SQL last said that the shard was its own. So one that does not know yet that it has lost its lease removes
//!   nothing that its successors need: they refer to files of their own epochs, and to files that counted when they
//!   began.
//! - Every byte is checked against its digest before RocksDB sees it. What does not fit is refused, loudly, and the
//!   next older checkpoint is tried; without one, the index is built from SQL.
//! - A shard's writer waits for none of this. One part of one file a runtime is in memory at a time.

mod client;
mod fetch;
mod make;
mod manifest;
mod operations;
mod place;
#[cfg(test)]
mod tests;

pub use place::{CheckpointPlace, S3Place};

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use futures_util::TryStreamExt as _;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt as _};
use tokio::sync::Semaphore;

use self::operations::{Operations, Purpose, REQUEST_TIME_MAX};
use super::database::Broken;
use crate::env::Env;
use crate::store::{ShardId, Store, StoreError};

pub(super) use fetch::Refused;
pub(super) use make::{Job, Made};

/// Shards whose checkpoints are made at once, a runtime.
const AT_ONCE: usize = 1;
/// What is uploaded in one request.
const PART_BYTES: usize = 8 << 20;
/// Objects of one shard that are looked at. There are far fewer, unless somebody else writes there.
const OBJECTS_MAX: usize = 65_536;

/// Connections to the object store at the most.
pub(super) const CONNECTIONS_MAX: usize = operations::operations_max();

/// Says what the metrics of this module mean.
pub(super) fn describe() {
    operations::describe();
}

/// How checkpoints are made and kept.
#[derive(Debug, Clone)]
pub struct CheckpointOptions {
    /// Where.
    pub place: CheckpointPlace,
    /// How often, while anything changes; `None` for only when an operator asks.
    pub every: Option<Duration>,
    /// How many of a shard are kept.
    pub kept: u32,
}

/// The checkpoints of this runtime's shards.
pub(super) struct Checkpoints {
    objects: Arc<dyn ObjectStore>,
    /// What everything lies under: the store's identity.
    root: String,
    pub(super) every: Option<Duration>,
    kept: u32,
    at_once: Semaphore,
    operations: Operations,
    store: Store,
    env: Env,
}

/// Why there is no checkpoint now.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckpointError {
    /// The index cannot be copied.
    #[error("the index cannot be copied: {0}")]
    Copy(#[from] Broken),
    /// The copy cannot be read.
    #[error("the copy of the index cannot be read: {0}")]
    Disk(#[from] std::io::Error),
    /// The object store does not do what it is asked to.
    #[error("the object store: {0}")]
    Objects(#[from] object_store::Error),
    /// It does not answer in time.
    #[error("the object store does not answer within {} s", REQUEST_TIME_MAX.as_secs())]
    TooSlow,
    /// It cannot be recorded.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The shard is somebody else's.
    #[error("another host owns the shard now")]
    Fenced,
    /// The shard's owner here ends.
    #[error("the shard is being given up")]
    Stopped,
}

impl Checkpoints {
    /// Opens the place that they are kept in.
    pub(super) async fn open(options: CheckpointOptions, store: Store, env: Env) -> Result<Self, String> {
        let objects = options.place.open().map_err(|error| format!("checkpoints cannot be kept: {error}"))?;
        let identity = store.identity().await.map_err(|error| error.to_string())?;
        Ok(Self::over(objects, identity, &options, store, env))
    }

    fn over(
        objects: Arc<dyn ObjectStore>,
        identity: [u8; 16],
        options: &CheckpointOptions,
        store: Store,
        env: Env,
    ) -> Self {
        let root = match &options.place {
            CheckpointPlace::Folder(_) => HEXLOWER.encode(&identity),
            CheckpointPlace::S3(place) => format!("{}{}", place.prefix(), HEXLOWER.encode(&identity)),
        };
        let at_once = Semaphore::new(AT_ONCE);
        let operations = Operations::new();
        Self { objects, root, every: options.every, kept: options.kept, at_once, operations, store, env }
    }

    fn folder(&self, shard: ShardId) -> String {
        format!("{}/shard-{:05}", self.root, shard.0)
    }

    fn file_path(&self, shard: ShardId, epoch: u64, digest: &[u8; 32]) -> ObjectPath {
        format!("{}/{epoch:020}/{}.file", self.folder(shard), HEXLOWER.encode(digest)).into()
    }

    fn manifest_path(&self, shard: ShardId, epoch: u64, number: u64) -> ObjectPath {
        format!("{}/{epoch:020}/{number:06}.manifest", self.folder(shard)).into()
    }

    /// The epoch of the owner that wrote an object of the shard.
    fn epoch_of(&self, shard: ShardId, path: &ObjectPath) -> Option<u64> {
        let below = path.as_ref().strip_prefix(&self.folder(shard))?.strip_prefix('/')?;
        below.split_once('/')?.0.parse().ok()
    }

    /// Every object of a shard, and its size.
    async fn list(&self, shard: ShardId) -> Result<HashMap<ObjectPath, u64>, CheckpointError> {
        let mut found = HashMap::new();
        let mut objects = self.objects.list(Some(&self.folder(shard).into()));
        while found.len() < OBJECTS_MAX
            && let Some(object) = self.operations.ask(Purpose::Keeping, objects.try_next()).await?
        {
            found.insert(object.location, object.size);
        }
        Ok(found)
    }

    /// Removes objects; what cannot be removed now is removed another time.
    async fn remove(&self, paths: impl Iterator<Item = &ObjectPath>) {
        for path in paths {
            if let Err(error) = self.operations.ask(Purpose::Keeping, self.objects.delete(path)).await {
                tracing::warn!(%path, %error, "an object of an old checkpoint cannot be removed now");
                return;
            }
        }
    }
}
