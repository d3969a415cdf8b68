//! Bounded deficit round robin: service in proportion to weights, whatever the sizes of what is served.
//!
//! The active keys stand in a ring. A *visit* grants its key `weight x quantum` once and serves it while the cost of
//! its head fits into its deficit; then the ring moves on and the rest of the deficit is kept.
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
//! A ring that comes after another one, whose deficits are lost, begins with a *first pass*: each key that is found is
//! served one head, whatever it costs, and granted nothing. The pass ends at the first key that has had its share of
//! it.
//!
//! Invariants:
//! - A key is in the ring exactly once or not at all; membership is a state of its own and not read from its deficit.
//! - A key that leaves the ring, idle or blocked, forfeits its deficit: credit is never gathered while away. One that
//!   others keep from being served only keeps what it has.
//! - No key's deficit exceeds `cost_max - 1` between its visits. `cost_max` covers every cost, so there is no exception
//!   for a first oversized head: it is served when enough visits have been granted.
//! - For a key with quantum `Q` and largest cost `L` that stays active over `m` visits, the service `S` that it gets
//!   lies in `m Q - (L - 1) ..= m Q + (L - 1)`. A first pass is not among these visits.
//! - Every operation is O(1) but [`Drr::begin_at`], over any run of visits: the ring is a doubly linked list over a
//!   slab.
//!
//! A quantum may be far smaller than a cost, so that keys with little in flight at once come to their share as well.
//! Rounds in which nobody could be served are not gone through one by one: once everybody has been visited in vain, all
//! are granted at once what they lack for the first of them to be served. The order of service is as if they had been.

use std::collections::HashMap;
use std::hash::Hash;

use super::turn::{Charge, Turn};

/// The largest weight.
pub const WEIGHT_MAX: u32 = 1_000;

/// How service is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrrOptions {
    /// What one visit grants a key of weight 1.
    pub quantum: u64,
    /// The largest cost that may be charged.
    pub cost_max: u64,
}

/// What a ring knows about those that came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// There were none.
    Fresh,
    /// There were, and their deficits are lost: it begins with a first pass.
    FirstPass,
}

