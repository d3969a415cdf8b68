//! The schedule of a shard's lanes: their states, their turns, and the lanes that time has made ready.
//!
//! A lane becomes active when its time in READY comes, found by one walk that never goes over the same lanes twice, or
//! when the lane changes and that time has come already. It is deactivated when its line is empty or its head not due,
//! and when it may not send for a reason of its own.
//!
//! The lanes of one namespace to one destination share an *outlet*. An outlet that may not send is parked as a whole,
//! and its lanes keep their turns (`lanes::ThreeLevelDrr`):
//!
//! - while its circuit is open or its destination asked to be left alone (*shut*);
//! - while its destination has all that it may, and it is not the outlet's turn to get more (`lanes::Queue`);
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
use super::numbered::Numbered;
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

/// Messages that a turn hands to the publisher. Turns are short so that outcomes and the feed are never far behind.
pub(super) const TURN_MESSAGES_MAX: u32 = 256;
/// The cost of one message of any size.
pub(super) const TURN_BYTES_MAX: u64 = MESSAGE_COST_MAX;
/// The same, in memory.
pub(super) const TURN_BYTES: usize = MESSAGE_BYTES_MAX as usize;
const TURN_VISITS_MAX: u32 = 4_096;
/// The time of a turn: outcomes and the feed wait meanwhile.
pub(super) const TURN_TIME_MAX: Duration = Duration::from_millis(10);
/// The share of a namespace without a weight.
const NAMESPACE_WEIGHT: u32 = 1;
/// Lanes of READY in one walk.
const DISCOVERED_MAX: usize = 256;

/// The policy of circuits: when a destination is left alone, and how it is tried again.
const CIRCUIT: CircuitPolicy = CircuitPolicy {
    failures_to_open: 10,
    open_initial: Duration::from_secs(1),
    open_max: Duration::from_secs(60),
    probes_max: 1,
    successes_to_close: 2,
    // The limits of a destination end its ramp.
    ramp_messages: u32::MAX,
};

/// The limits of a lane before its destination is known.
const NOTHING: LaneLimits = LaneLimits { messages: 0, bytes: 0 };

pub(super) const TURN: TurnLimits =
    TurnLimits { items_max: TURN_MESSAGES_MAX, cost_max: TURN_BYTES_MAX, visits_max: TURN_VISITS_MAX };

/// How a lane is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// The lane is served in its turn.
    Ring,
    /// One message of the outlet is served out of turn: it has waited for bytes.
    ForBytes(OutletNumber),
    /// One message of the outlet is served out of turn: its destination has nothing in flight.
    Quiet(OutletNumber),
}

/// What a walk over READY found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Discovered {
    /// A part of the lanes that are ready; the others are left for the next walk.
    Part,
    /// All lanes that are ready. The next one will be at this time, if there is one.
    All { next_at: Option<Timestamp> },
}

/// A lane, as far as it is not in the index.
struct ScheduledLane {
    lane: DestinationLane,
    outlet: OutletNumber,
    /// Whether messages of the lane wait, or are in flight.
    holds: bool,
    /// The time since which the lane has been active without being served.
    unserved_since: Option<Timestamp>,
    /// The time since which the lane has had failures and no success, as far as this owner knows.
    failing_since: Option<Timestamp>,
}

/// The lanes of a shard, as far as they are not in the index.
pub(super) struct Schedule {
    lanes: Numbered<LaneNumber, ScheduledLane>,
    outlets: Outlets,
    /// How far the lines of lanes are known.
    pub compared: Compared,
    /// The gates for lanes that are met from now on.
    gates: Arc<Gates>,
    /// The shares of namespaces.
    weights: Arc<BTreeMap<Namespace, u32>>,
    /// The turns of namespaces, of the outlets of each, and of the lanes of those: a namespace with many lanes gets no
    /// more than one with few.
    drr: ThreeLevelDrr<Namespace, OutletNumber, LaneNumber>,
    /// The end of the last walk over READY.
    cursor: (Timestamp, LaneNumber),
}

