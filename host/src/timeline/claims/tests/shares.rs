//! Shares where there is less than everybody wants: of one destination, and of the places in flight. Counted.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// What is claimed by whom, and how long others were served before.
struct Backlogs {
    bench: Bench,
    random: StdRng,
    /// By the number in their ids, who the messages are of.
    owners: Vec<usize>,
    in_flight: Vec<(MessageId, usize)>,
    served: Vec<usize>,
    /// Of each, how many others were served while it wanted, and could have been; and the most that there ever were.
    passed_over: Vec<usize>,
    longest: Vec<usize>,
}

impl Backlogs {
    fn new(bench: Bench, owners: usize) -> Self {
        Self {
            bench,
            random: StdRng::seed_from_u64(7),
            owners: Vec::new(),
            in_flight: Vec::new(),
            served: vec![0; owners],
            passed_over: vec![0; owners],
            longest: vec![0; owners],
        }
    }

    fn emit(&mut self, owner: usize, namespace: &str, destination: &str, key: Option<&str>, count: usize, bytes: u32) {
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            let number = self.owners.len() as u64;
            self.owners.push(owner);
            let mut id = [0; 16];
            id[8..].copy_from_slice(&number.to_be_bytes());
            rows.push(MessageEntry {
                id: MessageId::from_bytes(id),
                namespace: namespace.parse().unwrap(),
                destination: destination.parse().unwrap(),
                ordering_key: key.map(str::to_owned),
                bytes,
                ..row(0, number + 1, 1, MessageState::Scheduled)
            });
        }
        self.bench.apply(&rows);
    }

    fn owner(&self, id: MessageId) -> usize {
        let number = u64::from_be_bytes(id.as_bytes()[8..].try_into().unwrap());
        self.owners[usize::try_from(number).unwrap()]
    }

    fn in_flight_of(&self, owner: usize) -> usize {
        self.in_flight.iter().filter(|(_, of)| *of == owner).count()
    }

    /// One turn of claims. Whoever has fewer than `limit` in flight wants more.
    fn turn(&mut self, limit: usize) -> usize {
        let claimed = self.bench.claim();
        for (id, _) in &claimed {
            let owner = self.owner(*id);
            for other in 0..self.served.len() {
                if other != owner && self.in_flight_of(other) < limit {
                    self.passed_over[other] += 1;
                    self.longest[other] = self.longest[other].max(self.passed_over[other]);
                }
            }
            self.served[owner] += 1;
            self.passed_over[owner] = 0;
            self.in_flight.push((*id, owner));
        }
        claimed.len()
    }

    /// So many of those in flight end, whichever.
    fn settle_some(&mut self, count: usize) {
        for _ in 0..count.min(self.in_flight.len()) {
            let chosen = self.random.random_range(0..self.in_flight.len());
            let (id, _) = self.in_flight.swap_remove(chosen);
            self.bench.settle_id(id, 1, PUBLISHED);
        }
    }

    fn rounds(&mut self, services: usize, limit: usize, settled_max: usize) {
        let mut all = 0;
        while all < services {
            all += self.turn(limit);
            let count = self.random.random_range(1..=settled_max);
            self.settle_some(count);
        }
    }
}

/// A bench of one destination, of which so many are claimed at once, at the most.
fn capped(destination: Destination, of_destination: usize, weights: &[(&str, u32)]) -> Bench {
    let mut bench = Bench::with([destination], 4 * of_destination);
    let weights = weights.iter().map(|(name, weight)| (name.parse().unwrap(), *weight)).collect();
    bench.schedule = Schedule::new(Arc::new(weights), of_destination);
    bench
}

