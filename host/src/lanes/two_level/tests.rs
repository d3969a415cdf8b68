//! Two levels, held against the bound of each inside the other.

use rand::RngExt;
use rand::rngs::StdRng;

use super::*;
use crate::lanes::drr::oracle::{
    Ledger, Share, for_random_configurations, random_cost, random_options, random_shares, serve, work_until,
};
use crate::lanes::turn::TurnLimits;

const OPTIONS: DrrOptions = DrrOptions { quantum: 64 << 10, cost_max: 1 << 20 };
const UNLIMITED: TurnLimits = TurnLimits { items_max: u32::MAX, cost_max: u64::MAX, visits_max: u32::MAX };

/// What groups and keys are entitled to; keys are numbered through all groups.
struct Entitled {
    groups: Vec<Share>,
    keys: Vec<Vec<Share>>,
}

impl Entitled {
    fn random(random: &mut StdRng, options: DrrOptions) -> Self {
        let groups = random.random_range(2..=5);
        let mut groups = random_shares(random, options, groups);
        let keys: Vec<Vec<Share>> = (0..groups.len())
            .map(|_| {
                let keys = random.random_range(1..=5);
                random_shares(random, options, keys)
            })
            .collect();
        for (group, keys) in groups.iter_mut().zip(&keys) {
            group.largest = keys.iter().map(|key| key.largest).max().unwrap();
        }
        Self { groups, keys }
    }

    /// Each key's number, group and place in its group.
    fn places(&self) -> Vec<(usize, usize)> {
        (0..self.keys.len()).flat_map(|group| (0..self.keys[group].len()).map(move |key| (group, key))).collect()
    }

    fn backlogged(&self, options: DrrOptions, beginning: Beginning) -> TwoLevelDrr<usize, usize> {
        let mut drr = TwoLevelDrr::new(options, beginning);
        for (number, (group, key)) in self.places().into_iter().enumerate() {
            drr.set_group_weight(group, self.groups[group].weight);
            drr.set_weight(&group, number, self.keys[group][key].weight);
            drr.activate(number);
        }
        drr
    }
}

/// Equal weights all over: so many keys in each group.
fn even(keys: &[usize]) -> (TwoLevelDrr<usize, usize>, Vec<usize>) {
    let mut drr = TwoLevelDrr::new(OPTIONS, Beginning::Fresh);
    let mut groups = Vec::new();
    for (group, keys) in keys.iter().enumerate() {
        drr.set_group_weight(group, 1);
        for _ in 0..*keys {
            drr.set_weight(&group, groups.len(), 1);
            drr.activate(groups.len());
            groups.push(group);
        }
    }
    (drr, groups)
}

// DRR-1, DRR-3, DRR-4
#[test]
fn no_key_of_any_group_waits_for_more_work_than_both_bounds_say() {
    const SERVICES: usize = 600;
    let (mut configurations, mut checked) = (0_u32, 0_u32);
    for_random_configurations(|random| {
        configurations += 1;
        let (options, limits) = random_options(random);
        let entitled = Entitled::random(random, options);
        let beginning = if random.random() { Beginning::Fresh } else { Beginning::FirstPass };
        let mut drr = entitled.backlogged(options, beginning);
        drr.begin_at(random.random());
        let places = entitled.places();
        let largest = |number: usize| entitled.keys[places[number].0][places[number].1].largest;
        let served = serve(&mut drr, limits, SERVICES, |number| random_cost(random, largest(number)));
        // A first pass is over once every key has been served twice.
        let mut times = vec![0; places.len()];
        let settled = served.iter().position(|(key, _)| {
            times[*key] += 1;
            times.iter().all(|times| *times >= 2)
        });
        let Some(settled) = settled.filter(|settled| settled + 1 < SERVICES) else { return };
        checked += 1;
        let ledger = Ledger::new(served, places.len());
        for (number, (group, key)) in places.into_iter().enumerate() {
            for interval in ledger.intervals(number, settled + 1, random) {
                let inner = work_until(&entitled.keys[group], key, interval.received);
                let bound = work_until(&entitled.groups, group, inner);
                assert!(interval.work <= bound, "key {key} of group {group}: {interval:?} exceeds {bound}");
            }
        }
    });
    // In the others some key is so much heavier than the rest that the first pass does not end in so many services.
    assert!(2 * checked > configurations, "only {checked} of {configurations} were checked");
}

