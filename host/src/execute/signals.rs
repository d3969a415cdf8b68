//! What the executors of a pack report: counters, stage times, and signs of life.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Histogram, Unit, counter, describe_counter, describe_histogram, histogram};

use crate::model::failure::FailureClass;
use crate::model::ids::EventId;
use crate::model::names::PackName;

/// Says what the metrics of executions mean.
pub(super) fn describe() {
    describe_counter!("forebay_executions_total", "Executions of work items, by outcome");
    describe_counter!("forebay_leases_lost_total", "Leases that were lost while their work ran, by reason");
    describe_counter!("forebay_finish_retries_total", "Outcomes that the store did not record at once");
    describe_counter!("forebay_finishes_given_up_total", "Outcomes that could not be recorded; the work runs again");
    describe_counter!("forebay_slot_restarts_total", "Workers that were restarted after a panic");
    describe_counter!("forebay_bodies_waited_total", "Executions that waited for memory for their event's body");
    describe_counter!("forebay_messages_emitted_total", "Messages that flows emitted and that were stored");
    describe_histogram!("forebay_stage_seconds", Unit::Seconds, "Time that an execution spent in a stage of its life");
}

/// Metric handles of one pack, looked up once; clones share them.
#[derive(Clone)]
pub(super) struct Signals {
    pub(super) vitals: Arc<Vitals>,
    pub(super) leases_lost_to_others: Counter,
    pub(super) leases_expired: Counter,
    pub(super) leases_lost_at_finish: Counter,
    pub(super) finish_retries: Counter,
    pub(super) finishes_given_up: Counter,
    pub(super) slot_restarts: Counter,
    pub(super) bodies_waited: Counter,
    pub(super) done: Counter,
    pub(super) ignored: Counter,
    pub(super) released: Counter,
    pub(super) messages: Counter,
    stages: Arc<StageHistograms>,
    pack: PackName,
}

struct StageHistograms {
    queued: Histogram,
    claim: Histogram,
    load: Histogram,
    prepare: Histogram,
    read: Histogram,
    run: Histogram,
    finish: Histogram,
}

/// How long an event spent in each stage of its life so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StageTimes {
    /// From its admission to the claim, by the wall clock.
    pub(super) queued: Duration,
    /// The claim.
    pub(super) claim: Duration,
    /// From the claim to its input, the waits for memory and for a thread included.
    pub(super) load: Duration,
    /// `prepare`.
    pub(super) prepare: Duration,
    /// What it asked to be read; `None` if that was nothing.
    pub(super) read: Option<Duration>,
    /// `run`; zero if `prepare` ignored it.
    pub(super) run: Duration,
    /// Until its outcome was durable.
    pub(super) finish: Duration,
}

impl Signals {
    pub(super) fn new(pack: &PackName) -> Self {
        let name = || pack.to_string();
        let lost = |reason: &'static str| counter!("forebay_leases_lost_total", "pack" => name(), "reason" => reason);
        let ended =
            |outcome: &'static str| counter!("forebay_executions_total", "pack" => name(), "outcome" => outcome);
        let stage = |stage: &'static str| histogram!("forebay_stage_seconds", "pack" => name(), "stage" => stage);
        Self {
            vitals: Arc::default(),
            leases_lost_to_others: lost("reclaimed"),
            leases_expired: lost("expired"),
            leases_lost_at_finish: lost("finish"),
            finish_retries: counter!("forebay_finish_retries_total", "pack" => name()),
            finishes_given_up: counter!("forebay_finishes_given_up_total", "pack" => name()),
            slot_restarts: counter!("forebay_slot_restarts_total", "pack" => name()),
            bodies_waited: counter!("forebay_bodies_waited_total", "pack" => name()),
            done: ended("done"),
            ignored: ended("ignored"),
            released: ended("released"),
            messages: counter!("forebay_messages_emitted_total", "pack" => name()),
            stages: Arc::new(StageHistograms {
                queued: stage("queued"),
                claim: stage("claim"),
                load: stage("load"),
                prepare: stage("prepare"),
                read: stage("read"),
                run: stage("run"),
                finish: stage("finish"),
            }),
            pack: pack.clone(),
        }
    }

    /// Counts a failed execution. Failures are rare enough for a look-up by class.
    pub(super) fn failed(&self, class: FailureClass) {
        let labels = [("pack", self.pack.to_string()), ("outcome", class.as_str().to_owned())];
        counter!("forebay_executions_total", &labels).increment(1);
    }

    /// Records one event's times, and logs them if that is wanted.
    pub(super) fn staged(&self, event: EventId, times: &StageTimes, logged: bool) {
        self.stages.queued.record(times.queued);
        self.stages.claim.record(times.claim);
        self.stages.load.record(times.load);
        self.stages.prepare.record(times.prepare);
        if let Some(read) = times.read {
            self.stages.read.record(read);
        }
        self.stages.run.record(times.run);
        self.stages.finish.record(times.finish);
        if logged {
            tracing::debug!(
                pack = %self.pack,
                %event,
                queued = ?times.queued,
                claim = ?times.claim,
                load = ?times.load,
                prepare = ?times.prepare,
                read = ?times.read.unwrap_or_default(),
                run = ?times.run,
                finish = ?times.finish,
                "stage times"
            );
        }
    }
}

/// Signs that a pack's queue drains. Times are on the monotonic clock, in whole milliseconds.
#[derive(Debug, Default)]
pub struct Vitals {
    drained_at_millis: AtomicU64,
    claims: AtomicU64,
    finishes: AtomicU64,
}

impl Vitals {
    /// A sign that the queue drains: it is empty and nothing is in work, or an outcome was recorded.
    pub fn drains(&self, monotonic: Duration) {
        let millis = u64::try_from(monotonic.as_millis()).unwrap_or(u64::MAX);
        self.drained_at_millis.fetch_max(millis, Ordering::Relaxed);
    }

    /// When the last such sign was seen.
    pub fn drained_at(&self) -> Duration {
        Duration::from_millis(self.drained_at_millis.load(Ordering::Relaxed))
    }

    /// A claim was sent to the store.
    pub fn claim_sent(&self) {
        self.claims.fetch_add(1, Ordering::Relaxed);
    }

    /// How many claims were sent to the store.
    pub fn claims(&self) -> u64 {
        self.claims.load(Ordering::Relaxed)
    }

    /// An outcome was recorded. A row that went back as it came is none.
    pub(super) fn finished(&self, monotonic: Duration) {
        self.finishes.fetch_add(1, Ordering::Relaxed);
        self.drains(monotonic);
    }

    /// How many outcomes were recorded.
    pub fn finishes(&self) -> u64 {
        self.finishes.load(Ordering::Relaxed)
    }
}
