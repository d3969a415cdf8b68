//! Which of a shard's lanes are served next: their states, their turns, and which of them time has made ready.
//!
//! A lane becomes active when its READY key's time comes, found by one walk that never goes over the same keys twice, or
//! when something about it changes and that time has come already. It leaves when its line is empty or its head not due,
//! and when it may not send.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::database::Broken;
use super::gates::Gates;
use super::index::{Index, Step};
use super::keys::LaneNumber;
use super::signals::Signals;
use super::values::stands;
use crate::lanes::{Beginning, CircuitPolicy, DestinationLane, Held, MESSAGES, TurnLimits, TwoLevelDrr};
use crate::model::destination::{Destinations, terms_of};
use crate::model::destination_lane::{LaneName, Ordering};
use crate::model::message::MessageEntry;
use crate::model::names::Namespace;
use crate::model::time::Timestamp;

/// What a turn hands to the publisher at the most. Turns are short so that outcomes and the feed are never far behind.
pub(super) const TURN_MESSAGES_MAX: u32 = 256;
const TURN_BYTES_MAX: u64 = 16 << 20;
const TURN_VISITS_MAX: u32 = 1_024;
/// How long a turn claims at the most: outcomes and the feed wait meanwhile.
pub(super) const TURN_TIME_MAX: Duration = Duration::from_millis(10);
/// The share of a namespace that is not weighed.
const NAMESPACE_WEIGHT: u32 = 1;
/// READY keys that are read in one go.
const DISCOVERED_MAX: usize = 256;

/// When a destination is left alone, and how it is tried again.
const CIRCUIT: CircuitPolicy = CircuitPolicy {
    failures_to_open: 10,
    open_initial: Duration::from_secs(1),
    open_max: Duration::from_secs(60),
    probes_max: 1,
    successes_to_close: 2,
    // Each lane's own limit ends its ramp.
    ramp_messages: u32::MAX,
};

pub(super) const TURN: TurnLimits =
    TurnLimits { items_max: TURN_MESSAGES_MAX, cost_max: TURN_BYTES_MAX, visits_max: TURN_VISITS_MAX };

/// The lanes of a shard, as far as they are not in the index.
pub(super) struct Schedule {
    lanes: Vec<DestinationLane>,
    /// Since when each lane has been active and not been served.
    unserved_since: Vec<Option<Timestamp>>,
    gates: Arc<Gates>,
    weights: Arc<BTreeMap<Namespace, u32>>,
    /// Namespaces, and the lanes of each: a tenant with many lanes gets no more than one with few.
    pub drr: TwoLevelDrr<Namespace, LaneNumber>,
    /// READY keys up to here have been found.
    cursor: (Timestamp, LaneNumber),
}

impl Schedule {
    /// Takes up the lanes of an index.
    pub(super) fn new(weights: Arc<BTreeMap<Namespace, u32>>) -> Self {
        let start = (Timestamp::from_millis(i64::MIN), LaneNumber(0));
        let gates = Arc::default();
        Self {
            lanes: Vec::new(),
            unserved_since: Vec::new(),
            gates,
            weights,
            drr: TwoLevelDrr::new(MESSAGES, Beginning::FirstPass),
            cursor: start,
        }
    }

