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
//! A look is for one shape of executor (`lanes`), the next whose turn it is among those that have a free slot. Classes that
//! one look found empty are left out of the next ones until something is enqueued or a moment has passed; the queue is empty
//! once all of them are.
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
use super::limiter::{Admission, Denial, Pressure, Probe, StaleOnlyReason, StoreHealth, admit};
use crate::env::{self, Env};
use crate::execute::{ClaimTimes, Executors, SERVED_WORK_TYPES};
use crate::lanes::{Layout, Rotation, Shape};
use crate::model::ids::LeaseToken;
use crate::model::queue::QueueClasses;
use crate::model::time::Timestamp;
use crate::model::work_item::ClaimedWorkItem;
use crate::store::{CLAIM_ROWS_MAX, ClaimRequest, QueueMark, Store};

/// A freed slot waits so long for company before the queue is looked at without. A claim takes a few milliseconds, however many rows
/// it is for, and there is one at a time: what it takes is what the pack gets in that time.
const COMPANY_WAIT: Duration = Duration::from_millis(1);

/// So long a class that was found empty is taken to be so without another look, if nothing says otherwise.
const EMPTY_TRUST: Duration = Duration::from_millis(100);

/// A budget that other runtimes spend is looked at again after so long: nobody tells of what they give back.
const SHARED_BUDGET_POLL: Duration = Duration::from_millis(50);

/// So often a scheduler that sleeps looks whether other runtimes changed its queue: one read of a few counters.
const SHARED_QUEUE_POLL: Duration = Duration::from_secs(1);

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
    layout: Layout,
    rotation: Rotation,
    empty: Empty,
    /// The counters that the queue was last looked at after; only where other runtimes change them.
    mark: Option<QueueMark>,
    last_admission: &'static str,
    signals: ClaimSignals,
}

/// The classes that were found empty, and since when, on the monotonic clock.
#[derive(Debug, Clone, Copy)]
struct Empty {
    classes: QueueClasses,
    since: Duration,
}

impl Empty {
    const NONE: Empty = Empty { classes: QueueClasses::NONE, since: Duration::ZERO };
}

struct ClaimSignals {
    claims: Counter,
    rows: Counter,
    reclaimed: Counter,
    failures: Counter,
    seconds: Histogram,
    processing: Gauge,
}

/// What ends a pause.
enum News {
    /// There may be room, or the pause is over. What was found empty is still taken to be so.
    Room,
    /// There may be work.
    Work,
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
    /// Fewer rows were claimed than were asked for: no more of the classes of this shape are claimable at `now`. Those of
    /// other shapes may be.
    ShapeDrained {
        /// How many were claimed.
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
        /// Why no fresh ones.
        reason: StaleOnlyReason,
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
        Self {
            options,
            store,
            layout: executors.layout(),
            executors,
            env,
            handle,
            work,
            health: StoreHealth::Healthy,
            rotation: Rotation::default(),
            empty: Empty::NONE,
            mark: None,
            last_admission: "",
            signals,
        }
    }

