//! The places in flight, and who gets the next one that is free.
//!
//! A place is for one message and its bytes. Shards that wait share places by deficit round robin, and so do the
//! destinations of each shard: one with much to send keeps none from another. One destination has at most half of all
//! places, whatever its lanes may have, so that one which does not answer leaves room for the others; what it has
//! waiting stands beside theirs, and never before it.
//!
//! Whoever takes places is alone with them: it gets all that are free, and so asks the store for many at once; side by
//! side they would be shared out one by one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::Gauge;
use tokio::sync::Notify;

use super::claim::{Claim, Latest};
use crate::lanes::{Beginning, Charge, MESSAGES, Turn, TurnLimits, TwoLevelDrr, message_cost};
use crate::model::destination::DESTINATION_PART;
use crate::model::names::DestinationName;
use crate::store::{ShardId, ShardLease};

/// Messages that are admitted in one call to the store.
const ADMISSIONS_PER_CALL_MAX: u32 = 256;
/// What they may be worth together.
const BYTES_PER_CALL_MAX: u64 = 16 << 20;
const TURN: TurnLimits =
    TurnLimits { items_max: ADMISSIONS_PER_CALL_MAX, cost_max: BYTES_PER_CALL_MAX, visits_max: u32::MAX };
/// Shards share alike, and so do destinations: lanes have had their shares before.
const WEIGHT: u32 = 1;

/// What may be between claim and outcome at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Places {
    /// Messages.
    pub(super) messages: usize,
    /// Their bodies and headers; one that is larger has all of it, and alone.
    pub(super) bytes: u64,
}

/// Claims of one lease, in the order in which they got their places.
pub(super) struct Group<C = Claim> {
    /// Under which they were claimed.
    pub(super) lease: ShardLease,
    /// What was known about the time when they were.
    pub(super) latest: Latest,
    /// The claims.
    pub(super) claims: VecDeque<C>,
}

/// The places, and the lines before them.
pub(super) struct Entrance {
    shared: Arc<Shared>,
    /// Held by the one that is taking places.
    taking: tokio::sync::Mutex<()>,
}

struct Shared {
    lines: Mutex<Lines<Claim>>,
    /// Something was given back.
    freed: Notify,
    in_flight: Gauge,
}

impl Entrance {
    pub(super) fn new(places: Places, in_flight: Gauge) -> Self {
        let shared = Shared { lines: Mutex::new(Lines::new(places)), freed: Notify::new(), in_flight };
        Self { shared: Arc::new(shared), taking: tokio::sync::Mutex::default() }
    }

    /// Claims stand in their shard's line.
    pub(super) fn wait(&self, group: Group) {
        self.shared.lines().push(group);
    }

    /// Waits for a place, then takes as many as are free, for the claims of the shard whose turn it is; `None` if no
    /// claim waits.
    pub(super) async fn take(&self) -> Option<Group> {
        let _alone = self.taking.lock().await;
        loop {
            {
                let mut lines = self.shared.lines();
                if let Some(mut group) = lines.take() {
                    for claim in &mut group.claims {
                        claim.enter(InFlight::new(Arc::clone(&self.shared), claim));
                    }
                    return Some(group);
                }
                if lines.waiting == 0 {
                    return None;
                }
            }
            self.shared.freed.notified().await;
        }
    }

    /// Claims of this lease that have no place yet settle as they came.
    pub(super) fn give_back(&self, lease: ShardLease) {
        let given_back = self.shared.lines().remove(lease);
        drop(given_back);
        self.shared.freed.notify_one();
    }
}

impl Shared {
    fn lines(&self) -> MutexGuard<'_, Lines<Claim>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the places between claim and outcome.
pub(super) struct InFlight {
    shared: Arc<Shared>,
    destination: DestinationName,
    bytes: u32,
}

impl InFlight {
    /// The place that was taken for a claim.
    fn new(shared: Arc<Shared>, claim: &Claim) -> Self {
        shared.in_flight.increment(1);
        Self { shared, destination: claim.message.destination.clone(), bytes: claim.message.bytes }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shared.in_flight.decrement(1);
        self.shared.lines().free(&self.destination, self.bytes);
        self.shared.freed.notify_one();
    }
}

/// What waits for a place.
trait Weighed {
    /// Its size.
    fn bytes(&self) -> u32;
    /// Where it goes.
    fn destination(&self) -> &DestinationName;
}

impl Weighed for Claim {
    fn bytes(&self) -> u32 {
        self.message.bytes
    }

