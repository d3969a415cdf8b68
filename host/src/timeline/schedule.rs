//! Which of a shard's lanes are served next: their states, their turns, and which of them time has made ready.
//!
//! A lane becomes active when its time in READY comes, found by one walk that never goes over the same lanes twice, or
//! when something about it changes and that time has come already. It leaves when its line is empty or its head not
//! due, and when it may not send for a reason of its own.
//!
//! What a tenant's lanes to one destination share is their *outlet*. One that may not send, for what it shares with
//! others, is parked as a whole, and its lanes keep their turns (`lanes::ThreeLevelDrr`):
//!
//! - while its circuit is open or its destination asked to be left alone (*shut*);
//! - while its destination has what it may, and it is not its turn to get more (`lanes::Queue`);
//! - while its next message waits for more bytes than are free.

mod following;
mod outlets;

pub(super) use following::Changes;
pub(super) use outlets::OutletNumber;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use self::following::{INCAPABLE_WEIGHT, circuit_policy};
use self::outlets::Outlets;
use super::compared::Compared;
use super::gates::Gates;
use super::index::{Index, Step};
use super::keys::{LaneNumber, Position};
use super::signals::Signals;
use super::values::stands;
use crate::lanes::{
    Beginning, Charge, Circuit, CircuitPolicy, DestinationLane, Held, MESSAGE_COST_MAX, MESSAGES, NoPlace, Permit,
    ThreeLevelDrr, Turn, TurnLimits, Verdict,
};
use crate::model::destination::{Destinations, LaneLimits, terms_of};
use crate::model::destination_lane::LaneName;
use crate::model::message::{MESSAGE_BYTES_MAX, MessageEntry};
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;
use crate::publish::Seat;

/// What a turn hands to the publisher at the most. Turns are short so that outcomes and the feed are never far behind.
pub(super) const TURN_MESSAGES_MAX: u32 = 256;
/// One message, at least, of any size.
pub(super) const TURN_BYTES_MAX: u64 = MESSAGE_COST_MAX;
/// The same, in memory.
pub(super) const TURN_BYTES: usize = MESSAGE_BYTES_MAX as usize;
const TURN_VISITS_MAX: u32 = 4_096;
/// How long a turn claims at the most: outcomes and the feed wait meanwhile.
pub(super) const TURN_TIME_MAX: Duration = Duration::from_millis(10);
/// The share of a namespace that is not weighed.
const NAMESPACE_WEIGHT: u32 = 1;
/// Lanes of READY that are looked at in one go.
const DISCOVERED_MAX: usize = 256;

/// When a destination is left alone, and how it is tried again.
const CIRCUIT: CircuitPolicy = CircuitPolicy {
    failures_to_open: 10,
    open_initial: Duration::from_secs(1),
    open_max: Duration::from_secs(60),
    probes_max: 1,
    successes_to_close: 2,
    // What each destination's lanes may have ends its ramp.
    ramp_messages: u32::MAX,
};

/// What a lane has before it is known what it may have.
const NOTHING: LaneLimits = LaneLimits { messages: 0, bytes: 0 };

pub(super) const TURN: TurnLimits =
    TurnLimits { items_max: TURN_MESSAGES_MAX, cost_max: TURN_BYTES_MAX, visits_max: TURN_VISITS_MAX };

/// In whose turn a lane is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// In its own.
    Ring,
    /// Its outlet is served one message beside the others. `waited` says that it waits for bytes.
    Side { outlet: OutletNumber, waited: bool },
}

/// The lanes of a shard, as far as they are not in the index.
pub(super) struct Schedule {
    lanes: Vec<DestinationLane>,
    /// The outlet of each lane.
    outlet_of: Vec<OutletNumber>,
    outlets: Outlets,
    /// Whether each lane has messages that wait, or are under way.
    holds: Vec<bool>,
    /// Since when each lane has been active and not been served.
    unserved_since: Vec<Option<Timestamp>>,
    /// Since when each has had failures and no success, as far as this owner knows.
    failing_since: Vec<Option<Timestamp>>,
    /// How far their lines are known.
    pub compared: Compared,
    gates: Arc<Gates>,
    weights: Arc<BTreeMap<Namespace, u32>>,
    /// Namespaces, the outlets of each, and the lanes of those: a tenant with many lanes gets no more than one with
    /// few.
    drr: ThreeLevelDrr<Namespace, OutletNumber, LaneNumber>,
    /// READY has been looked through up to here.
    cursor: (Timestamp, LaneNumber),
}

