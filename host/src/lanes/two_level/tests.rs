//! Two levels, held against the bound of each inside the other.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::lanes::drr::oracle::{
    Ledger, Share, for_random_configurations, random_cost, random_options, random_shares, serve, serve_while,
    work_until,
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

/// Services after which every key has been served twice, in any configuration.
const SETTLED_MAX: usize = 2_000_000;
/// Services that are held against the bounds.
const SERVICES: usize = 600;

/// Serves until `keys` have been served twice, which ends a first pass, and then [`SERVICES`] times. Only the latter
/// are returned.
fn serve_settled(
    drr: &mut TwoLevelDrr<usize, usize>,
    limits: TurnLimits,
    keys: usize,
    head: impl FnMut(usize) -> u64,
    mut stir: impl FnMut(&mut TwoLevelDrr<usize, usize>),
) -> Vec<(usize, u64)> {
    let (mut times, mut left_once, mut settling, mut left) = (vec![0_u8; keys], keys, 0, SERVICES);
    let mut served = serve_while(drr, limits, head, |drr, key| {
        stir(drr);
        if left_once == 0 {
            left -= 1;
            return left > 0;
        }
        settling += 1;
        assert!(settling < SETTLED_MAX, "some key is not served");
        times[key] = times[key].saturating_add(1);
        left_once -= usize::from(times[key] == 2);
        true
    });
    served.split_off(served.len() - SERVICES)
}

// DRR-1, DRR-3, DRR-4: also beside keys that come and go at random.
#[test]
fn no_key_of_any_group_waits_for_more_work_than_both_bounds_say() {
    for_random_configurations(|random| {
        let (options, limits) = random_options(random);
        let entitled = Entitled::random(random, options);
        let beginning = if random.random() { Beginning::Fresh } else { Beginning::FirstPass };
        let mut drr = entitled.backlogged(options, beginning);
        drr.begin_at(random.random());
        let places = entitled.places();
        // At least one always has something to serve; in a first pass all have, for it would not end else.
        let (steady, keys) = (random.random_range(0..places.len()), places.len());
        let fickle = if beginning == Beginning::Fresh { 0.3 } else { 0.0 };
        let is_fickle: Vec<bool> = (0..keys).map(|number| number != steady && random.random_bool(fickle)).collect();
        let largest = |number: usize| entitled.keys[places[number].0][places[number].1].largest;
        let mut arrivals = StdRng::seed_from_u64(random.random());
        let stir = |drr: &mut TwoLevelDrr<usize, usize>| {
            let number = arrivals.random_range(0..is_fickle.len());
            if is_fickle[number] {
                if arrivals.random() { drr.activate(number) } else { drr.deactivate(number) }
            }
        };
        let settling = if beginning == Beginning::Fresh { 0 } else { keys };
        let served = serve_settled(&mut drr, limits, settling, |number| random_cost(random, largest(number)), stir);
        let ledger = Ledger::new(served, places.len());
        for (number, (group, key)) in places.into_iter().enumerate().filter(|(number, _)| !is_fickle[*number]) {
            for interval in ledger.intervals(number, 0, random) {
                let inner = work_until(&entitled.keys[group], key, interval.received);
                let bound = work_until(&entitled.groups, group, inner);
                assert!(interval.work <= bound, "key {key} of group {group}: {interval:?} exceeds {bound}");
            }
        }
    });
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
