//! Which of a shard's lanes are served next: their states, their turns, and which of them time has made ready.
//!
//! A lane becomes active when its time in READY comes, found by one walk that never goes over the same lanes twice, or
//! when something about it changes and that time has come already. It leaves when its line is empty or its head not
//! due, and when it may not send.
//!
//! Lanes share what their destinations are: a circuit and a backoff with those of their tenant, and with all of the
//! shard's how much may be claimed for one destination. A lane that another one stands in the way of there *waits*, and
//! is looked at again when there is room; until then it is in nobody's way.

mod following;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use self::following::{INCAPABLE_WEIGHT, circuit_policy};
use super::compared::Compared;
use super::gates::Gates;
use super::index::{Index, Step};
use super::keys::LaneNumber;
use super::signals::Signals;
use super::values::stands;
use crate::lanes::{
    Beginning, Circuit, CircuitPolicy, DestinationLane, Held, MESSAGES, Outlet, Permit, TurnLimits, TwoLevelDrr,
    Verdict,
};
use crate::model::destination::{Destinations, LaneLimits, terms_of};
use crate::model::destination_lane::LaneName;
use crate::model::message::MessageEntry;
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;

/// What a turn hands to the publisher at the most. Turns are short so that outcomes and the feed are never far behind.
pub(super) const TURN_MESSAGES_MAX: u32 = 256;
const TURN_BYTES_MAX: u64 = 16 << 20;
const TURN_VISITS_MAX: u32 = 1_024;
/// How long a turn claims at the most: outcomes and the feed wait meanwhile.
pub(super) const TURN_TIME_MAX: Duration = Duration::from_millis(10);
/// The share of a namespace that is not weighed.
const NAMESPACE_WEIGHT: u32 = 1;
/// Lanes of READY that are looked at in one go.
const DISCOVERED_MAX: usize = 256;
/// Lanes that waited for others and are looked at again in one go.
const WOKEN_MAX: usize = 256;

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

/// The lanes of a shard, as far as they are not in the index.
pub(super) struct Schedule {
    lanes: Vec<DestinationLane>,
    /// The outlet of each lane.
    outlet_of: Vec<usize>,
    outlets: Vec<SharedOutlet>,
    outlet_numbers: HashMap<(Namespace, DestinationName), usize>,
    /// Messages that are claimed, by destination, and how many of one there may be.
    claimed: Vec<usize>,
    claimed_max: usize,
    destination_numbers: HashMap<DestinationName, usize>,
    /// Lanes that wait for others of their outlet or destination, by outlet; none is empty.
    waiting: BTreeMap<usize, VecDeque<LaneNumber>>,
    is_waiting: Vec<bool>,
    /// Since when each lane has been active and not been served.
    unserved_since: Vec<Option<Timestamp>>,
    /// Since when each has had failures and no success, as far as this owner knows.
    failing_since: Vec<Option<Timestamp>>,
    /// How far their lines are known.
    pub compared: Compared,
    gates: Arc<Gates>,
    weights: Arc<BTreeMap<Namespace, u32>>,
    /// Namespaces, and the lanes of each: a tenant with many lanes gets no more than one with few.
    pub drr: TwoLevelDrr<Namespace, LaneNumber>,
    /// READY has been looked through up to here.
    cursor: (Timestamp, LaneNumber),
}

/// A tenant's outlet to a destination.
struct SharedOutlet {
    outlet: Outlet,
    /// The destination, among those of which claims are counted.
    destination: usize,
}

impl Schedule {
    /// No lanes yet. Of one destination, over all of its lanes, no more than `claimed_max` messages are claimed at
    /// once.
    pub(super) fn new(weights: Arc<BTreeMap<Namespace, u32>>, claimed_max: usize) -> Self {
        let start = (Timestamp::from_millis(i64::MIN), LaneNumber(0));
        let gates = Arc::default();
        Self {
            lanes: Vec::new(),
            outlet_of: Vec::new(),
            outlets: Vec::new(),
            outlet_numbers: HashMap::new(),
            claimed: Vec::new(),
            claimed_max: claimed_max.max(1),
            destination_numbers: HashMap::new(),
            waiting: BTreeMap::new(),
            is_waiting: Vec::new(),
            unserved_since: Vec::new(),
            failing_since: Vec::new(),
            compared: Compared::default(),
            gates,
            weights,
            drr: TwoLevelDrr::new(MESSAGES, Beginning::FirstPass),
            cursor: start,
        }
    }

    /// A lane, which must have been adopted.
    #[cfg(test)]
    pub(super) fn lane(&mut self, number: LaneNumber) -> &mut DestinationLane {
        &mut self.lanes[number.0 as usize]
    }

    /// The circuit of a lane's destination.
    pub(super) fn circuit(&self, number: LaneNumber) -> Circuit {
        self.outlet(number).outlet.circuit()
    }

    /// Until when a lane's destination asked to be left alone, if that is still to come.
    pub(super) fn throttled_until(&self, number: LaneNumber, now: Timestamp) -> Option<Timestamp> {
        self.outlet(number).outlet.throttled_until(now)
    }

