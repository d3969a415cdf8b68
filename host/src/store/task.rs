//! A task that writes: it owns a connection, on a thread of its own, so that a commit's steps do not queue behind guests
//! that compute.
//!
//! It takes what has arrived meanwhile, up to named bounds, applies it in one transaction and commits. All of it is answered
//! once the commit is durable: a server's is when it is made, the embedded database's a little later (`durability`).
//!
//! Invariants:
//! - Nobody is answered before the commit is durable.
//! - A failed transaction changes nothing, and all who were in it are told so; a failed commit is told as what it is.
//! - A transaction that lost against another one is done again, a bounded number of times.
//! - The task outlives every failure of the database: it connects again when there is something to do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, describe_counter};
use tokio::sync::mpsc;

use super::LeaseTime;
use super::checkpoint::{self, Checkpointer};
use super::connection::{CommitError, Connection};
use super::dialect::{Engine, is_conflict};
use super::durability::{Changes, Durability, Ended, Hints};
use super::error::StoreError;
use super::group::{Afterwards, Control, Group, Waiting};
use super::link::{Link, Source};
#[cfg(test)]
use super::loss::{Loss, Losses};
use super::readers::Readers;
use super::schema::Directory;
use super::unit::{Terms, Unit};
use crate::env::{self, Env, spawn_thread};

const CONFLICTS: &str = "forebay_store_conflicts_total";

/// Says what the metrics of this module mean.
pub fn describe() {
    describe_counter!(CONFLICTS, "Transactions that lost against another one and were begun anew");
}

/// Rows after which a transaction takes no more requests: commits get no cheaper a row beyond about a thousand rows.
const GROUP_ROWS_MAX: usize = 1_024;

/// Bytes of bodies after which a transaction takes no more requests.
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;

/// After a failed attempt to connect, how long everybody is told so at once before the next attempt.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// How often a transaction is begun that loses against others.
const ATTEMPTS_MAX: u32 = 10;

/// The longest pause before a transaction is done again for the first time. Each further one may be twice as long.
const CONFLICT_PAUSE: Duration = Duration::from_millis(2);

/// What a task is made of.
#[derive(Clone)]
pub(super) struct TaskParts {
    /// Locked as long as anything is written.
    pub(super) _directory: Arc<Directory>,
    pub(super) source: Source,
    pub(super) lease_time: LeaseTime,
    pub(super) shard_count: u16,
    pub(super) stripe: i64,
    pub(super) readers: Arc<Readers>,
    pub(super) hints: Hints,
    pub(super) env: Env,
    #[cfg(test)]
    pub(super) losses: Losses,
}

pub(super) struct Task {
    parts: TaskParts,
    link: Option<Link>,
    control: mpsc::Receiver<Control>,
    deliveries: mpsc::Receiver<Waiting>,
    /// Of the embedded database.
    durability: Option<Durability>,
    checkpoints: Option<(PathBuf, mpsc::WeakSender<Control>)>,
    /// When the last attempt to connect failed, by the monotonic clock.
    failed_at: Option<Duration>,
    /// Whether the last transaction failed.
    failing: bool,
}

/// Why a transaction did not come about.
enum Failed {
    /// Another one was faster: nothing is written, and it may be done again at once.
    Conflict(sqlx::Error),
    Store(StoreError),
}

impl Task {
    pub(super) fn new(
        parts: TaskParts,
        link: Option<Link>,
        control: mpsc::Receiver<Control>,
        deliveries: mpsc::Receiver<Waiting>,
    ) -> Self {
        Self { parts, link, control, deliveries, durability: None, checkpoints: None, failed_at: None, failing: false }
    }

    /// Has commits made durable by `durability`.
    pub(super) fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Folds the log of the embedded database into it; `restarts` is how the task asks itself for the rest.
    pub(super) fn with_checkpoints(mut self, path: PathBuf, restarts: mpsc::WeakSender<Control>) -> Self {
        self.checkpoints = Some((path, restarts));
        self
    }

    pub(super) fn start(self, name: &'static str) -> Result<(), StoreError> {
        Ok(spawn_thread(name, self.run())?)
    }

    async fn run(mut self) {
        let mut checkpointer = self.checkpoints.take().map(|(path, restarts)| checkpoint::start(path, restarts));
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
            if let Some(checkpointer) = &mut checkpointer {
                checkpointer.written(rows, body_bytes);
            }
            if restarts_log {
                self.restart_log().await;
            }
        }
        if let Some(checkpointer) = checkpointer {
            Checkpointer::stop(checkpointer).await;
        }
        if let Some(durability) = self.durability.take() {
            durability.stop().await;
        }
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
        if let Some(durability) = &self.durability {
            durability.begin();
        }
        let outcome = self.transact(&mut group).await;
        if outcome.is_err() {
            // Whatever went wrong may be wrong with the connection: the next group gets a new one.
            self.link = None;
        }
        self.tell(outcome.as_ref().err());
        let log = self.link.as_ref().and_then(Link::log);
        let ended = Ended { group, outcome, log };
        match &self.durability {
            Some(durability) => durability.hand_over(ended).await,
            None => ended.answer(&self.parts.hints),
        }
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

