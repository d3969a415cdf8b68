use std::time::Duration;

use super::*;
use crate::env::ManualClock;
use crate::model::time::Timestamp;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A claim of so many bytes.
struct Bytes(u32, DestinationName);

impl Weighed for Bytes {
    fn bytes(&self) -> u32 {
        self.0
    }

    fn destination(&self) -> &DestinationName {
        &self.1
    }
}

fn lease(shard: u16, epoch: u64) -> ShardLease {
    ShardLease { shard: ShardId(shard), epoch, until: START + Duration::from_secs(10) }
}

fn group(lease: ShardLease, claims: usize, bytes: u32) -> Group<Bytes> {
    group_to("sink", lease, claims, bytes)
}

fn group_to(destination: &str, lease: ShardLease, claims: usize, bytes: u32) -> Group<Bytes> {
    let latest = Latest::at(START, &ManualClock::at(START));
    let claim = || Bytes(bytes, destination.parse().unwrap());
    Group { lease, latest, claims: (0..claims).map(|_| claim()).collect() }
}

/// Lines before so many places, all of which one destination may have, with no bound in bytes.
fn lines(places: usize) -> Lines<Bytes> {
    Lines { of_destination_max: places, ..Lines::new(Places { messages: places, bytes: u64::MAX }) }
}

impl Lines<Bytes> {
    /// What gets the next places.
    fn next(&mut self) -> Option<(ShardLease, Vec<u32>)> {
        let taken = self.take()?;
        Some((taken.lease, taken.claims.iter().map(|claim| claim.0).collect()))
    }

    /// What gets the next places, which are free again at once.
    fn pass(&mut self) -> Option<(ShardLease, Vec<u32>)> {
        let taken = self.take()?;
        taken.claims.iter().for_each(|claim| self.free(&claim.1, claim.0));
        Some((taken.lease, taken.claims.iter().map(|claim| claim.0).collect()))
    }

    fn in_flight_to(&self, destination: &str) -> usize {
        self.destinations.get(&destination.parse().unwrap()).map_or(0, |there| there.messages)
    }
}

// DRR-1
#[test]
fn a_shard_with_little_to_send_does_not_wait_behind_one_with_much() {
    let mut lines = lines(1);
    (0..100).for_each(|_| lines.push(group(lease(0, 1), 256, 100)));
    assert_eq!(lines.pass().unwrap().0.shard, ShardId(0));
    lines.push(group(lease(1, 1), 1, 100));
    let mut before = 0_u64;
    while lines.pass().unwrap().0.shard != ShardId(1) {
        before += 1;
    }
    assert!(before <= MESSAGES.quantum / message_cost(100), "it came after {before} of the other's");
}

// DRR-1
#[test]
fn shards_that_wait_share_places_by_bytes() {
    let mut lines = lines(1);
    let sizes = [1 << 10, 64 << 10, 256];
    for (shard, bytes) in (0..).zip(sizes) {
        (0..40).for_each(|_| lines.push(group(lease(shard, 1), 256, bytes)));
    }
    let mut served = [0_u64; 3];
    for _ in 0..8_000 {
        let (lease, claims) = lines.pass().unwrap();
        served[usize::from(lease.shard.0)] += claims.into_iter().map(message_cost).sum::<u64>();
    }
    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    assert!(most - least <= 2 * MESSAGES.quantum, "{served:?}");
}

// DRR-2
#[test]
fn all_that_are_free_are_taken_at_once_and_only_under_one_lease() {
    let mut lines = lines(10);
    lines.push(group(lease(0, 1), 3, 100));
    lines.push(group(lease(0, 2), 1_000, 100));
    lines.push(group(lease(0, 2), 0, 100));
    assert_eq!(lines.next().unwrap(), (lease(0, 1), vec![100; 3]));
    assert_eq!(lines.next().unwrap(), (lease(0, 2), vec![100; 7]));
    assert!(lines.next().is_none());
    (0..10).for_each(|_| lines.free(&"sink".parse().unwrap(), 100));
    let mut left = 993;
    while let Some((taken, claims)) = lines.pass() {
        assert_eq!(taken, lease(0, 2));
        assert!(claims.len() <= 10);
        left -= claims.len();
    }
    assert_eq!((left, lines.waiting), (0, 0));
    assert!(lines.drr.is_idle());
}

