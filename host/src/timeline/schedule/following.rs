//! Destinations and gates that change while a shard is owned, and what its lanes may do from then on.
//!
//! Messages in flight still count. A lane whose destination is gone has no new claims; a lane whose destination has
//! come back is served again. The lines that messages stand in are not decided here: if a change would move messages
//! between lines, the index is built again.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CIRCUIT, Index, LaneNumber, OutletNumber, Schedule, ScheduledLane, Step};
use crate::lanes::CircuitPolicy;
use crate::model::destination::{Destination, Destinations, Terms};
use crate::model::destination_lane::{Gate, Ordering};
use crate::model::time::Timestamp;
use crate::timeline::gates::Gates;

/// The share of a lane whose destination this host cannot call; it is never served.
pub(super) const INCAPABLE_WEIGHT: u32 = 1;

/// The policy of the circuit of a destination with these terms.
pub(super) fn circuit_policy(terms: Option<&Terms>) -> CircuitPolicy {
    let ramp_messages = terms.map_or(CIRCUIT.ramp_messages, |terms| terms.limits.messages.max(1));
    CircuitPolicy { ramp_messages, ..CIRCUIT }
}

/// Outlets whose destinations were changed, and that have not been told yet, with all of their lanes.
#[derive(Debug, Default)]
pub(in crate::timeline) struct Changes {
    /// By outlet, whether its destination is called elsewhere now.
    outlets: BTreeMap<OutletNumber, bool>,
    /// The outlet whose lanes are being told, and the next one of them.
    lanes_of: Option<(OutletNumber, usize)>,
}

impl Changes {
    /// Whether everybody has been told.
    pub(in crate::timeline) fn is_empty(&self) -> bool {
        self.outlets.is_empty() && self.lanes_of.is_none()
    }
}

impl Schedule {
    /// Whether messages that stand in lanes, or are under way, would stand in other ones by what is said now. Where no
    /// order was kept, some may have been set aside, which no lane shows: there, that messages were met is enough.
    pub(in crate::timeline) fn is_reordered(&self, index: &Index, now: &Destinations) -> bool {
        index.reordered(now).any(|(destination, was)| {
            self.outlets.destination_holds(destination).is_some_and(|holds| holds || *was == Ordering::None)
        })
    }

    /// Takes note of destinations that were changed: their outlets are to be told.
    pub(in crate::timeline) fn note_changes(&self, changes: &mut Changes, before: &Destinations, now: &Destinations) {
        for (destination, outlets) in self.outlets.by_destination() {
            let (is, was) = (now.get(destination), before.get(destination));
            if is == was {
                continue;
            }
            let is_elsewhere = is.map(|destination| &destination.url) != was.map(|destination| &destination.url);
            for outlet in outlets {
                *changes.outlets.entry(*outlet).or_default() |= is_elsewhere;
            }
        }
    }

    /// Gives outlets and lanes, up to `told_max`, the limits, weights and policies of destinations that have changed.
    /// Returns how many that were.
    pub(in crate::timeline) fn tell_changes(
        &mut self,
        step: &mut Step<'_>,
        changes: &mut Changes,
        now: &Destinations,
        told_max: usize,
        at: Timestamp,
    ) -> usize {
        let mut told = 0;
        while told < told_max {
            let (outlet, from) = match changes.lanes_of.take() {
                Some(lanes_of) => lanes_of,
                None => {
                    let Some((outlet, is_elsewhere)) = changes.outlets.pop_first() else { break };
                    self.tell_outlet(outlet, is_elsewhere, now, at);
                    told += 1;
                    (outlet, 0)
                }
            };
            let limits = now.get(self.outlets.destination(outlet)).map(|destination| destination.limits);
            let lanes = self.outlets.lanes(outlet);
            let until = lanes.len().min(from + (told_max - told));
            for number in &lanes[from..until] {
                self.lanes[*number].lane.set_limits(limits);
                step.touch(*number);
            }
            told += until - from;
            changes.lanes_of = (until < lanes.len()).then_some((outlet, until));
        }
        told
    }

    fn tell_outlet(&mut self, outlet: OutletNumber, is_elsewhere: bool, now: &Destinations, at: Timestamp) {
        let terms = now.get(self.outlets.destination(outlet)).map(Destination::terms);
        if terms.is_none() {
            self.outlets.shuts(outlet);
        }
        self.outlets.change(outlet, &mut self.drr, at, |outlet| {
            outlet.set_policy(circuit_policy(terms.as_ref()));
            if is_elsewhere {
                outlet.begin_anew();
            }
        });
        let weight = terms.map_or(INCAPABLE_WEIGHT, |terms| terms.weight);
        self.drr.set_family_weight(self.outlets.namespace(outlet), outlet, weight);
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
