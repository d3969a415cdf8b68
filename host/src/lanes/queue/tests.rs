use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::lanes::drr::oracle::{for_random_configurations, random_cost};

/// Whoever is called takes once, at this cost, as long as there is room; everybody wants all the time. Returns who
/// took, in order.
fn serve(queue: &mut Queue<usize>, weights: &[u32], services: usize, mut cost: impl FnMut(usize) -> u64) -> Vec<usize> {
    let mut random = StdRng::seed_from_u64(11);
    let mut served = Vec::new();
    // One more than there ever is room for: the queue stays one.
    (0..weights.len()).for_each(|who| queue.wait(who));
    while served.len() < services {
        let mut room: usize = random.random_range(1..weights.len());
        let mut called = queue.call(room, |who| Some(weights[who]));
        while room > 0 {
            let place = random.random_range(0..called.len());
            let who = called[place];
            served.push(who);
            room -= 1;
            if !queue.took(who, cost(who), room) {
                called.swap_remove(place);
            }
            called.extend(queue.call(room, |who| Some(weights[who])));
        }
        // Whoever was called and found no room stands in front again.
        called.into_iter().for_each(|who| queue.wait(who));
    }
    served
}

fn total(served: &[usize], who: usize) -> usize {
    served.iter().filter(|other| **other == who).count()
}

// DRR-3
#[test]
fn between_two_services_of_one_each_other_has_no_more_than_three() {
    for keys in [2, 3, 20] {
        let served = serve(&mut Queue::default(), &vec![1; keys], 5_000, |_| 256);
        for who in 0..keys {
            let mut others = vec![0; keys];
            for other in &served {
                if *other == who {
                    others.fill(0);
                } else {
                    others[*other] += 1;
                    // Its last visit, its next, and one that began while the other was called and had not taken.
                    assert!(others[*other] <= 3, "{who} of {keys} waits for {other}");
                }
            }
        }
    }
}

// DRR-1, DRR-2
#[test]
fn shares_are_by_weight_and_by_bytes() {
    let served = serve(&mut Queue::default(), &[8, 1, 1], 10_000, |_| 256);
    assert!(total(&served, 0).abs_diff(8_000) <= 10, "{}", total(&served, 0));
    // One of them sends what is hundreds of times as large.
    let cost = |who: usize| if who == 2 { 64 << 10 } else { 256 };
    let served = serve(&mut Queue::default(), &[1, 1, 1], 10_000, cost);
    let bytes = |who: usize| total(&served, who) as u64 * cost(who);
    assert!(bytes(2).abs_diff(bytes(0)) <= 2 * (64 << 10), "{} and {}", bytes(2), bytes(0));
    assert!(bytes(0).abs_diff(bytes(1)) <= 2 * 256);
}

// DRR-2
#[test]
fn what_is_owed_is_paid_also_by_one_that_was_away() {
    let mut queue = Queue::default();
    let wants = |_| Some(1);
    (0..3).for_each(|who| queue.wait(who));
    assert_eq!(queue.call(1, wants), [0]);
    assert!(!queue.took(0, MESSAGE_COST_MAX, 0));
    // It wants nothing, and comes back.
    assert_eq!(queue.call(3, |who| (who != 0).then_some(1)), [1, 2]);
    (0..3).for_each(|who| queue.wait(who));
    let mut others = 0;
    loop {
        let called = queue.call(1, wants);
        if called == [0] {
            break;
        }
        others += 1;
        assert!(!queue.took(called[0], 64 << 10, 0));
    }
    assert!((others as u64 + 2) * (64 << 10) >= 2 * MESSAGE_COST_MAX, "{others}");
}

#[test]
fn there_is_no_queue_where_there_is_room_for_all() {
    let mut queue = Queue::default();
    assert!(queue.may(7), "nobody waits");
    queue.wait(1);
    assert!(!queue.may(7) && !queue.may(1) && queue.waits(1));
    assert_eq!(queue.call(5, |_| Some(1)), [1]);
    assert!(queue.is_empty() && queue.may(7) && queue.may(1));
    assert!(queue.took(7, 100, 0), "nobody waits behind it");
}

// DRR-1, DRR-2, DRR-4
#[test]
fn shares_of_a_destination_differ_from_those_by_weight_by_two_visits_and_a_largest_cost_at_the_most() {
    const SERVICES: usize = 300;
    let quantum = MESSAGES.quantum;
    for_random_configurations(|random| {
        let keys = random.random_range(2..=6_usize);
        let weights: Vec<u32> = (0..keys).map(|_| random.random_range(1..=8)).collect();
        let largest: Vec<u64> = (0..keys).map(|_| random.random_range(quantum..=16 * quantum)).collect();
        let mut taken = vec![0_u64; keys];
        let costs = |who: usize| {
            let cost = random_cost(random, largest[who]).max(quantum);
            taken[who] += cost;
            cost
        };
        serve(&mut Queue::default(), &weights, SERVICES, costs);
        for (one, other) in (0..keys).flat_map(|one| (0..keys).map(move |other| (one, other))) {
            let (of_one, of_other) = (u64::from(weights[one]), u64::from(weights[other]));
            let ahead = (taken[one] * of_other).saturating_sub(taken[other] * of_one);
            // One may have begun a visit more, and be in debt by its largest; the other may not have used its last.
            let most = 2 * quantum * of_one * of_other + largest[one] * of_other;
            assert!(one == other || ahead < most, "{one} before {other}: {taken:?} by {weights:?}, of {largest:?}");
        }
    });
}
