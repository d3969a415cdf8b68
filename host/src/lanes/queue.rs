//! The queue of those who want more of one destination than it may have: in whose turn what comes free there goes to.
//!
//! As long as nobody waits there is no queue, and everybody may take. Once somebody does, whoever takes was *called*
//! before: from the front, as many as there is room for. One that was called has an allowance, in bytes: a grant for
//! each time that it comes to the front, by its weight. When that is used up it goes to the back; when there is merely
//! no room any more it keeps its place. So nobody overtakes, however often its own attempts end.
//!
//! This is deficit round robin in which a visit may end with a debt instead of a rest, so that the next cost need not
//! be known, and in which as many visits go on at once as there is room for. Places at the back are given when visits
//! begin: whoever ends its visit sooner gains nothing by it, and of those who want all the time each begins one visit
//! before any begins its next. Where there is room for another visit while one lasts, that one begins its next as well.
//!
//! Whoever leaves forfeits what is left of its allowance, and not its debt.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use super::turn::{MESSAGE_COST_MAX, MESSAGES};

/// Who waits, and who was called.
#[derive(Debug)]
pub struct Queue<K> {
    /// By their places.
    waiting: BTreeMap<u64, K>,
    members: HashMap<K, Member>,
    called: Vec<K>,
    /// The last place that was given.
    place: u64,
    /// The most visits that any has begun.
    visits: u64,
}

#[derive(Debug, Clone, Copy)]
struct Member {
    allowance: i64,
    /// The visits that it has begun, as if it had been there from the beginning.
    visits: u64,
    standing: Standing,
    place: u64,
    /// Where it stands after the visit that it is in.
    place_after: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Away,
    Waiting,
    Called,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), members: HashMap::new(), called: Vec::new(), place: 0, visits: 0 }
    }
}

impl<K: Copy + Eq + Hash> Queue<K> {
    /// Whether anybody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether somebody may take, as far as the others are concerned.
    pub fn may(&self, who: K) -> bool {
        self.waiting.is_empty() || self.standing(who) == Standing::Called
    }

    /// It wants, and may not take: it stands at the back, or, if it was called and there is no room after all, where it
    /// stood.
    pub fn wait(&mut self, who: K) {
        match self.member(who).standing {
            Standing::Waiting => {}
            Standing::Away => {
                let (place, place_after) = (self.next_place(), self.next_place());
                let visits = self.visits;
                let member = self.member(who);
                (member.place, member.place_after, member.visits) = (place, place_after, visits);
                self.stand(who);
            }
            Standing::Called => {
                self.called.retain(|called| *called != who);
                self.stand(who);
            }
        }
    }

    /// Calls those whose turn it is, so that there is no more `room` than those who were called may take for their
    /// allowances, were all of it small. `weight` says what each one's weight is, or that it wants nothing any more.
    pub fn call(&mut self, room: usize, weight: impl Fn(K) -> Option<u32>) -> Vec<K> {
        let (left, called) = std::mem::take(&mut self.called).into_iter().partition(|who| weight(*who).is_none());
        self.called = called;
        left.into_iter().for_each(|who| self.away(who));
        let mut called = Vec::new();
        let mut in_vain = 0;
        while self.spoken_for() < room
            && let Some((_, who)) = self.waiting.pop_first()
        {
            let Some(of_it) = weight(who) else {
                self.away(who);
                continue;
            };
            if self.member(who).allowance <= 0 {
                self.catch_up(self.members[&who].visits, &weight);
                self.begin_visit(who, of_it);
            }
            let member = self.member(who);
            if member.allowance <= 0 {
                // It still pays for something large.
                member.place = member.place_after;
                self.stand(who);
                in_vain += 1;
                if in_vain == self.waiting.len() {
                    in_vain = 0;
                    let grant_of = |who| grant(weight(who).unwrap_or(1));
                    self.skip_rounds(&grant_of);
                }
                continue;
            }
            in_vain = 0;
            member.standing = Standing::Called;
            self.called.push(who);
            called.push(who);
        }
        if self.waiting.is_empty() {
            // There is enough for everybody. What each of them has, or owes, counts when there is not.
            for who in std::mem::take(&mut self.called) {
                self.member(who).standing = Standing::Away;
            }
        }
        called
    }

