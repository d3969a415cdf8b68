//! Destinations and gates that change while a shard is owned: what its lanes may do from then on.
//!
//! What is in flight counts on. Of a lane whose destination is gone nothing is claimed any more; of one whose
//! destination has come, what waited is. Which messages stand in which line is not decided here: where that changes,
//! and messages stand in such lines, the index is built again.

use std::sync::Arc;

use super::{CIRCUIT, LaneNumber, Schedule, Step};
use crate::lanes::CircuitPolicy;
use crate::model::destination::{Destination, Destinations, Terms};
use crate::model::destination_lane::{Gate, Ordering};
use crate::model::time::Timestamp;
use crate::timeline::gates::Gates;
use crate::timeline::index::Lane;

/// The share of a lane whose destination nobody can call; it is never served.
pub(super) const INCAPABLE_WEIGHT: u32 = 1;

/// When a destination with these terms is left alone, and how it is trusted again.
pub(super) fn circuit_policy(terms: Option<&Terms>) -> CircuitPolicy {
    let ramp_messages = terms.map_or(CIRCUIT.ramp_messages, |terms| terms.limits.messages.max(1));
    CircuitPolicy { ramp_messages, ..CIRCUIT }
}

impl Schedule {
    /// Whether messages that stand in lanes, or are under way, would stand in other ones by what is said now. Where no
    /// order was kept, some may have been set aside, which no lane shows: there, that messages were met is enough.
    pub(in crate::timeline) fn is_reordered(&self, lanes: &[Lane], before: &Destinations, now: &Destinations) -> bool {
        lanes.iter().zip(&self.lanes).any(|(lane, served)| {
            let destination = &lane.name.destination;
            let was = before.ordering_of(destination);
            let holds = lane.pending() > 0 || served.is_busy() || was == Ordering::None;
            holds && !lane.is_vacant && was != now.ordering_of(destination)
        })
    }

    /// Takes up destinations that were changed: lanes have their limits, weights and policies from now on.
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
            self.lanes[number.0 as usize].set_limits(terms.map(|terms| terms.limits));
            let outlet = self.outlet_of[number.0 as usize];
            self.outlets.outlet_mut(outlet).set_policy(circuit_policy(terms.as_ref()));
            if is.map(|destination| &destination.url) != was.map(|destination| &destination.url) {
                self.outlets.outlet_mut(outlet).begin_anew();
            }
            if is.is_none() {
                self.outlets.shuts(outlet);
            }
            self.outlets.reconsider(outlet, &mut self.drr, at);
            let weight = terms.map_or(INCAPABLE_WEIGHT, |terms| terms.weight);
            self.drr.set_family_weight(&name.namespace, outlet, weight);
            step.touch(*number);
        }
    }

    /// Gates that were set: those of lanes that are met from now on.
    pub(in crate::timeline) fn set_gates(&mut self, gates: Arc<Gates>) {
        self.gates = gates;
    }

    /// Has the gates of `lanes_max` lanes from number `from` on be as they were set. Says how many it looked at, and
    /// where to go on, if there are more.
    pub(in crate::timeline) fn take_gates(
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
                if lane.gate() == Gate::Open {
                    self.outlets.shuts(self.outlet_of[number.0 as usize]);
                }
                lane.set_gate(gate);
                step.touch(number);
            }
        }
        (looked, None)
    }
}
