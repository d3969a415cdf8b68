//! The executors of one pack: they take claimed rows, and record what became of each. How a row comes to its Event is
//! in `loading`.

mod loading;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::bodies::{Bodies, BodyShare};
use super::catalog::Generations;
use super::conclude::{self, Ended, LaneTerms};
use super::finish::{self, Recorded};
use super::flow::Flow;
use super::heartbeat::LeaseKeeper;
use super::held::{HeldRow, HeldRows};
use super::reads::{Caller, Reads, Seat, Wish};
use super::signals::{Signals, StageTimes, Vitals};
use super::slots::{Reservation, Slot, Slots};
use super::{ExecuteOptions, SLOTS_SAFE_MAX};
use crate::env::{self, Env};
use crate::guest::Prepared;
use crate::lanes::{Layout, Shape};
use crate::model::event::Event;
use crate::model::failure::{Failure, FailureClass};
use crate::model::ids::LeaseToken;
use crate::model::message::DueAction;
use crate::model::names::PackName;
use crate::model::pack::{Coalescing, FailedHeadPolicy, GenerationNumber};
use crate::model::reading::{ReadWish, Reading};
use crate::model::time::Timestamp;
use crate::model::work_item::{ClaimedWorkItem, WorkType};
use crate::store::{Disposition, Finish, Store, Successor};

/// How much longer than its deadline a flow may take to say itself that it ran out of time: it knows where it was.
const DEADLINE_GRACE: Duration = Duration::from_millis(100);
/// How often a slot goes on with a successor by itself, before others get their turn.
const HANDOFFS_MAX: u32 = 16;
/// How long a drain waits for rows to be released, once it no longer waits for them to end by themselves.
const RELEASE_BOUND: Duration = Duration::from_secs(5);

/// What the executors of a pack are made from.
pub struct ExecutorParts {
    /// The pack.
    pub pack: PackName,
    /// How they work.
    pub options: ExecuteOptions,
    /// Where Events are and outcomes go.
    pub store: Store,
    /// What they can execute.
    pub generations: Generations,
    /// Time.
    pub env: Env,
    /// Who makes the calls of readers.
    pub caller: Arc<dyn Caller>,
    /// The runtime that executions run on, apart from the one that intake and the timeline run on.
    pub runtime: Handle,
}

/// The executors of one pack; clones share them.
#[derive(Clone)]
pub struct Executors {
    shared: Arc<Shared>,
}

struct Shared {
    parts: ExecutorParts,
    slots: Slots,
    bodies: Bodies,
    held: HeldRows,
    signals: Signals,
    reads: Arc<Reads>,
    /// Cancelled once no row is to be followed by another.
    draining: CancellationToken,
    /// Cancelled once what is in work must go back.
    release: CancellationToken,
}

/// When a batch was claimed.
#[derive(Debug, Clone, Copy)]
pub struct ClaimTimes {
    /// When the claim was sent, on the monotonic clock: its leases count from here.
    pub sent: Duration,
    /// When it was sent, on the wall clock.
    pub sent_at: Timestamp,
    /// When it was answered, on the monotonic clock.
    pub answered: Duration,
}

/// A claimed row in its slot. Fields drop in order: the slot is free once the row is no longer held.
struct Row {
    item: ClaimedWorkItem,
    claim: ClaimTimes,
    held: HeldRow,
    /// Its share of the memory for bodies, from before its Event is loaded.
    share: Option<BodyShare>,
    slot: Slot,
    /// How many rows its slot has been handed on by since it was taken.
    handoffs: u32,
}

/// What a row is executed with.
struct Input {
    event: Event,
    /// What is applied, if it is no Event's own WorkItem.
    action: Option<DueAction>,
}

