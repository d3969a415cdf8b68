//! The limiter: settles drain pressure before the queue is touched. Pure.

use std::time::Duration;

use crate::model::retry::RetryPolicy;
use crate::store::CLAIM_ROWS_MAX;

/// Rows of the claim that tries whether an ailing store answers again.
const PROBING_ROWS: u32 = 1;

/// How claims that fail are spaced: an ailing store is asked seldom, and never given up.
const FAILED_CLAIMS: RetryPolicy =
    RetryPolicy { initial: Duration::from_millis(100), max: Duration::from_secs(5), failures_max: u32::MAX };

/// What the limiter decides by.
#[derive(Debug, Clone, Copy)]
pub struct Pressure {
    /// Slots of the shape that is to claim that are free.
    pub free_slots: u32,
    /// Rows of the pack that this runtime has in work.
    pub own_rows: u32,
    /// Rows of the pack that are in work: over all runtimes if the budget is theirs together, else this runtime's.
    pub processing_rows: u32,
    /// The drain budget: rows of the pack that may be in work.
    pub processing_rows_max: u32,
    /// How the store answered the last claims.
    pub store: StoreHealth,
    /// Whether the last readiness probe of the store succeeded.
    pub probe: Probe,
    /// Now, on the monotonic clock.
    pub now: Duration,
}

/// What the last readiness probe of the store said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// It answered, or was not asked yet.
    Answered,
    /// It did not.
    Failed,
}

/// How the store answered the last claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreHealth {
    /// The last one succeeded, or there was none.
    Healthy,
    /// The last ones failed or took too long.
    Failing {
        /// How many in a row.
        failures: u32,
        /// Not asked again before, on the monotonic clock.
        retry_at: Duration,
    },
}

/// What the limiter allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Nothing.
    Deny(Denial),
    /// At most so many rows.
    Grant {
        /// How many.
        rows: u32,
    },
    /// At most so many rows whose lease ran out, and no fresh one.
    StaleOnly {
        /// How many.
        rows: u32,
        /// Why no fresh one.
        reason: StaleOnlyReason,
    },
}

/// Why no fresh row may be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleOnlyReason {
    /// The store ails, or its probe failed.
    Degraded,
    /// The budget is spent, and not by this runtime alone. What a dead one left in work counts until it is taken over.
    BudgetShared,
}

/// Why nothing may be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// No slot is free.
    NoSlot,
    /// As many rows are in work as may be.
    BudgetSpent,
    /// The store failed; it is asked again later.
    StoreFailing {
        /// When, on the monotonic clock.
        retry_at: Duration,
    },
}

/// Decides how many rows may be claimed now, and of which kind.
pub fn admit(pressure: &Pressure) -> Admission {
    if pressure.free_slots == 0 {
        return Admission::Deny(Denial::NoSlot);
    }
    let budget = |rows: u32| pressure.processing_rows_max.saturating_sub(rows);
    let (own_budget, budget) = (budget(pressure.own_rows), budget(pressure.processing_rows));
    if own_budget == 0 {
        return Admission::Deny(Denial::BudgetSpent);
    }
    match pressure.store {
        StoreHealth::Failing { retry_at, .. } if pressure.now < retry_at => {
            Admission::Deny(Denial::StoreFailing { retry_at })
        }
        // Reclaiming adds no load that was not there before the trouble began; fresh work can wait.
        StoreHealth::Failing { .. } => Admission::StaleOnly { rows: PROBING_ROWS, reason: StaleOnlyReason::Degraded },
        StoreHealth::Healthy => {
            let rows_max = pressure.free_slots.min(CLAIM_ROWS_MAX);
            // A stale row is in work already, wherever it was.
            let stale_only = |reason| Admission::StaleOnly { rows: rows_max.min(own_budget), reason };
            match pressure.probe {
                Probe::Failed => stale_only(StaleOnlyReason::Degraded),
                Probe::Answered if budget == 0 => stale_only(StaleOnlyReason::BudgetShared),
                Probe::Answered => Admission::Grant { rows: rows_max.min(budget) },
            }
        }
    }
}

