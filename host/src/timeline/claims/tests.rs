//! Every order in which a claim's end and the feed's news of its message can arrive.

use std::str::FromStr;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::model::destination::{Destination, Destinations, LaneLimits};
use crate::model::destination_lane::Ordering;
use crate::model::ids::{EventId, MessageId, WorkItemId};
use crate::model::message::UncertainPolicy;
use crate::model::retry::RetryPolicy;
use crate::store::ShardId;
use crate::timeline::database::Memory;
use crate::timeline::index::Owner;
use crate::timeline::signals::Signals;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const PRESENT: Interval = Interval { earliest: NOW, latest: NOW };
const CLAIMS_MAX: usize = 4;

mod neighbours;
mod signals;

/// A shard's index and what works on it, with no store and no publisher.
struct Bench {
    _directory: TempDir,
    destinations: Destinations,
    index: Index,
    schedule: Schedule,
    claims: Claims,
}

fn row(number: u8, seq: u64, generation: u32, state: MessageState) -> MessageEntry {
    MessageEntry {
        id: MessageId::from_bytes([number; 16]),
        seq,
        event_id: EventId::from_bytes([0; 16]),
        work_item_id: WorkItemId::from_bytes([0; 16]),
        namespace: "acme".parse().unwrap(),
        destination: "sink".parse().unwrap(),
        state,
        generation,
        attempt: 0,
        due_at: NOW,
        eligible_at: NOW,
        expire_at: None,
        bytes: 100,
        ordering_key: None,
        place: seq,
    }
}

fn retry_at(at: Timestamp) -> Settled {
    Settled::Outcome {
        after: AfterAttempt::RetryAt(at),
        lane_until: None,
        destination_failed: false,
        destination_gone: false,
    }
}

const PUBLISHED: Settled = Settled::Outcome {
    after: AfterAttempt::Published,
    lane_until: None,
    destination_failed: false,
    destination_gone: false,
};

fn destination(name: &str) -> Destination {
    Destination {
        name: name.parse().unwrap(),
        url: http::Uri::from_str("http://sink.example/").unwrap(),
        secret: None,
        deadline: Duration::ZERO,
        retry: RetryPolicy { initial: Duration::ZERO, max: Duration::ZERO, failures_max: 1 },
        uncertain: UncertainPolicy::Hold,
        ordering: Ordering::None,
        limits: LaneLimits { messages: 100, bytes: 1 << 20 },
        weight: 1,
    }
}

impl Bench {
    fn new() -> Self {
        Self::with([destination("sink")], CLAIMS_MAX)
    }

    fn with(destinations: impl IntoIterator<Item = Destination>, claims_max: usize) -> Self {
        let directory = TempDir::new().unwrap();
        let index = Index::create(
            &directory.path().join("shard"),
            &Memory::new(1 << 20),
            Owner { shard: ShardId(0), epoch: 1, ordering: 0 },
        )
        .unwrap();
        let destinations =
            destinations.into_iter().map(|destination| (destination.name.clone(), destination)).collect();
        let (schedule, claims) = (Schedule::new(Arc::default()), Claims::new(claims_max));
        Self { _directory: directory, destinations, index, schedule, claims }
    }

    fn apply(&mut self, rows: &[MessageEntry]) {
        let mut step = self.index.begin();
        for row in rows {
            let lane = self.schedule.lane_of(&mut step, row, &self.destinations);
            self.claims.apply(&mut step, row, lane).unwrap();
        }
        self.schedule.refresh(&mut step, NOW);
        step.commit().unwrap();
    }

    /// Claims what can be claimed; the generations by message.
    fn claim(&mut self) -> Vec<(MessageId, u32)> {
        self.schedule.discover(&self.index, NOW, &Signals::new(ShardId(0))).unwrap();
        let mut step = self.index.begin();
        let (picked, _) = self.claims.pick(&mut step, &mut self.schedule, PRESENT, || false).unwrap();
        self.schedule.refresh(&mut step, NOW);
        step.commit().unwrap();
        self.claims.take_up(picked).into_iter().map(|message| (message.id, message.generation)).collect()
    }

    fn settle(&mut self, number: u8, generation: u32, result: Settled) -> Settlements {
        self.settle_one(Settlement { id: MessageId::from_bytes([number; 16]), generation, result })
    }

