//! The queue of those who want more of one destination than it may have: in whose turn what comes free there goes to.
//!
//! As long as nobody waits there is no queue, and everybody may take. Once somebody does, whoever takes was *called*
//! before: from the front, as many as there is room for. One that was called has an allowance, in bytes: a grant for
//! each time that it comes to the front, by its weight. When that is used up it goes to the back; when there is merely
//! no room any more, back to the front. So nobody overtakes, however often its own attempts end.
//!
//! This is deficit round robin in which a visit may end with a debt instead of a rest, so that the next cost need not
//! be known, and in which as many visits go on at once as there is room for. Between two visits of one that wants all
//! the time each of the others has no more than two: the one that it was in, and one after.
//!
//! Whoever leaves forfeits what is left of its allowance, and not its debt.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use super::turn::{MESSAGE_COST_MAX, MESSAGES};

/// Who waits, and who was called.
#[derive(Debug)]
pub struct Queue<K> {
    waiting: VecDeque<K>,
    members: HashMap<K, Member>,
    called: Vec<K>,
}

#[derive(Debug, Clone, Copy)]
struct Member {
    allowance: i64,
    standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Away,
    Waiting,
    Called,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), members: HashMap::new(), called: Vec::new() }
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

    /// It wants, and may not take: it stands at the back, or, if it was called and there is no room after all, at the
    /// front again.
    pub fn wait(&mut self, who: K) {
        let member = self.members.entry(who).or_insert(Member { allowance: 0, standing: Standing::Away });
        match std::mem::replace(&mut member.standing, Standing::Waiting) {
            Standing::Waiting => {}
            Standing::Away => self.waiting.push_back(who),
            Standing::Called => {
                self.called.retain(|called| *called != who);
                self.waiting.push_front(who);
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
            && let Some(who) = self.waiting.pop_front()
        {
            let Some(of_it) = weight(who) else {
                self.away(who);
                continue;
            };
            let member = self.members.get_mut(&who).expect("whoever waits is known");
            if member.allowance <= 0 {
                member.allowance += grant(of_it);
            }
            if member.allowance <= 0 {
                // It still pays for something large.
                self.waiting.push_back(who);
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
            for who in self.called.drain(..) {
                self.members.get_mut(&who).expect("whoever was called is known").standing = Standing::Away;
            }
        }
        called
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
        let rounds = self.waiting.iter().map(owed).min().unwrap_or(0);
        for who in self.waiting.iter().chain(&self.called) {
            let member = self.members.get_mut(who).expect("whoever waits, or was called, is known");
            member.allowance += rounds * grant_of(*who);
        }
    }

    /// It has taken. Says whether it may go on, with `room` left for those who were called; if not, it waits again.
    pub fn took(&mut self, who: K, cost: u64, room: usize) -> bool {
        if self.waiting.is_empty() {
            return true;
        }
        let member = self.members.entry(who).or_insert(Member { allowance: 0, standing: Standing::Away });
        member.allowance -= i64::try_from(cost.min(MESSAGE_COST_MAX)).expect("a cost is far less than that");
        if member.standing != Standing::Called {
            return false;
        }
        if member.allowance > 0 && self.called.len() <= room {
            return true;
        }
        member.standing = Standing::Waiting;
        if member.allowance > 0 {
            self.waiting.push_front(who);
        } else {
            self.waiting.push_back(who);
        }
        self.called.retain(|called| *called != who);
        false
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
