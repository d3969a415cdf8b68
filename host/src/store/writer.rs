//! The writer: one task that owns the one connection that writes, on a thread of its own, so that a commit's steps do not
//! queue behind guests that compute.
//!
//! It takes what has arrived while the last commit was being made durable, up to named bounds, applies it in one
//! transaction, commits, and then answers all of it. Deliveries and everything else come in by queues of their own, and
//! the other one is emptied first: whatever takes work off the store is never held up by what brings more.
//!
//! Invariants:
//! - Nobody is answered before the commit.
//! - A failed transaction changes nothing, and all who were in it are told so; a failed commit is told as what it is.
//! - The task outlives every failure of the database: it connects again when there is something to do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::StoreOptions;
use super::checkpoint;
use super::enqueue::{Delivery, Enqueued};
use super::error::StoreError;
use super::file::FileIdentity;
pub(super) use super::group::Control;
use super::group::{Group, Reply, Waiting};
#[cfg(test)]
use super::loss::{Loss, Losses};
use super::readers::Readers;
use super::schema::{self, Directory};
use super::unit::{Sequences, Unit};
use crate::env::{Env, spawn_thread};

/// Requests other than deliveries that may wait. More have to wait for a place, in the order of their arrival.
const CONTROL_REQUESTS_MAX: usize = 1_024;

/// Rows after which a transaction takes no more requests: commits get no cheaper a row beyond about a thousand rows.
const GROUP_ROWS_MAX: usize = 1_024;

/// Bytes of bodies after which a transaction takes no more requests.
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;

/// After a failed attempt to connect, how long everybody is told so at once before the next attempt.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The way to the writer.
pub(super) struct Writer {
    control: mpsc::Sender<Control>,
    deliveries: mpsc::Sender<Waiting>,
    bytes: Arc<Semaphore>,
    bytes_max: u32,
    pub(super) work: watch::Sender<u64>,
    pub(super) feed: watch::Sender<u64>,
    #[cfg(test)]
    pub(super) losses: Losses,
}

impl Writer {
    /// Starts the task on a connection that is open and up to date.
    pub(super) async fn start(
        directory: Directory,
        connection: SqliteConnection,
        readers: Arc<Readers>,
        options: &StoreOptions,
        env: Env,
    ) -> Result<Self, StoreError> {
        let StoreOptions { shards, queue_requests_max, queue_bytes_max, .. } = *options;
        let (control, control_queue) = mpsc::channel(CONTROL_REQUESTS_MAX);
        let (deliveries, delivery_queue) = mpsc::channel(queue_requests_max.max(1));
        let (work, feed) = (watch::Sender::new(0), watch::Sender::new(0));
        #[cfg(test)]
        let losses = Losses::default();
        let path = directory.database();
        let link = Link::new(connection, &path).await?;
        let task = Task {
            _directory: directory,
            path,
            shards,
            link: Some(link),
            readers,
            restarts: control.downgrade(),
            control: control_queue,
            deliveries: delivery_queue,
            work: work.clone(),
            feed: feed.clone(),
            env,
            failed_at: None,
            failing: false,
            #[cfg(test)]
            losses: losses.clone(),
        };
        spawn_thread("store-writer", task.run())?;
        let bytes_max = u32::try_from(queue_bytes_max).unwrap_or(u32::MAX);
        let bytes = Arc::new(Semaphore::new(usize::try_from(bytes_max).unwrap_or(usize::MAX)));
        Ok(Self {
            control,
            deliveries,
            bytes,
            bytes_max,
            work,
            feed,
            #[cfg(test)]
            losses,
        })
    }

