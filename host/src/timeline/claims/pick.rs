//! Claiming: what is due, whose turn it is, and for what there is a place.

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

/// What was claimed in a turn.
#[derive(Debug)]
pub(in crate::timeline) struct Turned {
    pub picked: Vec<Picked>,
    /// Whether the turn ended before the lanes did.
    pub is_cut_short: bool,
    /// Whether it ended because there was no place for the next.
    pub lacks_places: bool,
    /// Whether anything was claimed in its own turn.
    pub has_moved: bool,
}

/// How a visit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visit {
    Over,
    TurnOver,
    NoPlace,
}

/// What claims are made by.
struct Picking<'a, 'b> {
    step: &'a mut Step<'b>,
    schedule: &'a mut Schedule,
    seat: &'a Seat,
    now: Interval,
    turn: Turn,
    picked: Vec<Picked>,
}

impl Claims {
    /// Claims what is due, whose turn it is, and for what there is a place, to be taken up once the step is committed.
    /// `is_stuck` says that for some time there was none for whose turn it is: then one message is claimed of each
    /// destination that has nothing in flight. `is_over` says that the turn's time is: nothing more is claimed in it
    /// then.
    pub(in crate::timeline) fn pick(
        &self,
        step: &mut Step<'_>,
        schedule: &mut Schedule,
        seat: &Seat,
        now: Interval,
        is_stuck: bool,
        is_over: impl Fn() -> bool,
    ) -> Result<Turned, Broken> {
        let turn = schedule::TURN.begin();
        let mut picking = Picking { step, schedule, seat, now, turn, picked: Vec::new() };
        let mut is_cut_short = self.pick_for_bytes(&mut picking, &is_over)?;
        let (mut lacks_places, mut is_in_turn) = (false, false);
        while self.has_room(picking.picked.len()) {
            // However long the others took, the lane in turn has one visit.
            if std::mem::replace(&mut is_in_turn, true) && is_over() {
                picking.turn.end();
            }
            let Some(number) = picking.schedule.next(Door::Ring, &mut picking.turn) else {
                is_cut_short |= !picking.schedule.is_idle();
                break;
            };
            match self.visit(&mut picking, Door::Ring, number)? {
                Visit::Over => {}
                Visit::TurnOver => {
                    is_cut_short = true;
                    break;
                }
                Visit::NoPlace => {
                    lacks_places = true;
                    break;
                }
            }
        }
        let has_moved = !picking.picked.is_empty();
        if lacks_places && is_stuck && !has_moved {
            is_cut_short |= self.pick_quiet(&mut picking, is_over)?;
        }
        Ok(Turned { picked: picking.picked, is_cut_short, lacks_places, has_moved })
    }

    /// Claims what has waited for bytes, as far as they are free now, in order. Says whether the turn ended meanwhile.
    fn pick_for_bytes(&self, picking: &mut Picking<'_, '_>, is_over: impl Fn() -> bool) -> Result<bool, Broken> {
        let waiting = picking.schedule.wait_for_bytes(FOR_BYTES_MAX);
        let mut looked = 0;
        while looked < waiting.len() && self.has_room(picking.picked.len()) && !is_over() {
            self.pick_one(picking, Door::Side { outlet: waiting[looked], waited: true })?;
            if picking.turn.is_over() {
                break;
            }
            looked += 1;
        }
        picking.schedule.looked_for_bytes(&waiting[..looked]);
        Ok(picking.turn.is_over())
    }

    /// There are no places in the turn of lanes: claims one message of each destination that has nothing in flight.
    /// Says whether there are more.
    fn pick_quiet(&self, picking: &mut Picking<'_, '_>, is_over: impl Fn() -> bool) -> Result<bool, Broken> {
        let mut left = picking.schedule.quiet();
        while self.has_room(picking.picked.len()) && picking.seat.has_reserve() {
            if picking.turn.is_over() || is_over() {
                return Ok(left > 0);
            }
            let Some(outlet) = picking.schedule.next_quiet(&mut left) else { break };
            self.pick_one(picking, Door::Side { outlet, waited: false })?;
        }
        Ok(false)
    }

    /// Claims one message of an outlet, out of its turn among outlets, and of what is left of the session's.
    fn pick_one(&self, picking: &mut Picking<'_, '_>, door: Door) -> Result<(), Broken> {
        let before = picking.picked.len();
        while let Some(number) = picking.schedule.next(door, &mut picking.turn) {
            let visit = self.visit(picking, door, number)?;
            if visit != Visit::Over || picking.picked.len() > before || picking.schedule.is_held(number) {
                break;
            }
        }
        if let Door::Side { outlet, waited: true } = door {
            // One that may not send now is in nobody's way meanwhile.
            let has_ended = !picking.schedule.may_send(outlet);
            if has_ended {
                picking.seat.wait_no_longer(picking.schedule.destination_of(outlet));
            }
            if has_ended || picking.picked.len() > before {
                picking.schedule.has_bytes(outlet);
            }
        }
        Ok(())
    }

    /// Serves the lane whose visit it is for as long as it may be served; by the side door once.
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
            // Setting aside is work as well: it costs the least that anything costs, so that it ends with the turn.
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
            // As of places, a part is for destinations that have nothing.
            if !self.has_room(picked.len() + self.limit / RESERVE_PART) && schedule.has_claims(number) {
                return Ok(Visit::NoPlace);
            }
            let Ok(permit) = schedule.claim(number, head.bytes, now.earliest) else {
                // It would be too large beside what its lane has in flight.
                schedule.deactivate(number);
                break;
            };
            let waited = matches!(door, Door::Side { waited: true, .. });
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
