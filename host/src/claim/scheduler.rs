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
//! A look is for one shape of executor (`lanes`), the next whose turn it is among those that have a free slot. Classes
//! that one look found empty are left out of the next ones until something is enqueued or a moment has passed; the
//! queue is empty once all of them are.
//!
//! A queue that was found empty is not looked at again because a slot was freed; a slot that was freed waits a moment
//! for company, so that a busy pack claims batches.

mod pauses;
mod signals;

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::signals::ClaimSignals;
pub(super) use self::signals::describe;
use super::ClaimOptions;
use super::doubt::Doubts;
use super::handle::SchedulerHandle;
use super::limiter::{Admission, Denial, Pressure, StaleOnlyReason, StoreHealth, admit};
use super::pressure::Probe;
use crate::env::Env;
use crate::execute::{ClaimTimes, Executors, SERVED_WORK_TYPES};
use crate::lanes::{Layout, Rotation, Shape};
use crate::model::ids::LeaseToken;
use crate::model::pack::GenerationNumber;
use crate::model::queue::QueueClasses;
use crate::model::time::Timestamp;
use crate::model::work_item::ClaimedWorkItem;
use crate::store::{ClaimRequest, ProcessingRows, QueueMark, Store, StoreError};

/// So long a class that was found empty is taken to be so without another look, if nothing says otherwise.
const EMPTY_TRUST: Duration = Duration::from_millis(100);

/// The only one who claims for a pack in this runtime.
pub struct CentralClaimScheduler {
    options: ClaimOptions,
    pub(super) store: Store,
    pub(super) executors: Executors,
    pub(super) env: Env,
    pub(super) handle: SchedulerHandle,
    work: watch::Receiver<u64>,
    health: StoreHealth,
    pub(super) layout: Layout,
    rotation: Rotation,
    /// Claims whose answers got lost.
    pub(super) doubts: Doubts,
    empty: Empty,
    /// The counters that the queue was last looked at after; only where other runtimes change them.
    mark: Option<QueueMark>,
    pub(super) signals: ClaimSignals,
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
    /// Fewer rows were claimed than were asked for: no more of the classes of this shape are claimable at `now`. Those
    /// of other shapes may be.
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
        let signals = ClaimSignals::new(executors.pack());
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
            doubts: Doubts::default(),
            mark: None,
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
        self.settle_doubts().await;
        self.serve_wanted(now).await;
        if self.env.clock.monotonic().saturating_sub(self.empty.since) >= EMPTY_TRUST {
            self.empty = Empty::NONE;
        }
        let shape = self.rotation.turn(|shape| self.free(shape) > 0);
        let pressure = self.pressure(shape).await;
        let admission = admit(&pressure);
        self.signals.admitted(shape, admission);
        let (rows_max, stale_only) = match admission {
            Admission::Deny(denial) => return Tick::Denied(denial),
            Admission::Grant { rows } | Admission::Shrink { rows, .. } => (rows, None),
            Admission::StaleOnly { rows, reason } => (rows, Some(reason)),
        };
        let Some(shape) = shape else { return Tick::Denied(Denial::NoSlot) };
        let Some(slots) = self.executors.reserve(&self.layout, shape, rows_max) else {
            return Tick::Denied(Denial::NoSlot);
        };
        self.rotation.served(shape);
        let mut request = self.request(generations, shape, rows_max, now);
        request.stale_only = stale_only.is_some();
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

    /// What is asked for in the name of this shape.
    pub(super) fn request(
        &self,
        generations: Vec<GenerationNumber>,
        shape: Shape,
        rows_max: u32,
        now: Timestamp,
    ) -> ClaimRequest {
        ClaimRequest {
            pack: self.executors.pack().clone(),
            generations,
            work_types: SERVED_WORK_TYPES.to_vec(),
            classes: shape.classes(),
            preference: shape.preference(),
            only: None,
            rows_max,
            stale_only: false,
            lease: LeaseToken::new(now, self.env.id_entropy()),
            lease_duration: self.executors.lease(),
            now,
        }
    }

    /// Claims, under the bound of time.
    pub(super) async fn claim(&mut self, request: ClaimRequest) -> Result<(Vec<ClaimedWorkItem>, ClaimTimes), String> {
        let (sent, sent_at) = (self.env.clock.monotonic(), request.now);
        self.executors.vitals().claim_sent();
        let asked = request.clone();
        let answer = timeout(self.options.timeout, self.store.claim(request)).await;
        let answered = self.env.clock.monotonic();
        self.signals.claims.increment(1);
        self.signals.seconds.record(answered.saturating_sub(sent));
        let claimed = match answer {
            Ok(Ok(claimed)) => claimed,
            Ok(Err(error)) => {
                if matches!(error, StoreError::Unknown(_)) {
                    self.doubts.add(asked, sent);
                }
                return Err(error.to_string());
            }
            Err(_) => {
                self.doubts.add(asked, sent);
                return Err("the claim took too long".to_owned());
            }
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

    pub(super) fn failed(&mut self, reason: &str) -> Tick {
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

    /// What presses on a claim for this shape.
    pub(super) async fn pressure(&self, shape: Option<Shape>) -> Pressure {
        let own_rows = self.executors.rows_in_work();
        self.signals.processing.set(own_rows);
        let mut pressure = Pressure {
            free_slots: shape.map_or(0, |shape| self.executors.free_of(&self.layout, shape)),
            own_rows,
            processing_rows: own_rows,
            stale_rows: None,
            processing_rows_max: self.processing_rows_max(),
            store: self.health,
            host: self.handle.host(),
            calls_waiting: self.options.calls_waiting.count(),
            now: self.env.clock.monotonic(),
        };
        // The store is not asked where its answer changes nothing.
        let may_grant = matches!(admit(&pressure), Admission::Grant { .. } | Admission::Shrink { .. });
        if self.options.max_processing_rows.is_some() && may_grant {
            let (pack, now) = (self.executors.pack(), self.env.now());
            match timeout(self.options.timeout, self.store.processing_rows(pack, now)).await {
                Ok(Ok(ProcessingRows { rows, stale })) => {
                    let bounded = |rows| u32::try_from(rows).unwrap_or(u32::MAX);
                    pressure.processing_rows = own_rows.max(bounded(rows));
                    pressure.stale_rows = Some(bounded(stale));
                }
                Ok(Err(_)) | Err(_) => pressure.host.probe = Probe::Failed,
            }
        }
        pressure
    }

    fn processing_rows_max(&self) -> u32 {
        self.options.max_processing_rows.map_or(self.executors.rows_in_work_max(), |rows| rows.get())
    }
}
