//! Destinations that change while a shard is owned: what its lanes may do from then on.
//!
//! What is in flight counts on. Of a lane whose destination is gone nothing is claimed any more; of one whose
//! destination has come, what waited is. Which messages stand in which line is not decided here: where that changes, and
//! messages stand in such lines, the index is built again.

use std::sync::Arc;

use super::{CIRCUIT, LaneNumber, Schedule, Step};
use crate::lanes::CircuitPolicy;
use crate::model::destination::{Destinations, Terms, terms_of};
use crate::timeline::index::Lane;

/// The share of a lane whose destination nobody can call; it is never served.
pub(super) const INCAPABLE_WEIGHT: u32 = 1;

/// When a destination with these terms is left alone, and how it is trusted again.
pub(super) fn circuit_policy(terms: Option<&Terms>) -> CircuitPolicy {
    let ramp_messages = terms.map_or(CIRCUIT.ramp_messages, |terms| terms.limits.messages.max(1));
    CircuitPolicy { ramp_messages, ..CIRCUIT }
}

/// Whether messages that stand in one of these lanes, or are under way, would stand in another one by what is said now.
pub(in crate::timeline) fn is_reordered<'a>(
    mut lanes: impl Iterator<Item = &'a Lane>,
    before: &Destinations,
    now: &Destinations,
) -> bool {
    lanes.any(|lane| {
        let destination = &lane.name.destination;
        !lane.is_vacant && before.ordering_of(destination) != now.ordering_of(destination)
    })
}

impl Schedule {
    /// Takes up destinations that were changed: lanes have their limits, weights and policies from now on.
    pub(in crate::timeline) fn set_destinations(
        &mut self,
        step: &mut Step<'_>,
        before: &Arc<Destinations>,
        now: &Arc<Destinations>,
        lanes: &[LaneNumber],
    ) {
        for number in lanes {
            let name = step.lane(*number).name.clone();
            let terms = terms_of(now, &name.destination);
            if terms == terms_of(before, &name.destination) {
                continue;
            }
            self.lanes[number.0 as usize].set_limits(terms.map(|terms| terms.limits));
            let outlet = self.outlet_of[number.0 as usize];
            self.outlets[outlet].outlet.set_policy(circuit_policy(terms.as_ref()));
            let weight = terms.map_or(INCAPABLE_WEIGHT, |terms| terms.weight);
            self.drr.set_weight(&name.namespace, *number, weight);
            step.touch(*number);
        }
    }
}
