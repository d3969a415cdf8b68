//! Random configurations that the tests hold both levels against their bounds over (`lanes/bounds.rs`).
//!
//! The seed is printed and can be given again as `FOREBAY_TEST_SEED`; `FOREBAY_DRR_CONFIGURATIONS` makes a run longer.

use std::collections::HashMap;

use rand::rngs::{StdRng, SysRng};
use rand::{RngExt, SeedableRng, TryRng};

use super::{Drr, DrrOptions};
pub(in crate::lanes) use crate::lanes::bounds::{Share, work_until};
use crate::lanes::turn::{Charge, Turn, TurnLimits};
use crate::lanes::two_level::TwoLevelDrr;

/// Configurations of a run that says nothing else.
const CONFIGURATIONS: u64 = 1_000;

/// What shares service between numbered keys, on one level or two.
pub(in crate::lanes) trait Sharing {
    fn next(&mut self, turn: &mut Turn) -> Option<usize>;
    fn charge(&mut self, turn: &mut Turn, cost: u64) -> Charge;
    fn is_idle(&self) -> bool;
}

macro_rules! sharing {
    ($($level:ty),*) => {$(
        impl Sharing for $level {
            fn next(&mut self, turn: &mut Turn) -> Option<usize> {
                self.next(turn)
            }

            fn charge(&mut self, turn: &mut Turn, cost: u64) -> Charge {
                let charge = self.offer(turn, cost);
                if charge == Charge::Served {
                    turn.spend(cost);
                    self.deduct(cost);
                }
                charge
            }

            fn is_idle(&self) -> bool {
                self.is_idle()
            }
        }
    )*};
}

sharing!(Drr<usize>, TwoLevelDrr<usize, usize>);

/// Serves `services` times in turns; `head` gives each key's next cost, which stays until it is served.
pub(in crate::lanes) fn serve(
    sharing: &mut impl Sharing,
    limits: TurnLimits,
    services: usize,
    head: impl FnMut(usize) -> u64,
) -> Vec<(usize, u64)> {
    let mut left = services;
    serve_while(sharing, limits, head, |_, _| {
        left = left.saturating_sub(1);
        left > 0
    })
}

/// Serves in turns until `goes_on` says otherwise, which is asked after each service of a key, and may have other keys
/// come and go.
pub(in crate::lanes) fn serve_while<S: Sharing>(
    sharing: &mut S,
    limits: TurnLimits,
    mut head: impl FnMut(usize) -> u64,
    mut goes_on: impl FnMut(&mut S, usize) -> bool,
) -> Vec<(usize, u64)> {
    let mut heads: HashMap<usize, u64> = HashMap::new();
    let mut served = Vec::new();
    let mut turn = limits.begin();
    loop {
        let Some(key) = sharing.next(&mut turn) else {
            assert!(!sharing.is_idle(), "work conservation: somebody is backlogged");
            turn = limits.begin();
            continue;
        };
        let cost = *heads.entry(key).or_insert_with(|| head(key));
        match sharing.charge(&mut turn, cost) {
            Charge::Served => {
                served.push((key, cost));
                heads.remove(&key);
                if !goes_on(sharing, key) {
                    return served;
                }
            }
            Charge::VisitOver => {}
            Charge::TurnOver => turn = limits.begin(),
        }
    }
}

/// Runs `check` with a source of chance for each of many configurations.
pub(in crate::lanes) fn for_random_configurations(mut check: impl FnMut(&mut StdRng)) {
    let given = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = given("FOREBAY_TEST_SEED").unwrap_or_else(|| SysRng.try_next_u64().unwrap());
    println!("FOREBAY_TEST_SEED={seed}");
    for round in 0..given("FOREBAY_DRR_CONFIGURATIONS").unwrap_or(CONFIGURATIONS) {
        check(&mut StdRng::seed_from_u64(seed.wrapping_add(round)));
    }
}

/// Options, and how long turns are.
pub(in crate::lanes) fn random_options(random: &mut StdRng) -> (DrrOptions, TurnLimits) {
    let cost_max = random.random_range(1..=2_000);
    let options = DrrOptions { quantum: random.random_range(1..=500), cost_max };
    let limits = TurnLimits {
        items_max: random.random_range(1..=20),
        cost_max: cost_max + random.random_range(0..=2_000),
        visits_max: random.random_range(1..=20),
    };
    (options, limits)
}

