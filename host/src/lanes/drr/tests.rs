//! One level, held against its bounds.

use rand::RngExt;
use rand::rngs::StdRng;

use super::oracle::{
    Ledger, Share, Sharing, for_random_configurations, is_owed, random_cost, random_options, random_shares, serve,
    work_until,
};
use super::*;
use crate::lanes::turn::TurnLimits;

const QUANTUM: u64 = 64 << 10;
const OPTIONS: DrrOptions = DrrOptions { quantum: QUANTUM, cost_max: 1 << 20 };
const UNLIMITED: TurnLimits = TurnLimits { items_max: u32::MAX, cost_max: u64::MAX, visits_max: u32::MAX };

fn backlogged(options: DrrOptions, beginning: Beginning, weights: impl IntoIterator<Item = u32>) -> Drr<usize> {
    let mut drr = Drr::new(options, beginning);
    for (key, weight) in weights.into_iter().enumerate() {
        drr.set_weight(key, weight);
        drr.activate(key);
    }
    drr
}

fn total(served: &[(usize, u64)], key: usize) -> u64 {
    served.iter().filter(|(served, _)| *served == key).map(|(_, cost)| cost).sum()
}

// DRR-2
#[test]
fn eight_to_one_is_eight_to_one_whatever_the_size() {
    for size in [256, 1 << 10, 64 << 10] {
        let per_round = usize::try_from(9 * QUANTUM / size).unwrap();
        let mut drr = backlogged(OPTIONS, Beginning::Fresh, [8, 1]);
        let served = serve(&mut drr, UNLIMITED, 20 * per_round, |_| size);
        assert_eq!(total(&served, 0), 8 * total(&served, 1), "{size}");
    }
}

/// A backlogged ring and what each key is entitled to in it.
fn random_ring(random: &mut StdRng) -> (Drr<usize>, TurnLimits, Vec<Share>) {
    let (options, limits) = random_options(random);
    let keys = random.random_range(2..=12);
    let shares = random_shares(random, options, keys);
    (backlogged(options, Beginning::Fresh, shares.iter().map(|share| share.weight)), limits, shares)
}

// DRR-3, DRR-4
#[test]
fn no_key_waits_for_more_work_than_the_bound_says() {
    const SERVICES: usize = 500;
    for_random_configurations(|random| {
        let (mut drr, limits, shares) = random_ring(random);
        let served = serve(&mut drr, limits, SERVICES, |key| random_cost(random, shares[key].largest));
        let ledger = Ledger::new(served, shares.len());
        for key in 0..shares.len() {
            for interval in ledger.intervals(key, 0, random) {
                let bound = work_until(&shares, key, interval.received);
                assert!(interval.work <= bound, "key {key} of {shares:?}: {interval:?} exceeds {bound}");
                let (work, received) = (interval.work_before_last, interval.received_before_last);
                assert!(is_owed(&shares, key, work, received), "key {key} of {shares:?}: {interval:?}");
            }
        }
    });
}

// DRR-4: of two keys that are always backlogged, one is never further ahead, in its own quanta, than a visit and what
// each may carry over; and Jain's index over all of them is no lower than that allows.
#[test]
fn shares_differ_by_a_visit_at_the_most_over_every_interval() {
    for_random_configurations(|random| {
        let (mut drr, limits, shares) = random_ring(random);
        let served = serve(&mut drr, limits, 500, |key| random_cost(random, shares[key].largest));
        let ledger = Ledger::new(served, shares.len());
        let carried = |share: &Share| (share.largest - 1) as f64 / share.quantum as f64;
        for _ in 0..20 {
            let received = ledger.received_in(0, random);
            let quanta: Vec<f64> =
                received.iter().zip(&shares).map(|(received, share)| *received as f64 / share.quantum as f64).collect();
            let mut widest: f64 = 0.0;
            for (one, of_one) in quanta.iter().zip(&shares) {
                for (other, of_other) in quanta.iter().zip(&shares) {
                    let bound = 1.0 + carried(of_one) + carried(of_other);
                    assert!(one - other <= bound + 1e-9, "{one} {other}, at most {bound} apart: {shares:?}");
                    widest = widest.max(bound);
                }
            }
            let count = quanta.len() as f64;
            let mean = quanta.iter().sum::<f64>() / count;
            if mean > 0.0 {
                let jain = (mean * count).powi(2) / (count * quanta.iter().map(|quanta| quanta * quanta).sum::<f64>());
                // No variance is greater than that of two halves as far apart as they may be.
                let least = 1.0 / (1.0 + (widest / (2.0 * mean)).powi(2));
                assert!(jain >= least - 1e-9, "{jain}, at least {least}: {shares:?}");
            }
        }
    });
}

