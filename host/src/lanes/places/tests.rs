use std::collections::VecDeque;

use rand::RngExt;

use super::*;
use crate::lanes::drr::oracle::{for_random_configurations, random_cost};
use crate::lanes::rivals::QUANTUM;

const NOW: Duration = Duration::from_secs(5);
const MIB: u32 = 1 << 20;

struct Taken {
    places: Places<u16, &'static str>,
    called: Vec<u16>,
    now: Duration,
}

impl Taken {
    fn new(messages: usize, bytes: u64) -> Self {
        Self { places: Places::new(PlacesMax { messages, bytes }), called: Vec::new(), now: NOW }
    }

    fn take(&mut self, shard: u16, destination: &'static str, bytes: u32) -> Result<(), NoPlace> {
        self.places.take(shard, &destination, bytes, false, self.now, &mut self.called)
    }

    /// As many as there are places for; and why there is none for the next.
    fn fill(&mut self, shard: u16, destination: &'static str, bytes: u32) -> (usize, NoPlace) {
        let mut taken = 0;
        loop {
            match self.take(shard, destination, bytes) {
                Ok(()) => taken += 1,
                Err(reason) => return (taken, reason),
            }
        }
    }

    fn give_back(&mut self, destination: &'static str, bytes: u32) {
        self.places.give_back(&destination, bytes, &mut self.called);
    }
}

// LAN-2, WRK-3
#[test]
fn a_destination_has_half_of_all_messages_and_of_all_bytes() {
    let mut all = Taken::new(64, 64 << 20);
    assert_eq!(all.fill(0, "tarpit", 100), (32, NoPlace::Destination));
    assert_eq!(all.places.room_there(0, &"tarpit", NOW), 0);
    let mut all = Taken::new(64, 64 << 20);
    assert_eq!(all.fill(0, "tarpit", 4 * MIB), (8, NoPlace::Destination));
    assert_eq!(all.take(0, "tarpit", 1), Err(NoPlace::Destination));
    // One that is larger than that goes, and alone.
    let mut all = Taken::new(64, 64 << 20);
    assert_eq!(all.fill(0, "tarpit", 40 * MIB), (1, NoPlace::Destination));
    assert_eq!(all.take(0, "sink", 24 * MIB), Ok(()));
    // What is larger than all counts as all.
    let mut all = Taken::new(64, 8 << 20);
    assert_eq!(all.fill(0, "tarpit", 30 * MIB), (1, NoPlace::Destination));
    assert_eq!(all.take(0, "sink", 1), Err(NoPlace::Bytes));
    all.give_back("tarpit", 30 * MIB);
    assert_eq!(all.places.take(0, &"sink", 1, true, NOW, &mut all.called), Ok(()));
}

// LAN-2, WRK-3
#[test]
fn the_reserve_is_for_those_who_have_nothing_in_flight() {
    const TARPITS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for tarpits in [2, 8] {
        for bytes in [100, MIB, 20 * MIB] {
            let mut all = Taken::new(512, 256 << 20);
            let mut waiting = true;
            while std::mem::take(&mut waiting) {
                for tarpit in &TARPITS[..tarpits] {
                    waiting |= all.take(0, tarpit, bytes).is_ok();
                }
            }
            for _ in 0..1_000 {
                let taken = all.places.take(1, &"sink", bytes, true, NOW, &mut all.called);
                assert_eq!(taken, Ok(()), "{tarpits} of {bytes}");
                assert!(all.take(1, "sink", 20 * MIB).is_err());
                all.give_back("sink", bytes);
            }
        }
    }
}

