//! The store: the only truth, and the only user of sqlx.
//!
//! Every write goes through one writer task. It takes the requests that arrived during its last transaction, applies
//! them in one, commits, and answers once the commit is durable: group commit with no timer. Reads that decide nothing
//! go through a pool of their own.
//!
//! Invariants:
//! - A method that writes resolves after its commit is durable (SQLite: its log is synced), or with an error that says
//!   whether trying again makes sense.
//! - Every transition of a leased row repeats token and epoch in its predicate; a caller that lost its lease changes
//!   nothing, and its answer says so.
//! - `now` is a parameter.

mod engine;
mod error;

mod messages;
mod packs;
mod retention;
mod shards;
mod work;
mod writer;

mod look;
mod upkeep;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use engine::patience::Patience;
pub use engine::readers::PoolWaits;
pub use engine::schema::{MigrationReport, is_missing, migrate};
pub use engine::server::DatabaseUrl;
pub use error::StoreError;
pub use look::exact::{Claimable, ExactStats};
pub use look::inspect::{
    ActionDetail, EventDetail, EventFilter, EventSummary, MessageDetail, MessageFilter, MessageSummary, PAGE_ROWS_MAX,
    Page, PageRequest, ProjectionPart, WorkItemDetail,
};
pub use look::listing::SCAN_ROWS_MAX;
pub use look::peek::{PEEK_ROWS_MAX, PeekRequest, Peeked, PeekedItem, Standing};
pub use look::queue_mark::QueueMark;
pub use look::stats::Stats;
pub use messages::{
    Admission, AdmissionRequest, Cancelled, FeedPage, OutcomeRecord, Payload, Redriven, Rescheduled, Resolution,
    Resolved,
};
pub use packs::{
    Activated, GENERATIONS_SHOWN_MAX, Generation, GenerationStatus, Installed, Installing, ServingGeneration,
};
pub use retention::{
    OnShelf, PAGE_UNITS_MAX, Place, Removed, Retired, SHELF_COUNTED_MAX, Shelf, Standing as RetentionStanding,
};
pub use shards::checkpoints::CheckpointRow;
pub use shards::database_time::DatabaseTime;
pub use shards::destinations::{
    DestinationChange, DestinationChanged, DestinationRow, DestinationWish, PENDING_COUNTED_MAX, Pending,
};
pub use shards::gates::{GateChange, GateRow, SetBy};
pub use shards::runtimes::{RUNTIMES_MAX, Runtimes};
pub use shards::withdrawals::Withdrawal;
pub use shards::{ShardId, ShardLease, ShardRow};
#[cfg(test)]
pub(crate) use tests::tamper::Tampering;
pub use upkeep::confirm::{CoverageWatch, Gap, GapKind};
pub use upkeep::counters::Miscount;
pub use upkeep::coverage::{CoverageGap, CoverageRepair, GAP_EVENTS_SHOWN_MAX, RouteRules, RulesOf};
pub use upkeep::examine::{Behaviour, Contents, Examination, Examined, Repair, ServerFacts, examine, repair};
pub use work::claim::{CLAIM_ROWS_MAX, ClaimRequest, ProcessingRows, Renewal};
pub use work::draining::{DRAIN_ROWS_MAX, DrainTarget, Drained};
pub use work::enqueue::{Delivery, Enqueued, NewEvent};
pub use work::finish::{Disposition, Finish, Finished, Successor};
pub use work::replay::Replayed;
pub use work::sweep::{Sweep, SweepCursor};
pub use writer::transact::describe;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout_at;

use self::engine::connection::Connection;
use self::engine::readers::{Reader, Readers};
use self::engine::schema::{self, Directory};
use self::engine::server::Server;
use self::engine::values::values;
use self::writer::link::Link;
use self::writer::{Control, Writer, WriterParts};
use crate::env::{self, Env};

/// Where the store is and how much it may take on.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The data directory. Without a URL, the database is `forebay.sqlite` in it.
    pub data: PathBuf,
    /// The database that this host shares with others: `mysql://user:password@host:port/database`.
    pub database_url: Option<DatabaseUrl>,
    /// The clock that measures leases in a shared database.
    pub lease_time: LeaseTime,
    /// The number of Delay Shards, fixed at the first start.
    pub shards: u16,
    /// The most requests that wait for the writer.
    pub queue_requests_max: usize,
    /// The most bytes of bodies that wait for the writer.
    pub queue_bytes_max: usize,
    /// The connections of the reader pool.
    pub readers: u32,
    /// The bound on a read's wait for a connection, and again on the wait for an answer about messages.
    pub read_timeout: Duration,
    /// The bounds on a transaction where hosts share the database.
    pub patience: Patience,
}

/// The clock that measures leases in a shared database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseTime {
    /// The database's: no host's clock steals a lease.
    Database,
    /// The host's own: for a host that has the database for itself, and for tests that move time.
    Runtime,
}

/// The smallest packet of a usable server: the largest event of the default configuration, and the rest of its row.
pub const PACKET_BYTES_MIN: u64 = 32 * 1024 * 1024;

/// The packet that a server should take: groups of events come in one packet too.
pub const PACKET_BYTES_ADVISED: u64 = 64 * 1024 * 1024;

/// Room in a packet for the rest of a row, besides its largest value.
pub const PACKET_MARGIN_BYTES: u64 = 1024 * 1024;

/// A handle to the store; clones share it. Dropping the last one finishes queued work and closes the store.
#[derive(Clone)]
pub struct Store {
    writer: Arc<Writer>,
    readers: Arc<Readers>,
    shards: u16,
    lease_time: LeaseTime,
    /// The largest packet that the server takes; `None` without one.
    packet_bytes: Option<u64>,
}

