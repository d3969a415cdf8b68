//! Two levels of deficit round robin: groups share service, and the keys of each group share what the group gets.
//!
//! A visit of a group serves its keys, in the order of a ring of the group's own, while the head's cost fits into the
//! deficit of both. A group that is over for now leaves its ring as it stands: position, visit and deficits go on at
//! the group's next visit. So a group gets what its weight says, over however many keys it spreads its work, and each
//! of its keys gets its part of that.
//!
//! The caller's loop is that of [`Drr`].

use std::collections::HashMap;
use std::hash::Hash;

use super::drr::{Beginning, Drr, DrrOptions};
use super::turn::{Charge, Turn};

/// Keys that share service, by group.
#[derive(Debug)]
pub(super) struct TwoLevelDrr<G, K> {
    options: DrrOptions,
    beginning: Beginning,
    outer: Drr<usize>,
    /// The ring of each group, and the keys' groups.
    inner: Vec<Drr<K>>,
    numbers: HashMap<G, usize>,
    group_of: HashMap<K, usize>,
    /// The group that is being visited.
    visited: usize,
}

impl<G: Eq + Hash, K: Copy + Eq + Hash> TwoLevelDrr<G, K> {
    /// No keys yet. `options` are those of both levels; each group's ring begins as `beginning` says.
    pub(super) fn new(options: DrrOptions, beginning: Beginning) -> Self {
        Self {
            options,
            beginning,
            outer: Drr::new(options, Beginning::Fresh),
            inner: Vec::new(),
            numbers: HashMap::new(),
            group_of: HashMap::new(),
            visited: 0,
        }
    }

    /// Whether no key is active.
    pub(super) fn is_idle(&self) -> bool {
        self.outer.is_idle()
    }

    /// Sets a group's weight beside other groups, as [`Drr::set_weight`].
    pub(super) fn set_group_weight(&mut self, group: G, weight: u32) {
        let number = *self.numbers.entry(group).or_insert(self.inner.len());
        if number == self.inner.len() {
            self.inner.push(Drr::new(self.options, self.beginning));
        }
        self.outer.set_weight(number, weight);
    }

    /// Sets a key's weight beside the other keys of its group, which is told once.
    ///
    /// # Panics
    /// If the group has no weight, or the key has been given to another one.
    pub(super) fn set_weight(&mut self, group: &G, key: K, weight: u32) {
        let number = *self.numbers.get(group).expect("a group is given its weight before its keys are");
        assert_eq!(*self.group_of.entry(key).or_insert(number), number, "a key stays in its group");
        self.inner[number].set_weight(key, weight);
        self.follow(number);
    }

    /// The key has something to serve; as [`Drr::activate`].
    pub(super) fn activate(&mut self, key: K) {
        let group = self.group(key);
        self.inner[group].activate(key);
        self.follow(group);
    }

    /// The key has nothing to serve, or may not be served; as [`Drr::deactivate`]. So does its group with its last one.
    pub(super) fn deactivate(&mut self, key: K) {
        let group = self.group(key);
        self.inner[group].deactivate(key);
        self.follow(group);
    }

    /// The key may not be served for now; as [`Drr::suspend`]. So may not its group, if it was the last one.
    pub(super) fn suspend(&mut self, key: K) {
        let group = self.group(key);
        self.inner[group].suspend(key);
        if self.inner[group].is_idle() {
            self.outer.suspend(group);
        }
    }

    /// Goes on at a key that `random` chooses, on both levels.
    pub(super) fn begin_at(&mut self, random: u64) {
        self.outer.begin_at(random);
        self.inner.iter_mut().for_each(|inner| inner.begin_at(random));
    }

    /// The key whose head is to be looked at; `None` if no key is active or the turn is used up.
    pub(super) fn next(&mut self, turn: &mut Turn) -> Option<K> {
        self.visited = self.outer.next(turn)?;
        self.inner[self.visited].next(turn)
    }

    /// Offers to serve the head of the key that [`TwoLevelDrr::next`] returned, as [`Drr::offer`]. What does not fit is
    /// over for its key or for its whole group; both show as the end of the visit.
    pub(super) fn offer(&mut self, turn: &mut Turn, cost: u64) -> Charge {
        let inner = &mut self.inner[self.visited];
        if !inner.covers(cost) {
            inner.move_on(cost);
            return Charge::VisitOver;
        }
        self.outer.offer(turn, cost)
    }

    /// As [`Drr::deduct`].
    pub(super) fn deduct(&mut self, cost: u64) {
        self.outer.deduct(cost);
        self.inner[self.visited].deduct(cost);
    }

    fn group(&self, key: K) -> usize {
        *self.group_of.get(&key).expect("a key is given its weight before it is used")
    }

    /// A group is active as long as one of its keys is.
    fn follow(&mut self, group: usize) {
        if self.inner[group].is_idle() {
            self.outer.deactivate(group);
        } else {
            self.outer.activate(group);
        }
    }
}

#[cfg(test)]
mod tests;
