//! Claiming: messages that are due, in the turn of their lanes, while places last.

use super::{Claim, Claims, Picked};
use crate::lanes::{Charge, NoPlace, Turn, message_cost};
use crate::model::destination::RESERVE_PART;
use crate::publish::{ClaimedMessage, Seat};
use crate::timeline::clock::Interval;
use crate::timeline::database::Broken;
use crate::timeline::index::Step;
use crate::timeline::keys::LaneNumber;
use crate::timeline::schedule::{self, Door, Schedule};
use crate::timeline::values::Entry;

/// Outlets that wait for bytes and are looked at in one turn.
const FOR_BYTES_MAX: usize = schedule::TURN_MESSAGES_MAX as usize;

/// How a turn of claiming ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::timeline) enum TurnEnd {
    /// No lane may be served any more, or the shard has claimed all that it may.
    Over,
    /// The turn was over before the lanes were.
    CutShort,
    /// There was no place for the lane in turn.
    NoPlace {
        /// Whether the turn claimed anything before that.
        has_moved: bool,
        /// Whether the turn was over before all were served that are served out of turn.
        is_cut_short: bool,
    },
}

impl TurnEnd {
    /// Whether messages that could be claimed were left to the next turn.
    pub(in crate::timeline) fn is_cut_short(self) -> bool {
        match self {
            TurnEnd::Over => false,
            TurnEnd::CutShort => true,
            TurnEnd::NoPlace { is_cut_short, .. } => is_cut_short,
        }
    }
}

/// What to do if there is no place for the lane in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::timeline) enum WithoutPlace {
    /// The turn ends.
    Wait,
    /// If nothing was claimed in turn, each destination that has nothing in flight is served one message.
    ServeQuiet,
}

/// How a visit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visit {
    Over,
    TurnOver,
    NoPlace,
}

/// A turn of claiming, and what it has claimed so far.
pub(in crate::timeline) struct Picking<'a, 'b> {
    step: &'a mut Step<'b>,
    schedule: &'a mut Schedule,
    seat: &'a Seat,
    now: Interval,
    turn: Turn,
    /// New claims, to be taken up once the step is committed.
    pub picked: Vec<Picked>,
}

impl<'a, 'b> Picking<'a, 'b> {
    /// A turn that takes its places from `seat`.
    pub(in crate::timeline) fn begin(
        step: &'a mut Step<'b>,
        schedule: &'a mut Schedule,
        seat: &'a Seat,
        now: Interval,
    ) -> Self {
        Self { step, schedule, seat, now, turn: schedule::TURN.begin(), picked: Vec::new() }
    }
}

impl Claims {
    /// Claims due messages in turn while places last, and until `is_over` says that the time of the turn is.
    pub(in crate::timeline) fn pick(
        &self,
        picking: &mut Picking<'_, '_>,
        without_place: WithoutPlace,
        is_over: impl Fn() -> bool,
    ) -> Result<TurnEnd, Broken> {
        let is_over_for_bytes = self.pick_for_bytes(picking, &is_over)?;
        match self.pick_in_turn(picking, &is_over)? {
            TurnEnd::NoPlace { has_moved: false, .. } if without_place == WithoutPlace::ServeQuiet => {
                let is_cut_short = self.pick_quiet(picking, is_over)?;
                Ok(TurnEnd::NoPlace { has_moved: false, is_cut_short })
            }
            // All lanes may be parked while outlets still wait for bytes.
            TurnEnd::Over if is_over_for_bytes => Ok(TurnEnd::CutShort),
            end => Ok(end),
        }
    }

    /// Claims messages of lanes in their turns.
    fn pick_in_turn(&self, picking: &mut Picking<'_, '_>, is_over: impl Fn() -> bool) -> Result<TurnEnd, Broken> {
        let mut has_begun = false;
        while self.has_room(picking.picked.len()) {
            // The lane in turn has one visit, however long the messages out of turn took.
            if std::mem::replace(&mut has_begun, true) && is_over() {
                picking.turn.end();
            }
            let Some(number) = picking.schedule.next(Door::Ring, &mut picking.turn) else {
                return Ok(if picking.schedule.is_idle() { TurnEnd::Over } else { TurnEnd::CutShort });
            };
            match self.visit(picking, Door::Ring, number)? {
                Visit::Over => {}
                Visit::TurnOver => return Ok(TurnEnd::CutShort),
                Visit::NoPlace => {
                    let has_moved = !picking.picked.is_empty();
                    return Ok(TurnEnd::NoPlace { has_moved, is_cut_short: false });
                }
            }
        }
        Ok(TurnEnd::Over)
    }