// DRR-2, DRR-4
#[test]
fn service_stays_within_the_bound_over_every_run_of_visits() {
    for_random_configurations(|random| {
        let (mut drr, limits, shares) = random_ring(random);
        let mut received = vec![0i128; shares.len()];
        let mut visits = vec![0i128; shares.len()];
        // Over all intervals at once: the spread of `service - visits x quantum` at the visits' ends.
        let (mut low, mut high) = (vec![0i128; shares.len()], vec![0i128; shares.len()]);
        let mut heads: Vec<u64> = shares.iter().map(|share| share.largest).collect();
        let mut turn = limits.begin();
        for _ in 0..1_000 {
            let Some(key) = drr.next(&mut turn) else {
                turn = limits.begin();
                continue;
            };
            match drr.charge(&mut turn, heads[key]) {
                Charge::Served => {
                    received[key] += i128::from(heads[key]);
                    heads[key] = random_cost(random, shares[key].largest);
                }
                Charge::VisitOver => {
                    visits[key] += 1;
                    let skipped = i128::from(std::mem::take(&mut drr.skipped));
                    visits.iter_mut().for_each(|visits| *visits += skipped);
                    let lead = received[key] - visits[key] * i128::from(shares[key].quantum);
                    low[key] = low[key].min(lead);
                    high[key] = high[key].max(lead);
                }
                Charge::TurnOver => turn = limits.begin(),
            }
        }
        for (key, share) in shares.iter().enumerate() {
            let spread = high[key] - low[key];
            assert!(spread < i128::from(share.largest), "key {key} of {shares:?}: {spread}");
        }
    });
}

// DRR-2
#[test]
fn short_turns_serve_in_the_same_order_as_long_ones() {
    for_random_configurations(|random| {
        let (options, limits) = random_options(random);
        let shares = random_shares(random, options, 5);
        let costs: Vec<u64> = (0..200).map(|_| random.random_range(1..=options.cost_max)).collect();
        let run = |limits| {
            let mut next = costs.iter().cycle();
            let mut drr = backlogged(options, Beginning::Fresh, shares.iter().map(|share| share.weight));
            serve(&mut drr, limits, costs.len(), |_| *next.next().unwrap())
        };
        assert_eq!(run(limits), run(UNLIMITED));
    });
}

// DRR-4
#[test]
fn whoever_always_has_the_largest_cost_gets_no_more_than_its_weight() {
    let mut drr = backlogged(OPTIONS, Beginning::Fresh, [1; 5]);
    let served = serve(&mut drr, UNLIMITED, 200_000, |key| if key == 0 { OPTIONS.cost_max } else { 256 });
    let ledger = Ledger::new(served, 5);
    for key in 1..5 {
        assert!(ledger.total(0) <= ledger.total(key) + OPTIONS.cost_max, "{} {}", ledger.total(0), ledger.total(key));
    }
}

// DRR-1, DRR-3
#[test]
fn keys_that_come_and_go_leave_the_others_within_their_bound() {
    let options = DrrOptions { quantum: 100, cost_max: 100 };
    let limits = TurnLimits { items_max: 7, cost_max: 300, visits_max: 5 };
    let keys = 50;
    for_random_configurations(|random| {
        let mut drr = backlogged(options, Beginning::Fresh, vec![1; keys]);
        let mut waited = 0;
        let mut active = vec![true; keys];
        let mut turn = limits.begin();
        for _ in 0..500 {
            let other = random.random_range(1..keys);
            if active[other] {
                drr.deactivate(other)
            } else {
                drr.activate(other)
            }
            active[other] = !active[other];
            let Some(key) = drr.next(&mut turn) else {
                assert!(!drr.is_idle(), "key 0 is never idle");
                turn = limits.begin();
                continue;
            };
            assert!(active[key], "a key that left is not visited");
            match drr.charge(&mut turn, 100) {
                Charge::Served => {
                    waited = if key == 0 { 0 } else { waited + 1 };
                    // One quantum is one service here: between two of its own, each other key is served at most twice,
                    // for it may leave once it was served and join again behind.
                    assert!(waited <= 2 * keys, "key 0 waited for {waited} services");
                }
                Charge::VisitOver => {}
                Charge::TurnOver => turn = limits.begin(),
            }
        }
    });
}

// DRR-2
#[test]
fn activation_is_idempotent_and_leaving_forfeits_the_deficit() {
    let mut drr = backlogged(OPTIONS, Beginning::Fresh, [1, 1]);
    for _ in 0..10 {
        drr.activate(0);
    }
    let served = serve(&mut drr, UNLIMITED, 200, |_| 1 << 10);
    assert!(total(&served, 0).abs_diff(total(&served, 1)) <= QUANTUM);

    let mut drr = backlogged(OPTIONS, Beginning::Fresh, [1]);
    let mut turn = UNLIMITED.begin();
    drr.next(&mut turn);
    assert_eq!(drr.charge(&mut turn, QUANTUM + 1), Charge::VisitOver);
    drr.deactivate(0);
    drr.activate(0);
    drr.next(&mut turn);
    assert_eq!(drr.charge(&mut turn, QUANTUM + 1), Charge::VisitOver, "the first visit's grant is gone");
    drr.next(&mut turn);
    assert_eq!(drr.charge(&mut turn, QUANTUM + 1), Charge::Served, "two grants in a row cover it");
}

