//! The limiter: settles drain pressure before the queue is touched. Pure.

use std::time::Duration;

use super::pressure::{HostPressure, Level, Probe};
use crate::model::retry::RetryPolicy;
use crate::store::CLAIM_ROWS_MAX;

/// Rows of the claim that tries whether an ailing store answers again.
const PROBING_ROWS: u32 = 1;

/// Where something is tight, a claim takes this part of what it would take: one in so many.
const SHRUNK_PART: u32 = 4;

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
    /// Those among them whose lease ran out; `None` if nobody counted them.
    pub stale_rows: Option<u32>,
    /// The drain budget: rows of the pack that may be in work.
    pub processing_rows_max: u32,
    /// How the store answered the last claims.
    pub store: StoreHealth,
    /// What presses on the whole host.
    pub host: HostPressure,
    /// Guest calls of this host that wait for an instance.
    pub calls_waiting: u32,
    /// Now, on the monotonic clock.
    pub now: Duration,
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
    /// At most so many rows: fewer than could be taken.
    Shrink {
        /// How many.
        rows: u32,
        /// What there is too little of.
        reason: Resource,
    },
    /// At most so many rows whose lease ran out, and no fresh one.
    StaleOnly {
        /// How many.
        rows: u32,
        /// Why no fresh one.
        reason: StaleOnlyReason,
    },
}

/// What there may be too little of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Connections of the store's pool.
    Pool,
    /// Guest instances: calls wait for one.
    Guests,
    /// Memory.
    Memory,
    /// Disk.
    Disk,
}

/// Why no fresh row may be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleOnlyReason {
    /// The store ails, or its probe failed.
    Degraded,
    /// Those who read the store wait too long for a connection. Who works off a fresh row reads its Event.
    Pool,
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
    /// As many rows are in work as may be, in other runtimes too, and no lease of theirs ran out.
    BudgetShared,
    /// More guest calls wait for an instance than rows could be taken.
    Guests,
    /// There is next to no memory.
    Memory,
    /// There is next to no disk.
    Disk,
    /// The store failed; it is asked again later.
    StoreFailing {
        /// When, on the monotonic clock.
        retry_at: Duration,
    },
}

/// Decides how many rows may be claimed now, and of which kind. Of several reasons the one that allows least counts.
pub fn admit(pressure: &Pressure) -> Admission {
    if pressure.free_slots == 0 {
        return Admission::Deny(Denial::NoSlot);
    }
    let own_budget = pressure.processing_rows_max.saturating_sub(pressure.own_rows);
    if own_budget == 0 {
        return Admission::Deny(Denial::BudgetSpent);
    }
    match pressure.store {
        StoreHealth::Failing { retry_at, .. } if pressure.now < retry_at => {
            Admission::Deny(Denial::StoreFailing { retry_at })
        }
        // Reclaiming adds no load that was not there before the trouble began; fresh work can wait.
        StoreHealth::Failing { .. } => Admission::StaleOnly { rows: PROBING_ROWS, reason: StaleOnlyReason::Degraded },
        StoreHealth::Healthy => admit_by_resources(pressure, own_budget),
    }
}

