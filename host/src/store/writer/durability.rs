//! Making the embedded database's commits durable, while the writer is at its next transaction.
//!
//! With `synchronous=FULL` SQLite syncs its log within the commit, and the writer waits for the disk a third of its
//! time. The promise is the same here, kept by somebody else: a commit writes the log, and a thread of its own syncs
//! the log and then answers. What was committed meanwhile shares the next sync.
//!
//! A server makes its commits durable itself: what it committed is answered at once.
//!
//! Invariants:
//! - Nobody is answered, and nobody woken, before the log is on disk up to and including his commit. A log is read from
//!   its beginning up to the first damage, so nothing that came before is missing either.
//! - Once a sync has failed, the system may show a log that the disk does not have. Every write fails from then on,
//!   until the store is opened anew and reads what there is.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot, watch};

use super::group::Group;
#[cfg(test)]
use super::loss::Losses;
use crate::env::spawn_thread;
use crate::store::engine::file_identity::FileIdentity;
use crate::store::error::StoreError;

/// Transactions that may wait for the disk. The writer waits with the next one.
const UNSYNCED_MAX: usize = 4;

/// The hints that a commit gives, besides its answers.
#[derive(Clone)]
pub(in crate::store) struct Hints {
    /// Changes when there may be work to claim.
    pub(in crate::store) work: watch::Sender<u64>,
    /// Changes when a shard's feed has grown.
    pub(in crate::store) feed: watch::Sender<u64>,
    /// Changes when a gate was set.
    pub(in crate::store) gates: watch::Sender<u64>,
    /// Changes when a destination was changed.
    pub(in crate::store) destinations: watch::Sender<u64>,
}

impl Hints {
    pub(in crate::store) fn new() -> Self {
        let [work, feed, gates, destinations] = std::array::from_fn(|_| watch::Sender::new(0));
        Self { work, feed, gates, destinations }
    }

    fn give(&self, changes: Changes) {
        let concerned = [
            (changes.work, &self.work),
            (changes.feed, &self.feed),
            (changes.gates, &self.gates),
            (changes.destinations, &self.destinations),
        ];
        for (_, hint) in concerned.into_iter().filter(|(changed, _)| *changed) {
            hint.send_modify(|changes| *changes += 1);
        }
    }
}

/// What a transaction changed that others wait for.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Changes {
    pub(in crate::store) work: bool,
    pub(in crate::store) feed: bool,
    pub(in crate::store) gates: bool,
    pub(in crate::store) destinations: bool,
}

/// A transaction that has ended, and the callers that wait for its answer.
pub(in crate::store) struct Ended {
    pub(in crate::store) group: Group,
    pub(in crate::store) outcome: Result<Changes, StoreError>,
    /// The log that holds it, if it is the embedded database's and was committed.
    pub(in crate::store) log: Option<Arc<Log>>,
}

impl Ended {
    pub(in crate::store) fn answer(self, hints: &Hints) {
        if let Ok(changes) = &self.outcome {
            // Before the answers: a caller that is woken finds the hints given.
            hints.give(*changes);
        }
        self.group.settle(&self.outcome.map(|_| ()));
    }
}

/// The log of the embedded database, for as long as a connection writes it.
pub(in crate::store) struct Log {
    path: PathBuf,
    file: File,
    identity: FileIdentity,
}

impl Log {
    /// The log beside a database that a connection has open. It is opened a second time here, which is harmless: SQLite
    /// locks the database and not its log.
    pub(in crate::store) fn beside(database: &Path) -> io::Result<Self> {
        let mut path = database.as_os_str().to_owned();
        path.push("-wal");
        let path = PathBuf::from(path);
        let file = File::options().read(true).write(true).open(&path)?;
        let identity = FileIdentity::of(&path)?;
        Ok(Self { path, file, identity })
    }

    /// Makes durable all that was written to it so far.
    fn sync(&self) -> Result<(), SyncError> {
        self.file.sync_data().map_err(SyncError::Failed)?;
        match FileIdentity::of(&self.path) {
            Ok(identity) if identity == self.identity => Ok(()),
            Ok(_) | Err(_) => Err(SyncError::Moved),
        }
    }
}

/// Why a log is not known to be durable.
enum SyncError {
    /// The disk, or the system, did not do it.
    Failed(io::Error),
    /// It was moved away: the next connection is to what is there now.
    Moved,
}

/// How far the answers are.
#[derive(Clone)]
struct Progress {
    /// The number of the last transaction that was answered.
    answered: u64,
    /// Why there will be no further one.
    failed: Option<StoreError>,
}

/// Waits until what can be read is durable. Clones share it.
#[derive(Clone)]
pub(in crate::store) struct Horizon {
    /// The number of the last transaction that may have become visible.
    visible: Arc<AtomicU64>,
    progress: watch::Receiver<Progress>,
}

