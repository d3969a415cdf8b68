//! A Delay Shard's life: acquire the lease, open or rebuild the index, work, give up; and again.
//!
//! ```text
//!   acquiring ──> restoring ──> working ──(stop)──> draining ──> released
//!       ^             │            │
//!       └─(the store does not answer, the lease is lost, the index is broken)
//! ```
//!
//! A torn index is set aside and never opened again. If an index breaks time after time, this host withdraws from the
//! shard and leaves it to another host, where there is one.
//!
//! Each shard has a thread of its own. Its calls of RocksDB take microseconds, but any of them may stall behind a flush
//! or a compaction; on its own thread a stall delays this shard's messages and nothing else, intake least of all. Waits
//! for the store and for timers are driven by the host's tokio runtime as everywhere.

mod opening;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::actor::Remains;
use super::backoff::Backoff;
use super::index::Unusable;
use super::lease::{HeldLease, Holding, LeaseKeeper};
use super::session::End;
use super::signals::Signals;
use super::status::ShardStatus;
use super::surroundings::{Surroundings, Watched};
use crate::env;
use crate::store::{ShardId, ShardLease};

/// The pause before a shard begins again; doubled up to the longest, until an ownership lasts longer than that.
const RESTART_PAUSE: Duration = Duration::from_millis(100);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Broken indexes after which this host withdraws, unless an ownership lasts longer than the longest pause.
const BROKEN_MAX: u32 = 5;
/// The time for which a shard is not placed on this host after a withdrawal.
const WITHDRAWN_FOR: Duration = Duration::from_secs(600);

/// A shard as this host may own it.
pub(super) struct Shard {
    pub id: ShardId,
    /// The directory of its index.
    pub path: PathBuf,
    pub around: Arc<Surroundings>,
    pub watched: Watched,
    pub status: Arc<ShardStatus>,
    pub signals: Signals,
    /// The remains of an actor that panicked.
    pub remains: Remains,
}

/// Failed ownerships in a row.
struct Failures {
    pause: Backoff,
    broken: u32,
}

/// The next step after an ownership.
enum After {
    /// The shard begins again at once.
    Again,
    /// The shard begins again after a pause.
    Pause,
    /// The host stops.
    Done,
}

impl Failures {
    fn none() -> Self {
        Self { pause: Backoff::new(RESTART_PAUSE, RESTART_PAUSE_MAX), broken: 0 }
    }
}

impl Shard {
    /// A shard that nothing is known of yet.
    pub(super) fn new(id: ShardId, around: Arc<Surroundings>, watched: Watched) -> Self {
        Self {
            id,
            path: around.options.directory.join(format!("shard-{:05}", id.0)),
            around,
            watched,
            status: Arc::default(),
            signals: Signals::new(id),
            remains: Remains::default(),
        }
    }

    /// Owns the shard again and again, until the host stops.
    pub(super) async fn run(&self) {
        let mut failures = Failures::none();
        while let Some(held) = self.lease_keeper().acquire(self.id, &self.status).await {
            let began = self.around.env.clock.monotonic();
            let end = self.own(held).await;
            if self.around.env.clock.monotonic() - began > RESTART_PAUSE_MAX {
                failures = Failures::none();
            }
            self.tell(&end);
            match self.after(&end, held.lease, &mut failures).await {
                After::Again => {}
                After::Pause => tokio::select! {
                    () = env::sleep(failures.pause.fail()) => {}
                    () = self.around.stop.cancelled() => break,
                },
                After::Done => break,
            }
        }
    }

    /// Decides the next step. Gives the shard up where this host is not to own it next.
    async fn after(&self, end: &End, lease: ShardLease, failures: &mut Failures) -> After {
        let after = match end {
            End::Stopped => {
                self.release(lease).await;
                if !self.around.stop.is_cancelled() {
                    tracing::info!(shard = self.id.0, "a shard has its place elsewhere now and was given up");
                }
                After::Again
            }
            End::Reordered | End::Trimmed => {
                self.release(lease).await;
                After::Again
            }
            End::Broken(broken) => {
                failures.broken += 1;
                let leaves = failures.broken >= BROKEN_MAX && self.around.placement.is_shared();
                if leaves && self.withdraw(Some(lease), &broken.to_string()).await {
                    *failures = Failures::none();
                    After::Again
                } else {
                    After::Pause
                }
            }
            End::Fenced | End::Store(_) | End::Abandoned => After::Pause,
        };
        if self.around.stop.is_cancelled() { After::Done } else { after }
    }