    fn settle_one(&mut self, settlement: Settlement) -> Settlements {
        let mut step = self.index.begin();
        let sum = self.claims.settle(&mut step, &mut self.schedule, &[settlement], NOW);
        self.schedule.refresh(&mut step, NOW);
        step.commit().unwrap();
        sum
    }

    fn pending(&self) -> u64 {
        self.index.lanes()[0].pending
    }

    /// Nothing of any message is left anywhere.
    fn assert_empty(&mut self) {
        assert_eq!((self.pending(), self.claims.claims.len()), (0, 0));
        assert_eq!(self.index.in_flight().unwrap(), []);
        for number in 0..10 {
            assert_eq!(self.index.entry(MessageId::from_bytes([number; 16])).unwrap(), None);
        }
    }
}

/// A bench with message 1 claimed.
fn claimed() -> Bench {
    let mut bench = Bench::new();
    bench.apply(&[row(1, 10, 1, MessageState::Scheduled)]);
    assert_eq!(bench.claim().len(), 1);
    assert_eq!((bench.pending(), bench.claims.with_publisher()), (0, 1));
    bench
}

// TL-4
#[test]
fn a_claim_ends_as_its_settlement_says() {
    for (result, pending) in [(PUBLISHED, 0), (retry_at(NOW), 1), (Settled::NotAdmitted, 1), (Settled::Moved, 0)] {
        let mut bench = claimed();
        let sum = bench.settle(1, 1, result);
        assert_eq!((bench.pending(), bench.claims.with_publisher()), (pending, 0), "{result:?}");
        assert_eq!(sum.refused, result == Settled::NotAdmitted);
        assert_eq!(bench.claim().len() as u64, pending);
        if pending == 0 {
            bench.assert_empty();
        }
    }
}

// TL-5
#[test]
fn a_cancel_that_the_feed_told_first_outlives_the_claims_end() {
    for result in [PUBLISHED, retry_at(NOW), Settled::NotAdmitted, Settled::Moved] {
        let mut bench = claimed();
        bench.apply(&[row(1, 20, 1, MessageState::Cancelled)]);
        bench.settle(1, 1, result);
        bench.assert_empty();
    }
}

// TL-5
#[test]
fn a_reschedule_that_the_feed_told_first_outlives_the_claims_end() {
    for result in [retry_at(NOW), Settled::NotAdmitted, Settled::Moved] {
        let mut bench = claimed();
        bench.apply(&[row(1, 20, 2, MessageState::Scheduled)]);
        assert_eq!(bench.claim(), [(MessageId::from_bytes([1; 16]), 2)], "beside the claim of the first generation");
        bench.settle(1, 1, result);
        assert_eq!(bench.claims.with_publisher(), 1);
        bench.settle(1, 2, PUBLISHED);
        bench.assert_empty();
    }
}

// TL-5
#[test]
fn a_reschedule_that_the_feed_tells_later_is_taken_up_then() {
    let mut bench = claimed();
    bench.settle(1, 1, Settled::Moved);
    bench.assert_empty();
    bench.apply(&[row(1, 20, 2, MessageState::Scheduled)]);
    assert_eq!(bench.claim(), [(MessageId::from_bytes([1; 16]), 2)]);
}

// TL-2
#[test]
fn a_row_that_was_applied_before_changes_nothing() {
    let mut bench = claimed();
    bench.apply(&[row(1, 10, 1, MessageState::Scheduled)]);
    assert_eq!(bench.claim(), []);
    bench.settle(1, 1, PUBLISHED);
    bench.assert_empty();
    bench.apply(&[row(2, 30, 1, MessageState::Scheduled), row(2, 20, 1, MessageState::Cancelled)]);
    assert_eq!(bench.pending(), 1, "what is older than what is known counts for nothing");
}

