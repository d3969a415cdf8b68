//! Bounded deficit round robin: service in proportion to weights, whatever the sizes of what is served.
//!
//! The active keys stand in a ring. A *visit* grants its key `weight x quantum` once and serves it while the cost of its
//! head fits into its deficit; then the ring moves on and the rest of the deficit is kept. A *turn* is what a caller does
//! in one go: its caps end the turn and not the visit, so that the next turn goes on where this one stopped, with nothing
//! granted twice and nothing forfeited.
//!
//! ```text
//!   loop over next(turn) -> key
//!     the key has nothing to serve, or may not be served: deactivate(key)
//!     else charge(turn, cost of its head):
//!       Served    -> serve it, look at the next head of the same key
//!       VisitOver -> the ring has moved on
//!       TurnOver  -> stop; the position is kept
//! ```
//!
//! Invariants:
//! - A key is in the ring exactly once or not at all; membership is a state of its own and not read from its deficit.
//! - A key that leaves the ring, idle or blocked, forfeits its deficit: credit is never gathered while away.
//! - No key's deficit exceeds `cost_max - 1` between its visits. `cost_max` covers every cost, so there is no exception
//!   for a first oversized head: it is served when enough visits have been granted.
//! - For a key with quantum `Q` and largest cost `L` that stays active over `m` visits, the service `S` that it gets lies
//!   in `m Q - (L - 1) ..= m Q + (L - 1)`.
//! - Every operation is O(1): the ring is a doubly linked list over a slab.

use std::collections::HashMap;
use std::hash::Hash;

/// The largest weight.
pub const WEIGHT_MAX: u32 = 1_000;

/// How service is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrrOptions {
    /// What one visit grants a key of weight 1.
    pub quantum: u64,
    /// The largest cost that may be charged.
    pub cost_max: u64,
    /// The most that a turn serves, by number.
    pub turn_items_max: u32,
    /// The most that a turn serves, by cost; at least `cost_max`.
    pub turn_cost_max: u64,
    /// The most visits that a turn begins: heads that cost many quanta are not waited for in one go.
    pub turn_visits_max: u32,
}

/// What is left of a turn.
#[derive(Debug)]
pub struct Turn {
    items: u32,
    cost: u64,
    visits: u32,
}

/// What became of a wish to serve the head of the key that is being visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// Serve it: its cost has been deducted.
    Served,
    /// Its deficit does not cover it: the ring has moved on.
    VisitOver,
    /// The turn is used up; the next one goes on here.
    TurnOver,
}

/// Keys that share service.
#[derive(Debug)]
pub struct Drr<K> {
    options: DrrOptions,
    slots: HashMap<K, usize>,
    members: Vec<Member<K>>,
    vacant: Vec<usize>,
    ring: Option<Ring>,
}

/// The ring's position.
#[derive(Debug, Clone, Copy)]
struct Ring {
    /// The member whose visit it is, or is about to be.
    cursor: usize,
    /// Whether its visit has begun, which is when it is granted.
    visiting: bool,
}

#[derive(Debug)]
struct Member<K> {
    key: K,
    /// The weight that the next visit grants by.
    weight: u32,
    /// The weight that the last visit granted by.
    granted_weight: u32,
    deficit: u64,
    membership: Membership,
}

#[derive(Debug, Clone, Copy)]
enum Membership {
    /// It has nothing to serve, or may not be served.
    Idle,
    /// It would be served if its weight were not 0.
    Paused,
    /// It is in the ring, between these two (which may be itself).
    Active { previous: usize, next: usize },
}

impl<K: Copy + Eq + Hash> Drr<K> {
    /// No keys yet.
    ///
    /// # Panics
    /// If nothing could ever be served: a quantum or cap of zero, or turns that the largest cost does not fit into.
    pub fn new(options: DrrOptions) -> Self {
        assert!(options.quantum > 0 && options.cost_max > 0, "a visit must grant something");
        assert!(options.turn_items_max > 0 && options.turn_visits_max > 0, "a turn must serve something");
        assert!(options.turn_cost_max >= options.cost_max, "a turn must have room for the largest cost");
        Self { options, slots: HashMap::new(), members: Vec::new(), vacant: Vec::new(), ring: None }
    }

    /// A fresh turn.
    pub fn turn(&self) -> Turn {
        Turn {
            items: self.options.turn_items_max,
            cost: self.options.turn_cost_max,
            visits: self.options.turn_visits_max,
        }
    }

    /// Whether no key is active.
    pub fn is_idle(&self) -> bool {
        self.ring.is_none()
    }

    /// Sets a key's weight, adding the key if it is new. It counts from the next visit on; 0 pauses the key.
    ///
    /// # Panics
    /// If `weight` exceeds [`WEIGHT_MAX`].
    pub fn set_weight(&mut self, key: K, weight: u32) {
        assert!(weight <= WEIGHT_MAX, "a weight is at most {WEIGHT_MAX}");
        let Some(&slot) = self.slots.get(&key) else {
            self.add(key, weight);
            return;
        };
        self.members[slot].weight = weight;
        match (self.members[slot].membership, weight) {
            (Membership::Active { .. }, 0) => {
                self.leave(slot);
                self.members[slot].membership = Membership::Paused;
            }
            (Membership::Paused, 1..) => self.join(slot),
            (Membership::Idle | Membership::Paused, _) | (Membership::Active { .. }, 1..) => {}
        }
    }