impl Schedule {
    /// No lanes yet. Of one destination, over all of its lanes, no more than `claimed_max` messages are claimed at
    /// once.
    pub(super) fn new(weights: Arc<BTreeMap<Namespace, u32>>, claimed_max: usize) -> Self {
        let start = (Timestamp::from_millis(i64::MIN), LaneNumber(0));
        Self {
            lanes: Vec::new(),
            outlet_of: Vec::new(),
            outlets: Outlets::new(claimed_max),
            holds: Vec::new(),
            unserved_since: Vec::new(),
            failing_since: Vec::new(),
            compared: Compared::default(),
            gates: Arc::default(),
            weights,
            drr: ThreeLevelDrr::new(MESSAGES, Beginning::FirstPass),
            cursor: start,
        }
    }

    /// A lane, which must have been adopted.
    #[cfg(test)]
    pub(super) fn lane(&mut self, number: LaneNumber) -> &mut DestinationLane {
        &mut self.lanes[number.0 as usize]
    }

    /// The lanes, in the order of their numbers.
    pub(super) fn lanes(&self) -> &[DestinationLane] {
        &self.lanes
    }

    /// The circuit of a lane's destination.
    pub(super) fn circuit(&self, number: LaneNumber) -> Circuit {
        self.outlets.outlet(self.outlet_of(number)).circuit()
    }

    /// Until when a lane's destination asked to be left alone, if that is still to come.
    pub(super) fn throttled_until(&self, number: LaneNumber, now: Timestamp) -> Option<Timestamp> {
        self.outlets.outlet(self.outlet_of(number)).throttled_until(now)
    }

    /// A lane's destination asked its tenant not to call before `until`.
    pub(super) fn back_off(&mut self, number: LaneNumber, until: Timestamp, now: Timestamp) {
        let outlet = self.outlet_of(number);
        self.outlets.outlet_mut(outlet).back_off(until);
        self.outlets.reconsider(outlet, &mut self.drr, now);
    }

    /// What stands against every message of a lane at `now`.
    pub(super) fn held(&self, number: LaneNumber, now: Timestamp) -> Option<Held> {
        let outlet = self.outlet_of(number);
        let is_closed = self.outlets.is_closed(outlet).then_some(Held::Recovering);
        let of_destination = is_closed.or(self.outlets.waits_for_room(outlet).then_some(Held::Capacity));
        let of_lane = self.lanes[number.0 as usize].held(self.outlets.outlet(outlet), now);
        [of_lane, self.held_itself(number), of_destination].into_iter().flatten().min()
    }

    /// What stands against every message of a lane and concerns no other lane.
    fn held_itself(&self, number: LaneNumber) -> Option<Held> {
        let awaited = self.compared.is_awaited(number).then_some(Held::Recovering);
        [self.lanes[number.0 as usize].held_itself(), awaited].into_iter().flatten().min()
    }

    /// A lane that is due may not be served for a reason of its own.
    fn leave(&mut self, number: LaneNumber, reason: Held) {
        self.deactivate(number);
        if reason == Held::Recovering {
            self.compared.want(number);
        }
    }

    /// Whether a lane that is being visited may not be served; then it has left, or its outlet is parked.
    pub(super) fn hold_back(&mut self, number: LaneNumber, now: Timestamp) -> bool {
        if let Some(reason) = self.held_itself(number) {
            self.leave(number, reason);
            return true;
        }
        self.outlets.hold_back(self.outlet_of(number), &mut self.drr, now)
    }

    /// Whether a lane's line is known as far as its head, who stands at `head`; if not, the lane has left until it is.
    pub(super) fn is_known(&mut self, number: LaneNumber, head: Position) -> bool {
        let is_known = self.compared.reaches(number, head);
        if !is_known {
            self.leave(number, Held::Recovering);
        }
        is_known
    }

    /// The next lane whose head is to be looked at, by one door.
    pub(super) fn next(&mut self, door: Door, turn: &mut Turn) -> Option<LaneNumber> {
        match door {
            Door::Ring => self.drr.next(turn),
            Door::Side { outlet, .. } => self.drr.next_of(outlet, turn),
        }
    }