    /// Queues a delivery if there is room, and waits for its answer.
    pub(super) async fn enqueue(&self, delivery: Delivery) -> Result<Enqueued, StoreError> {
        // A delivery larger than the whole queue may have it for itself.
        let bytes = u32::try_from(delivery.bytes()).unwrap_or(u32::MAX).min(self.bytes_max);
        let permit = Arc::clone(&self.bytes).try_acquire_many_owned(bytes);
        let permit = permit.map_err(|_| StoreError::Busy { queue: "bytes" })?;
        let (reply, answer) = oneshot::channel();
        self.deliveries.try_send(Waiting { delivery, reply, permit }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy { queue: "requests" },
            mpsc::error::TrySendError::Closed(_) => closed(),
        })?;
        answer.await.unwrap_or_else(|_| Err(unanswered()))
    }

    /// Queues anything else, and waits for its answer.
    pub(super) async fn control<A>(&self, request: impl FnOnce(Reply<A>) -> Control) -> Result<A, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.control.send(request(reply)).await.map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(unanswered()))
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("it is closed".to_owned())
}

fn unanswered() -> StoreError {
    StoreError::Unknown("it closed before it answered".to_owned())
}

/// A connection, and what holds only as long as it does.
struct Link {
    connection: SqliteConnection,
    sequences: Sequences,
    file: FileIdentity,
}

impl Link {
    async fn new(mut connection: SqliteConnection, path: &std::path::Path) -> Result<Self, sqlx::Error> {
        let file = FileIdentity::of(path)?;
        let sequences = Sequences::load(&mut connection).await?;
        Ok(Self { connection, sequences, file })
    }
}

/// Whom a commit concerns beside those who asked for it.
struct Hints {
    work_changed: bool,
    feed_changed: bool,
}

struct Task {
    _directory: Directory,
    path: PathBuf,
    shards: u16,
    link: Option<Link>,
    readers: Arc<Readers>,
    /// How the checkpoint task asks for its request to be done.
    restarts: mpsc::WeakSender<Control>,
    control: mpsc::Receiver<Control>,
    deliveries: mpsc::Receiver<Waiting>,
    work: watch::Sender<u64>,
    feed: watch::Sender<u64>,
    env: Env,
    /// When the last attempt to connect failed, by the monotonic clock.
    failed_at: Option<Duration>,
    /// Whether the last transaction failed.
    failing: bool,
    #[cfg(test)]
    losses: Losses,
}

impl Task {
    async fn run(mut self) {
        let mut checkpointer = checkpoint::start(self.path.clone(), self.restarts.clone());
        let mut closing = None;
        while let Some(mut group) = self.collect().await {
            if let Some(reply) = group.take_close() {
                // Nothing more comes in, and what is queued is still done.
                self.control.close();
                self.deliveries.close();
                closing = Some(reply);
            }
            let (rows, body_bytes, restarts_log) = (group.rows(), group.body_bytes(), group.restarts_log());
            self.commit(group).await;
            checkpointer.written(rows, body_bytes);
            if restarts_log {
                self.restart_log().await;
            }
        }
        checkpointer.stop().await;
        self.end().await;
        if let Some(reply) = closing {
            let _ = reply.send(Ok(()));
        }
    }

    /// Waits for a request and takes all that has come with it. `None` when no more can come.
    async fn collect(&mut self) -> Option<Group> {
        let mut group = Group::default();
        tokio::select! {
            biased;
            Some(control) = self.control.recv() => group.control(control),
            Some(waiting) = self.deliveries.recv() => group.deliver(waiting),
            else => return None,
        }
        while group.has_room()
            && let Ok(control) = self.control.try_recv()
        {
            group.control(control);
        }
        while group.has_room()
            && let Ok(waiting) = self.deliveries.try_recv()
        {
            group.deliver(waiting);
        }
        Some(group)
    }

