//! The store: the only truth, and the only user of sqlx.
//!
//! Every write goes through one writer task. It takes what has arrived while the last commit was being made durable,
//! applies it in one transaction, commits, and then answers all of it: group commit with no timer. Reads that do not
//! decide anything go through a pool of their own.
//!
//! Invariants:
//! - A method that writes resolves after its commit is durable (SQLite: WAL with `synchronous=FULL`), or with an error
//!   that says whether trying again makes sense.
//! - Every transition of a leased row repeats token and epoch in its predicate; a caller whose lease is gone changes
//!   nothing and is told so.
//! - `now` is a parameter.

mod claim;
mod enqueue;
mod error;
mod finish;
mod inspect;
mod messages;
mod packs;
mod shards;
mod stats;

mod checkpoint;
mod file;
mod group;
mod readers;
mod schema;
mod writer;

mod claiming;
mod finalize;
mod lane;
mod listing;
mod materialize;
mod outbox;
mod transitions;

mod statement;
mod stored;
mod unit;

#[cfg(test)]
mod loss;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use claim::{CLAIM_ROWS_MAX, ClaimRequest, Renewal};
pub use enqueue::{Delivery, Enqueued, NewEvent};
pub use error::StoreError;
pub use finish::{Disposition, Finish, Finished};
pub use inspect::{
    EventDetail, EventFilter, EventSummary, MessageDetail, MessageFilter, MessageSummary, PAGE_ROWS_MAX, Page,
    PageRequest, WorkItemDetail,
};
pub use listing::SCAN_ROWS_MAX;
pub use messages::{Admission, AdmissionRequest, Cancelled, OutcomeRecord, Payload, Rescheduled};
pub use packs::{Generation, Installed};
pub use schema::{MigrationReport, migrate};
pub use shards::{ShardId, ShardLease};
pub use stats::Stats;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::SqlitePool;
use tokio::sync::watch;

use self::readers::Readers;
use self::schema::Directory;
use self::writer::{Control, Writer};
use crate::env::Env;

/// Where the store is and how much it may take on.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The data directory; the database is `forebay.sqlite` in it.
    pub data: PathBuf,
    /// Delay Shards; fixed at the first start.
    pub shards: u16,
    /// Requests that may wait for the writer.
    pub queue_requests_max: usize,
    /// Bytes of bodies that may wait for the writer.
    pub queue_bytes_max: usize,
    /// Connections of the reader pool.
    pub readers: u32,
    /// How long a read may wait for a connection.
    pub read_timeout: Duration,
}

/// A handle to the store; clones share it. When the last one is dropped, what is queued is still done, and the store
/// closes.
#[derive(Clone)]
pub struct Store {
    writer: Arc<Writer>,
    readers: Arc<Readers>,
    shards: u16,
}

impl Store {
    /// Opens or creates the store, takes the directory's lock and brings the schema up to date.
    ///
    /// Fails, and changes nothing, if another process has it open, if its schema is newer than this binary, if the file
    /// is not a healthy database, or if `shards` differs from what it was created with.
    pub async fn open(options: StoreOptions, env: Env) -> Result<Self, StoreError> {
        let directory = Directory::lock(&options.data)?;
        let connection = schema::open(&directory, options.shards).await?;
        let readers = Readers::new(directory.database(), options.readers, options.read_timeout)?;
        let readers = Arc::new(readers);
        let writer = Writer::start(directory, connection, Arc::clone(&readers), &options, env).await?;
        Ok(Self { writer: Arc::new(writer), readers, shards: options.shards })
    }

    /// Changes after every commit that made work claimable: a hint to look, not a promise to find.
    pub fn subscribe_work(&self) -> watch::Receiver<u64> {
        self.writer.work.subscribe()
    }

    /// Changes after every commit that added to a shard's feed: a hint to look, not a promise to find.
    pub fn subscribe_feed(&self) -> watch::Receiver<u64> {
        self.writer.feed.subscribe()
    }

    /// Whether the database answers: reads through the pool and asks the writer.
    pub async fn probe(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1 FROM shard LIMIT 1").execute(&self.readers()).await?;
        self.writer.control(Control::Probe).await
    }

    /// Finishes what is queued, folds the write-ahead log into the database, and closes. Later calls fail.
    pub async fn close(&self) {
        // An error says that it is closed already.
        let _ = self.writer.control(Control::Close).await;
    }

    fn readers(&self) -> SqlitePool {
        self.readers.pool()
    }
}