    /// A lane's destination asked its tenant not to call before `until`.
    pub(super) fn back_off(&mut self, number: LaneNumber, until: Timestamp) {
        self.outlets[self.outlet_of[number.0 as usize]].outlet.back_off(until);
    }

    /// What stands against every message of a lane at `now`.
    pub(super) fn held(&self, number: LaneNumber, now: Timestamp) -> Option<Held> {
        let SharedOutlet { outlet, destination } = self.outlet(number);
        let of_destination = (self.claimed[*destination] >= self.claimed_max).then_some(Held::Capacity);
        let awaited = self.compared.is_awaited(number).then_some(Held::Recovering);
        [self.lanes[number.0 as usize].held(outlet, now), of_destination, awaited].into_iter().flatten().min()
    }

    /// Takes a permit for a message of a lane, or says what stands against it.
    pub(super) fn claim(&mut self, number: LaneNumber, bytes: u32, now: Timestamp) -> Result<Permit, Held> {
        let SharedOutlet { outlet, destination } = &mut self.outlets[self.outlet_of[number.0 as usize]];
        if self.claimed[*destination] >= self.claimed_max {
            return Err(Held::Capacity);
        }
        let permit = self.lanes[number.0 as usize].claim(outlet, bytes, now)?;
        self.claimed[*destination] += 1;
        Ok(permit)
    }

    /// Gives a permit back, with what its attempt said about the destination. The message is still claimed.
    pub(super) fn settle(&mut self, number: LaneNumber, permit: Permit, verdict: Verdict, now: Timestamp) {
        let SharedOutlet { outlet, .. } = &mut self.outlets[self.outlet_of[number.0 as usize]];
        self.lanes[number.0 as usize].settle(outlet, permit, verdict, now);
    }

    /// Takes over a message of a lane that an owner before this one claimed.
    pub(super) fn inherit(&mut self, number: LaneNumber) {
        self.lanes[number.0 as usize].inherit();
        let destination = self.outlet(number).destination;
        self.claimed[destination] += 1;
    }

    /// It is known what became of a message of a lane that was claimed or inherited.
    pub(super) fn conclude(&mut self, number: LaneNumber) {
        self.lanes[number.0 as usize].conclude();
        let destination = self.outlet(number).destination;
        self.claimed[destination] = self.claimed[destination].checked_sub(1).expect("a message is concluded once");
    }