impl Horizon {
    /// Waits until everything that may have been read so far is durable, or fails as its commit does.
    pub(in crate::store) async fn reached(&self) -> Result<(), StoreError> {
        let visible = self.visible.load(Ordering::Acquire);
        let mut progress = self.progress.clone();
        let reached = progress.wait_for(|progress| progress.answered >= visible || progress.failed.is_some()).await;
        match reached.as_deref() {
            Ok(Progress { failed: Some(error), .. }) => Err(error.clone()),
            // Whoever answers has ended after all that was committed.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// The writer's hold of the thread that syncs and answers.
pub(in crate::store) struct Durability {
    queue: mpsc::Sender<Ended>,
    horizon: Horizon,
    stopped: oneshot::Receiver<()>,
}

impl Durability {
    /// Starts the thread.
    pub(in crate::store) fn start(hints: Hints, #[cfg(test)] losses: Losses) -> io::Result<Self> {
        let (queue, ended) = mpsc::channel(UNSYNCED_MAX);
        let (progress, followed) = watch::channel(Progress { answered: 0, failed: None });
        let (stops, stopped) = oneshot::channel();
        let answering = Answering {
            hints,
            progress,
            synced: None,
            #[cfg(test)]
            losses,
        };
        spawn_thread("store-sync", async move {
            answering.run(ended).await;
            // A caller that no longer waits does not need to know.
            let _ = stops.send(());
        })?;
        Ok(Self { queue, horizon: Horizon { visible: Arc::default(), progress: followed }, stopped })
    }

    pub(in crate::store) fn horizon(&self) -> Horizon {
        self.horizon.clone()
    }

    /// Why nothing may be written any more, if so.
    pub(in crate::store) fn check(&self) -> Result<(), StoreError> {
        self.horizon.progress.borrow().failed.clone().map_or(Ok(()), Err)
    }

    /// Says that a transaction begins, which ends with [`Durability::hand_over`].
    pub(in crate::store) fn begin(&self) {
        self.horizon.visible.fetch_add(1, Ordering::Release);
    }

    /// Has it answered, once it is durable.
    pub(in crate::store) async fn hand_over(&self, ended: Ended) {
        // The thread ends with this sender; if it panicked, those who wait hear that nobody answers.
        let _ = self.queue.send(ended).await;
    }

    /// Waits until everybody is answered.
    pub(in crate::store) async fn stop(self) {
        drop(self.queue);
        // An error says that it has ended otherwise.
        let _ = self.stopped.await;
    }
}

/// The thread that syncs and answers.
struct Answering {
    hints: Hints,
    progress: watch::Sender<Progress>,
    /// The log that was synced last, and what came of it.
    synced: Option<(Arc<Log>, Result<(), StoreError>)>,
    #[cfg(test)]
    losses: Losses,
}

impl Answering {
    async fn run(mut self, mut ended: mpsc::Receiver<Ended>) {
        let mut together = Vec::with_capacity(UNSYNCED_MAX);
        while ended.recv_many(&mut together, UNSYNCED_MAX).await > 0 {
            #[cfg(test)]
            self.losses.syncing().await;
            self.synced = None;
            for mut transaction in together.drain(..) {
                if let (Ok(_), Some(log)) = (&transaction.outcome, transaction.log.take())
                    && let Err(error) = self.sync(log)
                {
                    transaction.outcome = Err(error);
                }
                transaction.answer(&self.hints);
                self.progress.send_modify(|progress| progress.answered += 1);
            }
        }
    }

    /// Syncs a log, once for all of its transactions that have come together.
    fn sync(&mut self, log: Arc<Log>) -> Result<(), StoreError> {
        if let Some((synced, outcome)) = &self.synced
            && Arc::ptr_eq(synced, &log)
        {
            return outcome.clone();
        }
        let outcome = self.sync_now(&log);
        self.synced = Some((log, outcome.clone()));
        outcome
    }

    fn sync_now(&self, log: &Log) -> Result<(), StoreError> {
        if let Some(error) = &self.progress.borrow().failed {
            // It is committed, and others may have seen it: it is not known whether it lasts.
            return Err(StoreError::Unknown(error.to_string()));
        }
        #[cfg(test)]
        let synced = self.losses.sync_fails().map_or_else(|| log.sync(), |error| Err(SyncError::Failed(error)));
        #[cfg(not(test))]
        let synced = log.sync();
        match synced {
            Ok(()) => Ok(()),
            Err(SyncError::Moved) => Err(StoreError::Unknown("its log was moved away meanwhile".to_owned())),
            Err(SyncError::Failed(error)) => {
                tracing::error!(%error, "the log could not be made durable: nothing is written until the host is restarted");
                let failed =
                    format!("its log could not be made durable ({error}): check the disk, and restart the host");
                self.progress.send_modify(|progress| progress.failed = Some(StoreError::Unavailable(failed.clone())));
                Err(StoreError::Unknown(failed))
            }
        }
    }
}