    /// Claims messages that have waited for bytes, in order, as far as bytes are free now. Returns whether the turn is
    /// over by that.
    fn pick_for_bytes(&self, picking: &mut Picking<'_, '_>, is_over: impl Fn() -> bool) -> Result<bool, Broken> {
        let waiting = picking.schedule.wait_for_bytes(FOR_BYTES_MAX);
        let mut looked = 0;
        while looked < waiting.len() && self.has_room(picking.picked.len()) && !is_over() {
            let outlet = waiting[looked];
            let before = picking.picked.len();
            self.pick_one(picking, Door::ForBytes(outlet))?;
            // An outlet that may not send now holds up no others meanwhile.
            let has_ended = !picking.schedule.may_send(outlet);
            if has_ended {
                picking.seat.wait_no_longer(picking.schedule.destination_of(outlet));
            }
            if has_ended || picking.picked.len() > before {
                picking.schedule.has_bytes(outlet);
            }
            if picking.turn.is_over() {
                break;
            }
            looked += 1;
        }
        picking.schedule.looked_for_bytes(&waiting[..looked]);
        Ok(picking.turn.is_over())
    }

    /// Claims one message of each destination that has nothing in flight, out of turn. Returns whether the turn was
    /// over before that.
    fn pick_quiet(&self, picking: &mut Picking<'_, '_>, is_over: impl Fn() -> bool) -> Result<bool, Broken> {
        let mut left = picking.schedule.quiet();
        while self.has_room(picking.picked.len()) && picking.seat.has_reserve() {
            if picking.turn.is_over() || is_over() {
                return Ok(left > 0);
            }
            let Some(outlet) = picking.schedule.next_quiet(&mut left) else { break };
            self.pick_one(picking, Door::Quiet(outlet))?;
        }
        Ok(false)
    }

    /// Claims one message of an outlet, out of turn, at the expense of the turn under way.
    fn pick_one(&self, picking: &mut Picking<'_, '_>, door: Door) -> Result<(), Broken> {
        let before = picking.picked.len();
        while let Some(number) = picking.schedule.next(door, &mut picking.turn) {
            let visit = self.visit(picking, door, number)?;
            if visit != Visit::Over || picking.picked.len() > before || picking.schedule.is_held(number) {
                break;
            }
        }
        Ok(())
    }

    /// Serves a lane for as long as its visit lasts; out of turn one message.
    fn visit(&self, picking: &mut Picking<'_, '_>, door: Door, number: LaneNumber) -> Result<Visit, Broken> {
        let Picking { step, schedule, seat, now, turn, picked } = picking;
        let mut walk = step.walk(number);
        step.touch(number);
        while self.has_room(picked.len()) {
            let Some(head) = walk.head(step)?.filter(|head| head.eligible_at <= now.earliest) else {
                schedule.deactivate(number);
                break;
            };
            if !schedule.is_known(number, head.position()) {
                break;
            }
            let is_late = head.expire_at.is_some_and(|expire_at| expire_at <= now.latest);
            if !is_late && schedule.hold_back(number, now.earliest) {
                break;
            }
            // Setting aside is work as well. It has the least cost that there is, so that it ends with the turn.
            let cost = message_cost(if is_late { 0 } else { head.bytes });
            match schedule.offer(door, turn, cost) {
                Charge::Served => {}
                Charge::VisitOver => break,
                Charge::TurnOver => return Ok(Visit::TurnOver),
            }
            if is_late {
                schedule.spend(door, turn, cost);
                step.set_aside(&head)?;
                continue;
            }
            // As with places, a part of the claims is kept for destinations that have none.
            if !self.has_room(picked.len() + self.limit / RESERVE_PART) && schedule.has_claims(number) {
                return Ok(Visit::NoPlace);
            }
            let Ok(permit) = schedule.claim(number, head.bytes, now.earliest) else {
                // Its lane has too much in flight for it.
                schedule.deactivate(number);
                break;
            };
            let waited = matches!(door, Door::ForBytes(_));
            let place = match seat.take(schedule.destination(number), head.bytes, waited) {
                Ok(place) => place,
                Err(reason) => {
                    schedule.refused(number, permit, reason, now.earliest);
                    let goes_on = door == Door::Ring && reason != NoPlace::All;
                    return Ok(if goes_on { Visit::Over } else { Visit::NoPlace });
                }
            };
            schedule.spend(door, turn, cost);
            schedule.placed(number, cost, now.earliest);
            step.claim(&head)?;
            let (epoch, since) = (step.epoch(), now.earliest);
            let claim = Claim { entry: head, epoch, superseded: false, since, permit: Some(permit) };
            let gap = schedule.served(number, now.earliest);
            picked.push(Picked { message: claimed_message(step, &head), place, claim, gap });
            if door != Door::Ring || schedule.is_parked(number) {
                break;
            }
        }
        Ok(Visit::Over)
    }
}

fn claimed_message(step: &Step<'_>, entry: &Entry) -> ClaimedMessage {
    let name = &step.lane(entry.lane).name;
    ClaimedMessage {
        id: entry.id,
        generation: entry.generation,
        seq: entry.seq,
        namespace: name.namespace.clone(),
        destination: name.destination.clone(),
        bytes: entry.bytes,
        expire_at: entry.expire_at,
    }
}