    /// Claims until `stop` is cancelled. A claim that is outstanding then is waited for, and its rows are dispatched.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if self.work.has_changed().unwrap_or(false) {
                self.work.mark_unchanged();
                self.empty = Empty::NONE;
            }
            let now = self.env.now();
            let looked = self.tick(now).await;
            let pause = self.pause_after(looked, now);
            let news = tokio::select! {
                () = stop.cancelled() => return,
                news = pause => news,
            };
            if matches!(news, News::Work) {
                self.empty = Empty::NONE;
            }
        }
    }

    /// Settles on a shape, asks the limiter, claims, and dispatches what was claimed.
    pub async fn tick(&mut self, now: Timestamp) -> Tick {
        let generations = self.executors.generations();
        if generations.is_empty() {
            return Tick::NothingLoaded;
        }
        self.layout = self.executors.layout();
        if self.env.clock.monotonic().saturating_sub(self.empty.since) >= EMPTY_TRUST {
            self.empty = Empty::NONE;
        }
        let shape = self.rotation.turn(|shape| self.free(shape) > 0);
        let pressure = self.pressure(shape).await;
        let admission = admit(&pressure);
        self.count_admission(shape, admission);
        let (rows_max, stale_only) = match admission {
            Admission::Deny(denial) => return Tick::Denied(denial),
            Admission::Grant { rows } => (rows, None),
            Admission::StaleOnly { rows, reason } => (rows, Some(reason)),
        };
        let Some(shape) = shape else { return Tick::Denied(Denial::NoSlot) };
        let Some(slots) = self.executors.reserve(&self.layout, shape, rows_max) else {
            return Tick::Denied(Denial::NoSlot);
        };
        self.rotation.served(shape);
        let request = ClaimRequest {
            pack: self.executors.pack().clone(),
            generations,
            work_types: SERVED_WORK_TYPES.to_vec(),
            classes: shape.classes(),
            preference: shape.preference(),
            rows_max,
            stale_only: stale_only.is_some(),
            lease: LeaseToken::new(now, self.env.id_entropy()),
            lease_duration: self.executors.lease(),
            now,
        };
        let (claimed, times) = match self.claim(request).await {
            Ok(answer) => answer,
            Err(reason) => return self.failed(&reason),
        };
        let rows = u32::try_from(claimed.len()).expect("a claim returns no more rows than it was asked for");
        let looked = match stale_only {
            Some(reason) => Tick::StaleOnly { rows, reason },
            None if rows == rows_max => Tick::Full { rows },
            None => self.drained(shape, rows, times.answered),
        };
        // What is claimed may come back again and again: of that, and of what is in work, only outcomes tell.
        if looked == (Tick::Drained { rows: 0 }) && pressure.own_rows == 0 {
            self.executors.vitals().drains(times.answered);
        }
        self.executors.dispatch(claimed, slots, times);
        looked
    }

    /// Claims, under the bound of time.
    async fn claim(&mut self, request: ClaimRequest) -> Result<(Vec<ClaimedWorkItem>, ClaimTimes), String> {
        let (sent, sent_at) = (self.env.clock.monotonic(), request.now);
        self.executors.vitals().claim_sent();
        let answer = timeout(self.options.timeout, self.store.claim(request)).await;
        let answered = self.env.clock.monotonic();
        self.signals.claims.increment(1);
        self.signals.seconds.record(answered.saturating_sub(sent));
        let claimed = match answer {
            Ok(Ok(claimed)) => claimed,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("the claim took too long".to_owned()),
        };
        self.health = StoreHealth::Healthy;
        self.signals.rows.increment(claimed.len() as u64);
        self.signals.reclaimed.increment(claimed.iter().filter(|item| item.reclaimed).count() as u64);
        Ok((claimed, ClaimTimes { sent, sent_at, answered }))
    }

    /// A claim for `shape` found fewer rows than it asked for. Once no class is left, the next look is for all again.
    fn drained(&mut self, shape: Shape, rows: u32, at: Duration) -> Tick {
        let classes = self.empty.classes.with(shape.classes());
        if classes == QueueClasses::ALL {
            self.empty = Empty::NONE;
            return Tick::Drained { rows };
        }
        let since = if self.empty.classes == QueueClasses::NONE { at } else { self.empty.since };
        self.empty = Empty { classes, since };
        Tick::ShapeDrained { rows }
    }

    fn failed(&mut self, reason: &str) -> Tick {
        let pack = self.executors.pack();
        self.health = self.health.after_failure(self.env.clock.monotonic(), pack.as_str().as_bytes());
        self.signals.failures.increment(1);
        tracing::warn!(%pack, reason, "a claim failed");
        Tick::Failed
    }

    /// Free slots of this shape, if it serves a class that was not just found empty.
    fn free(&self, shape: Shape) -> u32 {
        if self.empty.classes.covers(shape.classes()) { 0 } else { self.executors.free_of(&self.layout, shape) }
    }

    async fn pressure(&self, shape: Option<Shape>) -> Pressure {
        let own_rows = self.executors.rows_in_work();
        self.signals.processing.set(own_rows);
        let mut pressure = Pressure {
            free_slots: shape.map_or(0, |shape| self.free(shape)),
            own_rows,
            processing_rows: own_rows,
            processing_rows_max: self.processing_rows_max(),
            store: self.health,
            probe: self.handle.probe(),
            now: self.env.clock.monotonic(),
        };
        // The store is not asked where its answer changes nothing.
        if self.options.max_processing_rows.is_some() && matches!(admit(&pressure), Admission::Grant { .. }) {
            match timeout(self.options.timeout, self.store.processing_rows(self.executors.pack())).await {
                Ok(Ok(rows)) => pressure.processing_rows = own_rows.max(u32::try_from(rows).unwrap_or(u32::MAX)),
                Ok(Err(_)) | Err(_) => pressure.probe = Probe::Failed,
            }
        }
        pressure
    }

    fn processing_rows_max(&self) -> u32 {
        self.options.max_processing_rows.map_or(self.executors.rows_in_work_max(), |rows| rows.get())
    }

    /// Counts every decision and logs changes only: a busy pack decides thousands of times a second.
    fn count_admission(&mut self, shape: Option<Shape>, admission: Admission) {
        let (pack, decision) = (self.executors.pack(), admission.as_str());
        let shape = shape.map_or("none", Shape::as_str);
        let labels = [("pack", pack.to_string()), ("shape", shape.to_owned()), ("decision", decision.to_owned())];
        counter!("forebay_claim_decisions_total", &labels).increment(1);
        if decision != self.last_admission {
            tracing::debug!(%pack, decision, "the claim limiter decides otherwise");
            self.last_admission = decision;
        }
    }

    /// Returns when it is worth looking again, and what for.
    async fn pause_after(&mut self, looked: Tick, now: Timestamp) -> News {
        match looked {
            Tick::Full { .. } | Tick::Denied(Denial::NoSlot | Denial::BudgetSpent) => return self.room_or_work().await,
            Tick::ShapeDrained { .. } => {}
            Tick::Drained { .. } => {
                self.work_or_timer(now).await;
                return News::Work;
            }
            Tick::NothingLoaded => self.handle.woken.notified().await,
            Tick::StaleOnly { reason: StaleOnlyReason::Degraded, .. } => self.next_stale_look().await,
            Tick::StaleOnly { reason: StaleOnlyReason::BudgetShared, .. } => self.shared_budget().await,
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
    /// All that this runtime could claim at `looked_at` is claimed. What was claimable by then and still is, is of generations
    /// or work types that are not served here.
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

    /// Returns what the counters say once they say something else than before the last look. What this runtime itself changed since
    /// costs one look more.
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
        if self.health == StoreHealth::Healthy && self.handle.probe() == Probe::Answered {
            return;
        }
        tokio::select! {
            () = self.handle.woken.notified() => {}
            () = env::sleep(self.options.poll) => {}
        }
    }

    /// What other runtimes give back is seen by looking only.
    async fn shared_budget(&self) {
        tokio::select! {
            () = self.executors.freed() => {}
            () = env::sleep(SHARED_BUDGET_POLL) => {}
        }
    }

    async fn store_retry(&self) {
        let StoreHealth::Failing { retry_at, .. } = self.health else { return };
        env::sleep(retry_at.saturating_sub(self.env.clock.monotonic())).await;
    }
}