    /// Offers to serve the head of that lane.
    pub(super) fn offer(&mut self, door: Door, turn: &mut Turn, cost: u64) -> Charge {
        match door {
            Door::Ring => self.drr.offer(turn, cost),
            Door::Side { outlet, .. } => self.drr.offer_of(outlet, turn, cost),
        }
    }

    /// What was offered is served.
    pub(super) fn spend(&mut self, door: Door, turn: &mut Turn, cost: u64) {
        match door {
            Door::Ring => self.drr.serve(turn, cost),
            Door::Side { outlet, .. } => self.drr.serve_of(outlet, turn, cost),
        }
    }

    /// Whether a lane's outlet is parked.
    pub(super) fn is_parked(&self, number: LaneNumber) -> bool {
        self.outlets.is_parked(self.outlet_of(number))
    }

    /// Whether a lane's outlet may not be served, however many bytes are free.
    pub(super) fn is_held(&self, number: LaneNumber) -> bool {
        self.outlets.is_held(self.outlet_of(number))
    }

    /// Whether an outlet has something to be sent, and may, were there bytes enough.
    pub(super) fn may_send(&self, outlet: OutletNumber) -> bool {
        self.drr.has_work(outlet) && !self.outlets.is_held(outlet)
    }

    /// Whether nobody may be served whose turn could come.
    pub(super) fn is_idle(&self) -> bool {
        self.drr.is_idle()
    }

    /// Goes on at a lane that `random` chooses.
    pub(super) fn begin_at(&mut self, random: u64) {
        self.drr.begin_at(random);
    }

    /// Takes a permit for a message of a lane, or says what stands against it.
    pub(super) fn claim(&mut self, number: LaneNumber, bytes: u32, now: Timestamp) -> Result<Permit, Held> {
        let outlet = self.outlet_of(number);
        let permit = self.lanes[number.0 as usize].claim(self.outlets.outlet_mut(outlet), bytes, now)?;
        self.outlets.claimed(outlet);
        Ok(permit)
    }

    /// A message that was claimed got its place, which cost so much.
    pub(super) fn placed(&mut self, number: LaneNumber, cost: u64, now: Timestamp) {
        self.outlets.placed(self.outlet_of(number), cost, &mut self.drr, now);
    }

    /// A message that was claimed got no place: it is not claimed after all.
    pub(super) fn refused(&mut self, number: LaneNumber, permit: Permit, reason: NoPlace, now: Timestamp) {
        self.settle(number, permit, Verdict::NotCalled, now);
        self.conclude(number);
        match reason {
            NoPlace::Destination => self.outlets.wait_for_room(self.outlet_of(number), &mut self.drr),
            NoPlace::Bytes => self.outlets.wait_for_bytes(self.outlet_of(number), &mut self.drr),
            NoPlace::All => {}
        }
    }

    /// Gives a permit back, with what its attempt said about the destination. The message is still claimed.
    pub(super) fn settle(&mut self, number: LaneNumber, permit: Permit, verdict: Verdict, now: Timestamp) {
        let outlet = self.outlet_of(number);
        self.lanes[number.0 as usize].settle(self.outlets.outlet_mut(outlet), permit, verdict, now);
        self.outlets.reconsider(outlet, &mut self.drr, now);
    }

    /// Takes over a message of a lane that an owner before this one claimed.
    pub(super) fn inherit(&mut self, number: LaneNumber) {
        self.lanes[number.0 as usize].inherit();
        self.outlets.claimed(self.outlet_of(number));
    }

    /// It is known what became of a message of a lane that was claimed or inherited.
    pub(super) fn conclude(&mut self, number: LaneNumber) {
        self.lanes[number.0 as usize].conclude();
        self.outlets.concluded(self.outlet_of(number));
    }

    /// An attempt of a lane has failed, or one has not.
    pub(super) fn tried(&mut self, number: LaneNumber, failed: bool, now: Timestamp) {
        let since = &mut self.failing_since[number.0 as usize];
        *since = if failed { since.or(Some(now)) } else { None };
    }

    /// Since when a lane has had failures and no success.
    pub(super) fn failing_since(&self, number: LaneNumber) -> Option<Timestamp> {
        self.failing_since[number.0 as usize]
    }

