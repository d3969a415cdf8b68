//! When a scheduler looks at its queue again, and what for.

use std::time::Duration;

use tokio::time::timeout;

use super::{CentralClaimScheduler, EMPTY_TRUST, News, Tick};
use crate::claim::limiter::{Denial, StaleOnlyReason, StoreHealth};
use crate::claim::pressure::{Level, Probe};
use crate::env;
use crate::lanes::Shape;
use crate::model::queue::QueueClasses;
use crate::model::time::Timestamp;
use crate::store::{CLAIM_ROWS_MAX, QueueMark};

/// A freed slot waits so long for company before the queue is looked at without. A claim takes a few milliseconds,
/// however many rows it is for, and there is one at a time: what it takes is what the pack gets in that time.
const COMPANY_WAIT: Duration = Duration::from_millis(1);

/// A budget that other runtimes spend is looked at again after so long: nobody tells of what they give back.
const SHARED_BUDGET_POLL: Duration = Duration::from_millis(50);

/// So often a scheduler that sleeps looks whether other runtimes changed its queue: one read of a few counters.
const SHARED_QUEUE_POLL: Duration = Duration::from_secs(1);

/// How far past the end of a delay or a lease it is certainly over.
const PAST: Duration = Duration::from_millis(1);

impl CentralClaimScheduler {
    /// Returns when it is worth looking again, and what for.
    pub(super) async fn pause_after(&mut self, looked: Tick, now: Timestamp) -> News {
        match looked {
            Tick::Full { .. } | Tick::Denied(Denial::NoSlot | Denial::BudgetSpent) => return self.room_or_work().await,
            Tick::ShapeDrained { .. } => {}
            Tick::Drained { .. } => {
                self.work_or_timer(now).await;
                return News::Work;
            }
            Tick::NothingLoaded => self.handle.woken.notified().await,
            Tick::StaleOnly { reason: StaleOnlyReason::Degraded | StaleOnlyReason::Pool, .. } => {
                self.next_stale_look().await;
            }
            Tick::StaleOnly { reason: StaleOnlyReason::BudgetShared, .. }
            | Tick::Denied(Denial::BudgetShared | Denial::Guests) => self.room_of_others().await,
            Tick::Denied(Denial::Memory | Denial::Disk) => self.relief().await,
            Tick::Denied(Denial::StoreFailing { .. }) | Tick::Failed => self.store_retry().await,
        }
        News::Room
    }

    /// Rows that could be claimed and worked off now, by shapes that may find some.
    fn room_now(&self) -> u32 {
        let budget = self.processing_rows_max().saturating_sub(self.executors.rows_in_work());
        let free = Shape::ALL.into_iter().map(|shape| self.free(shape)).sum::<u32>();
        free.min(self.executors.free()).min(budget)
    }

    /// Returns once there is room; or, if slots are free of shapes that found nothing, once they may find something.
    async fn room_or_work(&self) -> News {
        if self.empty.classes == QueueClasses::NONE || self.room_now() > 0 {
            self.room().await;
            return News::Room;
        }
        let mut work = self.work.clone();
        tokio::select! {
            () = self.room() => News::Room,
            Ok(()) = work.changed() => {
                // A crowd of enqueues is worth one look.
                env::sleep(COMPANY_WAIT).await;
                News::Work
            }
            () = self.handle.woken.notified() => News::Work,
            () = env::sleep(EMPTY_TRUST) => News::Work,
        }
    }

    /// Returns once there is room for as much as one claim takes, or for what has waited for company.
    async fn room(&self) {
        let company = self.executors.slots().min(self.processing_rows_max()).clamp(1, CLAIM_ROWS_MAX);
        while self.room_now() == 0 {
            self.executors.freed().await;
        }
        let batch = async {
            while self.room_now() < company {
                self.executors.freed().await;
            }
        };
        // Past the wait, whatever there is room for is claimed.
        let _ = timeout(COMPANY_WAIT, batch).await;
    }

    /// Returns once an enqueue or a reconcile calls, once the next row becomes claimable by time alone, or to poll.
    ///
    /// All that this runtime could claim at `looked_at` is claimed. What was claimable by then and still is, is of
    /// generations or work types that are not served here.
    async fn work_or_timer(&mut self, looked_at: Timestamp) {
        let mut work = self.work.clone();
        if work.has_changed().unwrap_or(false) {
            return;
        }
        let pause = match self.store.next_claimable_at(self.executors.pack(), looked_at).await {
            Ok(Some(next)) => (next + PAST).since(self.env.now()).min(self.options.poll),
            Ok(None) | Err(_) => self.options.poll,
        };
        tokio::select! {
            changed = work.changed() => {
                if changed.is_err() {
                    // The store is closing; what comes next is the stop.
                    env::sleep(self.options.poll).await;
                }
            }
            () = self.handle.woken.notified() => {}
            () = env::sleep(pause) => {}
            mark = self.changed_mark() => self.mark = Some(mark),
        }
    }

    /// Returns what the counters say once they say something else than before the last look. What this runtime itself
    /// changed since costs one look more.
    async fn changed_mark(&self) -> QueueMark {
        if !self.store.is_shared() {
            return std::future::pending().await;
        }
        loop {
            match self.store.queue_mark(self.executors.pack()).await {
                Ok(mark) if self.mark != Some(mark) => return mark,
                // A store that does not answer is the next look's matter.
                Ok(_) | Err(_) => env::sleep(SHARED_QUEUE_POLL).await,
            }
        }
    }

    /// While only stale rows may be claimed, enqueues are no reason to look.
    async fn next_stale_look(&self) {
        let host = self.handle.host();
        let degraded = self.health != StoreHealth::Healthy || host.probe == Probe::Failed;
        if !degraded && host.pool != Level::Exhausted {
            return;
        }
        tokio::select! {
            () = self.handle.woken.notified() => {}
            () = env::sleep(self.options.poll) => {}
        }
    }

    /// What other runtimes, or other packs' guests, give back is seen by looking only.
    async fn room_of_others(&self) {
        tokio::select! {
            () = self.executors.freed() => {}
            () = env::sleep(SHARED_BUDGET_POLL) => {}
        }
    }

    /// Whoever measures the host wakes the scheduler when something presses less.
    async fn relief(&self) {
        tokio::select! {
            () = self.handle.woken.notified() => {}
            () = env::sleep(self.options.poll) => {}
        }
    }

    async fn store_retry(&self) {
        let StoreHealth::Failing { retry_at, .. } = self.health else { return };
        env::sleep(retry_at.saturating_sub(self.env.clock.monotonic())).await;
    }
}
