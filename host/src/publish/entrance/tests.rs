use std::time::Duration;

use super::*;
use crate::env::ManualClock;
use crate::model::time::Timestamp;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A claim of so many bytes.
struct Bytes(u32);

impl Weighed for Bytes {
    fn bytes(&self) -> u32 {
        self.0
    }
}

fn lease(shard: u16, epoch: u64) -> ShardLease {
    ShardLease { shard: ShardId(shard), epoch, until: START + Duration::from_secs(10) }
}

fn group(lease: ShardLease, claims: usize, bytes: u32) -> Group<Bytes> {
    let latest = Latest::at(START, &ManualClock::at(START));
    Group { lease, latest, claims: (0..claims).map(|_| Bytes(bytes)).collect() }
}

impl Lines<Bytes> {
    /// What gets the next places, while only so many are free.
    fn next(&mut self, places: usize) -> Option<(ShardLease, Vec<u32>)> {
        let mut free = places;
        let place = || {
            let given = free > 0;
            free -= usize::from(given);
            given.then_some(())
        };
        let taken = self.take(place, |_, ()| {})?;
        Some((taken.lease, taken.claims.iter().map(|claim| claim.0).collect()))
    }
}

// DRR-1
#[test]
fn a_shard_with_little_to_send_does_not_wait_behind_one_with_much() {
    let mut lines = Lines::new();
    (0..100).for_each(|_| lines.push(group(lease(0, 1), 256, 100)));
    assert_eq!(lines.next(1).unwrap().0.shard, ShardId(0));
    lines.push(group(lease(1, 1), 1, 100));
    let mut before = 0_u64;
    while lines.next(1).unwrap().0.shard != ShardId(1) {
        before += 1;
    }
    assert!(before <= MESSAGES.quantum / message_cost(100), "it came after {before} of the other's");
}

// DRR-1
#[test]
fn shards_that_wait_share_places_by_bytes() {
    let mut lines = Lines::new();
    let sizes = [1 << 10, 64 << 10, 256];
    for (shard, bytes) in (0..).zip(sizes) {
        (0..40).for_each(|_| lines.push(group(lease(shard, 1), 256, bytes)));
    }
    let mut served = [0_u64; 3];
    for _ in 0..8_000 {
        let (lease, claims) = lines.next(1).unwrap();
        served[usize::from(lease.shard.0)] += claims.into_iter().map(message_cost).sum::<u64>();
    }
    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    assert!(most - least <= 2 * MESSAGES.quantum, "{served:?}");
}

// DRR-2
#[test]
fn all_that_are_free_are_taken_at_once_and_only_under_one_lease() {
    let mut lines = Lines::new();
    lines.push(group(lease(0, 1), 3, 100));
    lines.push(group(lease(0, 2), 1_000, 100));
    lines.push(group(lease(0, 2), 0, 100));
    assert_eq!(lines.next(10).unwrap(), (lease(0, 1), vec![100; 3]));
    assert_eq!(lines.next(10).unwrap(), (lease(0, 2), vec![100; 10]));
    assert!(lines.next(0).is_none());
    let mut left = 990;
    while let Some((taken, claims)) = lines.next(10_000) {
        assert_eq!(taken, lease(0, 2));
        assert!(claims.len() <= ADMISSIONS_PER_CALL_MAX as usize);
        left -= claims.len();
    }
    assert_eq!(left, 0);
    assert!(lines.drr.is_idle());
}

// DRR-2
#[test]
fn a_message_that_is_larger_than_many_visits_grant_is_taken_all_the_same() {
    let mut lines = Lines::new();
    lines.push(group(lease(0, 1), 2, u32::MAX));
    lines.push(group(lease(1, 1), 200, 100));
    let mut shards = Vec::new();
    while let Some((lease, claims)) = lines.next(1) {
        shards.extend(claims.iter().map(|_| lease.shard.0));
    }
    assert_eq!(shards.iter().filter(|shard| **shard == 0).count(), 2);
    assert_eq!(shards.len(), 202);
}