impl Executors {
    /// Executors with all slots free.
    pub fn new(parts: ExecutorParts) -> Self {
        let slots = parts.options.slots.max(1);
        if slots > SLOTS_SAFE_MAX {
            tracing::warn!(
                pack = %parts.pack,
                slots,
                safe_max = SLOTS_SAFE_MAX,
                "unsafe: more workers per pack than are known to be safe; kept as configured"
            );
        }
        let signals = Signals::new(&parts.pack);
        signals.vitals.drains(parts.env.clock.monotonic());
        let (draining, release) = (CancellationToken::new(), CancellationToken::new());
        let (slots, bodies) = (Slots::new(slots), Bodies::new(parts.options.bodies_bytes_max as u64));
        let reads = Arc::new(Reads::new(&parts.pack, Arc::clone(&parts.caller), parts.env.clone()));
        let held = HeldRows::default();
        Self { shared: Arc::new(Shared { slots, bodies, held, signals, reads, draining, release, parts }) }
    }

    /// The pack.
    pub fn pack(&self) -> &PackName {
        &self.shared.parts.pack
    }

    /// How many slots there are.
    pub fn slots(&self) -> u32 {
        self.shared.slots.total()
    }

    /// How many slots are free.
    pub fn free(&self) -> u32 {
        self.shared.slots.free()
    }

    /// How the slots are divided now, for what the loaded generations admit.
    pub fn layout(&self) -> Layout {
        let parts = &self.shared.parts;
        Layout::new(parts.options.profile, self.slots(), parts.generations.queue_classes(&parts.pack))
    }

    /// How many slots of this shape are free.
    pub fn free_of(&self, layout: &Layout, shape: Shape) -> u32 {
        self.shared.slots.free_of(layout, shape)
    }

    /// How many rows are in work: in a slot, or waiting for their outcome to be recorded.
    pub fn rows_in_work(&self) -> u32 {
        self.shared.slots.taken()
    }

    /// How many rows can be in work.
    pub fn rows_in_work_max(&self) -> u32 {
        self.shared.slots.taken_max()
    }

    /// The loaded generations of the pack.
    pub fn generations(&self) -> Vec<GenerationNumber> {
        self.shared.parts.generations.numbers(&self.shared.parts.pack)
    }

    /// How long claimed rows are to be leased.
    pub fn lease(&self) -> Duration {
        self.shared.parts.options.lease
    }

    /// Signs of life.
    pub fn vitals(&self) -> &Arc<Vitals> {
        &self.shared.signals.vitals
    }

    /// Takes this many slots of this shape and no others, or none if fewer are free. One caller at a time.
    pub fn reserve(&self, layout: &Layout, shape: Shape, count: u32) -> Option<Reservation> {
        self.shared.slots.reserve(layout, shape, count)
    }

    /// Returns once a slot was given back since the last call, and at times without one: look again. One caller at a
    /// time.
    pub async fn freed(&self) {
        self.shared.slots.returned().await;
    }

    /// A keeper of these executors' leases; exactly one must run.
    pub fn lease_keeper(&self) -> LeaseKeeper {
        LeaseKeeper {
            held: self.shared.held.clone(),
            store: self.shared.parts.store.clone(),
            env: self.shared.parts.env.clone(),
            signals: self.shared.signals.clone(),
            lease: self.lease(),
        }
    }

    /// Puts claimed rows to work, each in a slot of `slots`; those that are left over are free again. Never waits.
    pub fn dispatch(&self, claimed: Vec<ClaimedWorkItem>, mut slots: Reservation, claim: ClaimTimes) {
        if claimed.is_empty() {
            return;
        }
        let expires = claim.sent + self.lease();
        let mut seat = |item: ClaimedWorkItem| {
            let held = self.shared.held.hold(&item, expires);
            Row { held, claim, share: None, slot: slots.take_one(), item, handoffs: 0 }
        };
        let rows: Vec<Row> = claimed.into_iter().map(&mut seat).collect();
        let shared = Arc::clone(&self.shared);
        env::spawn_on(&self.shared.parts.runtime, "executor batch", shared.start(rows));
    }

    /// Returns once no row is in work.
    pub async fn idle(&self) {
        self.shared.slots.all_free().await;
    }

