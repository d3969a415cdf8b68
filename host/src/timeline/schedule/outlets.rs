//! Outlets: what a tenant's lanes to one destination share, and what all lanes to one destination do.
//!
//! Invariant: an outlet is parked exactly while it is shut, its destination is closed, it stands in its destination's
//! queue uncalled, or it waits for bytes.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use crate::lanes::{Circuit, CircuitPolicy, Outlet, Queue, ThreeLevelDrr};
use crate::model::destination_lane::LaneName;
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;
use crate::publish::Seat;
use crate::timeline::keys::LaneNumber;

/// Among a shard's outlets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::timeline) struct OutletNumber(usize);

/// Who is served in whose turn.
type Turns = ThreeLevelDrr<Namespace, OutletNumber, LaneNumber>;

/// A tenant's outlet to a destination.
struct Shared {
    outlet: Outlet,
    namespace: Namespace,
    /// Its tenant's, beside other tenants.
    weight: u32,
    destination: usize,
    /// Its circuit, or what its destination asked for, lets nothing more through.
    is_shut: bool,
    /// When that was over last.
    open_since: Timestamp,
    waits_for_bytes: bool,
    /// Whether it has work and is not parked.
    is_active: bool,
    lanes: Vec<LaneNumber>,
    /// How many of its lanes have messages that wait, or are under way.
    holding: usize,
}

/// What all lanes to one destination share.
struct There {
    name: DestinationName,
    outlets: Vec<OutletNumber>,
    /// Messages that are claimed.
    claimed: usize,
    /// How many more there may be, as far as was known when the queue was looked at, for those who stand in it.
    room: usize,
    /// Outlets that are active.
    active: usize,
    queue: Queue<OutletNumber>,
    /// The outlet that is looked at first when it is served beside the turns.
    next: usize,
    /// Nothing more is sent there by this owner.
    is_closed: bool,
}

/// The outlets of a shard, and their destinations.
pub(super) struct Outlets {
    outlets: Vec<Shared>,
    numbers: HashMap<(Namespace, DestinationName), OutletNumber>,
    there: Vec<There>,
    there_numbers: HashMap<DestinationName, usize>,
    /// How many messages of one destination may be claimed.
    claimed_max: usize,
    /// Destinations in whose queue somebody stands.
    queues: BTreeSet<usize>,
    /// Outlets that are shut, by when they open by themselves.
    opening: BTreeSet<(Timestamp, OutletNumber)>,
    /// Outlets that wait for bytes, in order.
    for_bytes: Vec<OutletNumber>,
    /// Destinations of which nothing is claimed and to which something may be sent, and the last one that was served.
    quiet: BTreeSet<usize>,
    quiet_served: usize,
    /// Outlets through which nothing may go any more, since somebody asked.
    shut: Vec<OutletNumber>,
}

impl Outlets {
    pub(super) fn new(claimed_max: usize) -> Self {
        Self {
            outlets: Vec::new(),
            numbers: HashMap::new(),
            there: Vec::new(),
            there_numbers: HashMap::new(),
            claimed_max: claimed_max.max(1),
            queues: BTreeSet::new(),
            opening: BTreeSet::new(),
            for_bytes: Vec::new(),
            quiet: BTreeSet::new(),
            quiet_served: 0,
            shut: Vec::new(),
        }
    }

    /// The outlet of a lane, made if it is met for the first time.
    pub(super) fn adopt(&mut self, name: &LaneName, policy: CircuitPolicy, weight: u32) -> OutletNumber {
        let next = OutletNumber(self.outlets.len());
        let number = *self.numbers.entry((name.namespace.clone(), name.destination.clone())).or_insert(next);
        if number == next {
            let next = self.there.len();
            let destination = *self.there_numbers.entry(name.destination.clone()).or_insert(next);
            if destination == next {
                let (name, queue) = (name.destination.clone(), Queue::default());
                let (claimed, room, active, next, is_closed) = (0, 0, 0, 0, false);
                self.there.push(There { name, outlets: Vec::new(), claimed, room, active, queue, next, is_closed });
            }
            self.there[destination].outlets.push(number);
            self.outlets.push(Shared {
                outlet: Outlet::new(policy),
                namespace: name.namespace.clone(),
                weight,
                destination,
                is_shut: false,
                open_since: Timestamp::from_millis(i64::MIN),
                waits_for_bytes: false,
                is_active: false,
                lanes: Vec::new(),
                holding: 0,
            });
        }
        number
    }

