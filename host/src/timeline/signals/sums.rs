//! Sums over the lanes of a shard.

use std::collections::BTreeMap;
use std::time::Duration;

use super::LANES_NAMED_MAX;
use crate::lanes::{Circuit, Held};
use crate::model::time::Timestamp;
use crate::timeline::index::Lane;
use crate::timeline::keys::LaneNumber;
use crate::timeline::schedule::{OutletNumber, Schedule};

/// Sums over lanes.
#[derive(Debug)]
pub(in crate::timeline) struct LaneSums {
    /// The sums of outlets: the lanes of one namespace to one destination.
    named: BTreeMap<OutletNumber, Named>,
    other: Option<Waiting>,
    pub(super) reasons: BTreeMap<Held, HeldBack>,
    pub(super) circuits: BTreeMap<&'static str, u32>,
    /// The longest time that a lane has had nothing but failures.
    failing_for: Duration,
}

/// Lanes against which one reason stands first, and the messages in their lines, due or not.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HeldBack {
    pub lanes: u32,
    pub messages: u64,
}

/// Messages that wait, and messages in flight.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Waiting {
    pub pending: u64,
    pub in_flight: u32,
}

#[derive(Debug)]
struct Named {
    namespace: String,
    destination: String,
    waiting: Waiting,
}

impl Default for LaneSums {
    fn default() -> Self {
        Self {
            named: BTreeMap::new(),
            other: None,
            reasons: Held::ALL.into_iter().map(|reason| (reason, HeldBack::default())).collect(),
            circuits: Circuit::WORDS.into_iter().map(|word| (word, 0)).collect(),
            failing_for: Duration::ZERO,
        }
    }
}

impl LaneSums {
    /// Adds a lane. `held` is the reason why the whole shard sends nothing, if so.
    pub(in crate::timeline) fn add(
        &mut self,
        number: LaneNumber,
        lane: &Lane,
        schedule: &Schedule,
        held: Option<Held>,
        now: Timestamp,
    ) {
        *self.circuits.entry(schedule.circuit(number).as_str()).or_default() += 1;
        // A message behind such a head may have been due for long.
        let behind = (lane.waits_for_its_head() && lane.pending() > 1).then_some(Held::OrderingHead);
        let backs_off = lane.head_backs_off(now).then_some(Held::RetryBackoff);
        let is_eligible = lane.eligible_from().is_some_and(|from| from <= now);
        if is_eligible || behind.is_some() || backs_off.is_some() {
            let reasons = [schedule.held(number, now), behind, held, backs_off, Some(Held::Fairness)];
            let first = reasons.into_iter().flatten().min().unwrap_or(Held::Fairness);
            let of_reason = self.reasons.entry(first).or_default();
            of_reason.lanes += 1;
            of_reason.messages += lane.pending();
        }
        if let Some(since) = schedule.failing_since(number) {
            self.failing_for = self.failing_for.max(now.since(since));
        }
        let waiting = self.waiting_of(schedule.outlet_of(number), lane);
        waiting.pending += lane.pending();
        waiting.in_flight += schedule.lane(number).in_flight_messages();
    }

    fn waiting_of(&mut self, outlet: OutletNumber, lane: &Lane) -> &mut Waiting {
        if self.named.len() >= LANES_NAMED_MAX && !self.named.contains_key(&outlet) {
            return self.other.get_or_insert_default();
        }
        let named = self.named.entry(outlet).or_insert_with(|| Named {
            namespace: lane.name.namespace.as_str().to_owned(),
            destination: lane.name.destination.as_str().to_owned(),
            waiting: Waiting::default(),
        });
        &mut named.waiting
    }

    /// The longest time that a lane has had nothing but failures.
    pub(super) fn failing_for(&self) -> Duration {
        self.failing_for
    }

    /// The sums by namespace and destination; those that are not told apart are `other`.
    pub(super) fn waiting(&self) -> BTreeMap<(&str, &str), Waiting> {
        let named = self.named.values().map(|named| {
            let Named { namespace, destination, waiting } = named;
            ((namespace.as_str(), destination.as_str()), *waiting)
        });
        named.chain(self.other.map(|other| (("other", "other"), other))).collect()
    }
}