impl Store {
    /// Opens or creates the store, takes the directory's lock and brings the schema up to date.
    ///
    /// Fails, and changes nothing, if another process uses the directory, if the schema is newer than this binary, if
    /// the database is not healthy, or if `shards` differs from the number at its creation.
    pub async fn open(options: StoreOptions, env: Env) -> Result<Self, StoreError> {
        let directory = Directory::lock(&options.data)?;
        match &options.database_url {
            Some(url) => Self::open_server(directory, url, &options, env).await,
            None => Self::open_file(directory, &options, env).await,
        }
    }

    async fn open_file(directory: Directory, options: &StoreOptions, env: Env) -> Result<Self, StoreError> {
        let connection = schema::open(&directory, options.shards).await?;
        let path = directory.database();
        let readers = Readers::of_file(path.clone(), options.readers, options.read_timeout, env.clone())?;
        let readers = Arc::new(readers);
        let link = Link::file(connection, &path).await?;
        let parts = WriterParts { directory, readers: Arc::clone(&readers), env };
        let writer = Arc::new(Writer::of_file(parts, link, options)?);
        let (shards, lease_time) = (options.shards, options.lease_time);
        Ok(Self { writer, readers, shards, lease_time, packet_bytes: None })
    }

    async fn open_server(
        directory: Directory,
        url: &DatabaseUrl,
        options: &StoreOptions,
        env: Env,
    ) -> Result<Self, StoreError> {
        let server = Server::open(url, options.shards, PACKET_BYTES_MIN, options.patience).await?;
        let server = Arc::new(server);
        let readers = Arc::new(Readers::of_server(&server, options.readers, options.read_timeout, env.clone()));
        let parts = WriterParts { directory, readers: Arc::clone(&readers), env };
        let writer = Arc::new(Writer::of_server(parts, &server, options)?);
        let (shards, lease_time) = (options.shards, options.lease_time);
        Ok(Self { writer, readers, shards, lease_time, packet_bytes: Some(server.packet_bytes()) })
    }

    /// The largest packet that the database server takes, if there is one. A row's largest value and
    /// [`PACKET_MARGIN_BYTES`] have to fit.
    pub fn packet_bytes(&self) -> Option<u64> {
        self.packet_bytes
    }

    /// Refuses a value that fits into no packet: the server would drop the connection, and its whole group with it.
    fn fits(&self, bytes: usize) -> Result<(), StoreError> {
        match self.packet_bytes {
            Some(packet) if bytes as u64 + PACKET_MARGIN_BYTES > packet => Err(StoreError::Unstorable(format!(
                "{bytes} bytes do not go into a packet of the database server, whose max_allowed_packet is {packet}"
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Changes after every commit that made work claimable: a hint to look, not a promise to find.
    pub fn subscribe_work(&self) -> watch::Receiver<u64> {
        self.writer.hints.work.subscribe()
    }

    /// Changes after every commit that added to a shard's feed: a hint to look, not a promise to find.
    pub fn subscribe_feed(&self) -> watch::Receiver<u64> {
        self.writer.hints.feed.subscribe()
    }

    /// Changes after every commit of this host that set a gate: a hint to look, not a promise to find.
    pub fn subscribe_gates(&self) -> watch::Receiver<u64> {
        self.writer.hints.gates.subscribe()
    }

    /// Changes after every commit of this host that changed a destination.
    pub fn subscribe_destinations(&self) -> watch::Receiver<u64> {
        self.writer.hints.destinations.subscribe()
    }

    /// Whether the database answers: reads through the pool and asks the writer.
    pub async fn probe(&self) -> Result<(), StoreError> {
        let mut reader = self.reader().await?;
        reader.connection().fetch_optional("SELECT 1 FROM shard LIMIT 1", values![]).await?;
        drop(reader);
        self.writer.control(|reply| Control::Probe((), reply)).await
    }

    /// Finishes what is queued, folds the write-ahead log into the database, and closes. Later calls fail.
    pub async fn close(&self) {
        // An error says that it is closed already.
        let _ = self.writer.close().await;
    }

    /// The waits of readers for a connection since the last call; one caller.
    pub fn take_pool_waits(&self) -> PoolWaits {
        self.readers.take_waits()
    }

    async fn reader(&self) -> Result<Reader, StoreError> {
        Ok(self.readers.acquire().await?)
    }

    /// Reads what others wait for: the read ends in time, and with it its connection if there is no answer by then. A
    /// server that has silently gone would otherwise be waited for as long as TCP does.
    async fn bounded<T>(
        &self,
        read: impl AsyncFnOnce(&mut Connection<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let answered = async {
            let mut reader = self.reader().await?.in_doubt();
            let answer = read(&mut reader.connection()).await?;
            reader.is_answered();
            Ok(answer)
        };
        let late = |_| Err(StoreError::Unavailable("the database did not answer a read in time".to_owned()));
        // Once for the connection, and once for the answer.
        timeout_at(env::deadline(2 * self.readers.timeout()), answered).await.unwrap_or_else(late)
    }

    /// As [`Store::bounded`], and waits until what was read is durable. An index that is built on it would be ahead of
    /// the store if it held what the store loses with the machine.
    async fn settled<T>(
        &self,
        read: impl AsyncFnOnce(&mut Connection<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let answer = self.bounded(read).await?;
        self.writer.durable().await?;
        Ok(answer)
    }
}
