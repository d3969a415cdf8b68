//! The shards that have their place on this host.
//!
//! Where hosts share a database, each announces itself regularly and reads the other announcements; all of them compute
//! the same placement from these. A host gives up a shard whose place has moved, once its claims are settled; a host
//! that leaves says so before that. Leases decide all the same: a placement that is out of date costs time and nothing
//! else.
//!
//! A host that cannot open a shard withdraws from it. Withdrawals are recorded too, and count in every host's
//! computation.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::env::{self, Env};
use crate::lanes;
use crate::model::ids::RuntimeId;
use crate::store::{Runtimes, ShardId, Store};
use crate::timeline::watchers::look_after;

/// The part of the time of an announcement after which the next one is made.
const BEAT_AT: f64 = 1.0 / 4.0;
/// The pause after an announcement failed, as a part of the same time.
const TRY_AGAIN: f64 = 1.0 / 20.0;

/// The shards that have their place on this host; clones see the same.
#[derive(Clone)]
pub(super) struct Placement {
    shards: watch::Receiver<Shards>,
    /// Asks for the placement to be computed again; `None` for a host that is alone.
    again: Option<Arc<Notify>>,
}

/// `None` before the first placement.
type Shards = Option<BTreeSet<ShardId>>;

/// A host that announces itself, and the time that an announcement counts for.
#[derive(Clone)]
pub(super) struct Presence {
    pub store: Store,
    pub env: Env,
    pub runtime: RuntimeId,
    pub duration: Duration,
    /// Hints that time has passed.
    pub wake: watch::Receiver<u64>,
}

impl Placement {
    /// The placement of a host that is alone with its database: every shard.
    pub(super) fn alone(store: &Store) -> Self {
        let all = (0..store.shard_count()).map(ShardId).collect();
        Self { shards: watch::channel(Some(all)).1, again: None }
    }

    /// The placement that `presence` computes until `stop` is cancelled.
    pub(super) fn shared(presence: Presence, stop: CancellationToken) -> Self {
        let (places, placement) = watch::channel(None);
        let again = Arc::new(Notify::new());
        let (calls, until) = (Arc::clone(&again), stop.clone());
        look_after("shard placement", places, stop, move |places| {
            presence.clone().keep(places, Arc::clone(&calls), until.clone())
        });
        Self { shards: placement, again: Some(again) }
    }

    /// Whether other hosts may own shards.
    pub(super) fn is_shared(&self) -> bool {
        self.again.is_some()
    }

    /// Computes the placement again at once: something has changed.
    pub(super) fn look_again(&self) {
        if let Some(again) = &self.again {
            again.notify_one();
        }
    }

    /// Whether the shard has its place on this host.
    pub(super) fn is_here(&self, shard: ShardId) -> bool {
        self.shards.borrow().as_ref().is_some_and(|shards| shards.contains(&shard))
    }

    /// Whether there has been a placement.
    pub(super) fn is_known(&self) -> bool {
        self.shards.borrow().is_some()
    }

    /// Returns when the shard has its place on this host no longer.
    pub(super) async fn moved(mut self, shard: ShardId) {
        let is_elsewhere = |shards: &Shards| shards.as_ref().is_none_or(|shards| !shards.contains(&shard));
        if self.shards.wait_for(is_elsewhere).await.is_err() {
            // The placement is not kept up any more: it stays as it is.
            std::future::pending::<()>().await;
        }
    }

    /// Returns when the placement may have changed.
    pub(super) async fn changed(&mut self) {
        if self.shards.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Presence {
    async fn keep(mut self, places: watch::Sender<Shards>, again: Arc<Notify>, stop: CancellationToken) {
        let mut beat_at = Duration::ZERO;
        while !stop.is_cancelled() {
            let now = self.env.clock.monotonic();
            if now >= beat_at {
                let part = match self.store.beat(self.runtime, self.duration, self.env.now()).await {
                    Ok(runtimes) => {
                        self.learn(&runtimes, &places);
                        BEAT_AT
                    }
                    Err(error) => {
                        tracing::warn!(%error, "this host cannot announce itself to the others now");
                        TRY_AGAIN
                    }
                };
                beat_at = now + self.duration.mul_f64(part);
            }
            let pause = beat_at.saturating_sub(self.env.clock.monotonic());
            tokio::select! {
                () = env::sleep(pause) => {}
                Ok(()) = self.wake.changed() => {}
                () = again.notified() => beat_at = Duration::ZERO,
                () = stop.cancelled() => {}
            }
        }
        if let Err(error) = self.store.leave(self.runtime, self.env.now()).await {
            tracing::warn!(%error, "this host cannot announce that it leaves; the others will notice");
        }
    }

    fn learn(&self, runtimes: &Runtimes, places: &watch::Sender<Shards>) {
        let Runtimes { live, withdrawn } = runtimes;
        let has_withdrawn = |shard, runtime: &RuntimeId| withdrawn.contains(&(ShardId(shard), *runtime));
        let placed = lanes::place(self.store.shard_count(), live, has_withdrawn);
        let here = (0..).map(ShardId).zip(placed).filter(|(_, runtime)| *runtime == Some(self.runtime));
        let here: BTreeSet<ShardId> = here.map(|(shard, _)| shard).collect();
        places.send_if_modified(|known| {
            let changed = known.as_ref() != Some(&here);
            if changed {
                tracing::info!(shards = here.len(), runtimes = live.len(), "shards are placed again");
                *known = Some(here);
            }
            changed
        });
    }
}
