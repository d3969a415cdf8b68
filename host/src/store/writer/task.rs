//! A task that writes: it owns a connection, on a thread of its own, so that a commit's steps do not queue behind
//! guests that compute.
//!
//! It takes what has arrived meanwhile, up to named bounds, applies it in one transaction and commits. All of it is
//! answered once the commit is durable: a server's is when it is made, the embedded database's a little later
//! (`durability`).
//!
//! Invariants:
//! - No request is answered before its commit is durable.
//! - A failed transaction changes nothing, and all who were in it are told so; a failed commit is told as what it is
//!   (`transact`).
//! - The task outlives every failure of the database: it connects again when there is something to do. It outlives an
//!   assertion that does not hold too: the transaction is undone, and those who were in it hear that nobody knows what
//!   became of it.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::mpsc;

use super::durability::{Changes, Durability, Ended, Hints};
use super::group::{Group, Waiting};
use super::kinds::Control;
use super::link::{Link, Source};
#[cfg(test)]
use super::loss::Losses;
use super::wal_checkpoint::{self, Checkpointer};
use crate::env::{Env, spawn_thread};
use crate::store::LeaseTime;
use crate::store::engine::patience::Patience;
use crate::store::engine::readers::Readers;
use crate::store::engine::schema::Directory;
use crate::store::error::StoreError;

/// Rows after which a transaction takes no more requests: commits get no cheaper a row beyond about a thousand rows.
const GROUP_ROWS_MAX: usize = 1_024;

/// Bytes of bodies after which a transaction takes no more requests.
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;

/// After a failed attempt to connect, how long everybody is told so at once before the next attempt.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// What a task is made of.
#[derive(Clone)]
pub(in crate::store) struct TaskParts {
    /// Locked as long as anything is written.
    pub(in crate::store) _directory: Arc<Directory>,
    pub(in crate::store) source: Source,
    pub(in crate::store) lease_time: LeaseTime,
    pub(in crate::store) patience: Patience,
    pub(in crate::store) shard_count: u16,
    pub(in crate::store) stripe: i64,
    pub(in crate::store) readers: Arc<Readers>,
    pub(in crate::store) hints: Hints,
    pub(in crate::store) env: Env,
    #[cfg(test)]
    pub(in crate::store) losses: Losses,
}

pub(in crate::store) struct Task {
    pub(in crate::store) parts: TaskParts,
    pub(in crate::store) link: Option<Link>,
    control: mpsc::Receiver<Control>,
    deliveries: mpsc::Receiver<Waiting>,
    /// Of the embedded database.
    pub(in crate::store) durability: Option<Durability>,
    checkpoints: Option<(PathBuf, mpsc::WeakSender<Control>)>,
    /// When the last attempt to connect failed, by the monotonic clock.
    failed_at: Option<Duration>,
    /// Whether the last transaction failed.
    failing: bool,
    /// Transactions that `durability` was told to begin and that have not been handed over.
    begun: u32,
    /// Whether the last group was held up by others.
    pub(in crate::store) contended: bool,
    /// How many of the next groups keep their requests, to be taken apart.
    pub(in crate::store) careful: u32,
}

impl Task {
    pub(in crate::store) fn new(
        parts: TaskParts,
        link: Option<Link>,
        control: mpsc::Receiver<Control>,
        deliveries: mpsc::Receiver<Waiting>,
    ) -> Self {
        Self {
            parts,
            link,
            control,
            deliveries,
            durability: None,
            checkpoints: None,
            failed_at: None,
            failing: false,
            begun: 0,
            contended: false,
            careful: 0,
        }
    }

    /// Has commits made durable by `durability`.
    pub(in crate::store) fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Folds the log of the embedded database into it; `restarts` is how the task asks itself for the rest.
    pub(in crate::store) fn with_checkpoints(mut self, path: PathBuf, restarts: mpsc::WeakSender<Control>) -> Self {
        self.checkpoints = Some((path, restarts));
        self
    }

    pub(in crate::store) fn start(self, name: &'static str) -> Result<(), StoreError> {
        Ok(spawn_thread(name, self.run())?)
    }

    async fn run(mut self) {
        let mut checkpointer = self.checkpoints.take().map(|(path, restarts)| wal_checkpoint::start(path, restarts));
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

    async fn commit(&mut self, group: Group) {
        if AssertUnwindSafe(self.settle(group)).catch_unwind().await.is_ok() {
            return;
        }
        tracing::error!("a transaction panicked: it is undone, and the writer goes on with another connection");
        self.link = None;
        while self.begun > 0 {
            self.answer(Group::default(), Err(StoreError::Unknown("its transaction panicked".to_owned()))).await;
        }
    }

    /// Says that a transaction begins, which ends with [`Task::answer`].
    pub(in crate::store) fn begin(&mut self) {
        self.begun += 1;
        if let Some(durability) = &self.durability {
            durability.begin();
        }
    }

    /// Has everybody answered, once it is durable.
    pub(in crate::store) async fn answer(&mut self, group: Group, outcome: Result<Changes, StoreError>) {
        self.begun -= 1;
        let log = self.link.as_ref().and_then(Link::log);
        let ended = Ended { group, outcome, log };
        match &self.durability {
            Some(durability) => durability.hand_over(ended).await,
            None => ended.answer(&self.parts.hints),
        }
    }

    /// Logs that the store fails, and that it works again: once each, however many requests come meanwhile.
    pub(in crate::store) fn tell(&mut self, error: Option<&StoreError>) {
        let of_the_store = match error {
            Some(StoreError::Busy { .. } | StoreError::Unavailable(_) | StoreError::Unknown(_)) => error,
            // Those are told who asked.
            Some(StoreError::Refused(_) | StoreError::Unstorable(_) | StoreError::Unusable(_)) | None => None,
        };
        match of_the_store {
            Some(error) if !self.failing => tracing::error!(%error, "the store fails"),
            None if self.failing => tracing::info!("the store works again"),
            Some(_) | None => {}
        }
        self.failing = of_the_store.is_some();
    }

    /// The connection to what now has the database's name, a new one if need be.
    pub(in crate::store) async fn connect(&mut self) -> Result<&mut Link, StoreError> {
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

impl Group {
    fn has_room(&self) -> bool {
        self.rows() < GROUP_ROWS_MAX && self.body_bytes() < GROUP_BYTES_MAX
    }
}