/// Shares of so many keys.
pub(in crate::lanes) fn random_shares(random: &mut StdRng, options: DrrOptions, keys: usize) -> Vec<Share> {
    (0..keys)
        .map(|_| {
            let weight = random.random_range(1..=8);
            let largest = random.random_range(1..=options.cost_max);
            Share { weight, quantum: u64::from(weight) * options.quantum, largest }
        })
        .collect()
}

/// The next head of a key. A tenth are as large as they can be: the worst case for whoever waits behind them.
pub(in crate::lanes) fn random_cost(random: &mut StdRng, largest: u64) -> u64 {
    if random.random_range(0..10) == 0 { largest } else { random.random_range(1..=largest) }
}

/// What was served, in order, summed up for the intervals of it.
pub(in crate::lanes) struct Ledger {
    served: Vec<(usize, u64)>,
    /// Of all keys, and of each, before each service.
    work: Vec<u64>,
    received: Vec<Vec<u64>>,
}

/// An interval that ends with a service of the key that it is about.
#[derive(Debug, Clone, Copy)]
pub(in crate::lanes) struct Interval {
    /// What everybody received in it.
    pub work: u64,
    /// What the key received in it.
    pub received: u64,
    /// What everybody, and the key, had received before that last service.
    pub work_before_last: u64,
    pub received_before_last: u64,
}

impl Ledger {
    pub(in crate::lanes) fn new(served: Vec<(usize, u64)>, keys: usize) -> Self {
        let mut work = vec![0];
        let mut received = vec![vec![0]; keys];
        for (key, cost) in &served {
            work.push(work[work.len() - 1] + cost);
            for (other, received) in received.iter_mut().enumerate() {
                received.push(received[received.len() - 1] + if other == *key { *cost } else { 0 });
            }
        }
        Self { served, work, received }
    }

    pub(in crate::lanes) fn total(&self, key: usize) -> u64 {
        *self.received[key].last().unwrap()
    }

    /// Intervals that begin anywhere behind `after` and end when `key` is served.
    pub(in crate::lanes) fn intervals(&self, key: usize, after: usize, random: &mut StdRng) -> Vec<Interval> {
        const INTERVALS: usize = 20;
        let mut found = Vec::new();
        for _ in 0..INTERVALS {
            let from = random.random_range(after..self.served.len());
            let until = random.random_range(from..self.served.len());
            let Some(last) = (until..self.served.len()).find(|at| self.served[*at].0 == key) else { continue };
            let received = &self.received[key];
            found.push(Interval {
                work: self.work[last + 1] - self.work[from],
                received: received[last + 1] - received[from],
                work_before_last: self.work[last] - self.work[from],
                received_before_last: received[last] - received[from],
            });
        }
        found
    }

    /// What each key received in a random interval behind `after`.
    pub(in crate::lanes) fn received_in(&self, after: usize, random: &mut StdRng) -> Vec<u64> {
        let from = random.random_range(after..self.served.len());
        let until = random.random_range(from..=self.served.len());
        self.received.iter().map(|received| received[until] - received[from]).collect()
    }

    /// The longest run of services between two of `key`.
    pub(in crate::lanes) fn longest_gap(&self, key: usize) -> usize {
        let mut gap = 0;
        let mut longest = 0;
        for (served, _) in &self.served {
            gap = if *served == key { 0 } else { gap + 1 };
            longest = longest.max(gap);
        }
        longest
    }
}

/// Whether `received` is what a server of rate `Q / F` and the bound's latency owes of `work`: the rate-latency form,
/// times `F`, in integers.
pub(in crate::lanes) fn is_owed(shares: &[Share], of: usize, work: u64, received: u64) -> bool {
    let all: u64 = shares.iter().map(|share| share.quantum).sum();
    let Share { quantum, .. } = shares[of];
    let rests: u64 = shares.iter().map(Share::rest).sum::<u64>() - shares[of].rest();
    let latency = (all - quantum) * (quantum + shares[of].rest()) + quantum * rests;
    i128::from(all * received) >= i128::from(quantum * work) - i128::from(latency)
}