    fn tell(&self, end: &End) {
        self.signals.ended(end.as_str());
        self.signals.gone();
        match end {
            End::Stopped => {}
            End::Reordered => tracing::warn!(
                shard = self.id.0,
                "which messages of a destination keep their order was changed while messages were known: the shard's index \
                 is built again"
            ),
            End::Trimmed => tracing::warn!(
                shard = self.id.0,
                "messages were removed whose end a shard had not been told: its index is built again"
            ),
            End::Fenced => tracing::warn!(shard = self.id.0, "a shard's lease was lost"),
            End::Abandoned => {
                tracing::error!(shard = self.id.0, "what a shard goes by is not looked after any more");
            }
            End::Store(error) => tracing::warn!(shard = self.id.0, %error, "a shard cannot be restored now"),
            End::Broken(error) => {
                // Counted once it is built again, by this reason instead of as a missing one.
                self.signals.broke(if error.is_torn() { Unusable::Torn } else { Unusable::Broken });
                tracing::error!(shard = self.id.0, %error, "a shard's index is broken and is built again");
            }
        }
    }

    pub(super) async fn release(&self, lease: ShardLease) {
        if let Err(error) = self.around.store.release_shard(lease).await {
            tracing::warn!(shard = self.id.0, %error, "a shard's lease cannot be given up; it will run out");
        }
    }

    /// Announces that this host leaves the shard to another one, and waits until the shard has its place there. `false`
    /// if that cannot be announced now.
    pub(super) async fn withdraw(&self, lease: Option<ShardLease>, reason: &str) -> bool {
        let Surroundings { runtime, store, env, placement, stop, .. } = &*self.around;
        if let Err(error) = store.withdraw(self.id, *runtime, WITHDRAWN_FOR, reason.to_owned(), env.now()).await {
            tracing::warn!(shard = self.id.0, %error, "this host cannot announce now that it cannot open a shard");
            return false;
        }
        self.signals.withdrawn();
        tracing::error!(shard = self.id.0, reason, "a shard cannot be opened here and is left to another host");
        if let Some(lease) = lease {
            self.release(lease).await;
        }
        placement.look_again();
        // If every host has withdrawn, the shard's place stays here, and it is tried again.
        tokio::select! {
            () = placement.clone().moved(self.id) => {}
            () = env::sleep(RESTART_PAUSE_MAX) => {}
            () = stop.cancelled() => {}
        }
        true
    }

    /// One ownership, from the lease to its end.
    async fn own(&self, held: HeldLease) -> End {
        self.remains.owning(held.lease);
        let (holding, tenure) = watch::channel(Holding::Held(held));
        // Renews until the session's receivers are gone, so through the restoring and the draining as well.
        let keeping = self.remains.tasks.track_future(self.lease_keeper().keep(holding));
        let keeper = env::spawn("shard lease", keeping);
        let stop = self.around.stop.child_token();
        let moved = self.around.placement.clone().moved(self.id);
        let life = self.live(held.lease, tenure, &stop);
        tokio::pin!(life);
        let end = tokio::select! {
            end = &mut life => end,
            () = moved => {
                stop.cancel();
                life.await
            }
        };
        if let End::Broken(broken) = &end {
            self.discard(held.lease, broken).await;
        }
        let _ = keeper.await;
        end
    }

    /// From the opening of the index until `stop`, or until the session ends by itself.
    async fn live(&self, lease: ShardLease, held: watch::Receiver<Holding>, stop: &CancellationToken) -> End {
        let (session, source, pages) = match self.restore(lease, held, stop).await {
            Ok(restored) => restored,
            Err(end) => return end,
        };
        let tasks = &self.remains.tasks;
        let reading = env::spawn("shard feed", tasks.track_future(source.run(pages, self.watched.wake.clone())));
        let end = session.run(stop).await;
        self.status.set_inquiries(None);
        let _ = reading.await;
        end
    }

    fn lease_keeper(&self) -> LeaseKeeper {
        LeaseKeeper { around: Arc::clone(&self.around), wake: self.watched.wake.clone() }
    }
}