// TL-6
#[test]
fn a_claim_whose_outcome_was_not_recorded_ends_as_the_store_says() {
    let cases = [
        (MessageState::Publishing, 1, 0),
        (MessageState::Published, 0, 0),
        (MessageState::Uncertain, 0, 0),
        (MessageState::RetryWait, 0, 1),
    ];
    for (state, unresolved, pending) in cases {
        let mut bench = claimed();
        bench.settle(1, 1, Settled::Unrecorded);
        assert_eq!((bench.claims.unresolved(), bench.claims.with_publisher()), (1, 0));
        let keys = bench.claims.unresolved_ids(10);
        let mut step = bench.index.begin();
        bench.claims.resolve(&mut step, &mut bench.schedule, &keys, &[row(1, 10, 1, state)]);
        bench.schedule.refresh(&mut step, NOW);
        step.commit().unwrap();
        assert_eq!((bench.claims.unresolved(), bench.pending()), (unresolved, pending), "{state:?}");
    }
}

// TL-6
#[test]
fn what_a_dead_owner_had_claimed_is_inherited_unless_the_feed_had_superseded_it() {
    let mut bench = claimed();
    bench.apply(&[row(2, 11, 1, MessageState::Scheduled), row(3, 12, 1, MessageState::Scheduled)]);
    assert_eq!(bench.claim().len(), 2);
    bench.apply(&[row(2, 20, 1, MessageState::Cancelled), row(3, 21, 2, MessageState::Scheduled)]);
    bench.claims = Claims::new(CLAIMS_MAX);
    bench.claims.inherit(&mut bench.index, &mut bench.schedule).unwrap();
    let inherited = ClaimKey { id: MessageId::from_bytes([1; 16]), generation: 1 };
    assert_eq!(bench.claims.unresolved_ids(10), [inherited]);
    assert_eq!(bench.index.in_flight().unwrap(), [(1, inherited)]);
    assert_eq!(bench.pending(), 1);
}

// TL-2
#[test]
fn what_has_ended_in_a_lane_that_was_never_met_leaves_an_index_that_can_be_gone_on_with() {
    let mut bench = Bench::with([destination("sink"), destination("other")], CLAIMS_MAX);
    let to_other = |number| MessageEntry {
        destination: "other".parse().unwrap(),
        ..row(number, number.into(), 1, MessageState::Scheduled)
    };
    bench.apply(&[row(1, 1, 1, MessageState::Cancelled), to_other(2)]);
    assert_eq!(bench.index.lanes().len(), 1, "nobody stands in the first one's lane");
    let Bench { _directory: directory, index, .. } = bench;
    drop(index);
    let owner = Owner { shard: ShardId(0), epoch: 2, ordering: 0 };
    let index = Index::open(&directory.path().join("shard"), &Memory::new(1 << 20), owner, 100).unwrap();
    assert_eq!(index.lanes().iter().map(|lane| lane.pending).collect::<Vec<_>>(), [1]);
}

// WRK-1
#[test]
fn no_more_is_claimed_than_may_be() {
    let mut bench = Bench::new();
    bench.apply(&(1..=9).map(|number| row(number, number.into(), 1, MessageState::Scheduled)).collect::<Vec<_>>());
    assert_eq!(bench.claim().len(), CLAIMS_MAX);
    assert_eq!(bench.claim().len(), 0);
    bench.settle(1, 1, Settled::Unrecorded);
    assert_eq!(bench.claim().len(), 0, "one with nobody behind it still counts");
    bench.settle(2, 1, PUBLISHED);
    assert_eq!(bench.claim().len(), 1);
}

// TL-3
#[test]
fn what_expires_too_soon_to_be_published_is_set_aside_and_holds_up_nobody() {
    let mut bench = Bench::new();
    let late = MessageEntry { expire_at: Some(NOW), ..row(1, 1, 1, MessageState::Scheduled) };
    bench.apply(&[late.clone(), row(2, 2, 1, MessageState::Scheduled)]);
    assert_eq!(bench.claim(), [(MessageId::from_bytes([2; 16]), 1)]);
    assert_eq!(bench.pending(), 0);
    assert_eq!(bench.index.expiring(NOW, 10).unwrap().items, [(NOW, late.id)]);
    let moved = MessageEntry { expire_at: None, ..row(1, 3, 2, MessageState::Scheduled) };
    bench.apply(&[moved]);
    assert_eq!(bench.claim(), [(late.id, 2)]);
    assert_eq!(bench.index.expiring(NOW, 10).unwrap().items, []);
}
