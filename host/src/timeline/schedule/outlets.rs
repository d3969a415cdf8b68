//! Outlets: the state that the lanes of one namespace to one destination share, and the claims of all lanes to it.
//!
//! Invariant: an outlet is parked exactly while it is shut, its destination is closed, it waits uncalled in its
//! destination's queue, or it waits for bytes.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use crate::lanes::{Circuit, CircuitPolicy, Held, Outlet, Permit, Queue, ThreeLevelDrr};
use crate::model::destination_lane::LaneName;
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;
use crate::publish::Seat;
use crate::timeline::keys::LaneNumber;
use crate::timeline::numbered::{Number, Numbered};

/// The number of an outlet of the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::timeline) struct OutletNumber(usize);

/// The number of a destination of the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct DestinationNumber(usize);

impl Number for OutletNumber {
    fn of_position(position: usize) -> Self {
        Self(position)
    }

    fn position(self) -> usize {
        self.0
    }
}

impl Number for DestinationNumber {
    fn of_position(position: usize) -> Self {
        Self(position)
    }

    fn position(self) -> usize {
        self.0
    }
}

/// The turns of a shard's lanes.
type Turns = ThreeLevelDrr<Namespace, OutletNumber, LaneNumber>;

/// An outlet: one namespace to one destination.
struct OutletState {
    outlet: Outlet,
    namespace: Namespace,
    /// The share of its namespace.
    weight: u32,
    destination: DestinationNumber,
    /// Whether its circuit, or a pause that its destination asked for, lets nothing more through.
    is_shut: bool,
    /// The end of the last time that the outlet was shut.
    open_since: Timestamp,
    waits_for_bytes: bool,
    /// Whether the outlet has work and is not parked.
    is_active: bool,
    lanes: Vec<LaneNumber>,
    /// Lanes with messages that wait, or are in flight.
    holding: usize,
}

/// The state that all lanes to one destination share.
struct AtDestination {
    name: DestinationName,
    outlets: Vec<OutletNumber>,
    /// Messages that are claimed.
    claimed: usize,
    /// Room for further claims, as of the last look at the queue.
    room: usize,
    /// Outlets that are active.
    active: usize,
    queue: Queue<OutletNumber>,
    /// The position in `outlets` from which the next outlet is served out of turn.
    next: usize,
    /// Whether this owner sends nothing more there.
    is_closed: bool,
}

/// The outlets of a shard, and their destinations.
pub(super) struct Outlets {
    outlets: Numbered<OutletNumber, OutletState>,
    numbers: HashMap<(Namespace, DestinationName), OutletNumber>,
    destinations: Numbered<DestinationNumber, AtDestination>,
    by_name: HashMap<DestinationName, DestinationNumber>,
    /// Messages of one destination that may be claimed.
    claimed_max: usize,
    /// Destinations whose queue is not empty.
    queues: BTreeSet<DestinationNumber>,
    /// Outlets that are shut, by the time at which they open by themselves.
    opening: BTreeSet<(Timestamp, OutletNumber)>,
    /// Outlets that wait for bytes, in order.
    for_bytes: Vec<OutletNumber>,
    /// Destinations without claims that have active outlets.
    quiet: BTreeSet<DestinationNumber>,
    /// The destination that was served last out of turn.
    quiet_served: DestinationNumber,
    /// Outlets that were shut since the last call of `take_shut`.
    shut: Vec<OutletNumber>,
}

impl AtDestination {
    fn new(name: DestinationName) -> Self {
        let (outlets, queue) = (Vec::new(), Queue::default());
        Self { name, outlets, claimed: 0, room: 0, active: 0, queue, next: 0, is_closed: false }
    }
}

impl Outlets {
    pub(super) fn new(claimed_max: usize) -> Self {
        Self {
            outlets: Numbered::new(),
            numbers: HashMap::new(),
            destinations: Numbered::new(),
            by_name: HashMap::new(),
            claimed_max: claimed_max.max(1),
            queues: BTreeSet::new(),
            opening: BTreeSet::new(),
            for_bytes: Vec::new(),
            quiet: BTreeSet::new(),
            quiet_served: DestinationNumber(0),
            shut: Vec::new(),
        }
    }