// DRR-2
#[test]
fn weight_zero_pauses_and_a_weight_brings_back() {
    let mut drr = backlogged(OPTIONS, Beginning::Fresh, [1, 1]);
    drr.set_weight(0, 0);
    drr.activate(0);
    assert!(serve(&mut drr, UNLIMITED, 100, |_| 1 << 10).iter().all(|(key, _)| *key == 1));
    drr.set_weight(0, 3);
    let served = serve(&mut drr, UNLIMITED, 4 * 64 * 10, |_| 1 << 10);
    assert!(total(&served, 0).abs_diff(3 * total(&served, 1)) <= 3 * QUANTUM);
    drr.set_weight(1, 0);
    drr.deactivate(1);
    drr.set_weight(1, 1);
    let served = serve(&mut drr, UNLIMITED, 100, |_| 1 << 10);
    assert!(served.iter().all(|(key, _)| *key == 0), "what is idle stays idle");
}

// DRR-2
#[test]
fn a_new_weight_counts_from_the_next_visit_and_clamps_what_was_gathered() {
    let mut drr = backlogged(OPTIONS, Beginning::Fresh, [8]);
    let mut turn = UNLIMITED.begin();
    drr.next(&mut turn);
    assert_eq!(drr.charge(&mut turn, 1 << 20), Charge::VisitOver);
    drr.set_weight(0, 1);
    drr.next(&mut turn);
    assert_eq!(drr.charge(&mut turn, 3 * QUANTUM), Charge::VisitOver, "two quanta at the most");
    drr.next(&mut turn);
    assert_eq!(drr.charge(&mut turn, 3 * QUANTUM), Charge::Served);
}

// DRR-2, DRR-4
#[test]
fn weights_that_flip_are_followed_and_take_nothing_along() {
    let mut drr = backlogged(OPTIONS, Beginning::Fresh, [8, 1]);
    for flip in 0..20 {
        let (heavy, light) = (flip % 2, 1 - flip % 2);
        drr.set_weight(heavy, 8);
        drr.set_weight(light, 1);
        // The visit that is under way goes on as it was granted.
        serve(&mut drr, UNLIMITED, 2 * 9 * 64, |_| 1 << 10);
        let served = serve(&mut drr, UNLIMITED, 10 * 9 * 64, |_| 1 << 10);
        let difference = total(&served, heavy).abs_diff(8 * total(&served, light));
        assert!(difference <= 9 * 8 * QUANTUM, "{difference}");
    }
}

// DRR-1, DRR-4
#[test]
fn a_first_pass_serves_each_key_once_and_then_shares_as_ever() {
    for_random_configurations(|random| {
        let (options, limits) = random_options(random);
        let keys = random.random_range(2..=12);
        let shares = random_shares(random, options, keys);
        let mut drr = backlogged(options, Beginning::FirstPass, shares.iter().map(|share| share.weight));
        drr.begin_at(random.random());
        let served = serve(&mut drr, limits, 300, |key| random_cost(random, shares[key].largest));
        let mut first: Vec<usize> = served[..keys].iter().map(|(key, _)| *key).collect();
        first.sort_unstable();
        assert_eq!(first, (0..keys).collect::<Vec<_>>(), "{shares:?}");
        let ledger = Ledger::new(served, keys);
        for key in 0..keys {
            for interval in ledger.intervals(key, keys, random) {
                let bound = work_until(&shares, key, interval.received);
                assert!(interval.work <= bound, "key {key} of {shares:?}: {interval:?} exceeds {bound}");
            }
        }
    });
}

// DRR-2
#[test]
fn a_turn_whose_time_is_over_serves_nothing_more_and_keeps_the_visit() {
    let mut drr = backlogged(OPTIONS, Beginning::Fresh, [1]);
    let mut turn = UNLIMITED.begin();
    drr.next(&mut turn);
    assert_eq!(drr.charge(&mut turn, QUANTUM - 1), Charge::Served);
    turn.end();
    assert_eq!(drr.next(&mut turn), None);
    let mut turn = UNLIMITED.begin();
    drr.next(&mut turn);
    assert_eq!(drr.charge(&mut turn, 2), Charge::VisitOver, "nothing was granted anew");
}

#[test]
fn whoever_leaves_leaves_the_ring_whole() {
    let mut drr = backlogged(OPTIONS, Beginning::Fresh, [1, 1, 1]);
    drr.deactivate(1);
    drr.deactivate(1);
    let served = serve(&mut drr, UNLIMITED, 300, |_| 1 << 10);
    assert_eq!((total(&served, 1), total(&served, 0) > 0, total(&served, 2) > 0), (0, true, true));
    drr.deactivate(0);
    drr.deactivate(2);
    assert!(drr.is_idle());
    drr.activate(1);
    assert_eq!(drr.next(&mut UNLIMITED.begin()), Some(1));
}
