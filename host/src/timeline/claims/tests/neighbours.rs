//! Noisy neighbours, counted: a tarpit, a storm of failures and a flood beside many quiet lanes.

use super::*;
use crate::lanes::{MESSAGES, Share, message_cost, work_until};
use crate::timeline::schedule;

const QUIET: usize = 97;
const BYTES: u32 = 1 << 10;

/// How many messages of one neighbour of the same weight are served, at the most, before the next of a lane that has
/// something to be served: what the bound for two of them leaves to the other.
fn before_the_next() -> u64 {
    let cost = message_cost(BYTES);
    let equal = Share { weight: 1, quantum: MESSAGES.quantum, largest: cost };
    (work_until(&[equal, equal], 0, cost) - cost) / cost
}

/// By how many messages what two tenants of these weights are served may differ from their shares: each may have a
/// visit, and a message, more or less than the other.
fn unfairness_max(weights: u64) -> u64 {
    (weights * MESSAGES.quantum + 2 * message_cost(BYTES)).div_ceil(message_cost(BYTES))
}

/// What is being served, in order, by destination.
struct Neighbourhood {
    bench: Bench,
    messages: HashMap<MessageId, String>,
    next: u64,
    served: Vec<String>,
}

impl Neighbourhood {
    fn new() -> Self {
        let quiet = (0..QUIET).map(|number| format!("quiet-{number}"));
        let noisy = ["tarpit", "storm", "flood"].map(str::to_owned);
        let destinations = quiet.chain(noisy).map(|name| destination(&name));
        Self { bench: Bench::with(destinations, 512), messages: HashMap::new(), next: 0, served: Vec::new() }
    }

    fn emit(&mut self, destination: &str, count: usize) {
        let mut rows = Vec::new();
        for _ in 0..count {
            self.next += 1;
            let mut id = [0; 16];
            id[8..].copy_from_slice(&self.next.to_be_bytes());
            let id = MessageId::from_bytes(id);
            self.messages.insert(id, destination.to_owned());
            let destination = destination.parse().unwrap();
            let row = row(0, self.next, 1, MessageState::Scheduled);
            rows.push(MessageEntry { id, destination, bytes: BYTES, ..row });
        }
        self.bench.apply(&rows);
    }

    /// Messages of another tenant, which count as `counted`.
    fn emit_for(&mut self, namespace: &str, destination: &str, counted: &str, count: u64) {
        let mut rows = Vec::new();
        for seq in 10_000..10_000 + count {
            let mut id = [1; 16];
            id[8..].copy_from_slice(&seq.to_be_bytes());
            let id = MessageId::from_bytes(id);
            self.messages.insert(id, counted.to_owned());
            let (namespace, destination) = (namespace.parse().unwrap(), destination.parse().unwrap());
            let row = row(0, seq, 1, MessageState::Scheduled);
            rows.push(MessageEntry { id, namespace, destination, bytes: BYTES, ..row });
        }
        self.bench.apply(&rows);
    }

    /// One turn of claims; all of them settle, but for the tarpit's.
    fn turn(&mut self) {
        let claimed = self.bench.claim();
        assert!(claimed.len() <= schedule::TURN_MESSAGES_MAX as usize);
        for (id, generation) in claimed {
            let destination = self.messages[&id].clone();
            self.served.push(destination.clone());
            let result = match destination.as_str() {
                "tarpit" => continue,
                "storm" => {
                    let (after, lane_until) = (AfterAttempt::RetryAt(NOW), None);
                    Settled::Outcome { after, lane_until, destination: Verdict::Failed, gone: false }
                }
                _ => PUBLISHED,
            };
            self.bench.settle_id(id, generation, result);
        }
    }

    fn served(&self, destination: &str, from: usize) -> usize {
        self.served[from..].iter().filter(|served| *served == destination).count()
    }
}

// LAN-2, DRR-3
#[test]
fn a_quiet_lane_is_served_within_its_bound_beside_a_tarpit_a_storm_and_a_flood() {
    let mut all = Neighbourhood::new();
    for noisy in ["tarpit", "storm", "flood"] {
        all.emit(noisy, 3_000);
    }
    all.turn();
    for round in 0..200 {
        let quiet = format!("quiet-{}", round * 7 % QUIET);
        let from = all.served.len();
        all.emit(&quiet, 1);
        while all.served(&quiet, from) == 0 {
            all.turn();
            for noisy in ["tarpit", "storm", "flood"] {
                let before = all.served[from..].iter().take_while(|served| **served != quiet);
                let others = before.filter(|served| *served == noisy).count();
                assert!(others as u64 <= before_the_next(), "{others} of {noisy} before {quiet}");
            }
        }
    }
    assert!(all.served("tarpit", 0) <= 100, "the tarpit has its permits and no more");
    assert!(all.served("storm", 0) <= 100 + 10, "the storm's circuit opened");
    assert!(all.served("flood", 0) > 2_000, "and nobody is idle for their sake");
    assert_eq!(all.bench.claims.with_publisher(), all.served("tarpit", 0));
}

// LAN-2: whoever has many lanes gets no more than one tenant's share.
#[test]
fn a_tenant_with_many_lanes_buys_no_share_of_another() {
    let mut all = Neighbourhood::new();
    for number in 0..QUIET {
        all.emit(&format!("quiet-{number}"), 20);
    }
    all.bench.destinations.get_mut(&"flood".parse().unwrap()).unwrap().limits.messages = 10_000;
    all.emit_for("umbrella", "flood", "other", 2_000);
    let from = all.served.len();
    let slack = unfairness_max(2) as usize;
    while all.served.len() - from < 2 * 900 {
        all.turn();
        let served = all.served.len() - from;
        let other = all.served("other", from);
        assert!((2 * other).abs_diff(served) <= slack, "{other} of {served}");
    }
    let (served, other) = (all.served.len() - from, all.served("other", from));
    assert!(other * 10 >= served * 4, "one of two tenants has half: {other} of {served}");
}

// DRR-1: what the operator says a tenant's share is.
#[test]
fn a_tenants_weight_counts_over_however_many_lanes_it_sends() {
    let mut all = Neighbourhood::new();
    let weights = HashMap::from([("umbrella".parse().unwrap(), 3)]).into_iter().collect();
    all.bench.schedule = Schedule::new(Arc::new(weights), usize::MAX);
    // Nothing but its share bounds what it sends.
    all.bench.destinations.get_mut(&"flood".parse().unwrap()).unwrap().limits.messages = 10_000;
    for number in 0..QUIET {
        all.emit(&format!("quiet-{number}"), 20);
    }
    all.emit_for("umbrella", "flood", "other", 1_200);
    let from = all.served.len();
    while all.served("other", from) < 1_000 {
        all.turn();
    }
    let (served, other) = (all.served.len() - from, all.served("other", from));
    let fair = 3 * served / 4;
    assert!(other.abs_diff(fair) as u64 <= unfairness_max(1 + 3), "{other} of {served}, for {fair}");
}
