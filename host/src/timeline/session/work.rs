//! What a session does in a turn of each work class, and which class has work.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;

use super::expiry::EXPIRED_MAX;
use super::reconcile::COMPARED_MAX;
use super::view::TOLD_MAX;
use super::{End, GATES_MAX, Look, SETTLEMENTS_MAX, Session, TRY_AGAIN};
use crate::env;
use crate::lanes::{Amount, UnfitPlan, WorkClass, WorkPlan, WorkShare};
use crate::model::message::MessageEntry;
use crate::model::time::Timestamp;
use crate::publish::{Reliance, Settlement};
use crate::store::{ShardLease, StoreError};
use crate::timeline::claims::Turned;
use crate::timeline::clock::Interval;
use crate::timeline::index::LANES_KEPT;
use crate::timeline::inquiry::{INQUIRIES_MAX, Inquiry};
use crate::timeline::keys::LaneNumber;
use crate::timeline::lease::{Holding, relied_until};
use crate::timeline::recovery;
use crate::timeline::schedule::{self, TURN_MESSAGES_MAX};
use crate::timeline::source::{PAGE_ROWS_MAX, PAGES_MAX};
use crate::timeline::values::Entry;

/// Lanes that are looked at together for whether somebody still needs them, and how often all of them are.
const VACATED_MAX: usize = 1_024;
const VACATE_EVERY: Duration = Duration::from_secs(10);
/// How long places that were refused are waited for without a look.
const PLACES_LOOK: Duration = Duration::from_millis(50);
/// After so long without a place for whose turn it is, destinations that have nothing in flight are served beside the
/// turns: whoever holds the places does not give them back.
const STUCK_AFTER: Duration = Duration::from_millis(50);
/// What becomes of claims counts twice: it frees what everything else waits for.
const OUTCOME_WEIGHT: u32 = 8;
const WEIGHT: u32 = 4;
const LOW_WEIGHT: u32 = 1;
/// A turn that touches the index alone takes a few milliseconds.
const INDEX_TURN_TIME: Duration = Duration::from_millis(50);
/// A turn that waits for the store waits no longer than this; what the store does meanwhile is found out afterwards.
const STORE_TURN_TIME: Duration = Duration::from_secs(2);
/// A row of the feed in memory, with its texts.
const ROW_BYTES: usize = size_of::<MessageEntry>() + 256;
/// A claim, with what the publisher holds for it but the message's body.
pub(super) const CLAIM_BYTES: usize = 1_024;

/// The work classes of a shard that may have claimed `claimed_max` messages at once, each of which has a place to
/// settle in, and whose queues may take up `queue_bytes`.
pub(in crate::timeline) fn plan(claimed_max: usize, queue_bytes: usize) -> Result<WorkPlan, UnfitPlan> {
    let kept =
        |weight, queue: Amount, turn_max, turn_time| WorkShare { weight, queue, turn_max, turn_time, reserve: queue };
    let page = PAGE_ROWS_MAX as usize;
    let due = TURN_MESSAGES_MAX as usize;
    let claims = Amount::of(claimed_max, CLAIM_BYTES);
    let lease_fence = kept(LOW_WEIGHT, Amount::of(1, size_of::<Holding>()), 1, INDEX_TURN_TIME);
    let outcomes = Amount::of(claimed_max, size_of::<Settlement>());
    let control = recovery::ROWS_MAX as usize + COMPARED_MAX + GATES_MAX;
    let outcomes = kept(OUTCOME_WEIGHT, outcomes, SETTLEMENTS_MAX + control, STORE_TURN_TIME);
    // One page that has arrived, and those that wait to.
    let source_apply = kept(WEIGHT, Amount::of((1 + PAGES_MAX) * page, ROW_BYTES), page, INDEX_TURN_TIME);
    let expiry = kept(WEIGHT, Amount::of(EXPIRED_MAX, size_of::<Entry>()), EXPIRED_MAX, STORE_TURN_TIME);
    let due_scheduler = WorkShare {
        weight: WEIGHT,
        queue: claims,
        turn_max: due,
        turn_time: schedule::TURN_TIME_MAX,
        reserve: Amount::of(due.min(claimed_max), CLAIM_BYTES),
    };
    let gc = kept(LOW_WEIGHT, Amount::of(VACATED_MAX, size_of::<LaneNumber>()), VACATED_MAX, INDEX_TURN_TIME);
    let query = WorkShare {
        reserve: Amount::default(),
        ..kept(LOW_WEIGHT, Amount::of(INQUIRIES_MAX, size_of::<Inquiry>()), TOLD_MAX, INDEX_TURN_TIME)
    };
    let checkpoint = WorkShare {
        reserve: Amount::default(),
        ..kept(LOW_WEIGHT, Amount::of(1, size_of::<LaneNumber>()), 1, INDEX_TURN_TIME)
    };
    let shares = [lease_fence, outcomes, source_apply, expiry, due_scheduler, gc, query, checkpoint];
    let records = shares.iter().map(|share| share.queue.records).fold(0, usize::saturating_add);
    WorkPlan::new(shares, Amount { records, bytes: queue_bytes })
}