// DRR-2
#[test]
fn a_message_that_is_larger_than_many_visits_grant_is_taken_all_the_same() {
    let mut lines = lines(1);
    lines.push(group(lease(0, 1), 2, u32::MAX));
    lines.push(group(lease(1, 1), 200, 100));
    let mut shards = Vec::new();
    while let Some((lease, claims)) = lines.pass() {
        shards.extend(claims.iter().map(|_| lease.shard.0));
    }
    assert_eq!(shards.iter().filter(|shard| **shard == 0).count(), 2);
    assert_eq!(shards.len(), 202);
}

// LAN-2
#[test]
fn a_destination_has_half_of_the_places_however_much_of_it_waits_and_stands_before_nobody() {
    let mut lines = Lines::new(Places { messages: 8, bytes: u64::MAX });
    lines.push(group_to("tarpit", lease(0, 1), 1_000, 100));
    lines.push(group_to("tarpit", lease(1, 1), 1_000, 100));
    while lines.take().is_some() {}
    assert_eq!((lines.in_flight_to("tarpit"), lines.messages), (4, 4));
    // Whatever comes after it gets a place at once, in the same shard as well.
    for shard in [0, 1] {
        lines.push(group_to("quiet", lease(shard, 1), 1, 100));
        assert_eq!(lines.pass().unwrap().0.shard, ShardId(shard));
    }
    // A place of its own that is free again is the next one's, of either shard.
    for _ in 0..4 {
        lines.free(&"tarpit".parse().unwrap(), 100);
        assert_eq!(lines.take().unwrap().claims.len(), 1);
        assert!(lines.take().is_none());
    }
    assert_eq!((lines.in_flight_to("tarpit"), lines.waiting), (4, 1_992));
}

// LAN-1, WRK-3
#[test]
fn what_is_in_flight_is_bounded_in_bytes_and_what_is_larger_than_all_goes_alone() {
    let mut lines = Lines::new(Places { messages: 100, bytes: 1_000 });
    lines.push(group(lease(0, 1), 4, 300));
    assert_eq!(lines.next().unwrap().1, [300; 3]);
    assert!(lines.next().is_none());
    lines.free(&"sink".parse().unwrap(), 300);
    assert_eq!(lines.next().unwrap().1, [300]);
    lines.push(group(lease(0, 1), 1, 5_000));
    for _ in 0..2 {
        lines.free(&"sink".parse().unwrap(), 300);
        assert!(lines.next().is_none(), "there is no room for it yet");
    }
    lines.free(&"sink".parse().unwrap(), 300);
    assert_eq!(lines.next().unwrap().1, [5_000]);
    lines.push(group(lease(0, 1), 1, 1));
    assert!(lines.next().is_none());
    lines.free(&"sink".parse().unwrap(), 5_000);
    assert_eq!(lines.pass().unwrap().1, [1]);
    assert_eq!((lines.messages, lines.bytes, lines.waiting), (0, 0, 0));
}

// TL-4
#[test]
fn what_waits_under_a_lease_is_given_back_and_nothing_else() {
    let mut lines = lines(1);
    lines.push(group(lease(0, 1), 3, 100));
    lines.push(group_to("other", lease(0, 1), 2, 100));
    lines.push(group(lease(0, 2), 1, 100));
    lines.push(group(lease(1, 1), 1, 100));
    assert_eq!(lines.remove(lease(0, 1)).len(), 5);
    let mut left = Vec::new();
    while let Some((lease, claims)) = lines.pass() {
        left.push((lease.shard.0, lease.epoch, claims.len()));
    }
    assert_eq!((left, lines.waiting), (vec![(0, 2, 1), (1, 1, 1)], 0));
}