// DRR-1, DRR-3, LAN-2
#[test]
fn every_tenant_of_a_destination_that_has_what_it_may_comes_to_its_turn() {
    const TENANTS: usize = 20;
    const LIMIT: usize = 4;
    for settled_max in [1, 3, 64] {
        // What it may is enough for sixteen of them.
        let sink = Destination { limits: LaneLimits { messages: 4, bytes: 1 << 20 }, ..destination("sink") };
        let mut all = Backlogs::new(capped(sink, 16 * LIMIT, &[]), TENANTS);
        for tenant in 0..TENANTS {
            all.emit(tenant, &format!("tenant-{tenant}"), "sink", None, 200, 100);
        }
        all.rounds(2_000, LIMIT, settled_max);
        let longest = all.longest.iter().max().unwrap();
        // Two turns each in the queue, and where there is enough for all again one in the ring.
        assert!(*longest <= 3 * TENANTS, "{settled_max}: {longest} others before one; {:?}", all.longest);
        let (least, most) = (all.served.iter().min().unwrap(), all.served.iter().max().unwrap());
        assert!(*most <= *least + *least / 2, "{settled_max}: {:?}", all.served);
    }
}

// DRR-1, DRR-3, LAN-2
#[test]
fn a_tenant_with_one_key_has_its_turn_beside_another_ones_hundred_and_each_of_those_has_its_own() {
    const KEYS: usize = 100;
    for settled_max in [1, 3, 40] {
        let sink = Destination { ordering: Ordering::Exact, ..destination("sink") };
        let mut all = Backlogs::new(capped(sink, 32, &[]), KEYS + 1);
        for key in 0..KEYS {
            all.emit(key, "many", "sink", Some(&format!("key-{key}")), 40, 100);
        }
        all.emit(KEYS, "one", "sink", Some("key"), 1_000, 100);
        all.rounds(1_500, 1, settled_max);
        assert!(all.longest[KEYS] <= 4, "{settled_max}: {} before the one key", all.longest[KEYS]);
        let longest = all.longest.iter().max().unwrap();
        assert!(*longest <= 2 * KEYS + 2, "{settled_max}: {longest} others before one");
    }
}

// DRR-1, DRR-2, LAN-2
#[test]
fn a_tenants_weight_counts_at_a_destination_that_has_what_it_may_whatever_the_sizes() {
    for bytes in [256, 1 << 10, 64 << 10] {
        let sink = Destination { limits: LaneLimits { messages: 32, bytes: 16 << 20 }, ..destination("sink") };
        let mut all = Backlogs::new(capped(sink, 32, &[("heavy", 3)]), 3);
        for (owner, (tenant, count)) in [("heavy", 700), ("light", 250), ("other", 250)].into_iter().enumerate() {
            all.emit(owner, tenant, "sink", None, count, bytes);
        }
        all.rounds(1_000, 32, 2);
        let (heavy, light) = (all.served[0], all.served[1] + all.served[2]);
        assert!(heavy.abs_diff(3 * light / 2) <= 60, "{bytes}: {:?}", all.served);
    }
}

// DRR-1, DRR-2
#[test]
fn weights_of_lanes_and_of_tenants_count_where_places_are_short_whatever_the_sizes() {
    const EACH: usize = 10;
    for by_tenant in [false, true] {
        for bytes in [256, 1 << 10, 64 << 10] {
            let named = |number: usize| {
                let weight = if number < EACH && !by_tenant { 8 } else { 1 };
                let limits = LaneLimits { messages: 32, bytes: 64 << 20 };
                Destination { limits, weight, ..destination(&format!("sink-{number}")) }
            };
            let mut bench = Bench::with((0..2 * EACH).map(named), 1_024);
            let weights = if by_tenant { vec![("heavy".parse().unwrap(), 8)] } else { Vec::new() };
            bench.schedule = Schedule::new(Arc::new(weights.into_iter().collect()), 512);
            // All lanes together may have ten times as many in flight.
            bench.seat = seat(PlacesMax { messages: 64, bytes: 64 << 20 });
            let mut all = Backlogs::new(bench, 2);
            for number in 0..2 * EACH {
                let (owner, tenant) = if number < EACH { (0, "heavy") } else { (1, "light") };
                let tenant = if by_tenant { tenant } else { "acme" };
                all.emit(owner, tenant, &format!("sink-{number}"), None, if owner == 0 { 200 } else { 40 }, bytes);
            }
            all.rounds(1_500, usize::MAX, 8);
            let (heavy, light) = (all.served[0], all.served[1]);
            assert!(heavy.abs_diff(8 * light) <= heavy / 8, "{bytes}, by tenant {by_tenant}: {heavy} to {light}");
        }
    }
}