    /// Waits until no row is in work, at most for `bound`; then releases what is. Nothing may be dispatched any more.
    pub async fn drain(&self, bound: Duration) {
        self.shared.draining.cancel();
        if timeout(bound, self.idle()).await.is_ok() {
            return;
        }
        self.shared.release.cancel();
        if timeout(RELEASE_BOUND, self.idle()).await.is_err() {
            tracing::warn!(pack = %self.pack(), "rows were not released in time; they come back when their leases run out");
        }
    }
}

impl Shared {
    /// Fails a row that has no input, for that reason.
    async fn fail_without_input(self: Arc<Self>, row: Row, reason: &'static str) {
        let failure = Failure::new(FailureClass::Host, reason);
        self.signals.failed(failure.class);
        let (retry, now) = (&self.parts.options.retry, self.parts.env.now());
        let failed_head = FailedHeadPolicy::DEFAULT;
        let disposition = conclude::failed(failure, &row.item, failed_head, retry, now);
        self.record(row, disposition, failed_head).await;
    }

    /// Works one row off, from its loaded input to its recorded outcome.
    async fn execute(self: Arc<Self>, row: Row, input: Input, seat: Seat) {
        let event = &input.event;
        let since = input.action.as_ref().map_or(event.received_at, |action| action.due_at);
        let mut times = StageTimes {
            queued: row.claim.sent_at.since(since),
            claim: row.claim.answered.saturating_sub(row.claim.sent),
            load: self.monotonic().saturating_sub(row.claim.answered),
            ..StageTimes::default()
        };
        let (ended, terms) = match self.flow_for(&row.item, event) {
            Err(ended) => {
                drop(seat);
                (ended, LaneTerms::DEFAULT)
            }
            Ok((flow, terms)) => (self.run_isolated(&flow, &row, &input, seat, &mut times).await, terms),
        };
        self.count(&ended);
        let (retry, now) = (&self.parts.options.retry, self.parts.env.now());
        let Some(disposition) = conclude::disposition(ended, &row.item, event, terms.failed_head, retry, now) else {
            return;
        };
        // Its body is of no more use, and recording may take a while.
        let event_id = event.id;
        drop(input);
        let finishing = self.monotonic();
        match self.hands_over(&row, &disposition, terms.coalescing) {
            true => Arc::clone(&self).hand_over(row, disposition, terms.failed_head).await,
            false => self.record(row, disposition, terms.failed_head).await,
        }
        times.finish = self.monotonic().saturating_sub(finishing);
        self.signals.staged(event_id, &times, self.parts.options.stage_timing);
    }

    /// The generation that must execute the row, and its route's terms; or why it cannot be executed.
    fn flow_for(&self, item: &ClaimedWorkItem, event: &Event) -> Result<(Arc<dyn Flow>, LaneTerms), Ended> {
        let refuse = |reason: String| Err(Ended::Failed(Failure::new(FailureClass::Host, reason)));
        // Its generation may be another than its Event's: work can be drained to another one.
        if event.pack != self.parts.pack {
            return refuse("the work item and its Event name different packs".to_owned());
        }
        let Some(flow) = self.parts.generations.get(&self.parts.pack, item.generation) else {
            return Err(Ended::Released);
        };
        if item.work_type == WorkType::WorkflowActionApply {
            // It is the pack's own, whatever route its event came by, and stands in no lane.
            return Ok((flow, LaneTerms::DEFAULT));
        }
        match LaneTerms::of(flow.manifest(), event) {
            Some(terms) => Ok((flow, terms)),
            None => refuse(format!("generation {} does not declare the route `{}`", item.generation, event.route)),
        }
    }