    /// The outlet of a lane, made if it is new.
    pub(super) fn adopt(&mut self, name: &LaneName, policy: CircuitPolicy, weight: u32) -> OutletNumber {
        let next = self.outlets.next_number();
        let number = *self.numbers.entry((name.namespace.clone(), name.destination.clone())).or_insert(next);
        if number == next {
            let next = self.destinations.next_number();
            let destination = *self.by_name.entry(name.destination.clone()).or_insert(next);
            if destination == next {
                self.destinations.push(AtDestination::new(name.destination.clone()));
            }
            self.destinations[destination].outlets.push(number);
            self.outlets.push(OutletState {
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

    /// Adds a lane to an outlet.
    pub(super) fn add(&mut self, number: OutletNumber, lane: LaneNumber) {
        self.outlets[number].lanes.push(lane);
    }

    pub(super) fn lanes(&self, number: OutletNumber) -> &[LaneNumber] {
        &self.outlets[number].lanes
    }

    pub(super) fn namespace(&self, number: OutletNumber) -> &Namespace {
        &self.outlets[number].namespace
    }

    /// A lane of an outlet has messages that wait or are in flight, or has none any more.
    pub(super) fn holds(&mut self, number: OutletNumber, holds: bool) {
        let holding = &mut self.outlets[number].holding;
        *holding = if holds { *holding + 1 } else { *holding - 1 };
    }

    /// Whether messages of a destination wait or are in flight; `None` if it has no lane.
    pub(super) fn destination_holds(&self, destination: &DestinationName) -> Option<bool> {
        let at = &self.destinations[*self.by_name.get(destination)?];
        Some(at.outlets.iter().any(|number| self.outlets[*number].holding > 0))
    }

    /// The destinations of all lanes, and the outlets of each.
    pub(super) fn by_destination(&self) -> impl Iterator<Item = (&DestinationName, &[OutletNumber])> {
        self.destinations.as_slice().iter().map(|at| (&at.name, &at.outlets[..]))
    }

    pub(super) fn outlet(&self, number: OutletNumber) -> &Outlet {
        &self.outlets[number].outlet
    }

    /// Changes an outlet, and decides whether it is shut then.
    pub(super) fn change(
        &mut self,
        number: OutletNumber,
        turns: &mut Turns,
        now: Timestamp,
        change: impl FnOnce(&mut Outlet),
    ) {
        change(&mut self.outlets[number].outlet);
        self.reconsider(number, turns, now);
    }

    /// Takes a permit of an outlet, and counts the claim. Whether the outlet is shut by that is decided once the claim
    /// has its place, or is undone.
    pub(super) fn claim(
        &mut self,
        number: OutletNumber,
        take: impl FnOnce(&mut Outlet) -> Result<Permit, Held>,
    ) -> Result<Permit, Held> {
        let permit = take(&mut self.outlets[number].outlet)?;
        self.count_claim(number);
        Ok(permit)
    }

    /// Counts a claim that an earlier owner made.
    pub(super) fn inherit(&mut self, number: OutletNumber) {
        self.count_claim(number);
    }

    /// The state at an outlet's destination.
    fn at(&self, number: OutletNumber) -> &AtDestination {
        &self.destinations[self.outlets[number].destination]
    }

    pub(super) fn destination(&self, number: OutletNumber) -> &DestinationName {
        &self.at(number).name
    }

    pub(super) fn has_claims(&self, number: OutletNumber) -> bool {
        self.at(number).claimed > 0
    }

    /// The time since which an outlet has not been shut.
    pub(super) fn open_since(&self, number: OutletNumber) -> Timestamp {
        self.outlets[number].open_since
    }

    /// Whether an outlet's destination has all that it may, or other outlets have the turn to get more.
    pub(super) fn waits_for_room(&self, number: OutletNumber) -> bool {
        let at = self.at(number);
        at.claimed >= self.claimed_max || at.queue.waits(number)
    }

    /// Whether an outlet may not be served now; if so, it is parked.
    pub(super) fn hold_back(&mut self, number: OutletNumber, turns: &mut Turns, now: Timestamp) -> bool {
        self.reconsider(number, turns, now);
        let at = self.at(number);
        if self.outlets[number].is_shut || at.is_closed {
            return true;
        }
        if at.claimed < self.claimed_max && at.queue.may(number) {
            return false;
        }
        self.wait_for_room(number, turns);
        true
    }

    /// Decides whether an outlet is shut.
    pub(super) fn reconsider(&mut self, number: OutletNumber, turns: &mut Turns, now: Timestamp) {
        let state = &mut self.outlets[number];
        let is_shut = state.outlet.room(now) == 0;
        let was_shut = std::mem::replace(&mut state.is_shut, is_shut);
        if is_shut {
            if let Some(at) = state.outlet.reopens_at(now) {
                self.opening.insert((at, number));
            }
            let is_left_alone =
                matches!(state.outlet.circuit(), Circuit::Open { .. }) || state.outlet.throttled_until(now).is_some();
            if !was_shut && is_left_alone {
                self.shut.push(number);
            }
        } else if was_shut {
            state.open_since = now;
        }
        if is_shut != was_shut {
            self.follow(number, turns);
        }
    }

    /// The gates of an outlet's lanes let nothing through any more.
    pub(super) fn shuts(&mut self, number: OutletNumber) {
        self.shut.push(number);
    }

    fn count_claim(&mut self, number: OutletNumber) {
        let destination = self.outlets[number].destination;
        let at = &mut self.destinations[destination];
        at.claimed += 1;
        if at.claimed == 1 {
            self.quiet.remove(&destination);
        }
    }

    /// A claim got its place; `cost` is its message's.
    pub(super) fn placed(&mut self, number: OutletNumber, cost: u64, turns: &mut Turns, now: Timestamp) {
        let destination = self.outlets[number].destination;
        let at = &mut self.destinations[destination];
        if !at.queue.is_empty() {
            at.room = at.room.saturating_sub(1);
            if !at.queue.took(number, cost, at.room) {
                self.follow(number, turns);
            }
            self.call(destination, turns);
        }
        self.reconsider(number, turns, now);
    }

    /// A claim has ended.
    pub(super) fn concluded(&mut self, number: OutletNumber) {
        let destination = self.outlets[number].destination;
        let at = &mut self.destinations[destination];
        at.claimed = at.claimed.checked_sub(1).expect("a message is concluded once");
        if at.claimed == 0 && at.active > 0 {
            self.quiet.insert(destination);
        }
    }

    pub(super) fn wait_for_room(&mut self, number: OutletNumber, turns: &mut Turns) {
        let destination = self.outlets[number].destination;
        self.destinations[destination].queue.wait(number);
        self.queues.insert(destination);
        self.follow(number, turns);
    }

    pub(super) fn wait_for_bytes(&mut self, number: OutletNumber, turns: &mut Turns) {
        if !std::mem::replace(&mut self.outlets[number].waits_for_bytes, true) {
            self.for_bytes.push(number);
        }
        self.follow(number, turns);
    }

    pub(super) fn for_bytes(&self, outlets_max: usize) -> Vec<OutletNumber> {
        self.for_bytes.iter().copied().take(outlets_max).collect()
    }

    /// Moves the outlets that were looked at behind the others.
    pub(super) fn looked_for_bytes(&mut self, looked: &[OutletNumber]) {
        let still = looked.iter().filter(|number| self.outlets[**number].waits_for_bytes).count();
        if still < self.for_bytes.len() {
            self.for_bytes.rotate_left(still);
        }
    }

    pub(super) fn has_bytes(&mut self, number: OutletNumber, turns: &mut Turns) {
        self.outlets[number].waits_for_bytes = false;
        self.for_bytes.retain(|waiting| *waiting != number);
        self.follow(number, turns);
    }

    pub(super) fn waits_for_others(&self) -> bool {
        !self.queues.is_empty() || !self.for_bytes.is_empty()
    }

    pub(super) fn opens_at(&self) -> Option<Timestamp> {
        self.opening.first().map(|(at, _)| *at)
    }

    /// Looks again at outlets that time or room may have opened.
    pub(super) fn wake(&mut self, seat: &Seat, turns: &mut Turns, now: Timestamp) {
        while let Some((at, number)) = self.opening.first().copied()
            && at <= now
        {
            self.opening.remove(&(at, number));
            self.reconsider(number, turns, now);
        }
        let queues: Vec<DestinationNumber> = self.queues.iter().copied().collect();
        for destination in queues {
            let at = &mut self.destinations[destination];
            let here = self.claimed_max.saturating_sub(at.claimed);
            at.room = if here == 0 { 0 } else { here.min(seat.room_there(&at.name)) };
            self.call(destination, turns);
        }
    }

    /// Calls outlets in a destination's queue while there is room.
    fn call(&mut self, destination: DestinationNumber, turns: &mut Turns) {
        let AtDestination { queue, room, is_closed, .. } = &mut self.destinations[destination];
        let outlets = &self.outlets;
        let weight = |number: OutletNumber| {
            let wants = !*is_closed && !outlets[number].is_shut && turns.has_work(number);
            wants.then_some(outlets[number].weight)
        };
        let called = queue.call(*room, weight);
        if queue.is_empty() {
            self.queues.remove(&destination);
        }
        called.into_iter().for_each(|number| self.follow(number, turns));
    }

    /// Whether this owner sends nothing more to an outlet's destination.
    pub(super) fn is_closed(&self, number: OutletNumber) -> bool {
        self.at(number).is_closed
    }

    /// Sends nothing more to a destination as long as this owner has the shard.
    pub(super) fn close(&mut self, destination: &DestinationName, turns: &mut Turns) {
        let Some(number) = self.by_name.get(destination) else { return };
        let at = &mut self.destinations[*number];
        at.is_closed = true;
        for number in at.outlets.clone() {
            self.follow(number, turns);
        }
    }

    pub(super) fn quiet(&self) -> usize {
        self.quiet.len()
    }

    /// The next outlet of a destination without claims, by destinations in turn.
    pub(super) fn next_quiet(&mut self, left: &mut usize) -> Option<OutletNumber> {
        while *left > 0 {
            *left -= 1;
            let behind = (Bound::Excluded(self.quiet_served), Bound::Unbounded);
            let next = self.quiet.range(behind).next().or_else(|| self.quiet.first());
            let destination = *next?;
            self.quiet_served = destination;
            let at = &mut self.destinations[destination];
            let (count, from) = (at.outlets.len(), at.next);
            let found = (0..count).map(|place| (from + place) % count).find(|place| {
                let number = at.outlets[*place];
                self.outlets[number].is_active && at.queue.may(number)
            });
            if let Some(place) = found {
                at.next = (place + 1) % count;
                return Some(at.outlets[place]);
            }
        }
        None
    }

    pub(super) fn take_shut(&mut self) -> Vec<(Namespace, DestinationName)> {
        let mut shut = std::mem::take(&mut self.shut);
        shut.sort_unstable();
        shut.dedup();
        let name = |number: OutletNumber| {
            let OutletState { namespace, destination, .. } = &self.outlets[number];
            (namespace.clone(), self.destinations[*destination].name.clone())
        };
        shut.into_iter().map(name).collect()
    }

    pub(super) fn is_parked(&self, number: OutletNumber) -> bool {
        self.outlets[number].waits_for_bytes || self.is_held(number)
    }

    pub(super) fn is_held(&self, number: OutletNumber) -> bool {
        let at = self.at(number);
        self.outlets[number].is_shut || at.is_closed || at.queue.waits(number)
    }

    /// Parks or unparks an outlet, and updates whether its destination is quiet.
    pub(super) fn follow(&mut self, number: OutletNumber, turns: &mut Turns) {
        let is_parked = self.is_parked(number);
        let state = &mut self.outlets[number];
        let at = &mut self.destinations[state.destination];
        if is_parked {
            turns.park(number);
        } else {
            turns.unpark(number);
        }
        let is_active = !is_parked && turns.has_work(number);
        if std::mem::replace(&mut state.is_active, is_active) != is_active {
            at.active = if is_active { at.active + 1 } else { at.active - 1 };
        }
        if at.active > 0 && at.claimed == 0 {
            self.quiet.insert(state.destination);
        } else {
            self.quiet.remove(&state.destination);
        }
    }
}