// LAN-2, WRK-3
#[test]
fn destinations_that_hang_leave_places_for_those_that_answer() {
    let places = |messages| PlacesMax { messages, bytes: 64 << 20 };
    // As many places, or as many claims, for all of them.
    for (claims_max, places) in [(1_024, places(64)), (64, PlacesMax { bytes: 1 << 40, ..places(1_024) })] {
        for (tarpits, bytes) in [1, 2, 8].into_iter().flat_map(|tarpits| [(tarpits, 100), (tarpits, 1 << 20)]) {
            let limits = LaneLimits { messages: 64, bytes: 64 << 20 };
            let names = (0..tarpits).map(|number| format!("tarpit-{number}")).chain(["sink".to_owned()]);
            let all = names.map(|name| Destination { limits, ..destination(&name) });
            let mut bench = Bench::with(all, claims_max);
            bench.schedule = Schedule::new(Arc::default(), claims_max / 2);
            bench.seat = seat(places);
            let mut all = Backlogs::new(bench, 2);
            for number in 0..tarpits {
                all.emit(0, "acme", &format!("tarpit-{number}"), None, 100, bytes);
            }
            while all.turn(usize::MAX) > 0 {}
            let held = all.in_flight.len();
            assert!(held <= 56 + tarpits, "{tarpits} of {bytes}: {held}");
            // Nothing of theirs ever ends.
            all.bench.without_place = WithoutPlace::ServeQuiet;
            all.emit(1, "acme", "sink", None, 50, bytes);
            for _ in 0..50 {
                all.turn(usize::MAX);
                let at = all.in_flight.iter().position(|(_, owner)| *owner == 1).expect("one of it is in flight");
                let (id, _) = all.in_flight.swap_remove(at);
                all.bench.settle_id(id, 1, PUBLISHED);
            }
            assert_eq!((all.served[1], all.in_flight.len()), (50, held), "{tarpits} of {bytes}");
        }
    }
}

// LAN-2, WRK-3
#[test]
fn a_message_that_waits_for_bytes_stands_before_its_own_and_before_nobody_else() {
    let limits = LaneLimits { messages: 100, bytes: 1 << 30 };
    let names = ["tarpit", "other", "large", "small"];
    let mut bench = Bench::with(names.map(|name| Destination { limits, ..destination(name) }), 1_024);
    bench.schedule = Schedule::new(Arc::default(), 512);
    bench.seat = seat(PlacesMax { messages: 400, bytes: 80 << 20 });
    let mut all = Backlogs::new(bench, 3);
    all.emit(0, "acme", "tarpit", None, 40, 1 << 20);
    all.emit(0, "acme", "other", None, 8, 1 << 20);
    assert_eq!(all.turn(usize::MAX), 48);
    all.emit(1, "acme", "large", None, 2, 18 << 20);
    all.emit(2, "acme", "small", None, 40, 1 << 10);
    while all.turn(usize::MAX) > 0 {}
    // The second of the large ones does not fit beside the others.
    assert_eq!((all.served[1], all.served[2]), (1, 40));
    // It goes when there is room, and those that came after it to its destination go behind it.
    all.emit(1, "acme", "large", None, 1, 100);
    all.emit(2, "acme", "small", None, 10, 1 << 10);
    while all.turn(usize::MAX) > 0 {}
    assert_eq!((all.served[1], all.served[2]), (1, 50));
    let first = all.in_flight.iter().position(|(_, owner)| *owner == 1).unwrap();
    let (id, _) = all.in_flight.swap_remove(first);
    all.bench.settle_id(id, 1, PUBLISHED);
    while all.turn(usize::MAX) > 0 {}
    assert_eq!((all.served[1], all.served[2]), (3, 50));
}