    /// Runs the flow; stops it when the lease is lost or the host shuts down; takes a panic as a failure of this row.
    async fn run_isolated(
        &self,
        flow: &Arc<dyn Flow>,
        row: &Row,
        input: &Input,
        seat: Seat,
        times: &mut StageTimes,
    ) -> Ended {
        let flow_run = AssertUnwindSafe(self.run_flow(flow, &row.item, input, seat, times)).catch_unwind();
        let ended = tokio::select! {
            biased;
            () = row.held.lost() => return Ended::Lost,
            () = self.release.cancelled() => return Ended::Released,
            ended = flow_run => ended,
        };
        ended.unwrap_or_else(|_| {
            // What the panic says may hold a payload: the panic hook shows it to the operator, the row does not keep
            // it.
            tracing::error!(pack = %self.parts.pack, work_item = %row.item.id, "the host panicked in an execution");
            self.signals.slot_restarts.increment(1);
            Ended::Failed(Failure::new(FailureClass::Host, "the host panicked while it executed this event"))
        })
    }

    /// `prepare`, the reads that it asks for, then `run`, under one deadline; or `apply` under it.
    async fn run_flow(
        &self,
        flow: &Arc<dyn Flow>,
        item: &ClaimedWorkItem,
        input: &Input,
        seat: Seat,
        times: &mut StageTimes,
    ) -> Ended {
        let event = &input.event;
        let limit = flow.manifest().limits.deadline.min(self.parts.options.deadline_max);
        let deadline = env::deadline(limit);
        let whole = async {
            let preparing = self.monotonic();
            if let Some(action) = &input.action {
                let output = flow.apply(event, action, item.attempt, deadline).await;
                times.run = self.monotonic().saturating_sub(preparing);
                return output.map(|output| Ended::ran(output, Vec::new()));
            }
            let prepared = flow.prepare(event, item.attempt, deadline).await;
            let prepared_at = self.monotonic();
            times.prepare = prepared_at.saturating_sub(preparing);
            let (state, reads) = match prepared? {
                Prepared::Ignore { reason } => return Ok::<_, Failure>(Ended::Ignored { reason }),
                Prepared::Run { state, reads } => (state, reads),
            };
            let readings = self.read(flow, item, event, seat, reads, deadline).await?;
            let running = self.monotonic();
            times.read = (!readings.is_empty()).then(|| running.saturating_sub(prepared_at));
            let output = flow.run(event, item.attempt, state, &readings, deadline).await;
            times.run = self.monotonic().saturating_sub(running);
            output.map(|output| Ended::ran(output, readings))
        };
        match timeout_at(deadline + DEADLINE_GRACE, whole).await {
            // It goes back unspent: that the host is full is not the event's failure.
            Ok(Err(failure)) if failure.class == FailureClass::NotRun => Ended::Released,
            Ok(ended) => ended.unwrap_or_else(Ended::Failed),
            Err(_) => {
                let message = format!("the flow did not end within its deadline of {} ms", limit.as_millis());
                Ended::Failed(Failure::new(FailureClass::Deadline, message))
            }
        }
    }

    /// What the event asked for, read together with what others of its batch asked for.
    async fn read(
        &self,
        flow: &Arc<dyn Flow>,
        item: &ClaimedWorkItem,
        event: &Event,
        seat: Seat,
        reads: Vec<ReadWish>,
        deadline: Instant,
    ) -> Result<Vec<Reading>, Failure> {
        if reads.is_empty() {
            return Ok(Vec::new());
        }
        let wish = Wish {
            flow: Arc::clone(flow),
            generation: item.generation,
            namespace: event.namespace.clone(),
            received_at: event.received_at,
            reads,
            deadline,
        };
        seat.read(wish).await
    }

    fn count(&self, ended: &Ended) {
        match ended {
            Ended::Ignored { .. } => self.signals.ignored.increment(1),
            Ended::Ran { messages, actions, .. } => {
                self.signals.done.increment(1);
                self.signals.messages.increment((messages.len() + actions.len()) as u64);
            }
            Ended::Failed(failure) => self.signals.failed(failure.class),
            Ended::Released => self.signals.released.increment(1),
            Ended::Lost => {}
        }
    }