    /// A lane, which must have been adopted.
    pub(super) fn lane(&mut self, number: LaneNumber) -> &mut DestinationLane {
        &mut self.lanes[number.0 as usize]
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

    fn activate(&mut self, number: LaneNumber, now: Timestamp) {
        self.unserved_since[number.0 as usize].get_or_insert(now);
        self.drr.activate(number);
    }

    /// The lane in whose line a message stands, which is adopted if it is met for the first time; `None` if it stands in none,
    /// for which no lane is made.
    pub(super) fn lane_of(
        &mut self,
        step: &mut Step<'_>,
        row: &MessageEntry,
        destinations: &Destinations,
    ) -> Option<LaneNumber> {
        let ordering = terms_of(destinations, &row.destination).map_or(Ordering::None, |terms| terms.ordering);
        let (namespace, destination) = (row.namespace.clone(), row.destination.clone());
        let ordering = ordering.domain(row.ordering_key.as_deref());
        if !stands(row.state, ordering.is_ordered()) {
            return None;
        }
        let number = step.lane_number(&LaneName { namespace, destination, ordering });
        self.adopt(number, &step.lane(number).name, destinations);
        Some(number)
    }

    /// Gives a lane its limits, weight and gate, unless it has them. What waits for a destination that is not configured goes
    /// on waiting.
    pub(super) fn adopt(&mut self, number: LaneNumber, name: &LaneName, destinations: &Destinations) {
        if (number.0 as usize) < self.lanes.len() {
            return;
        }
        assert_eq!(number.0 as usize, self.lanes.len(), "lanes are numbered one by one");
        let (mut lane, weight) = match terms_of(destinations, &name.destination) {
            Some(terms) if name.ordering.is_ordered() => {
                (DestinationLane::ordered(terms.limits, CIRCUIT), terms.weight)
            }
            Some(terms) => (DestinationLane::new(terms.limits, CIRCUIT), terms.weight),
            None => {
                tracing::warn!(destination = %name.destination, "messages wait for a destination that is not configured");
                (DestinationLane::incapable(CIRCUIT), 1)
            }
        };
        lane.set_gate(self.gates.of(name));
        self.lanes.push(lane);
        self.unserved_since.push(None);
        let of_namespace = self.weights.get(&name.namespace).copied().unwrap_or(NAMESPACE_WEIGHT);
        self.drr.set_group_weight(name.namespace.clone(), of_namespace);
        self.drr.set_weight(&name.namespace, number, weight);
    }

    /// Takes up gates that were set: every lane's gate is as they say.
    pub(super) fn set_gates(&mut self, step: &mut Step<'_>, gates: Arc<Gates>, lanes: &[LaneNumber]) {
        for number in lanes {
            self.lanes[number.0 as usize].set_gate(gates.of(&step.lane(*number).name));
            step.touch(*number);
        }
        self.gates = gates;
    }

    /// Decides anew, for every lane that the step touched, when it is ready and whether it is active.
    pub(super) fn refresh(&mut self, step: &mut Step<'_>, now: Timestamp) {
        for number in step.touched() {
            let lane = &self.lanes[number.0 as usize];
            let held = lane.held(now);
            let next = match held {
                // Nothing but a change of the lane opens these.
                Some(Held::LaneClosed | Held::LanePaused | Held::OrderingHead | Held::Capability) => None,
                Some(_) | None => {
                    step.lane(number).eligible_from().map(|from| from.max(lane.reopens_at(now).unwrap_or(from)))
                }
            };
            step.set_ready(number, next);
            match next {
                Some(at) if held.is_none() && (at, number) <= self.cursor => self.activate(number, now),
                Some(_) | None => self.deactivate(number),
            }
        }
    }

    /// Activates the lanes that have become ready by `earliest`. Says when the next will, and whether some were left for
    /// another time.
    pub(super) fn discover(
        &mut self,
        index: &Index,
        earliest: Timestamp,
        signals: &Signals,
    ) -> Result<(Option<Timestamp>, bool), Broken> {
        // Time that was set back: what was found ready is found again when its time comes again.
        self.cursor = self.cursor.min((earliest, LaneNumber(u32::MAX)));
        let found = index.ready(self.cursor, earliest, DISCOVERED_MAX)?;
        for (at, number) in &found.items {
            if self.lanes[number.0 as usize].held(earliest).is_none() {
                self.activate(*number, earliest);
                signals.discovered(earliest.since(*at));
            }
        }
        self.cursor = match found.items.last() {
            Some(last) if found.stopped_early => *last,
            Some(_) | None => (earliest, LaneNumber(u32::MAX)),
        };
        Ok((found.next_at, found.stopped_early))
    }
}