// DRR-1
#[test]
fn shards_that_are_refused_share_what_comes_free_by_bytes() {
    let mut all = Taken::new(80, 1 << 30);
    let (destinations, sizes) = (["a", "b", "c"], [1 << 10, 64 << 10, 256]);
    let mut taken = [0_u64; 3];
    let mut in_flight = VecDeque::new();
    for round in 0..30_000_usize {
        let shard = round % 3;
        if all.take(u16::try_from(shard).unwrap(), destinations[shard], sizes[shard]).is_ok() {
            in_flight.push_back(shard);
            if round > 1_000 {
                taken[shard] += message_cost(sizes[shard]);
            }
        } else if in_flight.len() >= 70 {
            let shard = in_flight.pop_front().unwrap();
            all.give_back(destinations[shard], sizes[shard]);
        }
    }
    let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
    assert!(most - least <= 4 * (64 << 10), "{taken:?}");
}

// DRR-3
#[test]
fn who_was_refused_is_called_when_a_place_is_free_or_it_is_its_turn() {
    let mut all = Taken::new(16, 1 << 20);
    assert_eq!(all.fill(0, "sink", 100), (8, NoPlace::Destination));
    assert_eq!(all.take(1, "sink", 100), Err(NoPlace::Destination));
    assert!(all.called.is_empty());
    all.give_back("sink", 100);
    assert_eq!(all.called, [0, 1]);
    all.called.clear();
    assert_eq!(all.take(1, "sink", 100), Ok(()));
    // A shard that is given up leaves its turn to the others.
    all.places.leave(1, &mut all.called);
    assert!(all.called.contains(&0));
}

// LAN-2
#[test]
fn bytes_of_the_reserve_are_kept_for_one_that_waits_for_them() {
    let mut all = Taken::new(64, 64 << 20);
    for (tarpit, bytes) in [("a", 30 * MIB), ("b", 26 * MIB)] {
        assert_eq!(all.take(0, tarpit, bytes), Ok(()));
    }
    assert_eq!(all.take(0, "large", 10 * MIB), Err(NoPlace::Bytes));
    // Others have the rest, but not what it waits for.
    assert_eq!(all.take(1, "sink", MIB), Err(NoPlace::Bytes));
    all.give_back("b", 26 * MIB);
    assert_eq!(all.places.take(1, &"sink", MIB, true, NOW, &mut all.called), Ok(()));
    assert_eq!(all.places.take(0, &"large", 10 * MIB, true, NOW, &mut all.called), Ok(()));
    assert_eq!(all.take(1, "other", MIB), Ok(()));
}

/// A destination, and a shard that waits for bytes to it, while others hold all that there are.
fn waiting(first: bool) -> Taken {
    let mut all = Taken::new(64, 64 << 20);
    for (tarpit, bytes) in [("a", 30 * MIB), ("b", 25 * MIB)] {
        assert_eq!(all.take(0, tarpit, bytes), Ok(()));
    }
    if !first {
        assert_eq!(all.take(1, "sink", 100), Ok(()));
    }
    assert_eq!(all.take(1, "sink", 10 * MIB), Err(NoPlace::Bytes));
    all
}

// LAN-2: a shard at its claim limit, short of something else, or ending asks for nothing any more.
#[test]
fn a_destination_does_not_wait_for_a_shard_that_does_not_come() {
    for first in [false, true] {
        let mut all = waiting(first);
        assert_eq!(all.take(2, "sink", 100), Err(NoPlace::Destination), "it is another one's turn");
        // Each time that it asks, it is waited for anew.
        for _ in 0..5 {
            all.now += WAITS_FOR * 3 / 4;
            assert_eq!(all.places.take(1, &"sink", 10 * MIB, true, all.now, &mut all.called), Err(NoPlace::Bytes));
            assert_eq!(all.take(2, "sink", 100), Err(NoPlace::Destination));
        }
        all.now += WAITS_FOR;
        all.give_back("b", 25 * MIB);
        assert_eq!(all.take(2, "sink", 100), Ok(()), "it has not come");
        assert_eq!(all.take(2, "sink", 100), Ok(()));
        // It comes back, and goes like any other.
        assert_eq!(all.places.take(1, &"sink", 10 * MIB, true, all.now, &mut all.called), Ok(()));
    }
}