impl Session {
    /// The class whose turn it is. Only while it `may_publish` is anything claimed or expired.
    pub(super) fn next_class(&mut self, may_publish: bool) -> Option<WorkClass> {
        let monotonic = self.parts.env.clock.monotonic();
        let outcomes = !self.settlements.is_empty() || !self.settled.is_empty();
        let asked = self.is_resolve_due(monotonic) || self.is_comparison_due(monotonic);
        let gates = self.gates_from.is_some() || self.parts.gates.has_changed().unwrap_or(false);
        let control = gates || asked || self.parts.destinations.has_news();
        let feed = (self.arrived.is_some() || !self.pages.is_empty()) && self.takes_new();
        let expiry = may_publish && self.expiry == Look::Now && monotonic >= self.expire_from;
        let due = may_publish && self.due == Look::Now && monotonic >= self.refused_until;
        let query = self.inquiry.is_some() || !self.inquiries.is_empty() || self.has_to_tell(monotonic);
        let lease = self.holding.has_changed().unwrap_or(false);
        let gc = self.index.lanes().len() > LANES_KEPT && monotonic >= self.vacate_from;
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

    /// Gives a class its turn. What is claimed and expired is so at `now`.
    pub(super) async fn turn(&mut self, class: WorkClass, lease: ShardLease, now: Option<Interval>) -> Result<(), End> {
        let began = self.parts.env.clock.monotonic();
        let records = match (class, now) {
            (WorkClass::LeaseFence, _) => {
                // That it is held was looked at before this turn, as before every other; what is new is until when.
                self.holding.mark_unchanged();
                1
            }
            (WorkClass::Gc, _) => self.vacate()?,
            (WorkClass::OutcomeAndControl, _) => {
                let mut records = self.take_settlements()?;
                let gates = self.take_gates()?;
                // Gates and destinations are both about lanes: a turn does one of them.
                records += if gates > 0 { gates } else { self.take_destinations()?.min(GATES_MAX) };
                let monotonic = self.parts.env.clock.monotonic();
                if self.is_resolve_due(monotonic)
                    && let Ok(time) = self.clock.read(&*self.parts.env.clock)
                {
                    self.resolve_from = monotonic + TRY_AGAIN;
                    records += self.claims.unresolved().min(recovery::ROWS_MAX as usize);
                    self.resolve(lease, time).await?;
                }
                if self.is_comparison_due(monotonic) {
                    records += self.compare().await?;
                }
                records
            }
            (WorkClass::SourceApply, _) => self.take_page()?,
            (WorkClass::Expiry, Some(now)) => self.expire(lease, now).await?,
            (WorkClass::DueScheduler, Some(now)) => self.claim(lease, now)?,
            (WorkClass::Query, _) => self.tell()?,
            (WorkClass::Checkpoint, _) => self.take_checkpoint_turn(lease).await,
            (WorkClass::Expiry | WorkClass::DueScheduler, None) => unreachable!("they have work at a known time only"),
        };
        match class {
            // They change what is ready.
            WorkClass::LeaseFence | WorkClass::OutcomeAndControl | WorkClass::SourceApply => self.look_again(),
            WorkClass::Expiry | WorkClass::DueScheduler | WorkClass::Gc | WorkClass::Query | WorkClass::Checkpoint => {}
        }
        self.work.did(class, records);
        let took = self.parts.env.clock.monotonic().saturating_sub(began);
        if took > self.parts.work.share(class).turn_time {
            self.parts.signals.overran(class);
        }
        Ok(())
    }

    /// What time makes ready is looked for again.
    pub(super) fn look_again(&mut self) {
        (self.due, self.expiry) = (Look::Now, Look::Now);
    }

    /// How long there is nothing to do, unless something arrives.
    pub(super) fn pause(&self, earliest: Timestamp) -> Duration {
        let monotonic = self.parts.env.clock.monotonic();
        let until = |look, not_before: Duration| match look {
            Look::Now => Some(not_before.saturating_sub(monotonic)),
            Look::At(at) => at.map(|at| at.since(earliest).max(not_before.saturating_sub(monotonic))),
        };
        let looks = [until(self.due, self.refused_until), until(self.expiry, self.expire_from)];
        looks.into_iter().flatten().min().unwrap_or(self.parts.poll).min(self.parts.poll)
    }

    fn is_resolve_due(&self, monotonic: Duration) -> bool {
        self.claims.unresolved() > 0 && monotonic >= self.resolve_from && self.clock.is_trusted(monotonic)
    }

    fn claim(&mut self, lease: ShardLease, now: Interval) -> Result<usize, End> {
        let (ready_at, stopped_early) = self.schedule.discover(&self.index, now.earliest, &self.parts.signals);
        self.schedule.wake(&self.seat, now.earliest);
        let opens_at = [ready_at, self.schedule.opens_at()].into_iter().flatten().min();
        self.due = if stopped_early { Look::Now } else { Look::At(opens_at) };
        let room = self.claims_room();
        self.claims.limit(room);
        if self.schedule.is_idle() && !self.schedule.waits_for_others() {
            self.lack_places(false);
            self.waits_for_places = false;
            return Ok(0);
        }
        if !std::mem::replace(&mut self.begun, true) {
            // Owners that come and go shall not always begin with the same lanes.
            self.schedule.begin_at(u64::from(self.parts.env.id_entropy()[0]));
        }
        let clock = &*self.parts.env.clock;
        let turn_end = clock.monotonic() + self.parts.work.share(WorkClass::DueScheduler).turn_time;
        let mut step = self.index.begin();
        let is_over = || clock.monotonic() >= turn_end;
        let began = clock.monotonic();
        let is_stuck = self.stuck_since.is_some_and(|since| began.saturating_sub(since) >= STUCK_AFTER);
        let turned = self.claims.pick(&mut step, &mut self.schedule, &self.seat, now, is_stuck, is_over)?;
        self.schedule.refresh(&mut step, now.earliest);
        step.commit()?;
        let Turned { picked, is_cut_short, lacks_places, has_moved } = turned;
        self.stuck_since = self.stuck_since.or(Some(began)).filter(|_| lacks_places && !has_moved);
        if is_cut_short {
            self.due = Look::Now;
        }
        self.lack_places(lacks_places);
        self.waits_for_places = lacks_places || self.schedule.waits_for_others();
        if self.waits_for_places {
            // Whoever has a place to give back says so, but for a shard whose turn it was and that does not come.
            let again = now.earliest + PLACES_LOOK;
            self.due = match self.due {
                Look::Now => Look::Now,
                Look::At(at) => Look::At(Some(at.map_or(again, |at| at.min(again)))),
            };
        }
        let claimed = picked.len();
        if claimed > 0 {
            picked.iter().for_each(|picked| self.parts.signals.claimed(picked, now.earliest));
            let batch = self.claims.take_up(picked);
            self.parts.publisher.publish(lease, self.reliance(lease), batch, now.latest, self.settle.clone());
        }
        Ok(claimed)
    }

    /// Whether there is no place for whose turn it is. One that has all it wants is waited for by no other shard.
    fn lack_places(&mut self, lacks_places: bool) {
        if std::mem::replace(&mut self.lacks_places, lacks_places) && !lacks_places {
            self.seat.rest();
        }
    }

    /// As long as what renews the lease says, and the session lasts.
    fn reliance(&self, lease: ShardLease) -> Reliance {
        Reliance::new(relied_until(&self.relied_on, lease), Arc::clone(&self.parts.env.clock))
    }

    /// Whether one more may be claimed.
    pub(super) fn has_room(&self) -> bool {
        self.claims.has_room(0) && self.room_for_claims() > 0
    }

    /// How many more may be claimed.
    fn claims_room(&self) -> usize {
        let held = Amount::of(self.claims.len(), CLAIM_BYTES);
        let room = self.parts.work.room(WorkClass::DueScheduler, held);
        room.records.min(room.bytes / CLAIM_BYTES).min(self.room_for_claims())
    }

    /// Takes the names of lanes away that nobody needs.
    fn vacate(&mut self) -> Result<usize, End> {
        let is_idle = |number: LaneNumber| self.schedule.is_idle_lane(number);
        let (looked, next) = self.index.vacate(self.vacate_at, VACATED_MAX, is_idle)?;
        self.vacate_at = next;
        if next == LaneNumber(0) {
            self.vacate_from = self.parts.env.clock.monotonic() + VACATE_EVERY;
        }
        Ok(looked)
    }
}

/// What the store says within a turn. What it does after that is found out the next time.
pub(super) async fn in_time<T>(
    turn_time: Duration,
    asked: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::Unavailable("the store takes longer than a turn of a shard may".to_owned()));
    timeout_at(env::deadline(turn_time), asked).await.unwrap_or_else(late)
}