    /// Whether nothing but its name is known of a lane.
    pub(super) fn is_idle_lane(&self, number: LaneNumber) -> bool {
        !self.lanes[number.0 as usize].is_busy()
    }

    /// A lane that is active was served. Says for how long it had been active, or not served, while its destination
    /// could be called.
    pub(super) fn served(&mut self, number: LaneNumber, now: Timestamp) -> Duration {
        let since = self.unserved_since[number.0 as usize].replace(now);
        let open_since = self.outlets.open_since(self.outlet_of(number));
        since.map_or(Duration::ZERO, |since| now.since(since.max(open_since)))
    }

    /// A lane has nothing to send, or may not.
    pub(super) fn deactivate(&mut self, number: LaneNumber) {
        self.unserved_since[number.0 as usize] = None;
        self.drr.deactivate(number);
        self.outlets.follow(self.outlet_of(number), &mut self.drr);
    }

    fn activate(&mut self, number: LaneNumber, now: Timestamp) {
        self.unserved_since[number.0 as usize].get_or_insert(now);
        self.drr.activate(number);
        self.outlets.follow(self.outlet_of(number), &mut self.drr);
    }

    /// Looks again at outlets that time or room may have opened.
    pub(super) fn wake(&mut self, seat: &Seat, now: Timestamp) {
        self.outlets.wake(seat, &mut self.drr, now);
    }

    /// When an outlet opens by itself, if one does.
    pub(super) fn opens_at(&self) -> Option<Timestamp> {
        self.outlets.opens_at()
    }

    /// Whether somebody waits for what a destination may have, or for bytes.
    pub(super) fn waits_for_others(&self) -> bool {
        self.outlets.waits_for_others()
    }

    /// The first `outlets_max` outlets that wait for bytes, in order.
    pub(super) fn wait_for_bytes(&self, outlets_max: usize) -> Vec<OutletNumber> {
        self.outlets.for_bytes(outlets_max)
    }

    /// The first outlets that wait for bytes were looked at: the others come first the next time.
    pub(super) fn looked_for_bytes(&mut self, looked: &[OutletNumber]) {
        self.outlets.looked_for_bytes(looked);
    }

    /// An outlet waits for bytes no longer.
    pub(super) fn has_bytes(&mut self, outlet: OutletNumber) {
        self.outlets.has_bytes(outlet, &mut self.drr);
    }

    /// The next outlet that may be served and to whose destination nothing is claimed, by destinations in turn; `None`
    /// after the last one that was such when `left` was begun with.
    pub(super) fn next_quiet(&mut self, left: &mut usize) -> Option<OutletNumber> {
        self.outlets.next_quiet(left)
    }

    /// How many destinations have something to be sent and nothing claimed.
    pub(super) fn quiet(&self) -> usize {
        self.outlets.quiet()
    }

    /// Tenants' destinations that have become such that nothing is to be sent to them, since this was asked last.
    pub(super) fn take_shut(&mut self) -> Vec<(Namespace, DestinationName)> {
        self.outlets.take_shut()
    }

    /// Nothing more is claimed for a destination by this owner, whatever its lanes may send.
    pub(super) fn close(&mut self, destination: &DestinationName) {
        self.outlets.close(destination, &mut self.drr);
    }

    /// Whether anything is claimed of a lane's destination.
    pub(super) fn has_claims(&self, number: LaneNumber) -> bool {
        self.outlets.has_claims(self.outlet_of(number))
    }

    /// The destination of a lane.
    pub(super) fn destination(&self, number: LaneNumber) -> &DestinationName {
        self.destination_of(self.outlet_of(number))
    }

    /// The destination of an outlet.
    pub(super) fn destination_of(&self, outlet: OutletNumber) -> &DestinationName {
        self.outlets.destination(outlet)
    }

    /// Stands for the tenant's destination that a lane is of.
    pub(super) fn outlet_of(&self, number: LaneNumber) -> OutletNumber {
        self.outlet_of[number.0 as usize]
    }