impl Schedule {
    /// A schedule without lanes. At most `claimed_max` messages of one destination are claimed at once.
    pub(super) fn new(weights: Arc<BTreeMap<Namespace, u32>>, claimed_max: usize) -> Self {
        let start = (Timestamp::from_millis(i64::MIN), LaneNumber(0));
        Self {
            lanes: Numbered::new(),
            outlets: Outlets::new(claimed_max),
            compared: Compared::default(),
            gates: Arc::default(),
            weights,
            drr: ThreeLevelDrr::new(MESSAGES, Beginning::FirstPass),
            cursor: start,
        }
    }

    /// A lane, which must have been adopted.
    pub(super) fn lane(&self, number: LaneNumber) -> &DestinationLane {
        &self.lanes[number].lane
    }

    #[cfg(test)]
    pub(super) fn lane_mut(&mut self, number: LaneNumber) -> &mut DestinationLane {
        &mut self.lanes[number].lane
    }

    /// The circuit of a lane's destination.
    pub(super) fn circuit(&self, number: LaneNumber) -> Circuit {
        self.outlets.outlet(self.outlet_of(number)).circuit()
    }

    /// The time until which a lane's destination asked to be left alone, if that is still to come.
    pub(super) fn throttled_until(&self, number: LaneNumber, now: Timestamp) -> Option<Timestamp> {
        self.outlets.outlet(self.outlet_of(number)).throttled_until(now)
    }

    /// Leaves a lane's destination alone until this time, for the lane's namespace.
    pub(super) fn back_off(&mut self, number: LaneNumber, until: Timestamp, now: Timestamp) {
        let outlet = self.outlet_of(number);
        self.outlets.change(outlet, &mut self.drr, now, |outlet| outlet.back_off(until));
    }

    /// The reason why no message of a lane may be sent at `now`, if there is one.
    pub(super) fn held(&self, number: LaneNumber, now: Timestamp) -> Option<Held> {
        let outlet = self.outlet_of(number);
        let is_closed = self.outlets.is_closed(outlet).then_some(Held::Recovering);
        let of_destination = is_closed.or(self.outlets.waits_for_room(outlet).then_some(Held::Capacity));
        let of_lane = self.lanes[number].lane.held(self.outlets.outlet(outlet), now);
        [of_lane, self.held_itself(number), of_destination].into_iter().flatten().min()
    }

    /// The same, as far as it concerns no other lane.
    fn held_itself(&self, number: LaneNumber) -> Option<Held> {
        let awaited = self.compared.is_awaited(number).then_some(Held::Recovering);
        [self.lanes[number].lane.held_itself(), awaited].into_iter().flatten().min()
    }

    /// Deactivates a lane that may not be served for a reason of its own.
    fn leave(&mut self, number: LaneNumber, reason: Held) {
        self.deactivate(number);
        if reason == Held::Recovering {
            self.compared.want(number);
        }
    }

    /// Whether a lane that is being visited may not be served; if so, it is deactivated, or its outlet is parked.
    pub(super) fn hold_back(&mut self, number: LaneNumber, now: Timestamp) -> bool {
        if let Some(reason) = self.held_itself(number) {
            self.leave(number, reason);
            return true;
        }
        self.outlets.hold_back(self.outlet_of(number), &mut self.drr, now)
    }

    /// Whether a lane's line is known as far as its head, at position `head`; if not, the lane is deactivated until it
    /// is.
    pub(super) fn is_known(&mut self, number: LaneNumber, head: Position) -> bool {
        let is_known = self.compared.reaches(number, head);
        if !is_known {
            self.leave(number, Held::Recovering);
        }
        is_known
    }

    /// The next lane to visit by a door.
    pub(super) fn next(&mut self, door: Door, turn: &mut Turn) -> Option<LaneNumber> {
        match door {
            Door::Ring => self.drr.next(turn),
            Door::ForBytes(outlet) | Door::Quiet(outlet) => self.drr.next_of(outlet, turn),
        }
    }

    /// Asks whether the head of that lane may be served.
    pub(super) fn offer(&mut self, door: Door, turn: &mut Turn, cost: u64) -> Charge {
        match door {
            Door::Ring => self.drr.offer(turn, cost),
            Door::ForBytes(outlet) | Door::Quiet(outlet) => self.drr.offer_of(outlet, turn, cost),
        }
    }

