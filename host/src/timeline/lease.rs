//! Owning a shard: acquiring its lease, renewing it, and the time until which it can be relied on.
//!
//! Invariant: an owner relies on its lease for less than the lease's time, by the monotonic clock and counted from
//! before the store was asked. So an owner whose renewals fail stops by itself before the next owner can begin.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::status::ShardStatus;
use super::surroundings::Surroundings;
use crate::env;
use crate::store::{ShardId, ShardLease, StoreError};

/// The part of a lease's time after which it is renewed.
const RENEW_AT: f64 = 1.0 / 3.0;
/// The part of a lease's time for which it is relied on.
const RELY_ON: f64 = 0.75;
/// The pause between two tries to acquire or renew, as a part of a lease's time.
const TRY_AGAIN: f64 = 1.0 / 20.0;

/// A shard's ownership, as its lease says.
#[derive(Debug, Clone, Copy)]
pub(super) enum Holding {
    /// This host owns the shard.
    Held(HeldLease),
    /// Another host owns the shard, or may.
    Lost,
}

/// A lease that this host holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldLease {
    /// The lease.
    pub lease: ShardLease,
    /// The monotonic time until which the lease is relied on.
    pub until: Duration,
}

/// Acquires and renews the leases of one shard.
pub(super) struct LeaseKeeper {
    pub around: Arc<Surroundings>,
    /// Hints that time has passed.
    pub wake: watch::Receiver<u64>,
}

impl LeaseKeeper {
    /// Tries to acquire the shard while its place is on this host; `None` if the host stops first. Meanwhile `status`
    /// says whether another host owns the shard.
    pub(super) async fn acquire(mut self, shard: ShardId, status: &ShardStatus) -> Option<HeldLease> {
        let around = &*self.around;
        let mut placement = around.placement.clone();
        loop {
            if !around.placement.is_here(shard) {
                status.set_elsewhere(around.placement.is_known());
                tokio::select! {
                    () = placement.changed() => continue,
                    () = around.stop.cancelled() => return None,
                }
            }
            let asked = around.env.clock.monotonic();
            match around.store.acquire_shard(shard, around.runtime, around.options.lease, around.env.now()).await {
                Ok(Some(lease)) => {
                    status.set_elsewhere(false);
                    return Some(self.held(lease, asked));
                }
                Ok(None) => status.set_elsewhere(true),
                Err(error) => {
                    status.set_elsewhere(false);
                    tracing::warn!(shard = shard.0, %error, "a shard cannot be acquired now");
                }
            }
            tokio::select! {
                () = env::sleep(self.part(TRY_AGAIN)) => {}
                Ok(()) = self.wake.changed() => {}
                () = placement.changed() => {}
                () = around.stop.cancelled() => return None,
            }
        }
    }

    /// Renews the lease in `holding` until it is lost or has no reader.
    pub(super) async fn keep(mut self, holding: watch::Sender<Holding>) {
        loop {
            let Holding::Held(HeldLease { lease, until }) = *holding.borrow() else { return };
            let now = self.around.env.clock.monotonic();
            let renew_at = until.saturating_sub(self.part(RELY_ON - RENEW_AT));
            let pause = renew_at.saturating_sub(now).max(self.part(TRY_AGAIN));
            tokio::select! {
                () = env::sleep(pause) => {}
                Ok(()) = self.wake.changed() => {}
                () = holding.closed() => return,
            }
            let asked = self.around.env.clock.monotonic();
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
        let Surroundings { store, env, options, .. } = &*self.around;
        let renewed = store.renew_shard(lease, options.lease, env.now()).await?;
        Ok(renewed.map_or(Holding::Lost, |lease| Holding::Held(self.held(lease, asked))))
    }

    fn held(&self, lease: ShardLease, asked: Duration) -> HeldLease {
        HeldLease { lease, until: asked + self.part(RELY_ON) }
    }

    /// A part of a lease's time.
    fn part(&self, part: f64) -> Duration {
        self.around.options.lease.mul_f64(part)
    }
}

/// The monotonic time until which attempts of an owner may rely on its lease. Attempts do not keep the lease alive: it
/// is renewed no more once the owner's session has ended, and an attempt that has not been sent by then never is.
pub(super) fn relied_until(
    holding: &Arc<watch::Receiver<Holding>>,
    lease: ShardLease,
) -> impl Fn() -> Duration + Send + Sync + use<> {
    let holding = Arc::downgrade(holding);
    move || {
        let Some(holding) = holding.upgrade() else { return Duration::ZERO };
        match *holding.borrow() {
            Holding::Held(held) if held.lease.epoch == lease.epoch => held.until,
            Holding::Held(_) | Holding::Lost => Duration::ZERO,
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
        let (renews, holding) = watch::channel(Holding::Held(HeldLease { lease, until }));
        let holding = Arc::new(holding);
        let relied = relied_until(&holding, lease);
        let of_another = relied_until(&holding, ShardLease { epoch: 2, ..lease });
        assert_eq!((relied(), of_another()), (until, Duration::ZERO));
        renews.send_replace(Holding::Held(HeldLease { lease, until: 2 * until }));
        assert_eq!(relied(), 2 * until);
        drop(holding);
        assert!(renews.is_closed(), "it is not renewed any more");
        assert_eq!(relied(), Duration::ZERO);
    }
}
