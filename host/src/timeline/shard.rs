//! A Delay Shard's life: acquire the lease, open or rebuild the index, work, give up; and again.
//!
//! ```text
//!   acquiring ──> restoring ──> working ──(stop)──> draining ──> released
//!       ^             │            │
//!       └─(the store does not answer, the lease is lost, the index is broken)
//! ```
//!
//! Each shard has a thread of its own. Its calls of RocksDB take microseconds, but any of them may stall behind a flush or
//! a compaction; on its own thread that delays this shard's messages and nothing else, intake least of all. What waits
//! for the store or for a timer is driven by the host's runtime as everywhere.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::clock::TimeSource;
use super::database::{Database, Memory};
use super::gates::Gates;
use super::index::{Index, Owner, Unusable};
use super::inquiry::{INQUIRIES_MAX, Inquiries};
use super::lease::{Holding, LeaseKeeper};
use super::session::{End, Parts, Session};
use super::signals::Signals;
use super::source::{self, Source};
use crate::env::{self, Env};
use crate::lanes::WorkPlan;
use crate::model::destination::{Destinations, ordering_fingerprint};
use crate::model::names::Namespace;
use crate::publish::Publisher;
use crate::store::{ShardId, ShardLease, Store};

/// Pause before a shard begins again; doubled up to the longest while it does not last longer than that.
const RESTART_PAUSE: Duration = Duration::from_millis(100);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);

/// What a shard is made of.
pub(super) struct Shard {
    pub id: ShardId,
    pub path: PathBuf,
    pub memory: Arc<Memory>,
    pub keeper: LeaseKeeper,
    pub destinations: Arc<Destinations>,
    pub gates: watch::Receiver<Option<Arc<Gates>>>,
    pub store: Store,
    pub publisher: Publisher,
    pub env: Env,
    pub poll: Duration,
    pub claimed_max: usize,
    /// Tenants' shares of service.
    pub weights: Arc<BTreeMap<Namespace, u32>>,
    pub work: WorkPlan,
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
}

impl Shard {
    /// Lives until it is stopped.
    pub(super) async fn run(self) {
        let signals = Arc::new(Signals::new(self.id));
        let mut pause = RESTART_PAUSE;
        while let Some(holding) = self.keeper.acquire(self.id, &self.elsewhere, &self.stop).await {
            let began = self.env.clock.monotonic();
            let end = self.own(holding, &signals).await;
            match &end {
                End::Stopped => {}
                End::Fenced => tracing::warn!(shard = self.id.0, "a shard's lease was lost"),
                End::Abandoned => {
                    tracing::error!(shard = self.id.0, "a shard's lease or feed is not looked after any more")
                }
                End::Store(error) => tracing::warn!(shard = self.id.0, %error, "a shard cannot be restored now"),
                End::Broken(error) => {
                    signals.rebuilt(Unusable::Broken);
                    tracing::error!(shard = self.id.0, %error, "a shard's index is broken and is built again");
                }
            }
            if let (Holding::Held { lease, .. }, End::Stopped) = (holding, &end)
                && let Err(error) = self.store.release_shard(lease).await
            {
                tracing::warn!(shard = self.id.0, %error, "a shard's lease cannot be given up; it will run out");
            }
            if self.stop.is_cancelled() {
                break;
            }
            if matches!(end, End::Stopped) {
                tracing::info!(shard = self.id.0, "a shard has its place elsewhere now and was given up");
                continue;
            }
            if self.env.clock.monotonic() - began > RESTART_PAUSE_MAX {
                pause = RESTART_PAUSE;
            }
            env::sleep(pause).await;
            pause = (pause * 2).min(RESTART_PAUSE_MAX);
        }
    }

    /// One ownership, from beginning to end.
    async fn own(&self, held: Holding, signals: &Arc<Signals>) -> End {
        let Holding::Held { lease, .. } = held else { return End::Fenced };
        let (holding, held) = watch::channel(held);
        // Renews until this function's receiver is gone, so through the restoring and the draining as well.
        let keeper = env::spawn("shard lease", self.keeper.clone().keep(holding));
        let end = match self.restore(lease, held, signals).await {
            Ok((session, source, pages)) => {
                let reading = env::spawn("shard feed", source.run(pages, self.wake.clone()));
                let stop = self.stop.child_token();
                let moved = self.keeper.placement.clone().moved(self.id);
                let giving_up = stop.clone().drop_guard();
                let run = session.run(&stop);
                tokio::pin!(run);
                let end = tokio::select! {
                    end = &mut run => end,
                    () = moved => {
                        drop(giving_up);
                        run.await
                    }
                };
                self.inquiries.send_replace(None);
                let _ = reading.await;
                end
            }
            Err(end) => end,
        };
        if matches!(end, End::Broken(_))
            && let Err(error) = Database::destroy(&self.path)
        {
            tracing::error!(shard = self.id.0, %error, "a broken index cannot be removed");
        }
        let _ = keeper.await;
        end
    }

    async fn restore(
        &self,
        lease: ShardLease,
        held: watch::Receiver<Holding>,
        signals: &Arc<Signals>,
    ) -> Result<(Session, Source, mpsc::Sender<source::Page>), End> {
        let feed_end = self.store.feed_end(self.id).await.map_err(End::Store)?;
        let (index, rebuild_through) = self.open(lease, feed_end, signals)?;
        let after = index.applied();
        let (pages_in, pages) = mpsc::channel(source::PAGES_MAX);
        let parts = Parts {
            shard: self.id,
            destinations: self.destinations.clone(),
            gates: self.gates.clone(),
            store: self.store.clone(),
            publisher: self.publisher.clone(),
            env: self.env.clone(),
            signals: signals.clone(),
            active: self.active.clone(),
            claimed_max: self.claimed_max,
            weights: self.weights.clone(),
            work: self.work,
            time: self.time.clone(),
            clock_uncertainty_max: self.clock_uncertainty_max,
            poll: self.poll,
        };
        let (ask, inquiries) = mpsc::channel(INQUIRIES_MAX);
        let mut session = Session::new(parts, held, index, pages, inquiries, self.wake.clone())?;
        self.inquiries.send_replace(Some(ask));
        session.recover(lease).await?;
        let source = Source { store: self.store.clone(), shard: self.id, after, rebuild_through, poll: self.poll };
        Ok((session, source, pages_in))
    }

    /// The index, and up to where it is to be rebuilt.
    fn open(&self, lease: ShardLease, feed_end: u64, signals: &Signals) -> Result<(Index, u64), End> {
        let ordering = ordering_fingerprint(&self.destinations);
        let owner = Owner { shard: self.id, epoch: lease.epoch, ordering };
        match Index::open(&self.path, &self.memory, owner, feed_end) {
            Ok(index) => Ok((index, 0)),
            Err(reason) => {
                // The very first start finds no index and no messages either: nothing is rebuilt.
                if feed_end > 0 {
                    signals.rebuilt(reason);
                    let reason = reason.as_str();
                    tracing::warn!(shard = self.id.0, reason, feed_end, "a shard's index is built from the store");
                }
                let index = Index::create(&self.path, &self.memory, owner)?;
                Ok((index, feed_end))
            }
        }
    }
}
