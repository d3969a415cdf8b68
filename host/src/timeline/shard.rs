//! A Delay Shard's life: acquire the lease, open or rebuild the index, work, give up; and again.
//!
//! ```text
//!   acquiring ──> restoring ──> working ──(stop)──> draining ──> released
//!       ^             │            │
//!       └─(the store does not answer, the lease is lost, the index is broken)
//! ```
//!
//! An index that is torn is set aside and never opened again. One that cannot be had at all, time after time, has this
//! runtime withdraw: the shard is somebody else's to try, where there is somebody else.
//!
//! Each shard has a thread of its own. Its calls of RocksDB take microseconds, but any of them may stall behind a flush
//! or a compaction; on its own thread that delays this shard's messages and nothing else, intake least of all. What
//! waits for the store or for a timer is driven by the host's runtime as everywhere.

mod opening;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::actor::Remains;
use super::checkpoint::Checkpoints;
use super::clock::TimeSource;
use super::database::Memory;
use super::gates::Gates;
use super::index::Unusable;
use super::inquiry::Inquiries;
use super::lease::{Holding, LeaseKeeper};
use super::session::End;
use super::signals::Signals;
use crate::env::{self, Env};
use crate::lanes::{Supply, WorkPlan};
use crate::model::destination::Destinations;
use crate::model::names::Namespace;
use crate::publish::Publisher;
use crate::store::{ShardId, ShardLease, Store};

/// Pause before a shard begins again; doubled up to the longest while it does not last longer than that.
const RESTART_PAUSE: Duration = Duration::from_millis(100);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);
/// After so many tries in a row, none of which lasted longer than that, this runtime withdraws from the shard.
const TRIES_MAX: u32 = 5;
/// For how long it is not asked again.
const WITHDRAWN_FOR: Duration = Duration::from_secs(600);

/// What a shard is made of.
pub(super) struct Shard {
    pub id: ShardId,
    pub path: PathBuf,
    pub memory: Arc<Memory>,
    pub checkpoints: Arc<Checkpoints>,
    pub keeper: LeaseKeeper,
    pub destinations: watch::Receiver<Arc<Destinations>>,
    pub gates: watch::Receiver<Option<Arc<Gates>>>,
    pub store: Store,
    pub publisher: Publisher,
    pub env: Env,
    pub poll: Duration,
    pub claimed_max: usize,
    /// Tenants' shares of service.
    pub weights: Arc<BTreeMap<Namespace, u32>>,
    pub work: WorkPlan,
    /// What presses on every shard of this runtime.
    pub supply: watch::Receiver<Supply>,
    pub time: TimeSource,
    pub clock_uncertainty_max: Duration,
    /// Whether it has caught up and publishes.
    pub active: Arc<AtomicBool>,
    /// Whether another runtime owns the shard.
    pub elsewhere: Arc<AtomicBool>,
    /// How its session is asked, while it has one.
    pub inquiries: watch::Sender<Inquiries>,
    pub wake: watch::Receiver<u64>,
    pub stop: CancellationToken,
    /// What may outlive an actor that panics.
    pub remains: Remains,
}

impl Shard {
    /// Lives until it is stopped.
    pub(super) async fn run(&self, signals: &Arc<Signals>) {
        let mut pause = RESTART_PAUSE;
        let mut failed = 0;
        while let Some(holding) = self.keeper.acquire(self.id, &self.elsewhere, &self.stop).await {
            let began = self.env.clock.monotonic();
            let end = self.own(holding, signals).await;
            if self.env.clock.monotonic() - began > RESTART_PAUSE_MAX {
                (pause, failed) = (RESTART_PAUSE, 0);
            }
            self.tell(&end, signals);
            failed = if matches!(end, End::Broken(_)) { failed + 1 } else { failed };
            let Holding::Held { lease, .. } = holding else { continue };
            if let End::Broken(broken) = &end
                && failed >= TRIES_MAX
                && self.keeper.placement.is_shared()
                && self.withdraw(Some(lease), &broken.to_string(), signals).await
            {
                (pause, failed) = (RESTART_PAUSE, 0);
                continue;
            }
            if matches!(end, End::Stopped | End::Reordered | End::Trimmed) {
                self.release(lease).await;
            }
            if self.stop.is_cancelled() {
                break;
            }
            if matches!(end, End::Stopped) {
                tracing::info!(shard = self.id.0, "a shard has its place elsewhere now and was given up");
                continue;
            }
            if matches!(end, End::Reordered | End::Trimmed) {
                continue;
            }
            tokio::select! {
                () = env::sleep(pause) => {}
                () = self.stop.cancelled() => break,
            }
            pause = (pause * 2).min(RESTART_PAUSE_MAX);
        }
    }

