//! The scheduler of one pack's queue.
//!
//! ```text
//!            ┌──────────────── tick: limiter, slots, claim, dispatch ◄───────────────┐
//!            │                                                                       │
//!            ├─ as many rows as asked for ──> room for more? ── yes ─────────────────┤
//!            │                                     └─ no ──> until slots are freed ──┤
//!            ├─ fewer: the queue is empty ──> until enqueue, reconcile or a timer ───┤
//!            └─ the store failed ───────────> back off ──────────────────────────────┘
//! ```
//!
//! A queue that was found empty is not looked at again because a slot was freed; a slot that was freed waits a moment for
//! company, so that a busy pack claims batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::ClaimOptions;
use super::limiter::{Admission, Denial, Pressure, Probe, StoreHealth, admit};
use crate::env::{self, Env};
use crate::execute::{ClaimTimes, Executors, SERVED_WORK_TYPES};
use crate::model::ids::LeaseToken;
use crate::model::time::Timestamp;
use crate::store::{ClaimRequest, Store};

/// A freed slot waits so long for company before the queue is looked at for it alone.
const COMPANY_WAIT: Duration = Duration::from_millis(1);
/// The part of all slots that is company enough: one in so many.
const COMPANY_PART: u32 = 2;

/// How far past the end of a delay or a lease it is certainly over.
const PAST: Duration = Duration::from_millis(1);

/// Wakes a scheduler, and tells it how the store is; clones share it.
#[derive(Clone, Default)]
pub struct SchedulerHandle {
    woken: Arc<Notify>,
    probe_failed: Arc<AtomicBool>,
}

impl SchedulerHandle {
    /// Something changed that enqueues do not tell of: a generation was loaded, or it is time to reconcile.
    pub fn wake(&self) {
        self.woken.notify_one();
    }

    /// The store's readiness probe was answered, or failed.
    pub fn probed(&self, probe: Probe) {
        let failed = probe == Probe::Failed;
        if self.probe_failed.swap(failed, Ordering::Relaxed) && !failed {
            self.woken.notify_one();
        }
    }

    fn probe(&self) -> Probe {
        if self.probe_failed.load(Ordering::Relaxed) { Probe::Failed } else { Probe::Answered }
    }
}

/// The only one who claims for a pack in this runtime.
pub struct CentralClaimScheduler {
    options: ClaimOptions,
    store: Store,
    executors: Executors,
    env: Env,
    handle: SchedulerHandle,
    work: watch::Receiver<u64>,
    health: StoreHealth,
    last_admission: &'static str,
    signals: ClaimSignals,
}

struct ClaimSignals {
    claims: Counter,
    rows: Counter,
    reclaimed: Counter,
    failures: Counter,
    seconds: Histogram,
    processing: Gauge,
}

/// What one look came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// No generation of the pack is loaded: there is nothing to ask for.
    NothingLoaded,
    /// The limiter did not allow a claim.
    Denied(Denial),
    /// Rows were claimed and dispatched, as many as were asked for: there may be more.
    Full {
        /// How many.
        rows: u32,
    },
    /// Fewer rows were claimed than were asked for: no more are claimable at `now`.
    Drained {
        /// How many were claimed.
        rows: u32,
    },
    /// Only stale rows were asked for; whether there are fresh ones is not known.
    StaleOnly {
        /// How many were claimed.
        rows: u32,
    },
    /// The store failed or took too long.
    Failed,
}

impl CentralClaimScheduler {
    /// A scheduler for the pack of `executors`.
    pub fn new(options: ClaimOptions, store: Store, executors: Executors, env: Env, handle: SchedulerHandle) -> Self {
        let name = || executors.pack().to_string();
        let signals = ClaimSignals {
            claims: counter!("forebay_claims_total", "pack" => name()),
            rows: counter!("forebay_claimed_rows_total", "pack" => name()),
            reclaimed: counter!("forebay_reclaimed_rows_total", "pack" => name()),
            failures: counter!("forebay_claim_failures_total", "pack" => name()),
            seconds: histogram!("forebay_claim_seconds", "pack" => name()),
            processing: gauge!("forebay_processing_rows", "pack" => name()),
        };
        let work = store.subscribe_work();
        let (health, last_admission) = (StoreHealth::Healthy, "");
        Self { options, store, executors, env, handle, work, health, last_admission, signals }
    }

