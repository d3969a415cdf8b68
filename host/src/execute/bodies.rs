//! The memory for bodies: how many bytes of Events one pack may have loaded for its executions.
//!
//! A row takes its share before its Event is loaded and has it until its outcome is recorded, because what a flow emits
//! is about as large as what came in, and waits in memory for as long. Shares are handed out in the order in which they
//! were asked for, so that a large body is not passed by small ones for ever. Each pack has a budget of its own: one
//! that is sent huge bodies slows itself down and nobody else.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What memory is counted in; a body of any size costs at least one.
const UNIT_BYTES: u64 = 1_024;

/// One pack's budget.
pub(super) struct Bodies {
    units: u32,
    free: Arc<Semaphore>,
}

/// What a body may take, given back when it is dropped.
pub(super) struct BodyShare {
    permit: OwnedSemaphorePermit,
}

impl Bodies {
    /// A budget of so many bytes, rounded down to whole units.
    pub(super) fn new(bytes_max: u64) -> Self {
        let units = u32::try_from(bytes_max / UNIT_BYTES).unwrap_or(u32::MAX).max(1);
        Self { units, free: Arc::new(Semaphore::new(units as usize)) }
    }

    /// A share for a body of so many bytes, if there is room and nobody waits for it.
    pub(super) fn share_now(&self, bytes: u64) -> Option<BodyShare> {
        // The semaphore keeps what is free for its first waiter: nobody is passed here.
        let permit = Arc::clone(&self.free).try_acquire_many_owned(self.cost(bytes)).ok()?;
        Some(BodyShare { permit })
    }

    /// Gives back what a body of so many bytes leaves of its share.
    pub(super) fn keep(&self, mut share: BodyShare, bytes: u64) -> BodyShare {
        let surplus = share.permit.num_permits().saturating_sub(self.cost(bytes) as usize);
        drop(share.permit.split(surplus));
        share
    }

    /// Waits for a share, behind those who wait already.
    pub(super) async fn share(&self, bytes: u64) -> BodyShare {
        let permit = Arc::clone(&self.free).acquire_many_owned(self.cost(bytes)).await;
        BodyShare { permit: permit.expect("the semaphore is never closed") }
    }

    /// The units that a body takes. One that is larger than the whole budget may have it for itself.
    fn cost(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).clamp(1, self.units)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_body_costs_its_bytes_and_at_least_one_unit() {
        let bodies = Bodies::new(4 * UNIT_BYTES);
        let costs = [0, 1, UNIT_BYTES, UNIT_BYTES + 1, 4 * UNIT_BYTES].map(|bytes| bodies.cost(bytes));
        assert_eq!(costs, [1, 1, 1, 2, 4]);
        assert_eq!([5 * UNIT_BYTES, u64::MAX].map(|bytes| bodies.cost(bytes)), [4, 4], "all there is, and no more");
        assert_eq!(Bodies::new(0).cost(u64::MAX), 1);
    }

    #[test]
    fn a_share_is_free_again_when_it_is_dropped() {
        let bodies = Bodies::new(2 * UNIT_BYTES);
        let (first, second) = (bodies.share_now(1), bodies.share_now(1));
        assert!(first.is_some() && second.is_some() && bodies.share_now(1).is_none());
        drop(first);
        assert!(bodies.share_now(2 * UNIT_BYTES).is_none());
        assert!(bodies.share_now(1).is_some());
    }

    #[test]
    fn what_a_body_leaves_of_its_share_is_free_again() {
        let bodies = Bodies::new(4 * UNIT_BYTES);
        let share = bodies.share_now(4 * UNIT_BYTES).unwrap();
        let share = bodies.keep(share, UNIT_BYTES + 1);
        assert!(bodies.share_now(3 * UNIT_BYTES).is_none());
        let rest = bodies.share_now(2 * UNIT_BYTES);
        assert!(rest.is_some());
        // Nothing is given back of a share that is too small.
        let share = bodies.keep(share, 4 * UNIT_BYTES);
        assert!(bodies.share_now(1).is_none());
        drop(share);
        assert!(bodies.share_now(2 * UNIT_BYTES).is_some());
    }

    #[test]
    fn a_large_body_is_not_passed_by_small_ones() {
        let bodies = Bodies::new(4 * UNIT_BYTES);
        let held = bodies.share_now(2 * UNIT_BYTES);
        let mut large = pin!(bodies.share(4 * UNIT_BYTES));
        assert!(large.as_mut().now_or_never().is_none());
        assert!(bodies.share_now(1).is_none(), "what is free is kept for the large one");
        let mut small = pin!(bodies.share(1));
        assert!(small.as_mut().now_or_never().is_none());
        drop(held);
        assert!(small.as_mut().now_or_never().is_none());
        let large = large.now_or_never().expect("there is room for it");
        drop(large);
        assert!(small.now_or_never().is_some());
    }
}
