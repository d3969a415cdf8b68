//! In which calls a set of keys is asked for: all at once, and in parts where a call came to nothing and one of its
//! keys may be why.
//!
//! Nothing here calls anybody: what became of a call comes in, the keys of the next one go out.
//!
//! ```text
//!   all keys ──answered──> done
//!      │ failed
//!      ├─ a key is to blame ───────────────────────────────> halves, and halves of these
//!      ├─ a key or the provider ─> one key alone, and another ─ one is answered ──┘
//!      │                                      └──────────── neither is ──> it is the provider: nobody is asked for any more
//!      └─ no key ────────────────────────────────────────────────────────> nobody is asked for any more
//! ```
//!
//! Invariants:
//! - A set costs a bounded number of calls, and a provider that is down, three.
//! - Each key ends once: with an answer, or with why there is none.

use std::collections::VecDeque;

/// Calls that one set of keys may cost: about twice the halvings that find one bad key in a thousand.
const CALLS_MAX: usize = 24;
/// Keys that are asked for alone to find out whether the provider is there at all. One of them may be the bad one.
const PROBES_MAX: u32 = 2;

/// Of the time until the flow's deadline, what the first call for several keys may take.
const FIRST_SHARE: Share = Share { parts: 3, of: 4 };

/// So many of so many equal parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) parts: u32,
    pub(super) of: u32,
}

/// Who may be why a call came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// A key: without it, the others would be had.
    Key,
    /// A key, or the provider itself: an answer for another key tells.
    KeyOrProvider,
    /// Nobody of the keys: all of them would fare alike.
    All,
}

/// The keys of a set that have not ended.
pub(super) struct Division {
    waiting: VecDeque<Vec<String>>,
    calls_left: usize,
    /// Whether the provider has answered for any of them.
    answered: bool,
    probes_failed: u32,
}

impl Division {
    /// All in one call, for a start.
    pub(super) fn of(keys: Vec<String>) -> Self {
        Self { waiting: VecDeque::from([keys]), calls_left: CALLS_MAX, answered: false, probes_failed: 0 }
    }

    /// The keys of the next call.
    pub(super) fn next(&mut self) -> Option<Vec<String>> {
        let next = self.waiting.pop_front();
        self.calls_left -= usize::from(next.is_some());
        next
    }

    /// How much of the time that is left a call for so many keys, those that `next` returned, may take. What it leaves
    /// is for its halves and theirs, and for those that wait; one key that nobody waits for gets all.
    pub(super) fn share(&self, keys: usize) -> Share {
        if keys > 1 && self.calls_left + 1 == CALLS_MAX {
            return FIRST_SHARE;
        }
        let halvings = keys.next_power_of_two().trailing_zeros();
        let waiting = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        Share { parts: 1, of: 1_u32.saturating_add(halvings).saturating_add(waiting) }
    }

    /// The provider answered, whatever it answered.
    pub(super) fn answered(&mut self) {
        self.answered = true;
    }

    /// A call for these keys came to nothing. Returns the keys that ended with that; the others are asked for again.
    pub(super) fn failed(&mut self, mut keys: Vec<String>, blame: Blame) -> Vec<String> {
        match blame {
            Blame::All => self.give_up(keys),
            Blame::KeyOrProvider if !self.answered => self.probe(keys),
            Blame::Key | Blame::KeyOrProvider => {
                // Each set that waits has its call.
                if keys.len() == 1 || self.calls_left < self.waiting.len() + 2 {
                    return keys;
                }
                let second = keys.split_off(keys.len() / 2);
                self.waiting.extend([keys, second]);
                Vec::new()
            }
        }
    }

    /// Asks for the first key alone; for the last one if that was in vain.
    fn probe(&mut self, mut keys: Vec<String>) -> Vec<String> {
        if keys.len() > 1 {
            if self.calls_left < self.waiting.len() + 2 {
                return keys;
            }
            let rest = keys.split_off(1);
            self.waiting.push_front(rest);
            self.waiting.push_front(keys);
            return Vec::new();
        }
        self.probes_failed += 1;
        if self.probes_failed == PROBES_MAX {
            return self.give_up(keys);
        }
        let has_a_call = self.calls_left > self.waiting.len();
        if let Some(rest) = self.waiting.front_mut().filter(|rest| has_a_call && rest.len() > 1) {
            let last = rest.split_off(rest.len() - 1);
            self.waiting.push_front(last);
        }
        keys
    }

    fn give_up(&mut self, keys: Vec<String>) -> Vec<String> {
        keys.into_iter().chain(self.waiting.drain(..).flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("k{number}")).collect()
    }

