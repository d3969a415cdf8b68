//! Work classes: their shares of a shard's time, which of them has work, and a turn of each.

use std::time::Duration;

use tokio::time::timeout_at;

use super::claiming::CLAIM_BYTES;
use super::expiry::EXPIRED_MAX;
use super::following::GATES_MAX;
use super::inbox::SETTLEMENTS_MAX;
use super::reconcile::COMPARED_MAX;
use super::sweeping::VACATED_MAX;
use super::time::TRY_AGAIN;
use super::view::TOLD_MAX;
use super::{End, Session};
use crate::env;
use crate::lanes::{Amount, UnfitPlan, WorkClass, WorkPlan, WorkShare};
use crate::model::time::Timestamp;
use crate::publish::Settlement;
use crate::store::{ShardLease, StoreError};
use crate::timeline::clock::Interval;
use crate::timeline::inquiry::{INQUIRIES_MAX, Inquiry};
use crate::timeline::keys::LaneNumber;
use crate::timeline::lease::Holding;
use crate::timeline::recovery;
use crate::timeline::schedule::{self, TURN_BYTES, TURN_MESSAGES_MAX};
use crate::timeline::source::{PAGE_BYTES_MAX, PAGE_ROWS_MAX, PAGES_MAX, ROW_BYTES};
use crate::timeline::values::Entry;

/// Outcomes count twice: they free what all other classes wait for.
const OUTCOME_WEIGHT: u32 = 8;
const WEIGHT: u32 = 4;
const LOW_WEIGHT: u32 = 1;
/// A turn that touches the index alone takes a few milliseconds.
const INDEX_TURN_TIME: Duration = Duration::from_millis(50);
/// The longest wait for the store in a turn. What the store does after that is found out in a later turn.
const STORE_TURN_TIME: Duration = Duration::from_secs(2);

/// The work classes of a shard that claims at most `claimed_max` messages at once, with room for the settlement of
/// each, and whose queues take up at most `queue_bytes`.
pub(in crate::timeline) fn plan(claimed_max: usize, queue_bytes: usize) -> Result<WorkPlan, UnfitPlan> {
    let kept = |weight, queue: Amount, turn, turn_time| WorkShare { weight, queue, turn, turn_time, reserve: queue };
    // The records of these turns are of one size each.
    let of = |class, records| Amount::of(records, record_bytes(class));
    let page = PAGE_ROWS_MAX as usize;
    let due = TURN_MESSAGES_MAX as usize;
    let claims = Amount::of(claimed_max, CLAIM_BYTES);
    let lease_fence =
        kept(LOW_WEIGHT, Amount::of(1, size_of::<Holding>()), of(WorkClass::LeaseFence, 1), INDEX_TURN_TIME);
    let outcomes = Amount::of(claimed_max, size_of::<Settlement>());
    let control = recovery::ROWS_MAX as usize + COMPARED_MAX + GATES_MAX;
    let control = of(WorkClass::OutcomeAndControl, SETTLEMENTS_MAX + control);
    let outcomes = kept(OUTCOME_WEIGHT, outcomes, control, STORE_TURN_TIME);
    // One page that has arrived, and those that wait outside.
    let pages = Amount::of((1 + PAGES_MAX) * page, ROW_BYTES);
    let source_apply = kept(WEIGHT, pages, Amount { records: page, bytes: PAGE_BYTES_MAX }, INDEX_TURN_TIME);
    let expired = of(WorkClass::Expiry, EXPIRED_MAX);
    let expiry = kept(WEIGHT, expired, expired, STORE_TURN_TIME);
    let due_scheduler = WorkShare {
        weight: WEIGHT,
        queue: claims,
        turn: Amount { records: due, bytes: TURN_BYTES },
        turn_time: schedule::TURN_TIME_MAX,
        reserve: Amount::of(due.min(claimed_max), CLAIM_BYTES),
    };
    let vacated = of(WorkClass::Gc, VACATED_MAX);
    let gc = kept(LOW_WEIGHT, vacated, vacated, INDEX_TURN_TIME);
    let query = WorkShare {
        reserve: Amount::default(),
        ..kept(LOW_WEIGHT, of(WorkClass::Query, INQUIRIES_MAX), of(WorkClass::Query, TOLD_MAX), INDEX_TURN_TIME)
    };
    let checkpoint = WorkShare {
        reserve: Amount::default(),
        ..kept(LOW_WEIGHT, of(WorkClass::Checkpoint, 1), of(WorkClass::Checkpoint, 1), INDEX_TURN_TIME)
    };
    let shares = [lease_fence, outcomes, source_apply, expiry, due_scheduler, gc, query, checkpoint];
    let records = shares.iter().map(|share| share.queue.records).fold(0, usize::saturating_add);
    WorkPlan::new(shares, Amount { records, bytes: queue_bytes })
}

/// The bytes of a record of a class, where they are the same for each. Those of messages and of rows are their own.
const fn record_bytes(class: WorkClass) -> usize {
    match class {
        WorkClass::LeaseFence => size_of::<Holding>(),
        WorkClass::OutcomeAndControl => size_of::<Settlement>(),
        WorkClass::Expiry => size_of::<Entry>(),
        WorkClass::Query => size_of::<Inquiry>(),
        WorkClass::Gc | WorkClass::Checkpoint => size_of::<LaneNumber>(),
        WorkClass::SourceApply => ROW_BYTES,
        WorkClass::DueScheduler => CLAIM_BYTES,
    }
}