    /// A lane is its.
    pub(super) fn add(&mut self, number: OutletNumber, lane: LaneNumber) {
        self.outlets[number.0].lanes.push(lane);
    }

    pub(super) fn lanes(&self, number: OutletNumber) -> &[LaneNumber] {
        &self.outlets[number.0].lanes
    }

    pub(super) fn namespace(&self, number: OutletNumber) -> &Namespace {
        &self.outlets[number.0].namespace
    }

    /// One of its lanes has messages that wait, or are under way; or has none any more.
    pub(super) fn holds(&mut self, number: OutletNumber, holds: bool) {
        let holding = &mut self.outlets[number.0].holding;
        *holding = if holds { *holding + 1 } else { *holding - 1 };
    }

    /// Whether a lane of a destination has messages that wait, or are under way; `None` if it has no lane.
    pub(super) fn destination_holds(&self, destination: &DestinationName) -> Option<bool> {
        let there = &self.there[*self.there_numbers.get(destination)?];
        Some(there.outlets.iter().any(|number| self.outlets[number.0].holding > 0))
    }

    /// The destinations of all lanes, and the outlets to each.
    pub(super) fn by_destination(&self) -> impl Iterator<Item = (&DestinationName, &[OutletNumber])> {
        self.there.iter().map(|there| (&there.name, &there.outlets[..]))
    }

    pub(super) fn outlet(&self, number: OutletNumber) -> &Outlet {
        &self.outlets[number.0].outlet
    }

    /// Whoever changes it has it reconsidered.
    pub(super) fn outlet_mut(&mut self, number: OutletNumber) -> &mut Outlet {
        &mut self.outlets[number.0].outlet
    }

    pub(super) fn destination(&self, number: OutletNumber) -> &DestinationName {
        &self.there[self.outlets[number.0].destination].name
    }

    pub(super) fn has_claims(&self, number: OutletNumber) -> bool {
        self.there[self.outlets[number.0].destination].claimed > 0
    }

    /// Since when it has let messages through, as far as its destination is concerned.
    pub(super) fn open_since(&self, number: OutletNumber) -> Timestamp {
        self.outlets[number.0].open_since
    }

    /// Whether its destination has what it may, or it is others' turn to get more.
    pub(super) fn waits_for_room(&self, number: OutletNumber) -> bool {
        let there = &self.there[self.outlets[number.0].destination];
        there.claimed >= self.claimed_max || there.queue.waits(number)
    }

    /// Whether it may not be served now; then it is parked.
    pub(super) fn hold_back(&mut self, number: OutletNumber, turns: &mut Turns, now: Timestamp) -> bool {
        self.reconsider(number, turns, now);
        let there = &self.there[self.outlets[number.0].destination];
        if self.outlets[number.0].is_shut || there.is_closed {
            return true;
        }
        if there.claimed < self.claimed_max && there.queue.may(number) {
            return false;
        }
        self.wait_for_room(number, turns);
        true
    }

