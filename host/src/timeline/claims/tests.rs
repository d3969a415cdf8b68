//! Every order in which a claim's end and the feed's news of its message can arrive.

use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::env::ManualClock;
use crate::lanes::PlacesMax;
use crate::model::destination::{Destination, Destinations, LaneLimits};
use crate::model::destination_lane::{Gate, Ordering};
use crate::model::ids::{EventId, MessageId, WorkItemId};
use crate::model::retry::RetryPolicy;
use crate::publish::{Entrance, Seat};
use crate::store::{GateRow, ShardId};
use crate::timeline::clock::Interval;
use crate::timeline::database::Memory;
use crate::timeline::index::{FeedBounds, Owner};
use crate::timeline::signals::Signals;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const CLAIMS_MAX: usize = 4;
/// How much later than now something expires.
const LATE: Duration = Duration::from_secs(1);

mod following;
mod lanes;
mod neighbours;
mod shares;
mod signals;
mod turns;

/// A shard's index and what works on it, with no store and no publisher.
struct Bench {
    _directory: TempDir,
    destinations: Destinations,
    index: Index,
    schedule: Schedule,
    claims: Claims,
    seat: Seat,
    without_place: WithoutPlace,
    /// The places of what is claimed.
    places: HashMap<ClaimKey, Place>,
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
    Settled::Outcome { after: AfterAttempt::RetryAt(at), lane_until: None, destination: Verdict::Healthy, gone: false }
}

const PUBLISHED: Settled =
    Settled::Outcome { after: AfterAttempt::Published, lane_until: None, destination: Verdict::Healthy, gone: false };

fn destination(name: &str) -> Destination {
    Destination {
        retry: RetryPolicy { initial: Duration::ZERO, max: Duration::ZERO, failures_max: 1 },
        limits: LaneLimits { messages: 100, bytes: 1 << 20 },
        ..Destination::new(name.parse().unwrap(), http::Uri::from_static("http://sink.example/"))
    }
}