    /// The key has something to serve. Doing it again changes nothing; a key that joins is visited last.
    ///
    /// # Panics
    /// If the key has no weight.
    pub fn activate(&mut self, key: K) {
        let slot = self.slot(key);
        match (self.members[slot].membership, self.members[slot].weight) {
            (Membership::Idle, 0) => self.members[slot].membership = Membership::Paused,
            (Membership::Idle, 1..) => self.join(slot),
            (Membership::Paused | Membership::Active { .. }, _) => {}
        }
    }

    /// The key has nothing to serve, or may not be served: it leaves and forfeits its deficit.
    ///
    /// # Panics
    /// If the key has no weight.
    pub fn deactivate(&mut self, key: K) {
        let slot = self.slot(key);
        self.leave(slot);
        self.members[slot].membership = Membership::Idle;
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: K) {
        let Some(slot) = self.slots.remove(&key) else { return };
        self.leave(slot);
        self.members[slot].membership = Membership::Idle;
        self.vacant.push(slot);
    }

    /// The key whose head is to be looked at; `None` if no key is active or the turn is used up.
    pub fn next(&mut self, turn: &mut Turn) -> Option<K> {
        let ring = self.ring.as_mut()?;
        if turn.items == 0 {
            return None;
        }
        let member = &mut self.members[ring.cursor];
        if !ring.visiting {
            turn.visits = turn.visits.checked_sub(1)?;
            ring.visiting = true;
            let grant = u64::from(member.weight) * self.options.quantum;
            if member.granted_weight != member.weight {
                // Credit that was gathered under a greater weight is worth no more than one visit under the new one.
                member.deficit = member.deficit.min(grant);
                member.granted_weight = member.weight;
            }
            member.deficit = member.deficit.min(self.options.cost_max - 1) + grant;
        }
        Some(member.key)
    }

    /// Asks to serve the head of the key that [`Drr::next`] returned.
    ///
    /// # Panics
    /// If no key is being visited, or `cost` is 0 or exceeds `cost_max`.
    pub fn charge(&mut self, turn: &mut Turn, cost: u64) -> Charge {
        assert!(cost > 0 && cost <= self.options.cost_max, "a cost is in 1..={}", self.options.cost_max);
        let ring = self.ring.as_mut().filter(|ring| ring.visiting).expect("a key is being visited");
        let member = &mut self.members[ring.cursor];
        if cost > member.deficit {
            if let Membership::Active { next, .. } = member.membership {
                *ring = Ring { cursor: next, visiting: false };
            }
            return Charge::VisitOver;
        }
        if turn.items == 0 || cost > turn.cost {
            turn.items = 0;
            return Charge::TurnOver;
        }
        turn.items -= 1;
        turn.cost -= cost;
        member.deficit -= cost;
        Charge::Served
    }

    fn slot(&self, key: K) -> usize {
        *self.slots.get(&key).expect("a key is given its weight before it is used")
    }

    fn add(&mut self, key: K, weight: u32) {
        let member = Member { key, weight, granted_weight: weight, deficit: 0, membership: Membership::Idle };
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.members[slot] = member;
                slot
            }
            None => {
                self.members.push(member);
                self.members.len() - 1
            }
        };
        self.slots.insert(key, slot);
    }

    /// Enters the ring behind everybody else: just before the cursor.
    fn join(&mut self, slot: usize) {
        let Some(ring) = self.ring else {
            self.members[slot].membership = Membership::Active { previous: slot, next: slot };
            self.ring = Some(Ring { cursor: slot, visiting: false });
            return;
        };
        let (last, _) = self.neighbours(ring.cursor);
        self.members[slot].membership = Membership::Active { previous: last, next: ring.cursor };
        self.set_next(last, slot);
        self.set_previous(ring.cursor, slot);
    }

    /// Leaves the ring, if it is in it, and forfeits the deficit. The caller states the new membership.
    fn leave(&mut self, slot: usize) {
        self.members[slot].deficit = 0;
        let Membership::Active { previous, next } = self.members[slot].membership else { return };
        if next == slot {
            self.ring = None;
            return;
        }
        self.set_next(previous, next);
        self.set_previous(next, previous);
        if self.ring.is_some_and(|ring| ring.cursor == slot) {
            self.ring = Some(Ring { cursor: next, visiting: false });
        }
    }

    fn neighbours(&self, slot: usize) -> (usize, usize) {
        match self.members[slot].membership {
            Membership::Active { previous, next } => (previous, next),
            Membership::Idle | Membership::Paused => unreachable!("the ring links active members only"),
        }
    }

    fn set_next(&mut self, slot: usize, next: usize) {
        let (previous, _) = self.neighbours(slot);
        self.members[slot].membership = Membership::Active { previous, next };
    }

    fn set_previous(&mut self, slot: usize, previous: usize) {
        let (_, next) = self.neighbours(slot);
        self.members[slot].membership = Membership::Active { previous, next };
    }
}

#[cfg(test)]
mod tests;