    /// The lane in whose line a message stands, which is adopted if it is met for the first time; `None` if it stands
    /// in none, for which no lane is made.
    pub(super) fn lane_of(
        &mut self,
        step: &mut Step<'_>,
        row: &MessageEntry,
        destinations: &Destinations,
    ) -> Option<LaneNumber> {
        let order = destinations.ordering_of(&row.destination);
        let (namespace, destination) = (row.namespace.clone(), row.destination.clone());
        let ordering = order.domain(row.ordering_key.as_deref());
        if !stands(row.state, ordering.is_ordered()) {
            return None;
        }
        step.tell_apart(&row.destination, order);
        let is_busy = |number: LaneNumber| self.lanes.get(number.0 as usize).is_some_and(DestinationLane::is_busy);
        let number = step.lane_number(&LaneName { namespace, destination, ordering }, is_busy);
        self.adopt(number, &step.lane(number).name, destinations);
        Some(number)
    }

    /// Gives a lane its limits, weight and gate, unless it has them. What waits for a destination that is not
    /// configured goes on waiting.
    pub(super) fn adopt(&mut self, number: LaneNumber, name: &LaneName, destinations: &Destinations) {
        if (number.0 as usize) < self.lanes.len() {
            return;
        }
        assert_eq!(number.0 as usize, self.lanes.len(), "lanes are numbered one by one");
        let terms = terms_of(destinations, &name.destination);
        let mut lane =
            if name.ordering.is_ordered() { DestinationLane::ordered(NOTHING) } else { DestinationLane::new(NOTHING) };
        lane.set_limits(terms.map(|terms| terms.limits));
        if terms.is_none() {
            tracing::warn!(destination = %name.destination, "messages wait for a destination that is not known here");
        }
        let weight = terms.map_or(INCAPABLE_WEIGHT, |terms| terms.weight);
        lane.set_gate(self.gates.of(name));
        self.lanes.push(lane);
        let of_namespace = self.weights.get(&name.namespace).copied().unwrap_or(NAMESPACE_WEIGHT);
        let outlet = self.outlets.adopt(name, circuit_policy(terms.as_ref()), of_namespace);
        self.outlet_of.push(outlet);
        self.outlets.add(outlet, number);
        self.holds.push(false);
        self.unserved_since.push(None);
        self.failing_since.push(None);
        self.drr.set_group_weight(name.namespace.clone(), of_namespace);
        self.drr.set_family_weight(&name.namespace, outlet, weight);
        self.drr.add(outlet, number);
    }

    /// Decides anew, for every lane that the step touched, when it is ready and whether it is active.
    pub(super) fn refresh(&mut self, step: &mut Step<'_>, now: Timestamp) {
        for number in step.touched() {
            let holds = step.lane(number).pending() > 0 || self.lanes[number.0 as usize].is_busy();
            if std::mem::replace(&mut self.holds[number.0 as usize], holds) != holds {
                self.outlets.holds(self.outlet_of(number), holds);
            }
            let held = self.held_itself(number);
            let next = match held {
                // Nothing but a change of the lane opens these.
                Some(Held::LaneClosed | Held::LanePaused | Held::OrderingHead | Held::Capability) => None,
                Some(_) | None => step.lane(number).eligible_from(),
            };
            step.set_ready(number, next);
            match next {
                Some(at) if (at, number) <= self.cursor => match held {
                    Some(reason) => self.leave(number, reason),
                    None => self.activate(number, now),
                },
                Some(_) | None => self.deactivate(number),
            }
        }
    }

    /// Activates the lanes that have become ready by `earliest`. Says when the next will, and whether some were left
    /// for another time.
    pub(super) fn discover(
        &mut self,
        index: &Index,
        earliest: Timestamp,
        signals: &Signals,
    ) -> (Option<Timestamp>, bool) {
        // Time that was set back: what was found ready is found again when its time comes again.
        self.cursor = self.cursor.min((earliest, LaneNumber(u32::MAX)));
        let found = index.ready(self.cursor, earliest, DISCOVERED_MAX);
        for (at, number) in &found.items {
            if self.held(*number, earliest).is_none() {
                signals.discovered(earliest.since(*at));
            }
            match self.held_itself(*number) {
                Some(reason) => self.leave(*number, reason),
                None => self.activate(*number, earliest),
            }
        }
        self.cursor = match found.items.last() {
            Some(last) if found.stopped_early => *last,
            Some(_) | None => (earliest, LaneNumber(u32::MAX)),
        };
        (found.next_at, found.stopped_early)
    }
}
