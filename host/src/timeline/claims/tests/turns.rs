//! A turn is one account: what is claimed by the side doors is claimed of it as well.

use super::*;
use crate::timeline::schedule::{self, TURN_MESSAGES_MAX};

const SMALL: u32 = 200;

/// A message to a destination.
fn to(destination: &str, number: u64, bytes: u32) -> MessageEntry {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    let destination = destination.parse().unwrap();
    MessageEntry { id: MessageId::from_bytes(id), destination, bytes, ..row(0, number, 1, MessageState::Scheduled) }
}

/// A bench of these destinations, whose lanes may have all that there is.
fn bench(names: &[String], claims_max: usize, places: PlacesMax) -> Bench {
    let limits = LaneLimits { messages: 100_000, bytes: 1 << 40 };
    let named = |name: &String| Destination { limits, ..destination(name) };
    let mut bench = Bench::with(names.iter().map(named), claims_max);
    bench.seat = seat(places);
    bench
}

impl Bench {
    /// Turns of claims until there is nothing more to claim: how many messages each of them claimed.
    fn turns(&mut self) -> Vec<usize> {
        let turns = std::iter::from_fn(|| Some(self.claim().len()).filter(|claimed| *claimed > 0));
        turns.collect()
    }
}

// WRK-1, DRR-2: one that was cut short goes on with those that are left.
#[test]
fn what_waited_for_bytes_is_claimed_of_the_same_turn_as_the_rest() {
    const OUTLETS: u64 = 300;
    let large = ["large-0".to_owned(), "large-1".to_owned()];
    let names: Vec<String> = (0..OUTLETS).map(|number| format!("sink-{number}")).chain(large.clone()).collect();
    let mut bench = bench(&names, 8_192, PlacesMax { messages: 8_192, bytes: 8 << 20 });
    // Seven eighths are taken: beside its first message nobody has another one.
    let rows = [to(&large[0], 1, 3_700 << 10), to(&large[1], 2, 3_700 << 10)];
    bench.apply(&rows);
    assert_eq!(bench.turns(), [2]);
    let small = (0..4 * OUTLETS).map(|number| to(&names[(number % OUTLETS) as usize], 10 + number, SMALL));
    bench.apply(&small.collect::<Vec<_>>());
    assert_eq!(bench.turns().into_iter().sum::<usize>() as u64, OUTLETS, "the first of each");
    assert_eq!(bench.schedule.wait_for_bytes(usize::MAX).len() as u64, OUTLETS);
    for row in &rows {
        bench.settle_id(row.id, 1, PUBLISHED);
    }
    let turns = bench.turns();
    assert!(turns.iter().all(|claimed| *claimed <= TURN_MESSAGES_MAX as usize), "{turns:?}");
    assert_eq!(turns.iter().sum::<usize>() as u64, 3 * OUTLETS, "nobody is passed over");
}

// WRK-1
#[test]
fn what_waited_for_bytes_leaves_the_ring_its_visit_however_long_it_takes() {
    let names = ["large", "waits", "ring"].map(str::to_owned);
    let mut bench = bench(&names, 64, PlacesMax { messages: 64, bytes: 8 << 20 });
    bench.apply(&[to("large", 1, 6 << 20), to("waits", 2, 3 << 20)]);
    assert_eq!(bench.turns(), [1]);
    bench.apply(&[to("ring", 3, SMALL)]);
    bench.schedule.discover(&bench.index, NOW, &Signals::new(ShardId(0)));
    let mut step = bench.index.begin();
    let now = Interval { earliest: NOW, latest: NOW, at: Duration::ZERO };
    let mut picking = Picking::begin(&mut step, &mut bench.schedule, &bench.seat, now);
    bench.claims.pick(&mut picking, WithoutPlace::Wait, || true).unwrap();
    assert_eq!(picking.picked.len(), 1, "its time was over before it began");
}

// WRK-1, LAN-2
#[test]
fn quiet_destinations_that_are_served_beside_the_turns_are_served_of_one_turn() {
    const QUIET: u64 = 400;
    let floods = ["flood-0".to_owned(), "flood-1".to_owned()];
    let names: Vec<String> = floods.iter().cloned().chain((0..QUIET).map(|number| format!("quiet-{number}"))).collect();
    let mut bench = bench(&names, 16_384, PlacesMax { messages: 4_096, bytes: 1 << 40 });
    let flood = (0..4_400).map(|number| to(&floods[(number % 2) as usize], 1 + number, SMALL));
    bench.apply(&flood.collect::<Vec<_>>());
    assert_eq!(bench.turns().into_iter().sum::<usize>(), 4_096 - 4_096 / 8, "what is not the reserve");
    // Nothing of theirs ends.
    bench.without_place = WithoutPlace::ServeQuiet;
    bench.apply(&(0..QUIET).map(|number| to(&names[2 + number as usize], 10_000 + number, SMALL)).collect::<Vec<_>>());
    let turns = bench.turns();
    assert!(turns.iter().all(|claimed| *claimed <= TURN_MESSAGES_MAX as usize), "{turns:?}");
    assert_eq!(turns.iter().sum::<usize>() as u64, QUIET);
}

// DRR-2: bytes are one account, too.
#[test]
fn a_turn_hands_over_no_more_bytes_than_it_may_whichever_door_they_come_by() {
    let large = ["large-0", "large-1", "large-2", "large-3"].map(str::to_owned);
    let names: Vec<String> = large.iter().cloned().chain(["fill-0", "fill-1"].map(str::to_owned)).collect();
    let mut bench = bench(&names, 64, PlacesMax { messages: 64, bytes: 400 << 20 });
    let fill =
        [to("fill-0", 1, 60 << 20), to("fill-1", 2, 60 << 20), to("fill-0", 3, 60 << 20), to("fill-1", 4, 60 << 20)];
    bench.apply(&fill);
    assert_eq!(bench.turns().into_iter().sum::<usize>(), 4);
    bench.apply(&(0..4).map(|number| to(&large[number as usize], 10 + number, 1 << 10)).collect::<Vec<_>>());
    assert_eq!(bench.turns().into_iter().sum::<usize>(), 4);
    // Each has one in flight, and waits for bytes with the next.
    bench.apply(&(0..8).map(|number| to(&large[(number % 4) as usize], 20 + number, 40 << 20)).collect::<Vec<_>>());
    let before = bench.turns().into_iter().sum::<usize>();
    assert_eq!(bench.schedule.wait_for_bytes(usize::MAX).len(), 4);
    let mut bytes = Vec::new();
    for row in &fill {
        bench.settle_id(row.id, 1, PUBLISHED);
    }
    loop {
        bench.schedule.discover(&bench.index, NOW, &Signals::new(ShardId(0)));
        bench.schedule.wake(&bench.seat, NOW);
        let claimed: u64 = bench.pick(NOW).iter().map(|message| u64::from(message.bytes)).sum();
        if claimed == 0 {
            break;
        }
        bytes.push(claimed);
    }
    assert_eq!(before + bytes.len(), 8, "one of them is as much as a turn has room for");
    assert!(bytes.iter().all(|bytes| *bytes <= schedule::TURN_BYTES_MAX), "{bytes:?}");
}