    /// Claims until `stop` is cancelled. A claim that is outstanding then is waited for, and its rows are dispatched.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            self.work.mark_unchanged();
            let now = self.env.now();
            let looked = self.tick(now).await;
            let pause = self.pause_after(looked, now);
            tokio::select! {
                () = stop.cancelled() => return,
                () = pause => {}
            }
        }
    }

    /// Asks the limiter, claims, and dispatches what was claimed.
    pub async fn tick(&mut self, now: Timestamp) -> Tick {
        let generations = self.executors.generations();
        if generations.is_empty() {
            return Tick::NothingLoaded;
        }
        let pressure = self.pressure();
        let admission = admit(&pressure);
        self.count_admission(admission);
        let (rows_max, stale_only) = match admission {
            Admission::Deny(denial) => return Tick::Denied(denial),
            Admission::Grant { rows } => (rows, false),
            Admission::StaleOnly { rows } => (rows, true),
        };
        let Some(slots) = self.executors.reserve(rows_max) else {
            return Tick::Denied(Denial::NoSlot);
        };
        let request = ClaimRequest {
            pack: self.executors.pack().clone(),
            generations,
            work_types: SERVED_WORK_TYPES.to_vec(),
            rows_max,
            stale_only,
            lease: LeaseToken::new(now, self.env.id_entropy()),
            lease_duration: self.executors.lease(),
            now,
        };
        let sent = self.env.clock.monotonic();
        self.executors.vitals().claim_sent();
        let answer = timeout(self.options.timeout, self.store.claim(request)).await;
        let answered = self.env.clock.monotonic();
        self.signals.claims.increment(1);
        self.signals.seconds.record(answered.saturating_sub(sent));
        let claimed = match answer {
            Ok(Ok(claimed)) => claimed,
            Ok(Err(error)) => return self.failed(&error.to_string()),
            Err(_) => return self.failed("the claim took too long"),
        };
        self.health = StoreHealth::Healthy;
        let rows = u32::try_from(claimed.len()).expect("a claim returns no more rows than it was asked for");
        // What is claimed may come back again and again: of that, and of what is in work, only outcomes tell.
        if rows == 0 && !stale_only && pressure.processing_rows == 0 {
            self.executors.vitals().drains(answered);
        }
        self.signals.rows.increment(u64::from(rows));
        self.signals.reclaimed.increment(claimed.iter().filter(|item| item.reclaimed).count() as u64);
        self.executors.dispatch(claimed, slots, ClaimTimes { sent, sent_at: now, answered });
        match (stale_only, rows < rows_max) {
            (true, _) => Tick::StaleOnly { rows },
            (false, true) => Tick::Drained { rows },
            (false, false) => Tick::Full { rows },
        }
    }

    fn failed(&mut self, reason: &str) -> Tick {
        let pack = self.executors.pack();
        self.health = self.health.after_failure(self.env.clock.monotonic(), pack.as_str().as_bytes());
        self.signals.failures.increment(1);
        tracing::warn!(%pack, reason, "a claim failed");
        Tick::Failed
    }

    fn pressure(&self) -> Pressure {
        let processing_rows = self.executors.rows_in_work();
        self.signals.processing.set(processing_rows);
        Pressure {
            free_slots: self.executors.free(),
            processing_rows,
            processing_rows_max: self.processing_rows_max(),
            store: self.health,
            probe: self.handle.probe(),
            now: self.env.clock.monotonic(),
        }
    }

    fn processing_rows_max(&self) -> u32 {
        self.options.max_processing_rows.map_or(self.executors.rows_in_work_max(), |rows| rows.get())
    }

    /// Counts every decision and logs changes only: a busy pack decides thousands of times a second.
    fn count_admission(&mut self, admission: Admission) {
        let (pack, decision) = (self.executors.pack(), admission.as_str());
        counter!("forebay_claim_decisions_total", "pack" => pack.to_string(), "decision" => decision).increment(1);
        if decision != self.last_admission {
            tracing::debug!(%pack, decision, "the claim limiter decides otherwise");
            self.last_admission = decision;
        }
    }

    /// Returns when it is worth looking again.
    async fn pause_after(&mut self, looked: Tick, now: Timestamp) {
        match looked {
            Tick::Full { .. } | Tick::Denied(Denial::NoSlot | Denial::BudgetSpent) => self.room().await,
            Tick::Drained { .. } => self.work_or_timer(now).await,
            Tick::NothingLoaded => self.handle.woken.notified().await,
            Tick::StaleOnly { .. } => self.next_stale_look().await,
            Tick::Denied(Denial::StoreFailing { .. }) | Tick::Failed => self.store_retry().await,
        }
    }

    /// Rows that could be claimed and worked off now.
    fn room_now(&self) -> u32 {
        let budget = self.processing_rows_max().saturating_sub(self.executors.rows_in_work());
        self.executors.free().min(budget)
    }

    /// Returns once there is room for a batch, or for a single row that has waited for company.
    async fn room(&self) {
        let company = (self.executors.slots().min(self.processing_rows_max()) / COMPANY_PART).max(1);
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
    /// All that this runtime could claim at `looked_at` is claimed. What was claimable by then and still is, is of generations
    /// or work types that are not served here.
    async fn work_or_timer(&mut self, looked_at: Timestamp) {
        if self.work.has_changed().unwrap_or(false) {
            return;
        }
        let pause = match self.store.next_claimable_at(self.executors.pack(), looked_at).await {
            Ok(Some(next)) => (next + PAST).since(self.env.now()).min(self.options.poll),
            Ok(None) | Err(_) => self.options.poll,
        };
        tokio::select! {
            changed = self.work.changed() => {
                if changed.is_err() {
                    // The store is closing; what comes next is the stop.
                    env::sleep(self.options.poll).await;
                }
            }
            () = self.handle.woken.notified() => {}
            () = env::sleep(pause) => {}
        }
    }

    /// While only stale rows may be claimed, enqueues are no reason to look.
    async fn next_stale_look(&self) {
        if self.health == StoreHealth::Healthy && self.handle.probe() == Probe::Answered {
            return;
        }
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