/// The only shard's, of so many places.
fn seat(max: PlacesMax) -> Seat {
    let clock = Arc::new(ManualClock::at(NOW));
    Entrance::new(max, clock, metrics::Gauge::noop()).seat(ShardId(0))
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
            Owner { shard: ShardId(0), epoch: 1 },
        )
        .unwrap();
        let destinations = destinations.into_iter().collect();
        let (schedule, claims) = (Schedule::new(Arc::default(), claims_max), Claims::new(claims_max));
        let seat = seat(PlacesMax { messages: usize::MAX / 2, bytes: u64::MAX / 2 });
        Self {
            _directory: directory,
            destinations,
            index,
            schedule,
            claims,
            seat,
            without_place: WithoutPlace::Wait,
            places: HashMap::new(),
        }
    }

    fn apply(&mut self, rows: &[MessageEntry]) {
        let mut step = self.index.begin();
        for row in rows {
            let lane = self.schedule.lane_of(&mut step, row, &self.destinations);
            self.claims.apply(&mut step, &mut self.schedule, row, lane).unwrap();
        }
        self.schedule.refresh(&mut step, NOW);
        step.commit().unwrap();
    }

    /// Claims what can be claimed; the generations by message.
    fn claim(&mut self) -> Vec<(MessageId, u32)> {
        self.claim_at(NOW)
    }

    fn claim_at(&mut self, now: Timestamp) -> Vec<(MessageId, u32)> {
        self.schedule.discover(&self.index, now, &Signals::new(ShardId(0)));
        self.schedule.wake(&self.seat, now);
        self.pick(now).into_iter().map(|message| (message.id, message.generation)).collect()
    }

    fn pick(&mut self, now: Timestamp) -> Vec<ClaimedMessage> {
        self.pick_and_show(now, |_| {})
    }

    fn pick_and_show(&mut self, at: Timestamp, show: impl Fn(&Picked)) -> Vec<ClaimedMessage> {
        let mut step = self.index.begin();
        let now = Interval { earliest: at, latest: at, at: Duration::ZERO };
        let mut picking = Picking::begin(&mut step, &mut self.schedule, &self.seat, now);
        self.claims.pick(&mut picking, self.without_place, || false).unwrap();
        let picked = picking.picked;
        self.schedule.refresh(&mut step, at);
        step.commit().unwrap();
        picked.iter().for_each(show);
        let mut messages = Vec::new();
        for (message, place) in self.claims.take_up(picked) {
            let ClaimedMessage { id, generation, seq, .. } = message;
            assert!(self.places.insert(ClaimKey { id, generation, seq }, place).is_none());
            messages.push(message);
        }
        messages
    }

    fn settle(&mut self, number: u8, generation: u32, result: Settled) -> Settlements {
        self.settle_id(MessageId::from_bytes([number; 16]), generation, result)
    }

    /// The end of the oldest claim of this generation.
    fn settle_id(&mut self, id: MessageId, generation: u32, result: Settled) -> Settlements {
        let of_it = self.claims.claims.keys().filter(|key| (key.id, key.generation) == (id, generation));
        let seq = of_it.map(|key| key.seq).min().unwrap();
        let place = self.places.remove(&ClaimKey { id, generation, seq });
        self.settle_one(Settlement { id, generation, seq, result, place })
    }

    fn settle_one(&mut self, settlement: Settlement) -> Settlements {
        let mut step = self.index.begin();
        let sum = self.claims.settle(&mut step, &mut self.schedule, &[settlement], NOW);
        self.schedule.refresh(&mut step, NOW);
        step.commit().unwrap();
        sum
    }

    fn pending(&self) -> u64 {
        self.index.lanes()[0].pending()
    }

    /// Nothing of any message is left anywhere.
    fn assert_empty(&mut self) {
        assert_eq!(
            (self.index.lanes().iter().map(|lane| lane.pending()).sum::<u64>(), self.claims.claims.len()),
            (0, 0)
        );
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
    for (result, pending) in [(PUBLISHED, 0), (retry_at(NOW), 1), (Settled::NotAdmitted, 1), (Settled::Recalled, 1)] {
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
    for result in [retry_at(NOW), Settled::NotAdmitted, Settled::Recalled, Settled::Moved] {
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
    assert_eq!((bench.claim(), bench.pending()), (vec![], 0));
    bench.apply(&[row(1, 20, 2, MessageState::Scheduled)]);
    assert_eq!(bench.claim(), [(MessageId::from_bytes([1; 16]), 2)]);
}

// TL-6
#[test]
fn what_an_operator_has_tried_again_while_its_last_claim_has_not_ended_is_another_claim() {
    for late in [Settled::Unrecorded, Settled::Moved, retry_at(NOW)] {
        let mut bench = claimed();
        // The outcome `uncertain` is in the store, and its answer was lost; the operator resolves it as `retry`.
        bench.apply(&[row(1, 20, 1, MessageState::RetryWait)]);
        assert_eq!(bench.claim(), [(MessageId::from_bytes([1; 16]), 1)], "beside the first one");
        assert_eq!(bench.index.in_flight().unwrap().len(), 2);
        bench.settle(1, 1, late);
        assert_eq!((bench.claims.with_publisher(), bench.claims.unresolved()), (1, 0), "{late:?}");
        assert_eq!(bench.index.in_flight().unwrap().len(), 1, "{late:?}");
        bench.settle(1, 1, PUBLISHED);
        bench.assert_empty();
    }
    // The first one's end came before, and it is with nobody.
    let mut bench = claimed();
    bench.settle(1, 1, Settled::Unrecorded);
    assert_eq!(bench.claims.unresolved(), 1);
    bench.apply(&[row(1, 20, 1, MessageState::RetryWait)]);
    assert_eq!(bench.claims.unresolved(), 0, "nobody is asked about an attempt that is not its last");
    assert_eq!(bench.claim().len(), 1);
    bench.settle(1, 1, PUBLISHED);
    bench.assert_empty();
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
        (MessageState::Cancelled, 0, 0),
    ];
    // One that was not admitted because it had moved may have been admitted all the same: its answer was lost.
    let ends = [Settled::Unrecorded, Settled::Moved];
    for (end, (state, unresolved, pending)) in ends.into_iter().flat_map(|end| cases.map(|case| (end, case))) {
        let mut bench = claimed();
        bench.settle(1, 1, end);
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
    let inherited = ClaimKey { id: MessageId::from_bytes([1; 16]), generation: 1, seq: 10 };
    assert_eq!(bench.claims.unresolved_ids(10), [inherited]);
    assert_eq!(bench.index.in_flight().unwrap(), [(1, inherited)]);
    assert_eq!(bench.pending(), 1);
}

// TL-3
#[test]
fn what_may_have_expired_while_it_waited_for_a_place_only_waits_for_its_expiry() {
    let mut bench = Bench::new();
    let expire_at = NOW + Duration::from_secs(1);
    let late = MessageEntry { expire_at: Some(expire_at), ..row(1, 1, 1, MessageState::Scheduled) };
    bench.apply(&[late.clone(), row(2, 2, 1, MessageState::Scheduled)]);
    assert_eq!(bench.claim().len(), 2);
    let sum = bench.settle(1, 1, Settled::TooLate);
    assert_eq!(sum, Settlements::default(), "the store is not to blame, and nobody else is held up");
    assert_eq!((bench.claim(), bench.pending()), (vec![], 0));
    assert_eq!(bench.index.expiring(expire_at, 10).unwrap().items, [(expire_at, late.id)]);
    // What the feed told meanwhile is newer.
    let mut bench = Bench::new();
    bench.apply(std::slice::from_ref(&late));
    assert_eq!(bench.claim().len(), 1);
    bench.apply(&[row(1, 20, 1, MessageState::Cancelled)]);
    bench.settle(1, 1, Settled::TooLate);
    bench.assert_empty();
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
    let owner = Owner { shard: ShardId(0), epoch: 2 };
    let feed = FeedBounds { trimmed: 0, end: 100 };
    let index = Index::open(&directory.path().join("shard"), &Memory::new(1 << 20), owner, feed).unwrap();
    assert_eq!(index.lanes().iter().map(|lane| lane.pending()).collect::<Vec<_>>(), [1]);
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

// TL-6
#[test]
fn claims_that_stay_with_nobody_are_in_the_way_of_no_other() {
    let mut bench = Bench::new();
    bench.apply(&(1..=3).map(|number| row(number, number.into(), 1, MessageState::Scheduled)).collect::<Vec<_>>());
    assert_eq!(bench.claim().len(), 3);
    for number in 1..=3 {
        bench.settle(number, 1, Settled::Unrecorded);
    }
    let mut asked: Vec<u8> =
        (0..3).flat_map(|_| bench.claims.unresolved_ids(2)).map(|key| key.id.as_bytes()[0]).collect();
    asked.sort_unstable();
    assert_eq!(asked, [1, 1, 2, 2, 3, 3], "each as often as the others");
}

// TL-6
#[test]
fn a_message_that_was_admitted_where_it_stood_is_asked_about_as_if_it_had_been_claimed() {
    let mut bench = Bench::new();
    let expiring = MessageEntry { expire_at: Some(NOW + LATE), ..row(1, 1, 1, MessageState::Scheduled) };
    bench.apply(std::slice::from_ref(&expiring));
    let entry = bench.index.entry(expiring.id).unwrap().unwrap();
    let mut step = bench.index.begin();
    bench.claims.take_over(&mut step, &mut bench.schedule, &entry).unwrap();
    bench.schedule.refresh(&mut step, NOW);
    step.commit().unwrap();
    assert_eq!((bench.pending(), bench.claims.unresolved(), bench.claim()), (0, 1, vec![]));
    assert_eq!(bench.index.expiring(NOW + LATE, 10).unwrap().items, []);
    let keys = bench.claims.unresolved_ids(10);
    let mut step = bench.index.begin();
    let ended = MessageEntry { state: MessageState::Expired, ..expiring };
    bench.claims.resolve(&mut step, &mut bench.schedule, &keys, &[ended]);
    bench.schedule.refresh(&mut step, NOW);
    step.commit().unwrap();
    bench.assert_empty();
}
