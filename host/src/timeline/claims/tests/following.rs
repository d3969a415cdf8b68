//! Destinations that change: whom it concerns, how much is told in one go, and when the index is built again for it.

use super::*;
use crate::model::message::MessageState::Scheduled;
use crate::timeline::schedule::Changes;

const KEYS: u64 = 2_500;
const TOLD_MAX: usize = 1_000;

fn keyed(destination: &str, number: u64) -> MessageEntry {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    let (id, destination) = (MessageId::from_bytes(id), destination.parse().unwrap());
    MessageEntry { id, destination, ordering_key: Some(format!("key-{number}")), ..row(0, number, 1, Scheduled) }
}

fn ordered(name: &str, ordering: Ordering) -> Destination {
    Destination { ordering, ..destination(name) }
}

impl Bench {
    /// Has lanes told of `now`, in turns: how much was told in each.
    fn follow(&mut self, now: Destinations) -> Vec<usize> {
        let mut changes = Changes::default();
        self.note(&mut changes, now);
        let mut turns = Vec::new();
        while !changes.is_empty() {
            turns.push(self.tell(&mut changes));
        }
        turns
    }

    fn note(&mut self, changes: &mut Changes, now: Destinations) {
        self.schedule.note_changes(changes, &self.destinations, &now);
        self.destinations = now;
    }

    fn tell(&mut self, changes: &mut Changes) -> usize {
        let mut step = self.index.begin();
        let told = self.schedule.tell_changes(&mut step, changes, &self.destinations, TOLD_MAX, NOW);
        self.schedule.refresh(&mut step, NOW);
        step.commit().unwrap();
        told
    }

    fn with_orders<const COUNT: usize>(&self, orders: [(&str, Ordering); COUNT]) -> Destinations {
        let mut now = self.destinations.clone();
        orders.into_iter().for_each(|(name, ordering)| now.insert(ordered(name, ordering)));
        now
    }

    fn is_reordered(&self, now: &Destinations) -> bool {
        let is_reordered = self.schedule.is_reordered(&self.index, now);
        assert_eq!(is_reordered, self.index.is_reordered(now).unwrap(), "as whoever opens the index would find");
        is_reordered
    }
}

// WRK-1, LAN-5
#[test]
fn a_change_is_told_to_those_whom_it_concerns_a_part_at_a_time() {
    let mut bench = Bench::with([ordered("line", Ordering::Exact), destination("plain")], 16);
    let rows: Vec<MessageEntry> = (0..KEYS).map(|number| keyed("line", 1 + number)).collect();
    bench.apply(&rows);
    bench.apply(&[MessageEntry { destination: "plain".parse().unwrap(), ..keyed("plain", 9_000) }]);
    let mut now = bench.destinations.clone();
    now.get_mut(&"plain".parse().unwrap()).unwrap().weight = 7;
    assert_eq!(bench.follow(now), [2], "an outlet and its lane");
    let mut now = bench.destinations.clone();
    now.get_mut(&"line".parse().unwrap()).unwrap().limits.messages = 0;
    let told = bench.follow(now.clone());
    assert!(told.iter().all(|told| *told <= TOLD_MAX), "{told:?}");
    assert_eq!(told.iter().sum::<usize>() as u64, 1 + KEYS);
    let plain = keyed("plain", 9_000).id;
    // They are found a part at a time, too.
    let claimed: Vec<_> = (0..=KEYS / 256).flat_map(|_| bench.claim()).collect();
    assert_eq!(claimed, [(plain, 1)], "none of the others may have anything in flight");
    bench.settle_id(plain, 1, PUBLISHED);
    // A change that comes while another one is being told is told as well.
    let mut changes = Changes::default();
    bench.note(&mut changes, Destinations::new());
    assert_eq!(bench.tell(&mut changes), TOLD_MAX);
    now.get_mut(&"line".parse().unwrap()).unwrap().limits.messages = 1;
    bench.note(&mut changes, now);
    while !changes.is_empty() {
        bench.tell(&mut changes);
    }
    assert_eq!(
        bench.claim().len(),
        16 - 16 / 8,
        "one a key, as many as one destination may have claimed beside others"
    );
}

// LAN-5, LAN-4
#[test]
fn another_order_concerns_the_index_only_where_messages_would_stand_in_other_lanes() {
    let mut bench = Bench::with([ordered("line", Ordering::Exact), destination("plain")], 16);
    bench.apply(&[keyed("line", 1)]);
    // Of destinations of which nothing is known, whatever is said of them.
    assert!(!bench.is_reordered(&bench.with_orders([("new", Ordering::Exact), ("plain", Ordering::Exact)])));
    // Of one that has messages that wait, or are under way.
    let hashed = bench.with_orders([("line", Ordering::Hashed { domains: 8 })]);
    assert!(bench.is_reordered(&hashed));
    assert_eq!(bench.claim().len(), 1);
    assert!(bench.is_reordered(&hashed), "it may come back");
    bench.settle_id(keyed("line", 1).id, 1, PUBLISHED);
    assert!(!bench.is_reordered(&hashed));
    // From the first message on that stands where the new order says, that one counts.
    bench.follow(hashed);
    bench.apply(&[keyed("line", 2)]);
    assert!(!bench.is_reordered(&bench.destinations));
    assert!(bench.is_reordered(&bench.with_orders([("line", Ordering::Hashed { domains: 9 })])), "the number counts");
    assert!(bench.is_reordered(&bench.with_orders([("line", Ordering::Exact)])));
    // Where there was no order, some may have been set aside, which no lane shows.
    bench.apply(&[keyed("plain", 3)]);
    assert_eq!(bench.claim().len(), 2);
    for number in [2, 3] {
        bench.settle_id(keyed("line", number).id, 1, PUBLISHED);
    }
    assert!(bench.is_reordered(&bench.with_orders([("plain", Ordering::Exact)])));
    let Bench { _directory: directory, index, destinations, .. } = bench;
    drop(index);
    let owner = Owner { shard: ShardId(0), epoch: 2 };
    let feed = FeedBounds { trimmed: 0, end: 100 };
    let index = Index::open(&directory.path().join("shard"), &Memory::new(1 << 20), owner, feed).unwrap();
    assert!(!index.is_reordered(&destinations).unwrap(), "it is remembered");
    let mut now = destinations.clone();
    now.insert(ordered("plain", Ordering::Exact));
    assert!(index.is_reordered(&now).unwrap());
}