// DRR-1
#[test]
fn splitting_work_over_many_keys_buys_no_share() {
    for size in [256, 1 << 10, 64 << 10] {
        let (mut drr, groups) = even(&[100, 1]);
        let per_visit = usize::try_from(OPTIONS.quantum / size).unwrap();
        let ledger = Ledger::new(serve(&mut drr, UNLIMITED, 400 * per_visit, |_| size), groups.len());
        let of =
            |group| (0..groups.len()).filter(|key| groups[*key] == group).map(|key| ledger.total(key)).sum::<u64>();
        assert_eq!(of(0), of(1), "{size}");
    }
}

// DRR-1: without this, two of four keys starve for good.
#[test]
fn the_inner_position_and_its_deficits_outlive_the_outer_visit() {
    let (mut drr, groups) = even(&[4, 4]);
    let limits = TurnLimits { items_max: 1, cost_max: 1 << 20, visits_max: 64 };
    let ledger = Ledger::new(serve(&mut drr, limits, 4_000, |_| 40_000), groups.len());
    let totals: Vec<u64> = (0..groups.len()).map(|key| ledger.total(key)).collect();
    let (least, most) = (totals.iter().min().unwrap(), totals.iter().max().unwrap());
    assert!(most - least <= 2 * OPTIONS.quantum + 40_000, "{totals:?}");
}

// DRR-3: a key that is always ready is served within the bound's number of services, whatever the others send.
#[test]
fn a_flood_leaves_a_quiet_key_its_turn() {
    const SIZE: u64 = 1 << 10;
    let (mut drr, groups) = even(&[20, 1]);
    let quiet = groups.len() - 1;
    let ledger = Ledger::new(serve(&mut drr, UNLIMITED, 20_000, |_| SIZE), groups.len());
    let share = Share { weight: 1, quantum: OPTIONS.quantum, largest: SIZE };
    let bound = work_until(&[share, share], 1, SIZE) / SIZE;
    assert!(ledger.longest_gap(quiet) as u64 <= bound, "{} services, at most {bound}", ledger.longest_gap(quiet));
}

// DRR-2
#[test]
fn a_group_leaves_with_its_last_key_and_comes_back_with_its_first() {
    let (mut drr, _) = even(&[2, 1]);
    drr.deactivate(0);
    drr.deactivate(1);
    assert!(serve(&mut drr, UNLIMITED, 100, |_| 256).iter().all(|(key, _)| *key == 2));
    drr.activate(1);
    let ledger = Ledger::new(serve(&mut drr, UNLIMITED, 256 * 10, |_| 256), 3);
    assert_eq!((ledger.total(0), ledger.total(1)), (0, ledger.total(2)));
    drr.deactivate(1);
    drr.deactivate(2);
    assert!(drr.is_idle());
    drr.set_group_weight(1, 0);
    drr.activate(2);
    assert!(drr.is_idle(), "a group of weight 0 is paused");
}

// DRR-2
#[test]
fn groups_share_by_their_weights() {
    for size in [256, 1 << 10, 64 << 10] {
        let (mut drr, groups) = even(&[3, 5]);
        drr.set_group_weight(0, 8);
        let per_round = usize::try_from(9 * OPTIONS.quantum / size).unwrap();
        // The first visit was granted by the weight that counted when it began: begin behind it.
        let ledger = Ledger::new(serve(&mut drr, UNLIMITED, 40 * per_round, |_| size), groups.len());
        let of =
            |group| (0..groups.len()).filter(|key| groups[*key] == group).map(|key| ledger.total(key)).sum::<u64>();
        assert_eq!(of(0), 8 * of(1), "{size}");
    }
}