impl Session<'_> {
    /// The class whose turn it is. Nothing is claimed or expired unless the session `may_publish`.
    pub(super) fn next_class(&mut self, may_publish: bool) -> Option<WorkClass> {
        let monotonic = self.monotonic();
        let asked = self.is_resolve_due(monotonic) || self.is_comparison_due(monotonic);
        let control = self.following.has_news() || asked;
        let outcomes = self.inbox.has_settlements();
        let feed = self.inbox.has_page() && self.takes_new();
        let expiry = may_publish && self.expiry.is_ready(monotonic);
        let due = may_publish && self.due.is_ready(monotonic);
        let query = self.inbox.has_inquiry() || self.has_to_tell(monotonic);
        let lease = self.tenure.has_news();
        let gc = self.is_sweep_due(monotonic);
        let checkpoint = self.has_checkpoint_work(monotonic);
        self.work.next(|class| match class {
            WorkClass::LeaseFence => lease,
            WorkClass::Gc => gc,
            WorkClass::OutcomeAndControl => outcomes || control,
            WorkClass::SourceApply => feed,
            WorkClass::Expiry => expiry,
            WorkClass::DueScheduler => due,
            WorkClass::Query => query,
            WorkClass::Checkpoint => checkpoint,
        })
    }

    /// Gives a class its turn. Messages are claimed and expired at `now`.
    pub(super) async fn turn(&mut self, class: WorkClass, lease: ShardLease, now: Option<Interval>) -> Result<(), End> {
        let began = self.monotonic();
        let of = |records| Amount::of(records, record_bytes(class));
        let done = match (class, now) {
            (WorkClass::LeaseFence, _) => {
                // Every tick looks at whether the lease is held; the news is its new end.
                self.tenure.note();
                of(1)
            }
            (WorkClass::Gc, _) => of(self.sweep()?),
            (WorkClass::OutcomeAndControl, _) => of(self.control(lease).await?),
            (WorkClass::SourceApply, _) => self.take_page()?,
            (WorkClass::Expiry, Some(now)) => of(self.expire(lease, now).await?),
            (WorkClass::DueScheduler, Some(now)) => self.claim(lease, now)?,
            (WorkClass::Query, _) => of(self.tell()?),
            (WorkClass::Checkpoint, _) => of(self.take_checkpoint_turn(lease).await),
            (WorkClass::Expiry | WorkClass::DueScheduler, None) => unreachable!("they have work at a known time only"),
        };
        match class {
            // These change what is ready.
            WorkClass::LeaseFence | WorkClass::OutcomeAndControl | WorkClass::SourceApply => self.look_again(),
            WorkClass::Expiry | WorkClass::DueScheduler | WorkClass::Gc | WorkClass::Query | WorkClass::Checkpoint => {}
        }
        let is_within = self.work.did(class, done);
        let took = self.monotonic().saturating_sub(began);
        if !is_within || took > self.around.work.share(class).turn_time {
            self.shard.signals.overran(class);
        }
        Ok(())
    }

    /// The turn of outcomes and control.
    async fn control(&mut self, lease: ShardLease) -> Result<usize, End> {
        let mut records = self.take_settlements()?;
        let gates = self.take_gates()?;
        // Gates and destinations are both about lanes: a turn does one of them.
        records += if gates > 0 { gates } else { self.take_destinations()? };
        let monotonic = self.monotonic();
        if self.is_resolve_due(monotonic)
            && let Ok(time) = self.clock.read(&*self.around.env.clock)
        {
            self.ask_from.resolve = monotonic + TRY_AGAIN;
            records += self.claims.unresolved().min(recovery::ROWS_MAX as usize);
            self.resolve(lease, time).await?;
        }
        if self.is_comparison_due(monotonic) {
            records += self.compare().await?;
        }
        Ok(records)
    }

    /// Looks again for messages that time has made ready.
    pub(super) fn look_again(&mut self) {
        self.due.look_again();
        self.expiry.look_again();
    }

    /// The time until there is work, unless something arrives.
    pub(super) fn pause(&self, earliest: Timestamp) -> Duration {
        let (monotonic, poll) = (self.monotonic(), self.around.options.poll);
        let looks = [&self.due, &self.expiry].map(|awaited| awaited.ready_in(earliest, monotonic));
        looks.into_iter().flatten().min().unwrap_or(poll).min(poll)
    }

    fn is_resolve_due(&self, monotonic: Duration) -> bool {
        self.claims.unresolved() > 0 && monotonic >= self.ask_from.resolve && self.clock.is_trusted(monotonic)
    }
}

/// Waits for an answer of the store within a turn. What the store does after that is found out in a later turn.
pub(super) async fn in_time<T>(
    turn_time: Duration,
    asked: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::Unavailable("the store takes longer than a turn of a shard may".to_owned()));
    timeout_at(env::deadline(turn_time), asked).await.unwrap_or_else(late)
}