    /// Charges the lane for the head that was offered.
    pub(super) fn spend(&mut self, door: Door, turn: &mut Turn, cost: u64) {
        match door {
            Door::Ring => self.drr.serve(turn, cost),
            Door::ForBytes(outlet) | Door::Quiet(outlet) => self.drr.serve_of(outlet, turn, cost),
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

    /// Whether an outlet has messages to send, and may if there are bytes enough.
    pub(super) fn may_send(&self, outlet: OutletNumber) -> bool {
        self.drr.has_work(outlet) && !self.outlets.is_held(outlet)
    }

    /// Whether no unparked lane is active.
    pub(super) fn is_idle(&self) -> bool {
        self.drr.is_idle()
    }

    /// Continues with a lane that `random` chooses.
    pub(super) fn begin_at(&mut self, random: u64) {
        self.drr.begin_at(random);
    }

    /// Takes a permit for a message of a lane, or says why there is none.
    pub(super) fn claim(&mut self, number: LaneNumber, bytes: u32, now: Timestamp) -> Result<Permit, Held> {
        let ScheduledLane { lane, outlet, .. } = &mut self.lanes[number];
        self.outlets.claim(*outlet, |outlet| lane.claim(outlet, bytes, now))
    }

    /// A claim got its place; `cost` is its message's.
    pub(super) fn placed(&mut self, number: LaneNumber, cost: u64, now: Timestamp) {
        self.outlets.placed(self.outlet_of(number), cost, &mut self.drr, now);
    }

    /// A claim got no place: it is undone.
    pub(super) fn refused(&mut self, number: LaneNumber, permit: Permit, reason: NoPlace, now: Timestamp) {
        self.settle(number, permit, Verdict::NotCalled, now);
        self.conclude(number);
        match reason {
            NoPlace::Destination => self.outlets.wait_for_room(self.outlet_of(number), &mut self.drr),
            NoPlace::Bytes => self.outlets.wait_for_bytes(self.outlet_of(number), &mut self.drr),
            NoPlace::All => {}
        }
    }

    /// Returns a permit, with the attempt's verdict on the destination. The message is still claimed.
    pub(super) fn settle(&mut self, number: LaneNumber, permit: Permit, verdict: Verdict, now: Timestamp) {
        let ScheduledLane { lane, outlet, .. } = &mut self.lanes[number];
        self.outlets.change(*outlet, &mut self.drr, now, |outlet| lane.settle(outlet, permit, verdict, now));
    }

    /// Takes over a claim that an earlier owner made of a message of this lane.
    pub(super) fn inherit(&mut self, number: LaneNumber) {
        self.lanes[number].lane.inherit();
        self.outlets.inherit(self.outlet_of(number));
    }

    /// A claim of a message of this lane has ended.
    pub(super) fn conclude(&mut self, number: LaneNumber) {
        self.lanes[number].lane.conclude();
        self.outlets.concluded(self.outlet_of(number));
    }

    /// Takes note of an attempt that failed, or did not.
    pub(super) fn tried(&mut self, number: LaneNumber, failed: bool, now: Timestamp) {
        let since = &mut self.lanes[number].failing_since;
        *since = if failed { since.or(Some(now)) } else { None };
    }

    /// The time since which a lane has had failures and no success.
    pub(super) fn failing_since(&self, number: LaneNumber) -> Option<Timestamp> {
        self.lanes[number].failing_since
    }

    /// Whether a lane has no claims.
    pub(super) fn is_idle_lane(&self, number: LaneNumber) -> bool {
        !self.lanes[number].lane.is_busy()
    }

    /// An active lane was served. Returns the time since it became active or was last served, as far as its destination
    /// could be called.
    pub(super) fn served(&mut self, number: LaneNumber, now: Timestamp) -> Duration {
        let since = self.lanes[number].unserved_since.replace(now);
        let open_since = self.outlets.open_since(self.outlet_of(number));
        since.map_or(Duration::ZERO, |since| now.since(since.max(open_since)))
    }

    /// Takes a lane out of its turns: it has nothing to send, or may not.
    pub(super) fn deactivate(&mut self, number: LaneNumber) {
        self.lanes[number].unserved_since = None;
        self.drr.deactivate(number);
        self.outlets.follow(self.outlet_of(number), &mut self.drr);
    }

    fn activate(&mut self, number: LaneNumber, now: Timestamp) {
        self.lanes[number].unserved_since.get_or_insert(now);
        self.drr.activate(number);
        self.outlets.follow(self.outlet_of(number), &mut self.drr);
    }

    /// Looks again at outlets that time or room may have opened.
    pub(super) fn wake(&mut self, seat: &Seat, now: Timestamp) {
        self.outlets.wake(seat, &mut self.drr, now);
    }

    /// The time at which the next outlet opens by itself, if one does.
    pub(super) fn opens_at(&self) -> Option<Timestamp> {
        self.outlets.opens_at()
    }

    /// Whether an outlet waits for its destination's room, or for bytes.
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

    /// The next outlet that may be served and whose destination has no claims, by destinations in turn. `left` counts
    /// down the destinations that are still to be visited.
    pub(super) fn next_quiet(&mut self, left: &mut usize) -> Option<OutletNumber> {
        self.outlets.next_quiet(left)
    }

    /// Destinations with messages to send and no claims.
    pub(super) fn quiet(&self) -> usize {
        self.outlets.quiet()
    }

    /// Takes the outlets that were shut since the last call.
    pub(super) fn take_shut(&mut self) -> Vec<(Namespace, DestinationName)> {
        self.outlets.take_shut()
    }

    /// Claims nothing more for a destination as long as this owner has the shard.
    pub(super) fn close(&mut self, destination: &DestinationName) {
        self.outlets.close(destination, &mut self.drr);
    }

    /// Whether a lane's destination has claims.
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

    /// The outlet of a lane.
    pub(super) fn outlet_of(&self, number: LaneNumber) -> OutletNumber {
        self.lanes[number].outlet
    }

    /// The lane in whose line a message stands, adopted if it is new; `None` if the message stands in no line.
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
        let is_busy = |number: LaneNumber| self.lanes.get(number).is_some_and(|known| known.lane.is_busy());
        let number = step.lane_number(&LaneName { namespace, destination, ordering }, is_busy);
        self.adopt(number, &step.lane(number).name, destinations);
        Some(number)
    }

    /// Gives a new lane its limits, weight and gate. Messages for an unknown destination wait until it is known.
    pub(super) fn adopt(&mut self, number: LaneNumber, name: &LaneName, destinations: &Destinations) {
        if self.lanes.get(number).is_some() {
            return;
        }
        let terms = terms_of(destinations, &name.destination);
        let mut lane =
            if name.ordering.is_ordered() { DestinationLane::ordered(NOTHING) } else { DestinationLane::new(NOTHING) };
        lane.set_limits(terms.map(|terms| terms.limits));
        if terms.is_none() {
            tracing::warn!(destination = %name.destination, "messages wait for a destination that is not known here");
        }
        let weight = terms.map_or(INCAPABLE_WEIGHT, |terms| terms.weight);
        lane.set_gate(self.gates.of(name));
        let of_namespace = self.weights.get(&name.namespace).copied().unwrap_or(NAMESPACE_WEIGHT);
        let outlet = self.outlets.adopt(name, circuit_policy(terms.as_ref()), of_namespace);
        let adopted =
            self.lanes.push(ScheduledLane { lane, outlet, holds: false, unserved_since: None, failing_since: None });
        assert_eq!(adopted, number, "lanes are numbered one by one");
        self.outlets.add(outlet, number);
        self.drr.set_group_weight(name.namespace.clone(), of_namespace);
        self.drr.set_family_weight(&name.namespace, outlet, weight);
        self.drr.add(outlet, number);
    }

    /// Decides for every lane that the step touched when it is ready and whether it is active.
    pub(super) fn refresh(&mut self, step: &mut Step<'_>, now: Timestamp) {
        for number in step.touched() {
            let ScheduledLane { lane, outlet, holds, .. } = &mut self.lanes[number];
            let now_holds = step.lane(number).pending() > 0 || lane.is_busy();
            if std::mem::replace(holds, now_holds) != now_holds {
                self.outlets.holds(*outlet, now_holds);
            }
            let held = self.held_itself(number);
            let next = match held {
                // Only a change of the lane ends these.
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

    /// Activates lanes that have become ready by `earliest`.
    pub(super) fn discover(&mut self, index: &Index, earliest: Timestamp, signals: &Signals) -> Discovered {
        // If time was set back, lanes that were found ready are found again when their time comes again.
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
        if found.stopped_early { Discovered::Part } else { Discovered::All { next_at: found.next_at } }
    }
}