// LAN-2
#[test]
fn bytes_are_not_kept_for_a_shard_that_does_not_come() {
    let mut all = waiting(true);
    assert_eq!(all.take(2, "other", 2 * MIB), Err(NoPlace::Bytes), "they are kept");
    all.now += WAITS_FOR;
    assert_eq!(all.places.take(2, &"other", 2 * MIB, true, all.now, &mut all.called), Ok(()));
    // What is kept then is for whoever asks.
    let refused = all.places.take(2, &"third", 8 * MIB, true, all.now, &mut all.called);
    assert_eq!(refused, Err(NoPlace::Bytes));
    assert_eq!(all.take(1, "fourth", 2 * MIB), Err(NoPlace::Bytes), "it is kept for the other one now");
}

// LAN-2
#[test]
fn one_that_leaves_is_waited_for_no_longer_and_takes_nobody_elses_turn_along() {
    let mut all = waiting(true);
    all.places.leave(1, &mut all.called);
    assert_eq!(all.take(2, "sink", 100), Ok(()));
    // A destination to which nothing is in flight, and for which another one waits.
    let mut all = waiting(true);
    all.places.leave(3, &mut all.called);
    assert_eq!(all.take(2, "sink", 100), Err(NoPlace::Destination));
}

// DRR-1, DRR-4, LAN-2: shards with several destinations each, beside one that hangs, over random sizes and ends.
#[test]
fn whoever_takes_in_its_turn_is_a_quantum_ahead_of_nobody_whatever_is_sent_and_whichever_ends() {
    const DESTINATIONS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    const STEPS: usize = 600;
    const ELSE: u16 = 99;
    for_random_configurations(|random| {
        let shards = random.random_range(2..=4_u16);
        let largest: Vec<u64> = (0..shards).map(|_| random.random_range(256..=100_000)).collect();
        let mut all = Taken::new(random.random_range(64..=128), 1 << 40);
        // Everything is taken, by one that hangs and by others: all shards are refused, and are rivals from then on.
        all.fill(ELSE, "tarpit", 100);
        let (others, _) = all.fill(ELSE, "others", 100);
        let firsts = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];
        let firsts: Vec<_> = firsts.into_iter().filter(|first| all.take(ELSE, first, 100).is_ok()).collect();
        for shard in 0..shards {
            assert_eq!(all.take(shard, DESTINATIONS[usize::from(shard) * 3], 100), Err(NoPlace::All));
        }
        all.places.leave(ELSE, &mut all.called);
        firsts.into_iter().for_each(|first| all.give_back(first, 100));
        (0..others).for_each(|_| all.give_back("others", 100));
        let mut in_flight: VecDeque<(&'static str, u32)> = VecDeque::new();
        let mut taken = vec![0_u64; usize::from(shards)];
        for _ in 0..STEPS {
            let shard = random.random_range(0..shards);
            let destination = DESTINATIONS[usize::from(shard) * 3 + random.random_range(0..3_usize)];
            let bytes = u32::try_from(random_cost(random, largest[usize::from(shard)])).unwrap();
            let is_first = !in_flight.iter().any(|(to, _)| *to == destination);
            let before = taken[usize::from(shard)];
            match all.take(shard, destination, bytes) {
                Ok(()) => {
                    // What goes first to a destination goes in nobody's turn, and is paid for all the same.
                    let least = taken.iter().min().unwrap();
                    assert!(is_first || before < least + QUANTUM.unsigned_abs(), "{shard}: {taken:?} of {largest:?}");
                    taken[usize::from(shard)] += message_cost(bytes);
                    in_flight.push_back((destination, bytes));
                }
                Err(reason) => {
                    assert!(!is_first, "one that has nothing in flight has a place: {reason:?}");
                    let ended = in_flight.remove(random.random_range(0..in_flight.len())).unwrap();
                    all.give_back(ended.0, ended.1);
                }
            }
        }
    });
}
