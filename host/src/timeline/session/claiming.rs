//! The turn of the due scheduler: messages that are due are claimed and handed to the publisher.

use std::time::Duration;

use super::{End, Session};
use crate::lanes::{Amount, WorkClass};
use crate::publish::Latest;
use crate::store::ShardLease;
use crate::timeline::claims::Picking;
use crate::timeline::clock::Interval;
use crate::timeline::schedule::Discovered;

/// A claim, with what the publisher holds for it but the message's body.
pub(super) const CLAIM_BYTES: usize = 1_024;
/// The longest pause before places that were refused are asked for again without a call.
const PLACES_LOOK: Duration = Duration::from_millis(50);

impl Session<'_> {
    /// Claims what is due. Returns how much that is.
    pub(super) fn claim(&mut self, lease: ShardLease, now: Interval) -> Result<Amount, End> {
        self.find_due(now);
        let room = self.claims_room();
        self.claims.limit(room);
        if self.schedule.is_idle() && !self.schedule.waits_for_others() {
            self.seating.rest();
            return Ok(Amount::default());
        }
        let (around, signals) = (self.around, &self.shard.signals);
        if !std::mem::replace(&mut self.begun, true) {
            // A random start, so that a shard whose owners change often does not always serve the same lanes first.
            self.schedule.begin_at(u64::from(around.env.id_entropy()[0]));
        }
        let clock = &*around.env.clock;
        let turn_end = clock.monotonic() + around.work.share(WorkClass::DueScheduler).turn_time;
        let is_over = || clock.monotonic() >= turn_end;
        let mut step = self.index.begin();
        let began = clock.monotonic();
        let without_place = self.seating.without_place(began);
        let mut picking = Picking::begin(&mut step, &mut self.schedule, &self.seating.seat, now);
        let end = self.claims.pick(&mut picking, without_place, is_over)?;
        let picked = picking.picked;
        self.schedule.refresh(&mut step, now.earliest);
        step.commit()?;
        if end.is_cut_short() {
            self.due.look_again();
        }
        if self.seating.turned(began, end, self.schedule.waits_for_others()) {
            // A place that is given back calls the shard, but not if it was another shard's turn that does not come.
            self.due.look_by(now.earliest + PLACES_LOOK);
        }
        let bytes = picked.iter().map(|picked| picked.message.bytes as usize).sum();
        let claimed = Amount { records: picked.len(), bytes };
        if claimed.records > 0 {
            picked.iter().for_each(|picked| signals.claimed(picked, now.earliest));
            let batch = self.claims.take_up(picked);
            let reliance = self.tenure.reliance(lease, &around.env.clock);
            let latest = Latest::at(now.latest, now.at);
            around.publisher.publish(lease, reliance, batch, latest, self.inbox.settle().clone());
        }
        Ok(claimed)
    }

    /// Activates the lanes that are due by `now`, and decides when to look again.
    fn find_due(&mut self, now: Interval) {
        let discovered = self.schedule.discover(&self.index, now.earliest, &self.shard.signals);
        self.schedule.wake(&self.seating.seat, now.earliest);
        match discovered {
            Discovered::Part => self.due.look_again(),
            Discovered::All { next_at } => {
                self.due.look_at([next_at, self.schedule.opens_at()].into_iter().flatten().min());
            }
        }
    }

    /// Whether one more message may be claimed.
    pub(super) fn has_room(&self) -> bool {
        self.claims.has_room(0) && self.room_for_claims() > 0
    }

    /// How many more messages may be claimed.
    fn claims_room(&self) -> usize {
        let held = Amount::of(self.claims.len(), CLAIM_BYTES);
        let room = self.around.work.room(WorkClass::DueScheduler, held);
        room.records.min(room.bytes / CLAIM_BYTES).min(self.room_for_claims())
    }
}
