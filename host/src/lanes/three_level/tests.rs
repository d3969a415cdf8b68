//! Three levels, held against the bound of each inside the next.

use rand::RngExt;

use super::*;
use crate::lanes::drr::oracle::{
    Ledger, Share, Sharing, for_random_configurations, random_cost, random_options, random_shares, serve, work_until,
};
use crate::lanes::turn::TurnLimits;

const OPTIONS: DrrOptions = DrrOptions { quantum: 256, cost_max: 1 << 20 };
const UNLIMITED: TurnLimits = TurnLimits { items_max: u32::MAX, cost_max: u64::MAX, visits_max: u32::MAX };

impl Sharing for ThreeLevelDrr<usize, usize, usize> {
    fn next(&mut self, turn: &mut Turn) -> Option<usize> {
        self.next(turn)
    }

    fn charge(&mut self, turn: &mut Turn, cost: u64) -> Charge {
        self.charge(turn, cost)
    }

    fn is_idle(&self) -> bool {
        self.is_idle()
    }
}

// DRR-1, DRR-3, DRR-4
#[test]
fn no_key_of_any_family_waits_for_more_work_than_the_three_bounds_say() {
    const SERVICES: usize = 400;
    for_random_configurations(|random| {
        let (options, limits) = random_options(random);
        let counts: Vec<Vec<usize>> = (0..random.random_range(1..=3))
            .map(|_| (0..random.random_range(1..=3)).map(|_| random.random_range(1..=3)).collect())
            .collect();
        let mut groups = random_shares(random, options, counts.len());
        let mut families: Vec<Vec<Share>> =
            counts.iter().map(|families| random_shares(random, options, families.len())).collect();
        let mut places = Vec::new();
        let mut largest = Vec::new();
        for (group, counts) in counts.iter().enumerate() {
            for (family, keys) in counts.iter().enumerate() {
                for _ in 0..*keys {
                    places.push((group, family));
                    largest.push(random_shares(random, options, 1)[0].largest);
                }
            }
        }
        let most = |is_of: &dyn Fn(&(usize, usize)) -> bool| {
            let of = places.iter().zip(&largest).filter(|(place, _)| is_of(place));
            of.map(|(_, largest)| *largest).max().unwrap()
        };
        for (group, shares) in families.iter_mut().enumerate() {
            groups[group].largest = most(&|place| place.0 == group);
            for (family, share) in shares.iter_mut().enumerate() {
                share.largest = most(&|place| *place == (group, family));
            }
        }
        let mut drr = ThreeLevelDrr::new(options, Beginning::Fresh);
        for (key, (group, family)) in places.iter().enumerate() {
            let number = group * 10 + family;
            drr.set_group_weight(*group, groups[*group].weight);
            drr.set_family_weight(group, number, families[*group][*family].weight);
            drr.add(number, key);
            drr.activate(key);
        }
        drr.begin_at(random.random());
        let served = serve(&mut drr, limits, SERVICES, |key| random_cost(random, largest[key]));
        let ledger = Ledger::new(served, places.len());
        for (key, (group, family)) in places.iter().enumerate() {
            let of_family: Vec<usize> = (0..places.len()).filter(|other| places[*other] == (*group, *family)).collect();
            let share = |key: &usize| Share { weight: 1, quantum: options.quantum, largest: largest[*key] };
            let keys: Vec<Share> = of_family.iter().map(share).collect();
            let of = of_family.iter().position(|other| *other == key).unwrap();
            for interval in ledger.intervals(key, 0, random) {
                let work = work_until(&keys, of, interval.received);
                let work = work_until(&families[*group], *family, work);
                let bound = work_until(&groups, *group, work);
                assert!(interval.work <= bound, "key {key}: {interval:?} exceeds {bound}");
            }
        }
    });
}

/// One group of two families, of so many keys.
fn even(keys: [usize; 2]) -> ThreeLevelDrr<usize, usize, usize> {
    let mut drr = ThreeLevelDrr::new(OPTIONS, Beginning::Fresh);
    drr.set_group_weight(0, 1);
    let mut number = 0;
    for (family, keys) in keys.into_iter().enumerate() {
        drr.set_family_weight(&0, family, 1);
        for _ in 0..keys {
            drr.add(family, number);
            drr.activate(number);
            number += 1;
        }
    }
    drr
}

// DRR-1
#[test]
fn many_keys_of_one_family_buy_no_share_of_another() {
    for size in [256, 1 << 10, 64 << 10] {
        let ledger = Ledger::new(serve(&mut even([100, 1]), UNLIMITED, 4_000, |_| size), 101);
        let many = (0..100).map(|key| ledger.total(key)).sum::<u64>();
        assert!(many.abs_diff(ledger.total(100)) <= size, "{size}: {many} and {}", ledger.total(100));
    }
}

// DRR-1, DRR-3: however often a family is parked, its keys have their turns.
#[test]
fn a_family_that_was_parked_goes_on_where_it_stopped() {
    let mut drr = even([7, 1]);
    let mut served = Vec::new();
    for _ in 0..700 {
        drr.unpark(0);
        served.extend(serve(&mut drr, UNLIMITED, 2, |_| 256).into_iter().map(|(key, _)| key).filter(|key| *key < 7));
        drr.park(0);
        assert!(serve(&mut drr, UNLIMITED, 3, |_| 256).iter().all(|(key, _)| *key == 7));
    }
    let first = served[0];
    assert!(served.len() >= 700);
    assert!(served.iter().enumerate().all(|(place, key)| *key == (first + place) % 7), "{:?}", &served[..20]);
}

// DRR-2
#[test]
fn what_was_offered_and_not_served_has_changed_nothing() {
    let mut drr = even([2, 1]);
    let mut turn = UNLIMITED.begin();
    for _ in 0..3 {
        assert_eq!(drr.next(&mut turn), Some(0));
        assert_eq!(drr.offer(&mut turn, 256), Charge::Served);
    }
    drr.serve(&mut turn, 256);
    assert_eq!((drr.next(&mut turn), drr.offer(&mut turn, 256)), (Some(0), Charge::VisitOver));
}
