//! Three levels of deficit round robin: groups share service, the families of each group share what it gets, and the
//! keys of each family share that.
//!
//! A family that may not be served is *parked* as a whole. Its keys stay in their ring, which keeps its position and
//! their deficits, and the family keeps its own: when it is served again, it goes on where it stopped, and none of its
//! keys was passed over.
//!
//! The caller's loop is that of [`super::Drr`], but for a service that is offered before it is charged: between the two
//! the caller may find out that it cannot serve after all, and then nothing has changed.

use std::collections::HashMap;
use std::hash::Hash;

use super::drr::{Beginning, Drr, DrrOptions};
use super::turn::{Charge, Turn};
use super::two_level::TwoLevelDrr;

/// Keys that share service, by family and group.
#[derive(Debug)]
pub struct ThreeLevelDrr<G, F, K> {
    options: DrrOptions,
    beginning: Beginning,
    upper: TwoLevelDrr<G, F>,
    families: HashMap<F, Family<K>>,
    family_of: HashMap<K, F>,
    /// The family that is being visited.
    visited: Option<F>,
}

#[derive(Debug)]
struct Family<K> {
    keys: Drr<K>,
    parked: bool,
}

impl<G: Eq + Hash, F: Copy + Eq + Hash, K: Copy + Eq + Hash> ThreeLevelDrr<G, F, K> {
    /// No keys yet. `options` are those of all levels; each ring but that of the groups begins as `beginning` says.
    pub fn new(options: DrrOptions, beginning: Beginning) -> Self {
        let upper = TwoLevelDrr::new(options, beginning);
        let (families, family_of) = (HashMap::new(), HashMap::new());
        Self { options, beginning, upper, families, family_of, visited: None }
    }

    /// Whether no key of a family that may be served is active.
    pub fn is_idle(&self) -> bool {
        self.upper.is_idle()
    }

    /// Sets a group's weight beside other groups; as [`Drr::set_weight`].
    pub fn set_group_weight(&mut self, group: G, weight: u32) {
        self.upper.set_group_weight(group, weight);
    }

    /// Sets a family's weight beside the others of its group, which is told once.
    ///
    /// # Panics
    /// If the group has no weight, or the family has been given to another one.
    pub fn set_family_weight(&mut self, group: &G, family: F, weight: u32) {
        self.upper.set_weight(group, family, weight);
        let (options, beginning) = (self.options, self.beginning);
        self.families.entry(family).or_insert_with(|| Family { keys: Drr::new(options, beginning), parked: false });
    }

    /// Adds a key to a family, in which all share alike.
    ///
    /// # Panics
    /// If the family has no weight, or the key has been given to another one.
    pub fn add(&mut self, family: F, key: K) {
        assert!(*self.family_of.entry(key).or_insert(family) == family, "a key stays in its family");
        self.family(family).keys.set_weight(key, 1);
    }

    /// The key has something to serve; as [`Drr::activate`].
    pub fn activate(&mut self, key: K) {
        let family = self.family_of(key);
        self.family(family).keys.activate(key);
        self.follow(family);
    }

    /// The key has nothing to serve, or may not be served for a reason of its own; as [`Drr::deactivate`].
    pub fn deactivate(&mut self, key: K) {
        let family = self.family_of(key);
        self.family(family).keys.deactivate(key);
        self.follow(family);
    }

    /// Whether a family has anything to serve, parked or not.
    pub fn has_work(&self, family: F) -> bool {
        self.families.get(&family).is_some_and(|family| !family.keys.is_idle())
    }

    /// The family may not be served. Doing it again changes nothing.
    pub fn park(&mut self, family: F) {
        if !std::mem::replace(&mut self.family(family).parked, true) {
            self.follow(family);
        }
    }

    /// The family may be served again. Doing it again changes nothing.
    pub fn unpark(&mut self, family: F) {
        if std::mem::replace(&mut self.family(family).parked, false) {
            self.follow(family);
        }
    }

    /// Goes on at a key that `random` chooses, on all levels.
    pub fn begin_at(&mut self, random: u64) {
        self.upper.begin_at(random);
        self.families.values_mut().for_each(|family| family.keys.begin_at(random));
    }

    /// The key whose head is to be looked at; `None` if no key is active or the turn is used up.
    pub fn next(&mut self, turn: &mut Turn) -> Option<K> {
        let family = self.upper.next(turn)?;
        self.visited = Some(family);
        self.family(family).keys.next(turn)
    }

    /// Offers to serve the head of the key that [`ThreeLevelDrr::next`] returned. [`Charge::Served`] is a promise that
    /// [`ThreeLevelDrr::serve`] makes true; what does not fit is over for its key, its family or its group.
    pub fn offer(&mut self, turn: &mut Turn, cost: u64) -> Charge {
        let visited = self.visited.expect("a key is being visited");
        let keys = &mut self.family(visited).keys;
        if !keys.covers(cost) {
            keys.move_on(cost);
            return Charge::VisitOver;
        }
        self.upper.offer(turn, cost)
    }

    /// What was offered is served.
    pub fn serve(&mut self, turn: &mut Turn, cost: u64) {
        turn.spend(cost);
        self.upper.deduct(cost);
        let visited = self.visited.expect("a key is being visited");
        self.family(visited).keys.deduct(cost);
    }

    /// Offers and serves in one, for callers that can serve whatever is offered.
    pub fn charge(&mut self, turn: &mut Turn, cost: u64) -> Charge {
        let charge = self.offer(turn, cost);
        if charge == Charge::Served {
            self.serve(turn, cost);
        }
        charge
    }

    /// The key of a family whose turn it is there, whether or not it is the family's; `None` if it has no work or the
    /// turn is used up.
    pub fn next_of(&mut self, family: F, turn: &mut Turn) -> Option<K> {
        self.family(family).keys.next(turn)
    }

    /// Offers to serve the head of the key that [`ThreeLevelDrr::next_of`] returned.
    pub fn offer_of(&mut self, family: F, turn: &mut Turn, cost: u64) -> Charge {
        self.family(family).keys.offer(turn, cost)
    }

    /// What [`ThreeLevelDrr::offer_of`] offered is served: it counts among the keys of the family only.
    pub fn serve_of(&mut self, family: F, turn: &mut Turn, cost: u64) {
        turn.spend(cost);
        self.family(family).keys.deduct(cost);
    }

    fn family(&mut self, family: F) -> &mut Family<K> {
        self.families.get_mut(&family).expect("a family is given its weight before it is used")
    }

    fn family_of(&self, key: K) -> F {
        *self.family_of.get(&key).expect("a key is added before it is used")
    }

    /// A family is active as long as it may be served and one of its keys is active.
    fn follow(&mut self, family: F) {
        let Family { keys, parked } = self.family(family);
        match (keys.is_idle(), *parked) {
            (true, _) => self.upper.deactivate(family),
            (false, true) => self.upper.suspend(family),
            (false, false) => self.upper.activate(family),
        }
    }
}

#[cfg(test)]
mod tests;
