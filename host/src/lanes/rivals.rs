//! Rivals: shards that want of the same thing more than there is.
//!
//! As long as nobody is refused, there are none, and nothing is counted. Then each rival has a credit. Whoever has some
//! may take, also a little more than it has; whoever has none waits until the others have used theirs up, and then all
//! are granted a quantum. This is deficit round robin in which a turn may end with a debt instead of a rest, so that
//! the next cost need not be known; the bounds are the same: over any two intervals in which both are rivals
//! throughout, what two of them take differs by a quantum and a largest cost at the most.
//!
//! A rival that has not asked for a while is none any more: it may have nothing left to want, or be gone. So nobody is
//! waited for who does not come.

use std::collections::BTreeMap;
use std::time::Duration;

use super::turn::MESSAGE_COST_MAX;

/// What a grant is worth, in bytes: so much is taken in one go before it is another one's turn.
pub(super) const QUANTUM: i64 = 64 << 10;
/// A rival is one for so long after it was refused or served.
pub(super) const PATIENCE: Duration = Duration::from_millis(50);

/// Who competes.
#[derive(Debug)]
pub(super) struct Rivals<S> {
    rivals: BTreeMap<S, Rival>,
}

#[derive(Debug, Clone, Copy)]
struct Rival {
    credit: i64,
    /// When it was refused or served last.
    asked: Duration,
}

impl<S> Default for Rivals<S> {
    fn default() -> Self {
        Self { rivals: BTreeMap::new() }
    }
}

impl<S: Copy + Ord> Rivals<S> {
    /// Whether it may take, as far as the others are concerned.
    pub(super) fn may(&mut self, who: S, now: Duration) -> bool {
        self.rivals.retain(|rival, Rival { asked, .. }| *rival == who || now.saturating_sub(*asked) < PATIENCE);
        if self.rivals.keys().all(|rival| *rival == who) {
            self.rivals.clear();
            return true;
        }
        self.rivals.entry(who).or_insert(Rival { credit: 0, asked: now });
        if self.rivals.values().all(|rival| rival.credit <= 0) {
            let owed = self.rivals.values().map(|rival| 1 - rival.credit).min().unwrap_or(1);
            let granted = QUANTUM * (owed + QUANTUM - 1).div_euclid(QUANTUM);
            self.rivals.values_mut().for_each(|rival| rival.credit += granted);
        }
        self.rivals[&who].credit > 0
    }

    /// It was refused, for this or another reason: from here on it is one of those who want.
    pub(super) fn refused(&mut self, who: S, now: Duration) {
        self.rivals.entry(who).or_insert(Rival { credit: 0, asked: now }).asked = now;
    }

    /// It has taken. Says whether it has used up its credit, so that it is the others' turn.
    pub(super) fn took(&mut self, who: S, cost: u64, now: Duration) -> bool {
        let Some(rival) = self.rivals.get_mut(&who) else { return false };
        rival.asked = now;
        rival.credit -= i64::try_from(cost.min(MESSAGE_COST_MAX)).expect("a cost is far less than that");
        rival.credit <= 0
    }

    /// It wants nothing more.
    pub(super) fn leave(&mut self, who: S) {
        self.rivals.remove(&who);
    }

    /// Those who want.
    pub(super) fn all(&self) -> impl Iterator<Item = S> + '_ {
        self.rivals.keys().copied()
    }
}

#[cfg(test)]
mod tests;