    /// Whether nothing but its name is known of a lane.
    pub(super) fn is_idle(&self, number: LaneNumber) -> bool {
        !self.lanes[number.0 as usize].is_busy() && !self.is_waiting[number.0 as usize]
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

    /// Stands for the tenant's destination that a lane is of.
    pub(super) fn outlet_number(&self, number: LaneNumber) -> usize {
        self.outlet_of[number.0 as usize]
    }

    fn outlet(&self, number: LaneNumber) -> &SharedOutlet {
        &self.outlets[self.outlet_of[number.0 as usize]]
    }

    /// The lanes, in the order of their numbers.
    pub(super) fn lanes(&self) -> &[DestinationLane] {
        &self.lanes
    }

    /// A lane that is active was served. Says for how long it had been active, or not served.
    pub(super) fn served(&mut self, number: LaneNumber, now: Timestamp) -> Duration {
        let since = self.unserved_since[number.0 as usize].replace(now);
        since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// A lane has nothing to send, or may not.
    pub(super) fn deactivate(&mut self, number: LaneNumber) {
        self.unserved_since[number.0 as usize] = None;
        self.drr.deactivate(number);
    }

    /// A lane that is due, and has been found in READY, may not send. If that is not for a reason of its own, it
    /// waits until there is room: what its destination is changes without anything about the lane.
    pub(super) fn hold_back(&mut self, number: LaneNumber, now: Timestamp) {
        self.deactivate(number);
        if self.held(number, now) == Some(Held::Recovering) {
            return self.compared.want(number);
        }
        let lane = number.0 as usize;
        if !self.is_waiting[lane] && self.waits_for_others(number, now) {
            self.is_waiting[lane] = true;
            self.waiting.entry(self.outlet_of[lane]).or_default().push_back(number);
        }
    }

    /// Whether what stands in a lane's way is what it shares with others.
    fn waits_for_others(&self, number: LaneNumber, now: Timestamp) -> bool {
        match self.held(number, now) {
            Some(Held::CircuitOpen | Held::Throttled) => true,
            Some(Held::LaneFull | Held::Capacity) => self.room(self.outlet_of[number.0 as usize], now) == 0,
            Some(_) | None => false,
        }
    }

    /// How many more of an outlet may be claimed.
    fn room(&self, outlet: usize, now: Timestamp) -> usize {
        let SharedOutlet { outlet, destination } = &self.outlets[outlet];
        let of_destination = self.claimed_max.saturating_sub(self.claimed[*destination]);
        of_destination.min(usize::try_from(outlet.room(now)).unwrap_or(usize::MAX))
    }

    /// Has lanes that waited for others decided about anew, as many as there is room for. Says whether there are more.
    pub(super) fn wake(&mut self, step: &mut Step<'_>, now: Timestamp) -> bool {
        let mut left = WOKEN_MAX;
        let outlets: Vec<usize> = self.waiting.keys().copied().collect();
        for outlet in outlets {
            let room = self.room(outlet, now);
            let waiting = self.waiting.get_mut(&outlet).expect("it was just listed");
            let woken: Vec<LaneNumber> = waiting.drain(..waiting.len().min(room).min(left)).collect();
            if waiting.is_empty() {
                self.waiting.remove(&outlet);
            }
            left -= woken.len();
            for number in woken {
                self.is_waiting[number.0 as usize] = false;
                step.touch(number);
            }
        }
        self.waiting.keys().any(|outlet| self.room(*outlet, now) > 0)
    }

    fn activate(&mut self, number: LaneNumber, now: Timestamp) {
        self.unserved_since[number.0 as usize].get_or_insert(now);
        self.drr.activate(number);
    }

    /// The lane in whose line a message stands, which is adopted if it is met for the first time; `None` if it stands
    /// in none, for which no lane is made.
    pub(super) fn lane_of(
        &mut self,
        step: &mut Step<'_>,
        row: &MessageEntry,
        destinations: &Destinations,
    ) -> Option<LaneNumber> {
        let ordering = destinations.ordering_of(&row.destination);
        let (namespace, destination) = (row.namespace.clone(), row.destination.clone());
        let ordering = ordering.domain(row.ordering_key.as_deref());
        if !stands(row.state, ordering.is_ordered()) {
            return None;
        }
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
        let outlet = self.adopt_outlet(name, circuit_policy(terms.as_ref()));
        self.outlet_of.push(outlet);
        self.is_waiting.push(false);
        self.unserved_since.push(None);
        self.failing_since.push(None);
        let of_namespace = self.weights.get(&name.namespace).copied().unwrap_or(NAMESPACE_WEIGHT);
        self.drr.set_group_weight(name.namespace.clone(), of_namespace);
        self.drr.set_weight(&name.namespace, number, weight);
    }

    fn adopt_outlet(&mut self, name: &LaneName, policy: CircuitPolicy) -> usize {
        let next = self.outlets.len();
        let number = *self.outlet_numbers.entry((name.namespace.clone(), name.destination.clone())).or_insert(next);
        if number == next {
            let next = self.claimed.len();
            let destination = *self.destination_numbers.entry(name.destination.clone()).or_insert(next);
            if destination == next {
                self.claimed.push(0);
            }
            self.outlets.push(SharedOutlet { outlet: Outlet::new(policy), destination });
        }
        number
    }

    /// Gates that were set: those of lanes that are met from now on.
    pub(super) fn set_gates(&mut self, gates: Arc<Gates>) {
        self.gates = gates;
    }

    /// Has the gates of `lanes_max` lanes from number `from` on be as they were set. Says how many it looked at, and
    /// where to go on, if there are more.
    pub(super) fn take_gates(
        &mut self,
        step: &mut Step<'_>,
        from: LaneNumber,
        lanes_max: usize,
    ) -> (usize, Option<LaneNumber>) {
        let mut looked = 0;
        for (number, lane) in (from.0..).map(LaneNumber).zip(self.lanes.iter_mut().skip(from.0 as usize)) {
            if looked == lanes_max {
                return (looked, Some(number));
            }
            looked += 1;
            let gate = self.gates.of(&step.lane(number).name);
            if lane.gate() != gate {
                lane.set_gate(gate);
                step.touch(number);
            }
        }
        (looked, None)
    }

    /// Decides anew, for every lane that the step touched, when it is ready and whether it is active.
    pub(super) fn refresh(&mut self, step: &mut Step<'_>, now: Timestamp) {
        for number in step.touched() {
            let held = self.held(number, now);
            let next = match held {
                // Nothing but a change of the lane opens these.
                Some(Held::LaneClosed | Held::LanePaused | Held::OrderingHead | Held::Capability) => None,
                Some(_) | None => {
                    let reopens_at = self.outlet(number).outlet.reopens_at(now);
                    step.lane(number).eligible_from().map(|from| from.max(reopens_at.unwrap_or(from)))
                }
            };
            step.set_ready(number, next);
            match next {
                Some(at) if held.is_none() && (at, number) <= self.cursor => self.activate(number, now),
                Some(at) if (at, number) <= self.cursor => self.hold_back(number, now),
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
                self.activate(*number, earliest);
                signals.discovered(earliest.since(*at));
            } else {
                self.hold_back(*number, earliest);
            }
        }
        self.cursor = match found.items.last() {
            Some(last) if found.stopped_early => *last,
            Some(_) | None => (earliest, LaneNumber(u32::MAX)),
        };
        (found.next_at, found.stopped_early)
    }
}