    fn tell(&self, end: &End, signals: &Signals) {
        signals.ended(end.as_str());
        signals.gone();
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
                // Counted when it is built again: by what broke, and not as one that is merely missing.
                signals.broke(if error.is_torn() { Unusable::Torn } else { Unusable::Broken });
                tracing::error!(shard = self.id.0, %error, "a shard's index is broken and is built again");
            }
        }
    }

    pub(super) async fn release(&self, lease: ShardLease) {
        if let Err(error) = self.store.release_shard(lease).await {
            tracing::warn!(shard = self.id.0, %error, "a shard's lease cannot be given up; it will run out");
        }
    }

    /// Leaves the shard to another runtime, for all to see. `false` if that cannot be said now.
    pub(super) async fn withdraw(&self, lease: Option<ShardLease>, reason: &str, signals: &Signals) -> bool {
        let (runtime, now) = (self.keeper.runtime, self.env.now());
        if let Err(error) = self.store.withdraw(self.id, runtime, WITHDRAWN_FOR, reason.to_owned(), now).await {
            tracing::warn!(shard = self.id.0, %error, "this host cannot announce now that it cannot open a shard");
            return false;
        }
        signals.withdrawn();
        tracing::error!(shard = self.id.0, reason, "a shard cannot be opened here and is left to another host");
        if let Some(lease) = lease {
            self.release(lease).await;
        }
        self.keeper.placement.look_again();
        // Where every runtime has withdrawn, its place stays here, and it is tried again.
        tokio::select! {
            () = self.keeper.placement.clone().moved(self.id) => {}
            () = env::sleep(RESTART_PAUSE_MAX) => {}
            () = self.stop.cancelled() => {}
        }
        true
    }

    /// One ownership, from beginning to end.
    async fn own(&self, held: Holding, signals: &Arc<Signals>) -> End {
        let Holding::Held { lease, .. } = held else { return End::Fenced };
        self.remains.owning(lease);
        let tasks = &self.remains.tasks;
        let (holding, held) = watch::channel(held);
        // Renews until the session's receivers are gone, so through the restoring and the draining as well.
        let keeper = env::spawn("shard lease", tasks.track_future(self.keeper.clone().keep(holding)));
        let stop = self.stop.child_token();
        let moved = self.keeper.placement.clone().moved(self.id);
        let life = self.live(lease, held, signals, &stop);
        tokio::pin!(life);
        let end = tokio::select! {
            end = &mut life => end,
            () = moved => {
                stop.cancel();
                life.await
            }
        };
        if let End::Broken(broken) = &end {
            self.discard(lease, broken, signals).await;
        }
        let _ = keeper.await;
        end
    }

    /// From the opening of the index until `stop`, or until the session ends by itself.
    async fn live(
        &self,
        lease: ShardLease,
        held: watch::Receiver<Holding>,
        signals: &Arc<Signals>,
        stop: &CancellationToken,
    ) -> End {
        let (session, source, pages) = match self.restore(lease, held, signals, stop).await {
            Ok(restored) => restored,
            Err(end) => return end,
        };
        let tasks = &self.remains.tasks;
        let reading = env::spawn("shard feed", tasks.track_future(source.run(pages, self.wake.clone())));
        let end = session.run(stop).await;
        self.inquiries.send_replace(None);
        let _ = reading.await;
        end
    }
}