impl StoreHealth {
    /// After another claim that failed or took too long. `seed` keeps the schedulers of a host from asking together.
    pub fn after_failure(self, now: Duration, seed: &[u8]) -> Self {
        let failures = match self {
            StoreHealth::Healthy => 1,
            StoreHealth::Failing { failures, .. } => failures.saturating_add(1),
        };
        StoreHealth::Failing { failures, retry_at: now + FAILED_CLAIMS.jittered(failures, seed) }
    }
}

impl Admission {
    /// The word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Admission::Deny(Denial::NoSlot) => "no_slot",
            Admission::Deny(Denial::BudgetSpent) => "budget_spent",
            Admission::Deny(Denial::StoreFailing { .. }) => "store_failing",
            Admission::Grant { .. } => "grant",
            Admission::StaleOnly { reason: StaleOnlyReason::Degraded, .. } => "stale_only",
            Admission::StaleOnly { reason: StaleOnlyReason::BudgetShared, .. } => "budget_shared",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);

    fn pressure() -> Pressure {
        Pressure {
            free_slots: 64,
            own_rows: 0,
            processing_rows: 0,
            processing_rows_max: 64,
            store: StoreHealth::Healthy,
            probe: Probe::Answered,
            now: NOW,
        }
    }

    // PRS-2
    #[test]
    fn the_budget_counts_rows_not_slots() {
        let decide =
            |rows| admit(&Pressure { own_rows: rows, processing_rows: rows, processing_rows_max: 10, ..pressure() });
        assert_eq!(decide(0), Admission::Grant { rows: 10 });
        assert_eq!(decide(7), Admission::Grant { rows: 3 });
        assert_eq!(decide(10), Admission::Deny(Denial::BudgetSpent));
        assert_eq!(decide(11), Admission::Deny(Denial::BudgetSpent));
    }

    // PRS-2
    #[test]
    fn a_budget_that_others_spend_leaves_stale_rows_only() {
        let decide = |own_rows, processing_rows| {
            admit(&Pressure { own_rows, processing_rows, processing_rows_max: 10, ..pressure() })
        };
        let stale_only = |rows| Admission::StaleOnly { rows, reason: StaleOnlyReason::BudgetShared };
        assert_eq!(decide(2, 7), Admission::Grant { rows: 3 });
        assert_eq!(decide(2, 10), stale_only(8));
        assert_eq!(decide(0, 12), stale_only(10));
        assert_eq!(decide(10, 10), Admission::Deny(Denial::BudgetSpent));
    }

    #[test]
    fn no_more_is_granted_than_slots_are_free_or_a_claim_takes() {
        let decide = |free_slots| admit(&Pressure { free_slots, processing_rows_max: 10_000, ..pressure() });
        assert_eq!(decide(0), Admission::Deny(Denial::NoSlot));
        assert_eq!(decide(5), Admission::Grant { rows: 5 });
        assert_eq!(decide(5_000), Admission::Grant { rows: CLAIM_ROWS_MAX });
    }

    // PRS-1
    #[test]
    fn a_store_in_trouble_is_asked_seldom_and_for_stale_rows_only() {
        let failing = StoreHealth::Healthy.after_failure(NOW, b"pack");
        let StoreHealth::Failing { failures: 1, retry_at } = failing else { panic!("{failing:?}") };
        assert!(retry_at > NOW);
        let reason = StaleOnlyReason::Degraded;
        let decide = |store, now| admit(&Pressure { store, now, ..pressure() });
        assert_eq!(decide(failing, NOW), Admission::Deny(Denial::StoreFailing { retry_at }));
        assert_eq!(decide(failing, retry_at), Admission::StaleOnly { rows: PROBING_ROWS, reason });
        let probe_failed = Pressure { probe: Probe::Failed, ..pressure() };
        assert_eq!(admit(&probe_failed), Admission::StaleOnly { rows: 64, reason });
    }

    #[test]
    fn pauses_grow_up_to_a_cap() {
        let mut health = StoreHealth::Healthy;
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            health = health.after_failure(NOW, b"pack");
            let StoreHealth::Failing { retry_at, .. } = health else { panic!("{health:?}") };
            longest = longest.max(retry_at - NOW);
        }
        assert!(longest <= FAILED_CLAIMS.max && longest >= FAILED_CLAIMS.max / 2, "{longest:?}");
    }
}