    /// Records what became of a row. Its slot is free meanwhile, and the row is let go afterwards.
    async fn record(&self, row: Row, disposition: Disposition, failed_head: FailedHeadPolicy) {
        let row = Row { slot: self.slots.finishing(row.slot).await, ..row };
        let released = matches!(disposition, Disposition::Release);
        match self.send(&row, disposition, None, failed_head).await {
            // It is where it was before: nothing has drained.
            Recorded::Applied if released => {}
            recorded => self.count_recorded(&recorded),
        }
    }

    /// Whether a row that ended so is followed by the latest of its source in the same slot.
    fn hands_over(&self, row: &Row, disposition: &Disposition, coalescing: Coalescing) -> bool {
        let succeeded = matches!(disposition, Disposition::Done { .. });
        let goes_on = row.handoffs < HANDOFFS_MAX && !self.draining.is_cancelled();
        succeeded && goes_on && coalescing == Coalescing::LatestBySource
    }

    /// Records a success, and goes on with the row that was claimed in its place, if there is one.
    async fn hand_over(self: Arc<Self>, row: Row, disposition: Disposition, failed_head: FailedHeadPolicy) {
        let (sent, sent_at) = (self.monotonic(), self.parts.env.now());
        let lease_duration = self.parts.options.lease;
        let lease = LeaseToken::new(sent_at, self.parts.env.id_entropy());
        let successor = Some(Successor { lease, lease_duration });
        let recorded = self.send(&row, disposition, successor, failed_head).await;
        self.count_recorded(&recorded);
        if let Recorded::Continued(item) = recorded {
            let claim = ClaimTimes { sent, sent_at, answered: self.monotonic() };
            let held = self.held.hold(&item, sent + lease_duration);
            let next = Row { item: *item, claim, held, share: None, slot: row.slot, handoffs: row.handoffs + 1 };
            let runtime = self.parts.runtime.clone();
            env::spawn_on(&runtime, "executor handoff", self.start_one(next));
        }
    }

    /// Boxed, because an execution may begin another one.
    fn start_one(self: Arc<Self>, row: Row) -> BoxFuture<'static, ()> {
        self.start(vec![row]).boxed()
    }

    /// Records an outcome. One that the store cannot hold is the run's failure, and spends its budget: the same run
    /// would make the same again.
    async fn send(
        &self,
        row: &Row,
        disposition: Disposition,
        successor: Option<Successor>,
        failed_head: FailedHeadPolicy,
    ) -> Recorded {
        let recorded = self.send_as_it_is(row, disposition, successor).await;
        let Recorded::Unstorable(reason) = &recorded else { return recorded };
        let failure = Failure::new(FailureClass::Host, format!("its result cannot be stored: {reason}"));
        self.signals.failed(failure.class);
        let (retry, now) = (&self.parts.options.retry, self.parts.env.now());
        let failed = conclude::failed(failure, &row.item, failed_head, retry, now);
        self.send_as_it_is(row, failed, None).await
    }

    async fn send_as_it_is(&self, row: &Row, disposition: Disposition, successor: Option<Successor>) -> Recorded {
        let finish = Finish {
            work_item_id: row.item.id,
            lease: row.item.lease,
            epoch: row.item.epoch,
            disposition,
            successor,
            now: self.parts.env.now(),
        };
        let parts = &self.parts;
        finish::record(finish, &row.item, &row.held, &parts.store, &parts.env, &self.signals).await
    }

    fn count_recorded(&self, recorded: &Recorded) {
        match recorded {
            Recorded::Applied | Recorded::Continued(_) => self.signals.vitals.finished(self.monotonic()),
            Recorded::LeaseLost => self.signals.leases_lost_at_finish.increment(1),
            Recorded::GivenUp | Recorded::Unstorable(_) => self.signals.finishes_given_up.increment(1),
        }
    }

    fn monotonic(&self) -> Duration {
        self.parts.env.clock.monotonic()
    }
}