    /// Its next visit begins.
    fn begin_visit(&mut self, who: K, weight: u32) {
        let place = self.next_place();
        let member = self.member(who);
        member.allowance += grant(weight);
        member.visits += 1;
        member.place_after = place;
        self.visits = self.visits.max(self.members[&who].visits);
    }

    /// Has those who were called begin their next visits, until they have begun as many as this.
    fn catch_up(&mut self, visits: u64, weight: &impl Fn(K) -> Option<u32>) {
        for who in self.called.clone() {
            while self.members[&who].visits < visits {
                self.begin_visit(who, weight(who).unwrap_or(1));
            }
        }
    }

    /// The room that those who were called may take.
    fn spoken_for(&self) -> usize {
        let slots = |who: &K| usize::try_from(self.members[who].allowance.max(1)).unwrap_or(usize::MAX);
        let smallest = usize::try_from(MESSAGES.quantum).expect("a quantum is far less than that");
        self.called.iter().map(|who| slots(who).div_ceil(smallest)).fold(0, usize::saturating_add)
    }

    /// Everybody who waits still pays: grants everybody the rounds in which they would all go on to.
    fn skip_rounds(&mut self, grant_of: &impl Fn(K) -> i64) {
        let owed = |who: &K| (-self.members[who].allowance).div_euclid(grant_of(*who));
        let rounds = self.waiting.values().map(owed).min().unwrap_or(0);
        for who in self.waiting.values().chain(&self.called) {
            let member = self.members.get_mut(who).expect("whoever waits, or was called, is known");
            member.allowance += rounds * grant_of(*who);
            member.visits += rounds.unsigned_abs();
        }
        self.visits += rounds.unsigned_abs();
    }

    /// It has taken. Says whether it may go on, with `room` left for those who were called; if not, it waits again.
    pub fn took(&mut self, who: K, cost: u64, room: usize) -> bool {
        if self.waiting.is_empty() {
            return true;
        }
        let called = self.called.len();
        let member = self.member(who);
        member.allowance -= i64::try_from(cost.min(MESSAGE_COST_MAX)).expect("a cost is far less than that");
        if member.standing != Standing::Called {
            return false;
        }
        if member.allowance > 0 && called <= room {
            return true;
        }
        if member.allowance <= 0 {
            member.place = member.place_after;
        }
        self.called.retain(|called| *called != who);
        self.stand(who);
        false
    }

    fn member(&mut self, who: K) -> &mut Member {
        let new = Member { allowance: 0, visits: 0, standing: Standing::Away, place: 0, place_after: 0 };
        self.members.entry(who).or_insert(new)
    }

    fn next_place(&mut self) -> u64 {
        self.place += 1;
        self.place
    }

    /// It stands in its place.
    fn stand(&mut self, who: K) {
        let member = self.member(who);
        member.standing = Standing::Waiting;
        let place = member.place;
        let before = self.waiting.insert(place, who);
        assert!(before.is_none(), "a place is given once");
    }

    /// It wants nothing any more.
    fn away(&mut self, who: K) {
        if let Some(member) = self.members.get_mut(&who) {
            member.standing = Standing::Away;
            member.allowance = member.allowance.min(0);
        }
    }

    /// Whether it stands in the queue and was not called.
    pub fn waits(&self, who: K) -> bool {
        self.standing(who) == Standing::Waiting
    }

    fn standing(&self, who: K) -> Standing {
        self.members.get(&who).map_or(Standing::Away, |member| member.standing)
    }
}

/// What a visit grants, in bytes.
fn grant(weight: u32) -> i64 {
    i64::try_from(MESSAGES.quantum).expect("a quantum is far less than that") * i64::from(weight.max(1))
}

#[cfg(test)]
mod tests;
