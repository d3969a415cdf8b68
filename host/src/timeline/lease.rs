//! Owning a shard: acquiring its lease, renewing it, and knowing when it can no longer be relied on.
//!
//! Invariant: what is held ends, by the monotonic clock and counted from before the store was asked, sooner than the
//! lease does. An owner whose renewals do not get through stops by itself, before another can begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::placement::Placement;
use crate::env::{self, Env};
use crate::model::ids::RuntimeId;
use crate::store::{ShardId, ShardLease, Store, StoreError};

/// A lease is renewed when this part of it is over.
const RENEW_AT: f64 = 1.0 / 3.0;
/// A lease is relied on for this part of its time.
const RELY_ON: f64 = 0.75;
/// Pause between two tries to acquire or renew, as a part of the lease.
const TRY_AGAIN: f64 = 1.0 / 20.0;

/// What an owner holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Holding {
    /// The shard is its own.
    Held {
        /// The lease.
        lease: ShardLease,
        /// Relied on until this monotonic time.
        until: Duration,
    },
    /// Somebody else has it.
    Lost,
}

/// Whose leases, and how long they are.
#[derive(Clone)]
pub(super) struct LeaseKeeper {
    pub store: Store,
    pub env: Env,
    pub runtime: RuntimeId,
    pub duration: Duration,
    /// Which shards are to be acquired.
    pub placement: Placement,
    /// Says that time may have passed.
    pub wake: watch::Receiver<u64>,
}

impl LeaseKeeper {
    /// Tries, while the shard's place is here, until it is this runtime's; `None` if `stop` came first. Meanwhile
    /// `elsewhere` says whether another runtime looks after it.
    pub(super) async fn acquire(
        &self,
        shard: ShardId,
        elsewhere: &AtomicBool,
        stop: &CancellationToken,
    ) -> Option<Holding> {
        let mut wake = self.wake.clone();
        let mut placement = self.placement.clone();
        loop {
            if !self.placement.is_here(shard) {
                elsewhere.store(self.placement.is_known(), Ordering::Release);
                tokio::select! {
                    () = placement.changed() => continue,
                    () = stop.cancelled() => return None,
                }
            }
            let asked = self.env.clock.monotonic();
            match self.store.acquire_shard(shard, self.runtime, self.duration, self.env.now()).await {
                Ok(Some(lease)) => {
                    elsewhere.store(false, Ordering::Release);
                    return Some(self.held(lease, asked));
                }
                Ok(None) => elsewhere.store(true, Ordering::Release),
                Err(error) => {
                    elsewhere.store(false, Ordering::Release);
                    tracing::warn!(shard = shard.0, %error, "a shard cannot be acquired now");
                }
            }
            tokio::select! {
                () = env::sleep(self.duration.mul_f64(TRY_AGAIN)) => {}
                Ok(()) = wake.changed() => {}
                () = placement.changed() => {}
                () = stop.cancelled() => return None,
            }
        }
    }

    /// Renews what `holding` holds until it is lost or nobody looks at it any more.
    pub(super) async fn keep(mut self, holding: watch::Sender<Holding>) {
        loop {
            let Holding::Held { lease, until } = *holding.borrow() else { return };
            let now = self.env.clock.monotonic();
            let renew_at = until.saturating_sub(self.duration.mul_f64(RELY_ON - RENEW_AT));
            let pause = renew_at.saturating_sub(now).max(self.duration.mul_f64(TRY_AGAIN));
            tokio::select! {
                () = env::sleep(pause) => {}
                Ok(()) = self.wake.changed() => {}
                () = holding.closed() => return,
            }
            let asked = self.env.clock.monotonic();
            if asked < renew_at {
                continue;
            }
            match self.renew(lease, asked).await {
                Ok(renewed) => holding.send_modify(|holding| *holding = renewed),
                Err(error) => tracing::warn!(shard = lease.shard.0, %error, "a shard's lease cannot be renewed now"),
            }
        }
    }

    async fn renew(&self, lease: ShardLease, asked: Duration) -> Result<Holding, StoreError> {
        let renewed = self.store.renew_shard(lease, self.duration, self.env.now()).await?;
        Ok(renewed.map_or(Holding::Lost, |lease| self.held(lease, asked)))
    }

    fn held(&self, lease: ShardLease, asked: Duration) -> Holding {
        Holding::Held { lease, until: asked + self.duration.mul_f64(RELY_ON) }
    }
}

/// Until when attempts of an owner may rely on its lease, whoever asks. They keep nothing alive: once the owner's
/// session has ended its lease is renewed no more, however long its last attempts take, and what is not sent is not
/// sent.
pub(super) fn relied_until(
    holding: &Arc<watch::Receiver<Holding>>,
    lease: ShardLease,
) -> impl Fn() -> Duration + Send + Sync + use<> {
    let holding = Arc::downgrade(holding);
    move || {
        let Some(holding) = holding.upgrade() else { return Duration::ZERO };
        match *holding.borrow() {
            Holding::Held { lease: held, until } if held.epoch == lease.epoch => until,
            Holding::Held { .. } | Holding::Lost => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // TL-7
    #[test]
    fn an_attempt_relies_on_a_lease_while_its_session_lasts_and_does_not_make_it_last() {
        let lease = ShardLease { shard: ShardId(0), epoch: 3, until: crate::model::time::Timestamp::MAX };
        let until = Duration::from_secs(7);
        let (renews, holding) = watch::channel(Holding::Held { lease, until });
        let holding = Arc::new(holding);
        let relied = relied_until(&holding, lease);
        let of_another = relied_until(&holding, ShardLease { epoch: 2, ..lease });
        assert_eq!((relied(), of_another()), (until, Duration::ZERO));
        renews.send_replace(Holding::Held { lease, until: 2 * until });
        assert_eq!(relied(), 2 * until);
        drop(holding);
        assert!(renews.is_closed(), "nobody has it renewed");
        assert_eq!(relied(), Duration::ZERO);
    }
}