    /// Whether it is shut is decided anew.
    pub(super) fn reconsider(&mut self, number: OutletNumber, turns: &mut Turns, now: Timestamp) {
        let shared = &mut self.outlets[number.0];
        let is_shut = shared.outlet.room(now) == 0;
        let was_shut = std::mem::replace(&mut shared.is_shut, is_shut);
        if is_shut {
            if let Some(at) = shared.outlet.reopens_at(now) {
                self.opening.insert((at, number));
            }
            let is_left_alone =
                matches!(shared.outlet.circuit(), Circuit::Open { .. }) || shared.outlet.throttled_until(now).is_some();
            if !was_shut && is_left_alone {
                self.shut.push(number);
            }
        } else if was_shut {
            shared.open_since = now;
        }
        if is_shut != was_shut {
            self.follow(number, turns);
        }
    }

    /// Its lanes' gates let nothing through any more.
    pub(super) fn shuts(&mut self, number: OutletNumber) {
        self.shut.push(number);
    }

    /// A message was claimed.
    pub(super) fn claimed(&mut self, number: OutletNumber) {
        let destination = self.outlets[number.0].destination;
        self.there[destination].claimed += 1;
        if self.there[destination].claimed == 1 {
            self.quiet.remove(&destination);
        }
    }

    /// What was claimed got its place, which cost so much.
    pub(super) fn placed(&mut self, number: OutletNumber, cost: u64, turns: &mut Turns, now: Timestamp) {
        let destination = self.outlets[number.0].destination;
        let there = &mut self.there[destination];
        if !there.queue.is_empty() {
            there.room = there.room.saturating_sub(1);
            if !there.queue.took(number, cost, there.room) {
                self.follow(number, turns);
            }
            self.call(destination, turns);
        }
        self.reconsider(number, turns, now);
    }

    /// What was claimed is so no longer.
    pub(super) fn concluded(&mut self, number: OutletNumber) {
        let destination = self.outlets[number.0].destination;
        let there = &mut self.there[destination];
        there.claimed = there.claimed.checked_sub(1).expect("a message is concluded once");
        if there.claimed == 0 && there.active > 0 {
            self.quiet.insert(destination);
        }
    }

    pub(super) fn wait_for_room(&mut self, number: OutletNumber, turns: &mut Turns) {
        let destination = self.outlets[number.0].destination;
        self.there[destination].queue.wait(number);
        self.queues.insert(destination);
        self.follow(number, turns);
    }

    pub(super) fn wait_for_bytes(&mut self, number: OutletNumber, turns: &mut Turns) {
        if !std::mem::replace(&mut self.outlets[number.0].waits_for_bytes, true) {
            self.for_bytes.push(number);
        }
        self.follow(number, turns);
    }

    pub(super) fn for_bytes(&self, outlets_max: usize) -> Vec<OutletNumber> {
        self.for_bytes.iter().copied().take(outlets_max).collect()
    }

    /// Has those come first of whom these were not.
    pub(super) fn looked_for_bytes(&mut self, looked: &[OutletNumber]) {
        let still = looked.iter().filter(|number| self.outlets[number.0].waits_for_bytes).count();
        if still < self.for_bytes.len() {
            self.for_bytes.rotate_left(still);
        }
    }

    pub(super) fn has_bytes(&mut self, number: OutletNumber, turns: &mut Turns) {
        self.outlets[number.0].waits_for_bytes = false;
        self.for_bytes.retain(|waiting| *waiting != number);
        self.follow(number, turns);
    }

    pub(super) fn waits_for_others(&self) -> bool {
        !self.queues.is_empty() || !self.for_bytes.is_empty()
    }

    pub(super) fn opens_at(&self) -> Option<Timestamp> {
        self.opening.first().map(|(at, _)| *at)
    }

    /// Looks again at what time or room may have opened.
    pub(super) fn wake(&mut self, seat: &Seat, turns: &mut Turns, now: Timestamp) {
        while let Some((at, number)) = self.opening.first().copied()
            && at <= now
        {
            self.opening.remove(&(at, number));
            self.reconsider(number, turns, now);
        }
        let queues: Vec<usize> = self.queues.iter().copied().collect();
        for destination in queues {
            let there = &mut self.there[destination];
            let here = self.claimed_max.saturating_sub(there.claimed);
            there.room = if here == 0 { 0 } else { here.min(seat.room_there(&there.name)) };
            self.call(destination, turns);
        }
    }

