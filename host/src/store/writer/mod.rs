//! The way to the writer: two bounded queues, and the tasks that empty them (`task`).
//!
//! Deliveries and everything else come in by queues of their own. The embedded database has one writer: its task
//! empties the other queue first, so that whatever takes work off the store is never held up by what brings more. With
//! a server, each queue has a task and a connection of its own.

pub(super) mod group;
pub(super) mod kinds;
pub(super) mod task;
pub(super) mod transact;
pub(super) mod unit;

pub(super) mod authority;
pub(super) mod durability;
pub(super) mod link;
#[cfg(test)]
pub(super) mod loss;
pub(super) mod wal_checkpoint;

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot};

use self::durability::{Durability, Hints, Horizon};
use self::group::{Reply, Waiting};
pub(super) use self::kinds::Control;
use self::kinds::Order;
use self::link::{Link, Source};
#[cfg(test)]
use self::loss::Losses;
use self::task::{Task, TaskParts};
use crate::env::Env;
use crate::store::StoreOptions;
use crate::store::engine::readers::Readers;
use crate::store::engine::schema::Directory;
use crate::store::engine::server::{Isolation, Server};
use crate::store::error::StoreError;
use crate::store::work::enqueue::{Delivery, Enqueued};

/// Requests other than deliveries that may wait. More have to wait for a place, in the order of their arrival.
const CONTROL_REQUESTS_MAX: usize = 1_024;

/// The stripes that writers spread their counts over.
const STRIPES: u8 = 16;

/// The way to the writer.
pub(super) struct Writer {
    control: mpsc::Sender<Control>,
    deliveries: mpsc::Sender<Waiting>,
    /// How the task that takes only deliveries is told to end, if there is one.
    deliveries_end: Option<mpsc::Sender<Control>>,
    bytes: Arc<Semaphore>,
    bytes_max: u32,
    pub(super) hints: Hints,
    /// Of the embedded database.
    horizon: Option<Horizon>,
    #[cfg(test)]
    pub(super) losses: Losses,
}

/// What a writer is started with.
pub(super) struct WriterParts {
    pub(super) directory: Directory,
    pub(super) readers: Arc<Readers>,
    pub(super) env: Env,
}

impl Writer {
    /// Starts the one task of the embedded database, on a connection that is open and up to date.
    pub(super) fn of_file(parts: WriterParts, link: Link, options: &StoreOptions) -> Result<Self, StoreError> {
        let (control, control_queue) = mpsc::channel(CONTROL_REQUESTS_MAX);
        let (deliveries, delivery_queue) = mpsc::channel(options.queue_requests_max.max(1));
        let mut writer = Self::new(control, deliveries, None, options);
        let durability = Durability::start(
            writer.hints.clone(),
            #[cfg(test)]
            writer.losses.clone(),
        )?;
        writer.horizon = Some(durability.horizon());
        let path = parts.directory.database();
        let source = Source::File(path.clone());
        let parts = writer.task_parts(parts, source, 0, options);
        let task = Task::new(parts, Some(link), control_queue, delivery_queue).with_durability(durability);
        task.with_checkpoints(path, writer.control.downgrade()).start("store-writer")?;
        Ok(writer)
    }

    /// Starts a task for each queue. They connect when there is something to do.
    pub(super) fn of_server(
        parts: WriterParts,
        server: &Arc<Server>,
        options: &StoreOptions,
    ) -> Result<Self, StoreError> {
        let (control, control_queue) = mpsc::channel(CONTROL_REQUESTS_MAX);
        let (deliveries, delivery_queue) = mpsc::channel(options.queue_requests_max.max(1));
        let (deliveries_end, end_queue) = mpsc::channel(1);
        let (_, no_deliveries) = mpsc::channel(1);
        let writer = Self::new(control, deliveries, Some(deliveries_end), options);
        let stripe = parts.env.id_entropy()[0] % STRIPES;
        let source = |isolation| Source::Server(Arc::clone(server), isolation);
        let parts = writer.task_parts(parts, source(Isolation::ReadCommitted), stripe, options);
        let mut delivering = parts.clone();
        delivering.source = source(Isolation::Snapshot);
        delivering.stripe = i64::from((stripe + 1) % STRIPES);
        Task::new(parts, None, control_queue, no_deliveries).start("store-writer")?;
        Task::new(delivering, None, end_queue, delivery_queue).start("store-deliveries")?;
        Ok(writer)
    }

    fn new(
        control: mpsc::Sender<Control>,
        deliveries: mpsc::Sender<Waiting>,
        deliveries_end: Option<mpsc::Sender<Control>>,
        options: &StoreOptions,
    ) -> Self {
        let bytes_max = u32::try_from(options.queue_bytes_max).unwrap_or(u32::MAX);
        let bytes = Arc::new(Semaphore::new(usize::try_from(bytes_max).unwrap_or(usize::MAX)));
        Self {
            control,
            deliveries,
            deliveries_end,
            bytes,
            bytes_max,
            hints: Hints::new(),
            horizon: None,
            #[cfg(test)]
            losses: Losses::default(),
        }
    }

    fn task_parts(&self, parts: WriterParts, source: Source, stripe: u8, options: &StoreOptions) -> TaskParts {
        TaskParts {
            _directory: Arc::new(parts.directory),
            source,
            lease_time: options.lease_time,
            patience: options.patience,
            shard_count: options.shards,
            stripe: i64::from(stripe),
            readers: parts.readers,
            hints: self.hints.clone(),
            env: parts.env,
            #[cfg(test)]
            losses: self.losses.clone(),
        }
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

    /// How many other requests are queued.
    #[cfg(test)]
    pub(super) fn waiting_controls(&self) -> usize {
        self.control.max_capacity() - self.control.capacity()
    }

    /// How many deliveries are queued.
    #[cfg(test)]
    pub(super) fn waiting_deliveries(&self) -> usize {
        self.deliveries.max_capacity() - self.deliveries.capacity()
    }

    /// Queues anything else, and waits for its answer.
    pub(super) async fn control<A>(&self, request: impl FnOnce(Reply<A>) -> Control) -> Result<A, StoreError> {
        ask(&self.control, request).await
    }

    /// Waits until everything that may have been read so far is durable.
    pub(super) async fn durable(&self) -> Result<(), StoreError> {
        match &self.horizon {
            Some(horizon) => horizon.reached().await,
            None => Ok(()),
        }
    }

    /// Does what is queued, and ends. Says that it is closed if it was before.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        if let Some(deliveries_end) = &self.deliveries_end {
            ask(deliveries_end, |reply| Control::Writer(Order::Close(reply))).await?;
        }
        ask(&self.control, |reply| Control::Writer(Order::Close(reply))).await
    }
}

async fn ask<A>(queue: &mpsc::Sender<Control>, request: impl FnOnce(Reply<A>) -> Control) -> Result<A, StoreError> {
    let (reply, answer) = oneshot::channel();
    queue.send(request(reply)).await.map_err(|_| closed())?;
    answer.await.unwrap_or_else(|_| Err(unanswered()))
}

fn closed() -> StoreError {
    StoreError::Unavailable("it is closed".to_owned())
}

fn unanswered() -> StoreError {
    StoreError::Unknown("it closed before it answered".to_owned())
}
