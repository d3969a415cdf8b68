use rand::RngExt;

use super::*;
use crate::lanes::drr::oracle::{for_random_configurations, random_cost};

const NOW: Duration = Duration::from_secs(5);

// DRR-1
#[test]
fn those_who_want_share_by_bytes_whoever_asks_more_often() {
    let costs = [1_000_u64, 64 << 10, 256];
    let mut rivals = Rivals::default();
    let mut taken = [0_u64; 3];
    (0..3).for_each(|who| rivals.refused(who, NOW));
    for round in 0..60_000_usize {
        // The first asks five times as often as the others.
        let who = if round % 7 < 5 { 0 } else { round % 7 - 4 };
        if rivals.may(who, NOW) {
            taken[who] += costs[who];
            rivals.took(who, costs[who], NOW);
        } else {
            rivals.refused(who, NOW);
        }
    }
    let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
    assert!(most - least <= 3 * (64 << 10), "{taken:?}");
}

// DRR-3
#[test]
fn nobody_waits_for_one_that_does_not_come() {
    let mut rivals = Rivals::default();
    rivals.refused(1, NOW);
    rivals.refused(2, NOW);
    assert!(rivals.may(1, NOW));
    assert!(rivals.took(1, 1 << 20, NOW), "its credit is used up");
    assert!(!rivals.may(1, NOW), "it is the other's turn");
    rivals.refused(1, NOW + PATIENCE / 2);
    assert!(rivals.may(1, NOW + PATIENCE), "which has not come");
    assert!(!rivals.took(1, 1 << 20, NOW + PATIENCE), "and there is nobody else");
    // One that leaves is not waited for either.
    rivals.refused(1, NOW);
    rivals.refused(2, NOW);
    rivals.took(1, 1 << 20, NOW);
    rivals.leave(2);
    assert!(rivals.may(1, NOW));
}

// DRR-1, DRR-4
#[test]
fn what_rivals_take_differs_by_no_more_than_a_quantum_and_their_largest_costs() {
    const STEPS: usize = 600;
    for_random_configurations(|random| {
        let count = random.random_range(2..=6_usize);
        let largest: Vec<u64> = (0..count).map(|_| random.random_range(256..=4 * QUANTUM.unsigned_abs())).collect();
        let eagerness: Vec<u32> = (0..count).map(|_| random.random_range(1..=8)).collect();
        let mut heads: Vec<u64> = largest.iter().map(|largest| random_cost(random, *largest)).collect();
        let mut rivals = Rivals::default();
        (0..count).for_each(|who| rivals.refused(who, NOW));
        let mut taken = vec![vec![0_u64; count]];
        let mut in_vain = vec![0; count];
        for _ in 0..STEPS {
            // Some ask far more often than others.
            let chosen = random.random_range(0..eagerness.iter().sum());
            let who = (0..count).find(|who| eagerness[..=*who].iter().sum::<u32>() > chosen).unwrap();
            let mut now = taken.last().unwrap().clone();
            if rivals.may(who, NOW) {
                rivals.took(who, heads[who], NOW);
                now[who] += heads[who];
                heads[who] = random_cost(random, largest[who]);
                in_vain.fill(0);
            } else {
                rivals.refused(who, NOW);
                in_vain[who] += 1;
                assert!(in_vain.contains(&0), "somebody may always take");
            }
            taken.push(now);
        }
        let quantum = QUANTUM.unsigned_abs();
        let last = &taken[STEPS];
        for (one, other) in (0..count).flat_map(|one| (0..count).map(move |other| (one, other))) {
            let differ = last[one].saturating_sub(last[other]);
            assert!(one == other || differ < quantum + largest[one], "{differ} of {one} before {other}: {largest:?}");
            let from = random.random_range(0..STEPS);
            let until = random.random_range(from..=STEPS);
            let in_between = |who: usize| taken[until][who] - taken[from][who];
            let differ = in_between(one).saturating_sub(in_between(other));
            let most = 2 * quantum + largest[one] + largest[other];
            assert!(one == other || differ < most, "{differ} of {one} before {other} in between: {largest:?}");
        }
    });
}