    /// Has those go on in a destination's queue for whom there is room.
    fn call(&mut self, destination: usize, turns: &mut Turns) {
        let There { queue, room, is_closed, .. } = &mut self.there[destination];
        let outlets = &self.outlets;
        let weight = |number: OutletNumber| {
            let wants = !*is_closed && !outlets[number.0].is_shut && turns.has_work(number);
            wants.then_some(outlets[number.0].weight)
        };
        let called = queue.call(*room, weight);
        if queue.is_empty() {
            self.queues.remove(&destination);
        }
        called.into_iter().for_each(|number| self.follow(number, turns));
    }

    /// Whether nothing more is sent to its destination by this owner.
    pub(super) fn is_closed(&self, number: OutletNumber) -> bool {
        self.there[self.outlets[number.0].destination].is_closed
    }

    /// Nothing more is sent to a destination by this owner.
    pub(super) fn close(&mut self, destination: &DestinationName, turns: &mut Turns) {
        let Some(there) = self.there_numbers.get(destination).map(|number| &mut self.there[*number]) else { return };
        there.is_closed = true;
        for number in there.outlets.clone() {
            self.follow(number, turns);
        }
    }

    pub(super) fn quiet(&self) -> usize {
        self.quiet.len()
    }

    /// The next outlet of a destination of which nothing is claimed, by destinations in turn.
    pub(super) fn next_quiet(&mut self, left: &mut usize) -> Option<OutletNumber> {
        while *left > 0 {
            *left -= 1;
            let behind = (Bound::Excluded(self.quiet_served), Bound::Unbounded);
            let next = self.quiet.range(behind).next().or_else(|| self.quiet.first());
            let destination = *next?;
            self.quiet_served = destination;
            let there = &mut self.there[destination];
            let (count, from) = (there.outlets.len(), there.next);
            let found = (0..count).map(|place| (from + place) % count).find(|place| {
                let number = there.outlets[*place];
                self.outlets[number.0].is_active && there.queue.may(number)
            });
            if let Some(place) = found {
                there.next = (place + 1) % count;
                return Some(there.outlets[place]);
            }
        }
        None
    }

    pub(super) fn take_shut(&mut self) -> Vec<(Namespace, DestinationName)> {
        let mut shut = std::mem::take(&mut self.shut);
        shut.sort_unstable();
        shut.dedup();
        let name = |number: OutletNumber| {
            let Shared { namespace, destination, .. } = &self.outlets[number.0];
            (namespace.clone(), self.there[*destination].name.clone())
        };
        shut.into_iter().map(name).collect()
    }

    pub(super) fn is_parked(&self, number: OutletNumber) -> bool {
        self.outlets[number.0].waits_for_bytes || self.is_held(number)
    }

    pub(super) fn is_held(&self, number: OutletNumber) -> bool {
        let shared = &self.outlets[number.0];
        let there = &self.there[shared.destination];
        shared.is_shut || there.is_closed || there.queue.waits(number)
    }

    /// Whether it is parked, and whether its destination is quiet, is as it stands.
    pub(super) fn follow(&mut self, number: OutletNumber, turns: &mut Turns) {
        let is_parked = self.is_parked(number);
        let shared = &mut self.outlets[number.0];
        let there = &mut self.there[shared.destination];
        if is_parked {
            turns.park(number);
        } else {
            turns.unpark(number);
        }
        let is_active = !is_parked && turns.has_work(number);
        if std::mem::replace(&mut shared.is_active, is_active) != is_active {
            there.active = if is_active { there.active + 1 } else { there.active - 1 };
        }
        if there.active > 0 && there.claimed == 0 {
            self.quiet.insert(shared.destination);
        } else {
            self.quiet.remove(&shared.destination);
        }
    }
}
