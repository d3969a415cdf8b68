//! Destinations and gates that change while a shard is owned, and what its lanes may do from then on.
//!
//! Messages in flight still count. A lane whose destination is gone has no new claims; a lane whose destination has
//! come back is served again. The lines that messages stand in are not decided here: if a change would move messages
//! between lines, the index is built again.

use std::sync::Arc;

use super::{CIRCUIT, LaneNumber, Schedule, ScheduledLane, Step};
use crate::lanes::CircuitPolicy;
use crate::model::destination::{Destination, Destinations, Terms};
use crate::model::destination_lane::{Gate, Ordering};
use crate::model::time::Timestamp;
use crate::timeline::gates::Gates;
use crate::timeline::index::Lane;

/// The share of a lane whose destination this host cannot call; it is never served.
pub(super) const INCAPABLE_WEIGHT: u32 = 1;

/// The policy of the circuit of a destination with these terms.
pub(super) fn circuit_policy(terms: Option<&Terms>) -> CircuitPolicy {
    let ramp_messages = terms.map_or(CIRCUIT.ramp_messages, |terms| terms.limits.messages.max(1));
    CircuitPolicy { ramp_messages, ..CIRCUIT }
}

impl Schedule {
    /// Whether messages that wait or are in flight would stand in other lanes by the destinations `now`. A lane without
    /// order counts even if it is empty, for messages of it may have been set aside, which no lane shows.
    pub(in crate::timeline) fn is_reordered(&self, lanes: &[Lane], before: &Destinations, now: &Destinations) -> bool {
        lanes.iter().zip(self.lanes.as_slice()).any(|(lane, scheduled)| {
            let destination = &lane.name.destination;
            let was = before.ordering_of(destination);
            let holds = lane.pending() > 0 || scheduled.lane.is_busy() || was == Ordering::None;
            holds && !lane.is_vacant && was != now.ordering_of(destination)
        })
    }

    /// Gives lanes the limits, weights and policies of destinations that have changed.
    pub(in crate::timeline) fn set_destinations(
        &mut self,
        step: &mut Step<'_>,
        before: &Arc<Destinations>,
        now: &Arc<Destinations>,
        lanes: &[LaneNumber],
        at: Timestamp,
    ) {
        for number in lanes {
            let name = step.lane(*number).name.clone();
            let (is, was) = (now.get(&name.destination), before.get(&name.destination));
            if is == was {
                continue;
            }
            let terms = is.map(Destination::terms);
            let ScheduledLane { lane, outlet, .. } = &mut self.lanes[*number];
            lane.set_limits(terms.map(|terms| terms.limits));
            let outlet = *outlet;
            if is.is_none() {
                self.outlets.shuts(outlet);
            }
            let is_moved = is.map(|destination| &destination.url) != was.map(|destination| &destination.url);
            self.outlets.change(outlet, &mut self.drr, at, |outlet| {
                outlet.set_policy(circuit_policy(terms.as_ref()));
                if is_moved {
                    outlet.begin_anew();
                }
            });
            let weight = terms.map_or(INCAPABLE_WEIGHT, |terms| terms.weight);
            self.drr.set_family_weight(&name.namespace, outlet, weight);
            step.touch(*number);
        }
    }

    /// Sets the gates for lanes that are met from now on.
    pub(in crate::timeline) fn set_gates(&mut self, gates: Arc<Gates>) {
        self.gates = gates;
    }

    /// Sets the gates of `lanes_max` lanes from number `from` on. Returns how many lanes that are, and the next one, if
    /// there are more.
    pub(in crate::timeline) fn take_gates(
        &mut self,
        step: &mut Step<'_>,
        from: LaneNumber,
        lanes_max: usize,
    ) -> (usize, Option<LaneNumber>) {
        let mut looked = 0;
        for (number, ScheduledLane { lane, outlet, .. }) in self.lanes.iter_mut_from(from) {
            if looked == lanes_max {
                return (looked, Some(number));
            }
            looked += 1;
            let gate = self.gates.of(&step.lane(number).name);
            if lane.gate() != gate {
                if lane.gate() == Gate::Open {
                    self.outlets.shuts(*outlet);
                }
                lane.set_gate(gate);
                step.touch(number);
            }
        }
        (looked, None)
    }
}