/// The store answers, and this runtime may have `own_budget` rows more in work.
fn admit_by_resources(pressure: &Pressure, own_budget: u32) -> Admission {
    let HostPressure { probe, pool, memory, disk } = pressure.host;
    if memory == Level::Exhausted {
        return Admission::Deny(Denial::Memory);
    }
    if disk == Level::Exhausted {
        return Admission::Deny(Denial::Disk);
    }
    // A row that only waits for an instance is as good as not claimed, but for others, who cannot have it.
    let rows_max = pressure.free_slots.min(CLAIM_ROWS_MAX).saturating_sub(pressure.calls_waiting);
    if rows_max == 0 {
        return Admission::Deny(Denial::Guests);
    }
    // A stale row is in work already, wherever it was.
    let stale_only = |reason| Admission::StaleOnly { rows: rows_max.min(own_budget), reason };
    if probe == Probe::Failed {
        return stale_only(StaleOnlyReason::Degraded);
    }
    if pool == Level::Exhausted {
        return stale_only(StaleOnlyReason::Pool);
    }
    let budget = pressure.processing_rows_max.saturating_sub(pressure.processing_rows);
    if budget == 0 {
        return match pressure.stale_rows {
            Some(0) => Admission::Deny(Denial::BudgetShared),
            Some(_) | None => stale_only(StaleOnlyReason::BudgetShared),
        };
    }
    let tight = [(pool, Resource::Pool), (memory, Resource::Memory), (disk, Resource::Disk)];
    let rows = rows_max.min(budget);
    match tight.into_iter().find(|(level, _)| *level != Level::Normal) {
        Some((_, reason)) => Admission::Shrink { rows: (rows / SHRUNK_PART).max(1), reason },
        None if pressure.calls_waiting > 0 => Admission::Shrink { rows, reason: Resource::Guests },
        None => Admission::Grant { rows },
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
            Admission::Deny(_) => "deny",
            Admission::Grant { .. } => "grant",
            Admission::Shrink { .. } => "shrink",
            Admission::StaleOnly { .. } => "stale_only",
        }
    }

    /// The word for why in metrics.
    pub const fn reason(self) -> &'static str {
        match self {
            Admission::Grant { .. } => "none",
            Admission::Deny(Denial::NoSlot) => "no_slot",
            Admission::Deny(Denial::BudgetSpent) => "budget_spent",
            Admission::Deny(Denial::StoreFailing { .. })
            | Admission::StaleOnly { reason: StaleOnlyReason::Degraded, .. } => "store",
            Admission::Deny(Denial::BudgetShared)
            | Admission::StaleOnly { reason: StaleOnlyReason::BudgetShared, .. } => "budget_shared",
            Admission::StaleOnly { reason: StaleOnlyReason::Pool, .. }
            | Admission::Shrink { reason: Resource::Pool, .. } => "pool",
            Admission::Deny(Denial::Guests) | Admission::Shrink { reason: Resource::Guests, .. } => "guests",
            Admission::Deny(Denial::Memory) | Admission::Shrink { reason: Resource::Memory, .. } => "memory",
            Admission::Deny(Denial::Disk) | Admission::Shrink { reason: Resource::Disk, .. } => "disk",
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
            stale_rows: None,
            processing_rows_max: 64,
            store: StoreHealth::Healthy,
            host: HostPressure::default(),
            calls_waiting: 0,
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
        let probe_failed = HostPressure { probe: Probe::Failed, ..HostPressure::default() };
        let probe_failed = Pressure { host: probe_failed, ..pressure() };
        assert_eq!(admit(&probe_failed), Admission::StaleOnly { rows: 64, reason });
    }

    // PRS-3, PRS-1
    #[test]
    fn what_is_tight_shrinks_and_what_is_exhausted_denies_or_leaves_stale_rows() {
        let decide = |host| admit(&Pressure { host, ..pressure() });
        let with = |level| {
            let normal = HostPressure::default();
            [
                (HostPressure { pool: level, ..normal }, Resource::Pool),
                (HostPressure { memory: level, ..normal }, Resource::Memory),
                (HostPressure { disk: level, ..normal }, Resource::Disk),
            ]
        };
        for (host, reason) in with(Level::Tight) {
            assert_eq!(decide(host), Admission::Shrink { rows: 16, reason });
            let one = admit(&Pressure { host, free_slots: 1, ..pressure() });
            assert_eq!(one, Admission::Shrink { rows: 1, reason }, "it goes on, if slowly");
        }
        let exhausted = with(Level::Exhausted).map(|(host, _)| decide(host));
        let stale_only = Admission::StaleOnly { rows: 64, reason: StaleOnlyReason::Pool };
        assert_eq!(exhausted, [stale_only, Admission::Deny(Denial::Memory), Admission::Deny(Denial::Disk)]);
        for (host, reason) in with(Level::Normal) {
            assert_eq!(decide(host), Admission::Grant { rows: 64 }, "{reason:?}");
        }
    }

    // PRS-3
    #[test]
    fn no_more_is_claimed_than_guests_could_take_up() {
        let decide = |calls_waiting| admit(&Pressure { calls_waiting, ..pressure() });
        assert_eq!(decide(0), Admission::Grant { rows: 64 });
        assert_eq!(decide(60), Admission::Shrink { rows: 4, reason: Resource::Guests });
        assert_eq!(decide(64), Admission::Deny(Denial::Guests));
    }

    // PRS-3
    #[test]
    fn where_others_spend_the_budget_stale_rows_decide_whether_to_look() {
        let decide =
            |stale_rows| admit(&Pressure { processing_rows: 10, processing_rows_max: 10, stale_rows, ..pressure() });
        let stale_only = Admission::StaleOnly { rows: 10, reason: StaleOnlyReason::BudgetShared };
        assert_eq!(decide(Some(0)), Admission::Deny(Denial::BudgetShared));
        assert_eq!((decide(Some(3)), decide(None)), (stale_only, stale_only));
    }

    // PRS-1: whatever presses, what is stale only never becomes a grant of fresh rows by something that presses less.
    #[test]
    fn more_pressure_never_allows_more() {
        let rank = |admission: Admission| match admission {
            Admission::Deny(_) => (0, 0),
            Admission::StaleOnly { rows, .. } => (1, rows),
            Admission::Shrink { rows, .. } | Admission::Grant { rows } => (2, rows),
        };
        let levels = [Level::Normal, Level::Tight, Level::Exhausted];
        let states = |level: Level| levels.into_iter().filter(move |other| *other >= level);
        let all = levels.len().pow(3);
        for number in 0..all {
            let level = |place: u32| levels[number / levels.len().pow(place) % levels.len()];
            let (pool, memory, disk) = (level(0), level(1), level(2));
            for probe in [Probe::Answered, Probe::Failed] {
                let decide = |pool, memory, disk, probe, calls_waiting| {
                    let host = HostPressure { probe, pool, memory, disk };
                    rank(admit(&Pressure { host, calls_waiting, ..pressure() }))
                };
                let here = decide(pool, memory, disk, probe, 0);
                assert!(decide(pool, memory, disk, Probe::Failed, 0) <= here);
                assert!(decide(pool, memory, disk, probe, 30) <= here);
                assert!(states(pool).all(|pool| decide(pool, memory, disk, probe, 0) <= here));
                assert!(states(memory).all(|memory| decide(pool, memory, disk, probe, 0) <= here));
                assert!(states(disk).all(|disk| decide(pool, memory, disk, probe, 0) <= here));
            }
        }
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