    /// Applies a group, again if it loses against another transaction.
    async fn transact(&mut self, group: &mut Group) -> Result<Changes, StoreError> {
        let mut attempt = 0;
        loop {
            match self.attempt(group, attempt).await {
                Ok(changes) => return Ok(changes),
                Err(Failed::Store(error)) => return Err(error),
                Err(Failed::Conflict(error)) if attempt + 1 == ATTEMPTS_MAX => {
                    return Err(StoreError::Unavailable(format!(
                        "it lost against others {ATTEMPTS_MAX} times: {error}"
                    )));
                }
                Err(Failed::Conflict(error)) => {
                    counter!(CONFLICTS).increment(1);
                    tracing::debug!(%error, attempt, "a transaction lost against another one");
                    env::sleep(self.pause(attempt)).await;
                    attempt += 1;
                }
            }
        }
    }

    /// A pause of random length, so that two that met do not meet again.
    fn pause(&self, attempt: u32) -> Duration {
        let share = f64::from(self.parts.env.id_entropy()[0]) / f64::from(u8::MAX);
        (CONFLICT_PAUSE * 2_u32.pow(attempt)).mul_f64(share)
    }

    async fn attempt(&mut self, group: &mut Group, attempt: u32) -> Result<Changes, Failed> {
        let TaskParts { shard_count, stripe, lease_time, .. } = self.parts;
        #[cfg(test)]
        let loss = self.parts.losses.next();
        if let Some(durability) = &self.durability {
            durability.check()?;
        }
        let link = self.connect().await?;
        let database_now = link.prepare(group.rows(), lease_time).await?;
        let sequences = link.sequences.clone();
        let authority = std::mem::take(&mut link.authority);
        let mut connection = link.connection();
        let afterwards = match connection.engine() {
            Engine::Sqlite => Afterwards::Spent,
            Engine::MySql { .. } => Afterwards::Kept,
        };
        connection.begin().await?;
        let terms = Terms { shard_count, stripe, database_now };
        let mut unit = Unit::new(connection, sequences, terms, attempt);
        unit.authority = authority;
        let applied = group.apply(&mut unit, afterwards).await;
        let Unit { mut connection, sequences, authority, work_changed, feed_changed, gates_changed, .. } = unit;
        if let Err(error) = applied {
            return Err(undo(connection, error).await);
        }
        #[cfg(test)]
        Loss::strike(loss, Loss::BeforeCommit)?;
        match connection.commit().await {
            Ok(()) => {}
            Err(CommitError::Before(error)) => return Err(undo(connection, error).await),
            Err(CommitError::At(error)) => return Err(Failed::at_commit(error)),
        }
        #[cfg(test)]
        Loss::strike(loss, Loss::AfterCommit)?;
        (link.sequences, link.authority) = (sequences, authority);
        Ok(Changes { work: work_changed, feed: feed_changed, gates: gates_changed })
    }

    /// The connection to what now has the database's name, a new one if need be.
    async fn connect(&mut self) -> Result<&mut Link, StoreError> {
        let link = match self.parts.source.check(self.link.take()) {
            Some(link) => link,
            None => self.connect_again().await?,
        };
        Ok(self.link.insert(link))
    }

    async fn connect_again(&mut self) -> Result<Link, StoreError> {
        let now = self.parts.env.clock.monotonic();
        if self.failed_at.is_some_and(|failed_at| now < failed_at + RECONNECT_PAUSE) {
            return Err(StoreError::Unavailable("it could not be reached a moment ago".to_owned()));
        }
        match self.parts.source.connect(self.parts.shard_count, &self.parts.readers).await {
            Ok(link) => {
                self.failed_at = None;
                Ok(link)
            }
            Err(error) => {
                self.failed_at = Some(now);
                Err(error.into())
            }
        }
    }

    async fn restart_log(&mut self) {
        if let Some(link) = &mut self.link
            && let Err(error) = link.restart_log().await
        {
            tracing::warn!(%error, "the log could not be folded into the database");
        }
    }

    async fn end(mut self) {
        self.parts.readers.close().await;
        let Some(link) = self.link.take() else { return };
        if let Err(error) = link.close().await {
            tracing::warn!(%error, "the database was not closed well");
        }
    }
}

/// Undoes a transaction. Whatever it was that failed, it may have been a neighbour's: everybody may try again. If even
/// this fails, the connection is dropped, and the transaction with it.
async fn undo(mut connection: Connection<'_>, error: sqlx::Error) -> Failed {
    match connection.rollback().await {
        Ok(()) => error.into(),
        Err(_) => Failed::Store(StoreError::Unavailable(error.to_string())),
    }
}

impl Failed {
    /// A commit of which no answer came, or none that says that it was undone.
    fn at_commit(error: sqlx::Error) -> Self {
        if is_conflict(&error) {
            Failed::Conflict(error)
        } else {
            Failed::Store(StoreError::Unknown(error.to_string()))
        }
    }
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        if is_conflict(&error) {
            Failed::Conflict(error)
        } else {
            Failed::Store(StoreError::Unavailable(error.to_string()))
        }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Failed::Store(error)
    }
}

impl Group {
    fn has_room(&self) -> bool {
        self.rows() < GROUP_ROWS_MAX && self.body_bytes() < GROUP_BYTES_MAX
    }
}