    fn destination(&self) -> &DestinationName {
        &self.message.destination
    }
}

/// What waits, by shard and destination, and what has a place.
struct Lines<C> {
    places: Places,
    /// What one destination may have.
    of_destination_max: usize,
    messages: usize,
    bytes: u64,
    waiting: usize,
    /// By shard, and by the destinations of each. A line is active while somebody stands in it, unless it is among
    /// `full`.
    drr: TwoLevelDrr<ShardId, usize>,
    numbers: HashMap<(ShardId, DestinationName), usize>,
    lines: Vec<Line<C>>,
    destinations: HashMap<DestinationName, InFlightThere>,
}

/// What a shard has waiting for one destination.
struct Line<C> {
    shard: ShardId,
    destination: DestinationName,
    waiting: VecDeque<(ShardLease, Latest, C)>,
}

/// What is in flight to one destination.
#[derive(Default)]
struct InFlightThere {
    messages: usize,
    /// Lines that stand still because it has all that it may have.
    full: Vec<usize>,
}

impl<C: Weighed> Lines<C> {
    fn new(places: Places) -> Self {
        Self {
            places,
            of_destination_max: (places.messages / DESTINATION_PART).max(1),
            messages: 0,
            bytes: 0,
            waiting: 0,
            drr: TwoLevelDrr::new(MESSAGES, Beginning::Fresh),
            numbers: HashMap::new(),
            lines: Vec::new(),
            destinations: HashMap::new(),
        }
    }

    fn push(&mut self, group: Group<C>) {
        let shard = group.lease.shard;
        for claim in group.claims {
            let number = self.line_of(shard, claim.destination());
            self.lines[number].waiting.push_back((group.lease, group.latest, claim));
            self.waiting += 1;
            self.activate(number);
        }
    }

    /// The next claims that get places, all of one lease; `None` if there is no claim or no place for one.
    fn take(&mut self) -> Option<Group<C>> {
        let mut turn = TURN.begin();
        let mut taken: Option<Group<C>> = None;
        while let Some(number) = self.drr.next(&mut turn) {
            let is_of_another = taken.as_ref().is_some_and(|group| group.lease.shard != self.lines[number].shard);
            if is_of_another || !self.serve(number, &mut turn, &mut taken) {
                break;
            }
        }
        taken
    }

    /// Gives places to a line whose visit it is. `false` if nobody else is to be looked at now.
    fn serve(&mut self, number: usize, turn: &mut Turn, taken: &mut Option<Group<C>>) -> bool {
        loop {
            let Some((lease, latest, claim)) = self.lines[number].waiting.front() else {
                self.drr.deactivate(number);
                return true;
            };
            let (lease, latest, bytes) = (*lease, *latest, claim.bytes());
            if taken.as_ref().is_some_and(|group| group.lease.epoch != lease.epoch) || !self.has_place(bytes) {
                return false;
            }
            let there = self.destinations.entry(self.lines[number].destination.clone()).or_default();
            if there.messages >= self.of_destination_max {
                there.full.push(number);
                self.drr.deactivate(number);
                return true;
            }
            match self.drr.charge(turn, message_cost(bytes)) {
                Charge::Served => {}
                Charge::VisitOver => return true,
                Charge::TurnOver => return false,
            }
            there.messages += 1;
            self.messages += 1;
            self.bytes += self.accounted(bytes);
            self.waiting -= 1;
            let (_, _, claim) = self.lines[number].waiting.pop_front().expect("it was just looked at");
            let group = taken.get_or_insert_with(|| Group { lease, latest, claims: VecDeque::new() });
            group.latest = latest;
            group.claims.push_back(claim);
        }
    }

    /// A place is free again.
    fn free(&mut self, destination: &DestinationName, bytes: u32) {
        self.messages -= 1;
        self.bytes -= self.accounted(bytes);
        let there = self.destinations.get_mut(destination).expect("something is in flight to it");
        there.messages -= 1;
        for number in std::mem::take(&mut there.full) {
            self.activate(number);
        }
    }

    /// Takes out what waits under a lease.
    fn remove(&mut self, lease: ShardLease) -> Vec<C> {
        let is_its = |held: &ShardLease| (held.shard, held.epoch) == (lease.shard, lease.epoch);
        let mut removed = Vec::new();
        for line in &mut self.lines {
            if line.shard == lease.shard {
                let (its, others): (VecDeque<_>, VecDeque<_>) =
                    std::mem::take(&mut line.waiting).into_iter().partition(|(held, _, _)| is_its(held));
                line.waiting = others;
                removed.extend(its.into_iter().map(|(_, _, claim)| claim));
            }
        }
        self.waiting -= removed.len();
        removed
    }

    fn line_of(&mut self, shard: ShardId, destination: &DestinationName) -> usize {
        if let Some(number) = self.numbers.get(&(shard, destination.clone())) {
            return *number;
        }
        let number = self.lines.len();
        self.numbers.insert((shard, destination.clone()), number);
        self.lines.push(Line { shard, destination: destination.clone(), waiting: VecDeque::new() });
        self.drr.set_group_weight(shard, WEIGHT);
        self.drr.set_weight(&shard, number, WEIGHT);
        number
    }

    /// A line takes part, unless it waits for its destination.
    fn activate(&mut self, number: usize) {
        let there = self.destinations.get(&self.lines[number].destination);
        if there.is_none_or(|there| !there.full.contains(&number)) {
            self.drr.activate(number);
        }
    }

    fn has_place(&self, bytes: u32) -> bool {
        self.messages < self.places.messages && self.bytes + self.accounted(bytes) <= self.places.bytes
    }

    fn accounted(&self, bytes: u32) -> u64 {
        u64::from(bytes).min(self.places.bytes)
    }
}

#[cfg(test)]
mod tests;
