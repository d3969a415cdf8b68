//! Which runtime looks after which shard, by rendezvous hashing with equal shares.
//!
//! Every runtime computes the same from the same list: for each shard the runtimes are ranked by a hash of both, and
//! the shard goes to the first that has room. Each gets `shards / runtimes`, rounded down, and as many as are left over
//! get one more. When a runtime comes or goes, most of the shards of the others stay where they are.
//!
//! A runtime that cannot open a shard withdraws from it: the shard goes to the next in its rank, above that one's share
//! if need be. Where all have withdrawn, somebody has to try all the same.

use crate::model::hash::fnv1a;
use crate::model::ids::RuntimeId;

/// Whose each shard of `0..shards` is, among the runtimes that are `live`; nobody's if there are none. Their order does
/// not matter. `has_withdrawn` says which of them is not to have which shard.
pub fn place(
    shards: u16,
    live: &[RuntimeId],
    has_withdrawn: impl Fn(u16, &RuntimeId) -> bool,
) -> Vec<Option<RuntimeId>> {
    if live.is_empty() {
        return vec![None; usize::from(shards)];
    }
    let share = usize::from(shards) / live.len();
    let mut left_over = usize::from(shards) % live.len();
    let mut taken = vec![0; live.len()];
    let mut places = Vec::with_capacity(usize::from(shards));
    for shard in 0..shards {
        let has_room = |at: usize| taken[at] < share || (taken[at] == share && left_over > 0);
        // Before rank comes whether it can open the shard at all, and whether the shard is within its share.
        let fitness = |at: &usize| {
            let runtime = live[*at];
            (!has_withdrawn(shard, &runtime), has_room(*at), rank(shard, &runtime), runtime)
        };
        let chosen = (0..live.len()).max_by_key(fitness).expect("there is one at least");
        if taken[chosen] == share {
            left_over = left_over.saturating_sub(1);
        }
        taken[chosen] += 1;
        places.push(Some(live[chosen]));
    }
    places
}

fn rank(shard: u16, runtime: &RuntimeId) -> u64 {
    let hash = fnv1a(runtime.as_bytes().iter().copied().chain(shard.to_be_bytes()));
    // FNV's last bytes hardly reach its upper bits, by which ranks compare: splitmix64's finalizer spreads them.
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::time::Timestamp;

    fn runtimes(count: u8) -> Vec<RuntimeId> {
        (0..count).map(|number| RuntimeId::new(Timestamp::from_millis(1_700_000_000_000), [number; 10])).collect()
    }

    /// As they are placed while each can open what it is given.
    fn place_all(shards: u16, live: &[RuntimeId]) -> Vec<Option<RuntimeId>> {
        place(shards, live, |_, _| false)
    }

    fn loads(places: &[Option<RuntimeId>]) -> Vec<usize> {
        let mut loads = BTreeMap::new();
        places.iter().flatten().for_each(|runtime| *loads.entry(*runtime).or_insert(0) += 1);
        loads.into_values().collect()
    }

    // TL-7
    #[test]
    fn every_runtime_gets_its_share() {
        for (shards, count) in [(8_u16, 1_u8), (8, 2), (8, 3), (8, 8), (9, 2), (64, 5), (256, 7)] {
            let mut loads = loads(&place_all(shards, &runtimes(count)));
            loads.sort_unstable();
            assert_eq!(loads.len(), usize::from(count));
            assert_eq!(loads.iter().sum::<usize>(), usize::from(shards));
            assert!(loads[loads.len() - 1] - loads[0] <= 1, "{shards} over {count}: {loads:?}");
        }
    }

    // TL-7
    #[test]
    fn with_more_runtimes_than_shards_each_shard_has_one() {
        let places = place_all(2, &runtimes(5));
        assert!(places[0].is_some() && places[1].is_some() && places[0] != places[1]);
        assert_eq!(place_all(2, &[]), [None, None]);
    }

    // TL-7
    #[test]
    fn all_runtimes_agree_whatever_order_they_know_each_other_in() {
        let mut live = runtimes(5);
        let places = place_all(64, &live);
        live.reverse();
        assert_eq!(place_all(64, &live), places);
    }

    // TL-7
    #[test]
    fn one_that_comes_moves_hardly_more_than_its_share() {
        let (before, after) = (place_all(256, &runtimes(7)), place_all(256, &runtimes(8)));
        let newcomer = runtimes(8)[7];
        let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        let taken = after.iter().filter(|place| **place == Some(newcomer)).count();
        assert_eq!(taken, 32);
        assert!(moved <= 3 * taken, "{moved} of 256 moved for {taken}");
    }

    // TL-7
    #[test]
    fn a_shard_that_its_runtime_cannot_open_goes_to_the_next_and_the_others_hardly_move() {
        let live = runtimes(3);
        let before = place_all(9, &live);
        for (shard, owner) in (0..).zip(&before) {
            let withdrawn = |other: u16, runtime: &RuntimeId| other == shard && Some(*runtime) == *owner;
            let after = place(9, &live, withdrawn);
            assert_ne!(after[usize::from(shard)], *owner);
            let mut backwards = live.clone();
            backwards.reverse();
            assert_eq!(place(9, &backwards, withdrawn), after, "all of them agree");
            let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
            assert!(moved <= 3, "{moved} moved for one");
        }
    }

    // TL-7
    #[test]
    fn a_shard_that_nobody_can_open_is_tried_all_the_same() {
        let live = runtimes(2);
        let places = place(4, &live, |shard, _| shard == 2);
        assert!(places.iter().all(Option::is_some));
        // One runtime takes what the other cannot have, above its share.
        let places = place(4, &live, |_, runtime| *runtime == live[0]);
        assert!(places.iter().all(|place| *place == Some(live[1])), "{places:?}");
    }
}