    async fn commit(&mut self, mut group: Group) {
        let outcome = self.transact(&mut group).await;
        match &outcome {
            Ok(hints) => {
                // Before the answers: whoever is woken by one finds the hints given.
                if hints.work_changed {
                    self.work.send_modify(|changes| *changes += 1);
                }
                if hints.feed_changed {
                    self.feed.send_modify(|changes| *changes += 1);
                }
            }
            // Whatever went wrong may be wrong with the connection: the next group gets a new one.
            Err(_) => self.link = None,
        }
        self.tell(outcome.as_ref().err());
        group.settle(&outcome.map(|_| ()));
    }

    /// Logs that the store fails, and that it works again: once each, however many requests come meanwhile.
    fn tell(&mut self, error: Option<&StoreError>) {
        match error {
            Some(error) if !self.failing => tracing::error!(%error, "the store fails"),
            None if self.failing => tracing::info!("the store works again"),
            Some(_) | None => {}
        }
        self.failing = error.is_some();
    }

    async fn transact(&mut self, group: &mut Group) -> Result<Hints, StoreError> {
        #[cfg(test)]
        let loss = self.losses.next();
        let link = self.connect().await?;
        let mut transaction = link.connection.begin_with("BEGIN IMMEDIATE").await?;
        let mut unit = Unit::new(&mut transaction, link.sequences.clone());
        let applied = group.apply(&mut unit).await;
        let Unit { sequences, work_changed, feed_changed, .. } = unit;
        if let Err(error) = applied {
            // If even this fails, the connection is dropped, and the transaction with it.
            let _ = transaction.rollback().await;
            // Whatever it was, it may have been a neighbour's: everybody may try again.
            return Err(StoreError::Unavailable(error.to_string()));
        }
        #[cfg(test)]
        Loss::strike(loss, Loss::BeforeCommit)?;
        transaction.commit().await.map_err(|error| StoreError::Unknown(error.to_string()))?;
        #[cfg(test)]
        Loss::strike(loss, Loss::AfterCommit)?;
        link.sequences = sequences;
        Ok(Hints { work_changed, feed_changed })
    }

    /// The connection to the file that now has the database's name, a new one if need be.
    async fn connect(&mut self) -> Result<&mut Link, StoreError> {
        let current = FileIdentity::of(&self.path);
        let unchanged = self.link.take().filter(|link| current.as_ref().is_ok_and(|current| *current == link.file));
        let link = match unchanged {
            Some(link) => link,
            None => self.connect_again().await?,
        };
        Ok(self.link.insert(link))
    }

    async fn connect_again(&mut self) -> Result<Link, StoreError> {
        let now = self.env.clock.monotonic();
        if self.failed_at.is_some_and(|failed_at| now < failed_at + RECONNECT_PAUSE) {
            return Err(StoreError::Unavailable("it could not be reached a moment ago".to_owned()));
        }
        let connected = match schema::reconnect(&self.path, self.shards).await {
            Ok(connection) => Link::new(connection, &self.path).await,
            Err(error) => Err(error),
        };
        match connected {
            Ok(link) => {
                self.failed_at = None;
                self.readers.follow(&link.file);
                Ok(link)
            }
            Err(error) => {
                self.failed_at = Some(now);
                Err(error.into())
            }
        }
    }

    /// Folds the rest of the log into the database. Nobody writes meanwhile, so the next transaction begins a new log.
    async fn restart_log(&mut self) {
        if let Some(link) = &mut self.link
            && let Err(error) = checkpoint::finish(&mut link.connection).await
        {
            tracing::warn!(%error, "the log could not be folded into the database");
        }
    }

    async fn end(mut self) {
        self.readers.close().await;
        let Some(mut link) = self.link.take() else { return };
        if let Err(error) = checkpoint::truncate(&mut link.connection).await {
            tracing::warn!(%error, "the log stays beside the database");
        }
        if let Err(error) = link.connection.close().await {
            tracing::warn!(%error, "the database was not closed well");
        }
    }
}

impl Group {
    fn has_room(&self) -> bool {
        self.rows() < GROUP_ROWS_MAX && self.body_bytes() < GROUP_BYTES_MAX
    }
}