/// Keys that share service.
#[derive(Debug)]
pub struct Drr<K> {
    options: DrrOptions,
    slots: HashMap<K, usize>,
    members: Vec<Member<K>>,
    ring: Option<Ring>,
    beginning: Beginning,
    /// Members of the ring.
    active: usize,
    /// Visits in a row that served nobody, while the ring stayed as it is.
    in_vain: usize,
    /// Rounds that were not gone through.
    #[cfg(test)]
    skipped: u64,
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
    /// What its deficit fell short of its head's cost by, when its last visit ended.
    lacked: u64,
    /// Whether it has had its share of the first pass.
    greeted: bool,
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
    /// If nothing could ever be served: a quantum or largest cost of zero.
    pub fn new(options: DrrOptions, beginning: Beginning) -> Self {
        assert!(options.quantum > 0 && options.cost_max > 0, "a visit must grant something");
        Self {
            options,
            slots: HashMap::new(),
            members: Vec::new(),
            ring: None,
            beginning,
            active: 0,
            in_vain: 0,
            #[cfg(test)]
            skipped: 0,
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

    /// The key may not be served for now, for what it shares with others: it leaves and keeps its deficit, which it
    /// forfeits if it is deactivated meanwhile.
    ///
    /// # Panics
    /// If the key has no weight.
    pub(super) fn suspend(&mut self, key: K) {
        let slot = self.slot(key);
        let deficit = self.members[slot].deficit;
        self.leave(slot);
        self.members[slot].membership = Membership::Idle;
        self.members[slot].deficit = deficit;
    }

    /// Goes on at an active key that `random` chooses, whose visit begins anew: after a restart nobody is first every
    /// time.
    pub fn begin_at(&mut self, random: u64) {
        let active: Vec<usize> = (0..self.members.len()).filter(|slot| self.members[*slot].is_active()).collect();
        if !active.is_empty() {
            let chosen = usize::try_from(random % active.len() as u64).expect("less than there are keys");
            self.ring = Some(Ring { cursor: active[chosen], visiting: false });
            self.in_vain = 0;
        }
    }

    /// The key whose head is to be looked at; `None` if no key is active or the turn is used up.
    pub fn next(&mut self, turn: &mut Turn) -> Option<K> {
        let ring = self.ring.as_mut()?;
        if turn.is_over() {
            return None;
        }
        let member = &mut self.members[ring.cursor];
        if !ring.visiting {
            if !turn.begin_visit() {
                return None;
            }
            ring.visiting = true;
            if member.greeted {
                self.beginning = Beginning::Fresh;
            }
            if self.beginning == Beginning::Fresh {
                member.grant(&self.options);
            }
        }
        Some(member.key)
    }

    /// Offers to serve the head of the key that [`Drr::next`] returned. The caller spends what it serves of the turn,
    /// and deducts it.
    ///
    /// # Panics
    /// If no key is being visited, or `cost` is 0, exceeds `cost_max`, or is more than a turn has room for.
    pub(super) fn offer(&mut self, turn: &mut Turn, cost: u64) -> Charge {
        if !self.covers(cost) {
            self.move_on(cost);
            return Charge::VisitOver;
        }
        if turn.has_room(cost) { Charge::Served } else { Charge::TurnOver }
    }

    /// Whether the key that is being visited may be served a head of this cost.
    pub(super) fn covers(&self, cost: u64) -> bool {
        assert!(cost > 0 && cost <= self.options.cost_max, "a cost is in 1..={}", self.options.cost_max);
        let member = &self.members[self.visited()];
        self.greets(member) || cost <= member.deficit
    }

    /// Ends the visit of a key whose head, of this cost, is not covered: the rest of the deficit is kept.
    pub(super) fn move_on(&mut self, cost: u64) {
        let slot = self.visited();
        let (_, next) = self.neighbours(slot);
        self.ring = Some(Ring { cursor: next, visiting: false });
        self.members[slot].lacked = cost - self.members[slot].deficit;
        self.in_vain += 1;
        if self.in_vain >= self.active && self.beginning == Beginning::Fresh {
            self.in_vain = 0;
            self.skip_rounds();
        }
    }

    /// Everybody has been visited in vain: grants all of them the rounds that would be in vain as well.
    fn skip_rounds(&mut self) {
        let all: Vec<usize> = self.round().collect();
        if all.iter().any(|slot| self.members[*slot].weight != self.members[*slot].granted_weight) {
            // Its next visit is another one than its last: that one is gone through.
            return;
        }
        let quantum = self.options.quantum;
        let lacked = |slot: &usize| {
            let Member { weight, lacked, .. } = self.members[*slot];
            lacked.div_ceil(u64::from(weight) * quantum)
        };
        let rounds = all.iter().map(lacked).min().unwrap_or(1).saturating_sub(1);
        for slot in all {
            let member = &mut self.members[slot];
            let grant = u64::from(member.weight) * quantum * rounds;
            member.deficit = (member.deficit + grant).min(self.options.cost_max - 1);
        }
        #[cfg(test)]
        {
            self.skipped += rounds;
        }
    }

    /// The ring's members, from the cursor on.
    fn round(&self) -> impl Iterator<Item = usize> + '_ {
        let first = self.ring.map(|ring| ring.cursor);
        std::iter::successors(first, move |slot| {
            let (_, next) = self.neighbours(*slot);
            Some(next).filter(|next| Some(*next) != first)
        })
    }

    /// The key that is being visited was served a head of this cost, which it covers.
    pub(super) fn deduct(&mut self, cost: u64) {
        let slot = self.visited();
        self.in_vain = 0;
        if self.greets(&self.members[slot]) {
            self.members[slot].greeted = true;
        } else {
            self.members[slot].deficit -= cost;
        }
    }

    fn visited(&self) -> usize {
        self.ring.filter(|ring| ring.visiting).expect("a key is being visited").cursor
    }

    /// Whether the first pass still has something for it.
    fn greets(&self, member: &Member<K>) -> bool {
        self.beginning == Beginning::FirstPass && !member.greeted
    }

    fn slot(&self, key: K) -> usize {
        *self.slots.get(&key).expect("a key is given its weight before it is used")
    }

    fn add(&mut self, key: K, weight: u32) {
        self.slots.insert(key, self.members.len());
        let membership = Membership::Idle;
        let (deficit, lacked, greeted) = (0, 0, false);
        self.members.push(Member { key, weight, granted_weight: weight, deficit, lacked, greeted, membership });
    }

    /// Enters the ring behind everybody else: just before the cursor.
    fn join(&mut self, slot: usize) {
        self.active += 1;
        self.in_vain = 0;
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
        self.active -= 1;
        self.in_vain = 0;
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

impl<K> Member<K> {
    fn is_active(&self) -> bool {
        matches!(self.membership, Membership::Active { .. })
    }

    /// What a visit begins with.
    fn grant(&mut self, options: &DrrOptions) {
        let grant = u64::from(self.weight) * options.quantum;
        if self.granted_weight != self.weight {
            // Credit that was gathered under a greater weight is worth no more than one visit under the new one.
            self.deficit = self.deficit.min(grant);
            self.granted_weight = self.weight;
        }
        self.deficit = self.deficit.min(options.cost_max - 1) + grant;
    }
}

#[cfg(test)]
pub(super) mod oracle;
#[cfg(test)]
mod tests;