    /// Asks for `count` keys of a provider that says whom to blame for a call with these of them. Returns the keys that
    /// failed, in order, and how many each call asked for.
    fn asked(count: usize, blame: impl Fn(&[usize]) -> Option<Blame>) -> (Vec<usize>, Vec<usize>) {
        let number = |key: &String| key[1..].parse::<usize>().unwrap();
        let mut division = Division::of(keys(count));
        let (mut failed, mut had, mut sizes) = (Vec::new(), 0, Vec::new());
        while let Some(keys) = division.next() {
            sizes.push(keys.len());
            match blame(&keys.iter().map(number).collect::<Vec<_>>()) {
                None => {
                    division.answered();
                    had += keys.len();
                }
                Some(blame) => failed.extend(division.failed(keys, blame).iter().map(number)),
            }
        }
        failed.sort_unstable();
        assert_eq!(failed.len() + had, count, "each ends once");
        (failed, sizes)
    }

    fn with(bad: &'static [usize], blame: Blame) -> impl Fn(&[usize]) -> Option<Blame> {
        move |keys| keys.iter().any(|key| bad.contains(key)).then_some(blame)
    }

    #[test]
    fn a_bad_key_is_found_in_halves() {
        assert_eq!(asked(8, with(&[3], Blame::Key)), (vec![3], vec![8, 4, 4, 2, 2, 1, 1]));
    }

    #[test]
    fn where_the_provider_may_be_down_one_key_tells() {
        assert_eq!(asked(9, with(&[3], Blame::KeyOrProvider)), (vec![3], vec![9, 1, 8, 4, 4, 2, 2, 1, 1]));
        // The first one is the bad one: the last one tells, and the rest has one more call.
        assert_eq!(asked(9, with(&[0], Blame::KeyOrProvider)), (vec![0], vec![9, 1, 1, 7]));
        assert_eq!(asked(2, with(&[0], Blame::KeyOrProvider)), (vec![0], vec![2, 1, 1]));
    }

    #[test]
    fn a_provider_that_is_down_is_called_three_times_and_one_that_asks_for_rest_once() {
        let all = |count: usize| (0..count).collect::<Vec<_>>();
        assert_eq!(asked(100, |_| Some(Blame::KeyOrProvider)), (all(100), vec![100, 1, 1]));
        assert_eq!(asked(1, |_| Some(Blame::KeyOrProvider)), (all(1), vec![1]));
        assert_eq!(asked(100, |_| Some(Blame::All)), (all(100), vec![100]));
        // It asks for rest in the middle: those that wait are not asked for either.
        let tired = |keys: &[usize]| Some(if keys.len() == 100 { Blame::Key } else { Blame::All });
        assert_eq!(asked(100, tired), (all(100), vec![100, 50]));
    }

    #[test]
    fn the_time_that_is_left_is_divided_among_what_may_follow() {
        let mut division = Division::of(keys(100));
        let part = |of| Share { parts: 1, of };
        let all = division.next().unwrap();
        assert_eq!(division.share(100), Share { parts: 3, of: 4 });
        assert!(division.failed(all, Blame::KeyOrProvider).is_empty());
        assert_eq!((division.next().unwrap().len(), division.share(1)), (1, part(2)), "the rest waits");
        division.answered();
        assert_eq!((division.next().unwrap().len(), division.share(99)), (99, part(8)), "and seven halvings");
        assert_eq!(division.share(1), part(1));
        let mut alone = Division::of(keys(1));
        alone.next();
        assert_eq!(alone.share(1), part(1), "there is nothing to divide");
    }

    proptest! {
        // GST-2: one bad key fails its events only.
        #[test]
        fn one_bad_key_of_any_number_is_all_that_fails(count in 2_usize..=1_000, at in 0_usize..1_000, doubt: bool) {
            let bad = at % count;
            let blame = if doubt { Blame::KeyOrProvider } else { Blame::Key };
            let (failed, sizes) = asked(count, |keys| keys.contains(&bad).then_some(blame));
            prop_assert_eq!(failed, vec![bad]);
            prop_assert!(sizes.len() <= CALLS_MAX);
        }

        #[test]
        fn any_number_of_bad_keys_costs_a_bounded_number_of_calls(bad in proptest::collection::btree_set(0_usize..200, 0..40)) {
            let (failed, sizes) = asked(200, |keys| keys.iter().any(|key| bad.contains(key)).then_some(Blame::KeyOrProvider));
            prop_assert!(bad.iter().all(|key| failed.contains(key)));
            prop_assert!(sizes.len() <= CALLS_MAX);
        }
    }
}
