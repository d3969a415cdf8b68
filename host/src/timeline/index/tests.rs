use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rocksdb::WriteBatch;
use tempfile::TempDir;

use super::*;
use crate::model::destination_lane::OrderingDomain;
use crate::store::ShardId;
use crate::timeline::database::Memory;
use crate::timeline::fuse::{self, Side};
use crate::timeline::values::Place;

const SHARD: ShardId = ShardId(3);
const DUE_AT: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn memory() -> Memory {
    Memory::new(1 << 20)
}

fn owner(epoch: u64) -> Owner {
    Owner { shard: SHARD, epoch }
}

fn created(directory: &TempDir) -> Index {
    Index::create(&directory.path().join("shard"), &memory(), owner(1)).unwrap()
}

fn reopened(directory: &TempDir, epoch: u64, feed_end: u64) -> Result<Index, Unusable> {
    Index::open(&directory.path().join("shard"), &memory(), owner(epoch), FeedBounds { trimmed: 0, end: feed_end })
}

fn name(destination: &str) -> LaneName {
    LaneName {
        namespace: "acme".parse().unwrap(),
        destination: destination.parse().unwrap(),
        ordering: OrderingDomain::Unordered,
    }
}

fn entry(lane: LaneNumber, number: u64) -> Entry {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    Entry {
        id: MessageId::from_bytes(id),
        lane,
        seq: number,
        generation: 1,
        bytes: 100,
        eligible_at: DUE_AT + Duration::from_millis(number),
        expire_at: Some(DUE_AT + Duration::from_secs(number)),
        order: None,
        place: Place::Line,
        retried: false,
    }
}

/// Schedules the messages `numbers` in lane `sink`, which is ready when its line says so.
fn schedule(index: &mut Index, numbers: impl Iterator<Item = u64>) -> LaneNumber {
    let mut step = index.begin();
    let lane = step.lane_number(&name("sink"), |_| false);
    for number in numbers {
        step.schedule(&entry(lane, number));
    }
    commit(step);
    lane
}

/// Commits as the schedule does for a lane that nothing stands against.
fn commit(mut step: Step<'_>) {
    for number in step.touched() {
        let at = step.lane(number).eligible_from();
        step.set_ready(number, at);
    }
    step.commit().unwrap();
}

/// A line, by the keys and not by what is in memory of them.
fn line(index: &Index, lane: LaneNumber) -> Vec<u64> {
    index.line_behind(lane, None, 1_000).unwrap().iter().map(|entry| entry.seq).collect()
}

fn keys_of(index: &Index, family: Family) -> usize {
    let mut scan = index.database.scan(family, &[], vec![0xff]);
    let mut keys = 0;
    while scan.peek(|_, _| Some(())).unwrap().is_some() {
        keys += 1;
        scan.advance();
    }
    keys
}

fn ready(index: &Index) -> Vec<(Timestamp, LaneNumber)> {
    index.ready((Timestamp::from_millis(0), LaneNumber(0)), Timestamp::MAX, 100).items
}

// TL-1
#[test]
fn a_message_costs_the_same_few_keys_however_many_wait() {
    let directory = TempDir::new().unwrap();
    let mut index = created(&directory);
    let mut changes_before = None;
    for waiting in [0, 1_000, 10_000] {
        let lane = schedule(&mut index, waiting..waiting + 1);
        schedule(&mut index, waiting + 1..(waiting * 10).max(1_000));
        let claimed = entry(lane, waiting);
        let mut changes = Vec::new();
        for change in [
            |step: &mut Step<'_>, entry: &Entry| step.claim(entry).unwrap(),
            |step: &mut Step<'_>, entry: &Entry| step.put_back(1, entry, DUE_AT),
            |step: &mut Step<'_>, entry: &Entry| {
                step.withdraw(&Entry { eligible_at: DUE_AT, ..*entry }).unwrap();
            },
        ] {
            let mut step = index.begin();
            change(&mut step, &claimed);
            changes.push(step.changes());
            commit(step);
        }
        assert!(changes.iter().all(|changes| *changes <= 4), "{changes:?}");
        assert_eq!(*changes_before.get_or_insert(changes.clone()), changes);
    }
}

// TL-1
#[test]
fn memory_holds_lanes_and_not_messages() {
    let directory = TempDir::new().unwrap();
    let mut index = created(&directory);
    for chunk in 0..10 {
        schedule(&mut index, chunk * 1_000..(chunk + 1) * 1_000);
    }
    assert_eq!((index.lanes().len(), index.lanes()[0].pending()), (1, 10_000));
    // A DUE and an EXPIRY key a message.
    assert_eq!(keys_of(&index, Family::Timeline), 20_000);
    assert_eq!(ready(&index).len(), 1);
    assert_eq!(keys_of(&index, Family::Id), 10_000);
    assert_eq!(keys_of(&index, Family::Meta), 2);
}

// TL-1
#[test]
fn a_line_is_in_order_of_eligibility_and_is_found_again_after_a_crash() {
    let directory = TempDir::new().unwrap();
    let mut index = created(&directory);
    let lane = schedule(&mut index, [5, 2, 9, 1].into_iter());
    let mut step = index.begin();
    step.claim(&entry(lane, 1)).unwrap();
    step.applied(9);
    commit(step);
    assert_eq!(line(&index, lane), [2, 5, 9]);
    drop(index);

    let index = reopened(&directory, 2, 9).unwrap();
    assert_eq!(line(&index, lane), [2, 5, 9]);
    assert_eq!(index.applied(), 9);
    assert_eq!(index.in_flight().unwrap(), [(1, entry(lane, 1).claim_key())]);
    assert_eq!((index.lanes()[0].pending(), index.lanes()[0].eligible_from()), (3, Some(entry(lane, 2).eligible_at)));
}

// TL-1
#[test]
fn a_lane_stands_in_ready_exactly_once_while_somebody_waits() {
    let directory = TempDir::new().unwrap();
    let mut index = created(&directory);
    let lane = schedule(&mut index, [4, 3].into_iter());
    assert_eq!(ready(&index), [(entry(lane, 3).eligible_at, lane)]);
    schedule(&mut index, [1].into_iter());
    assert_eq!(ready(&index), [(entry(lane, 1).eligible_at, lane)]);
    for number in [1, 3, 4] {
        let mut step = index.begin();
        step.withdraw(&entry(lane, number)).unwrap();
        commit(step);
        assert_eq!(ready(&index).len(), usize::from(number != 4), "after {number}");
    }
    assert_eq!(keys_of(&index, Family::Timeline), 0);
    assert_eq!(keys_of(&index, Family::Id), 0);
}

// TL-1
#[test]
fn walks_are_bounded_and_say_when_they_stopped_early() {
    let directory = TempDir::new().unwrap();
    let mut index = created(&directory);
    schedule(&mut index, 0..10);
    let until = DUE_AT + Duration::from_secs(7);
    let found = index.expiring(until, 3).unwrap();
    assert_eq!((found.items.len(), found.stopped_early, found.next_at), (3, true, None));
    let found = index.expiring(until, 100).unwrap();
    let next_at = Some(DUE_AT + Duration::from_secs(8));
    assert_eq!((found.items.len(), found.stopped_early, found.next_at), (8, false, next_at));
    assert_eq!(index.expiring(Timestamp::from_millis(0), 100).unwrap().next_at, Some(DUE_AT));
}

#[test]
fn an_empty_step_writes_nothing() {
    let directory = TempDir::new().unwrap();
    let mut index = created(&directory);
    let lane = schedule(&mut index, 0..1);
    let mut step = index.begin();
    step.touch(lane);
    step.applied(0);
    for number in step.touched() {
        let at = step.lane(number).eligible_from();
        step.set_ready(number, at);
    }
    assert_eq!(step.changes(), 0);
    step.commit().unwrap();
}

// TL-2
#[test]
fn a_lane_that_has_a_number_has_it_after_a_reopening_whether_or_not_anybody_ever_stood_in_it() {
    let directory = TempDir::new().unwrap();
    let mut index = created(&directory);
    let mut step = index.begin();
    let numbers = ["first", "second", "third"].map(|destination| step.lane_number(&name(destination), |_| false));
    step.schedule(&entry(numbers[2], 1));
    commit(step);
    drop(index);
    let mut index = reopened(&directory, 2, 100).unwrap();
    let mut step = index.begin();
    assert_eq!(
        ["first", "second", "third"].map(|destination| step.lane_number(&name(destination), |_| false)),
        numbers
    );
    drop(step);
    assert_eq!(line(&index, numbers[2]), [1]);
}

// TL-2
#[test]
fn a_torn_value_is_never_taken_for_a_value() {
    type KeyOf = fn(LaneNumber) -> Vec<u8>;
    let cases: [(Family, KeyOf); 3] = [
        (Family::Timeline, |lane| keys::due(lane, entry(lane, 1).position())),
        (Family::Id, |lane| keys::entry(entry(lane, 1).id)),
        (Family::Meta, keys::lane),
    ];
    for (family, key) in cases {
        let directory = TempDir::new().unwrap();
        let mut index = created(&directory);
        let lane = schedule(&mut index, 1..2);
        // One bit of the payload, or of the length where there is no payload.
        let mut batch = WriteBatch::new();
        let mut value = index.database.raw(family, &key(lane));
        let last = value.len() - 1;
        value[last] ^= 1;
        index.database.put_raw(&mut batch, family, &key(lane), &value);
        index.database.write(batch).unwrap();

        let is_read = |index: &mut Index| -> Result<(), Broken> {
            index.entry(entry(lane, 1).id)?;
            index.lanes.at(lane).line.forget_first();
            index.head(lane).map(|_| ())
        };
        match family {
            Family::Meta => {}
            Family::Timeline | Family::Id | Family::InFlight => {
                assert!(matches!(is_read(&mut index), Err(Broken::Torn { .. })), "{family:?}");
            }
        }
        drop(index);
        let broken = match reopened(&directory, 2, 0) {
            Ok(mut index) => is_read(&mut index).is_err(),
            Err(reason) => reason == Unusable::Torn,
        };
        assert!(broken, "{family:?}");
    }
}

// TL-2, TL-7
#[test]
fn an_index_is_only_gone_on_with_by_whom_it_fits() {
    let directory = TempDir::new().unwrap();
    assert_eq!(reopened(&directory, 1, 0).err(), Some(Unusable::Missing));
    let mut index = created(&directory);
    let mut step = index.begin();
    step.applied(7);
    step.commit().unwrap();
    drop(index);
    assert_eq!(
        reopened(&directory, 1, 7).err(),
        Some(Unusable::OtherOwner),
        "the store knows of no owner that wrote it"
    );
    assert_eq!(reopened(&directory, 2, 6).err(), Some(Unusable::AheadOfStore));
    let path = directory.path().join("shard");
    let feed = FeedBounds { trimmed: 7, end: 7 };
    let more_is_gone = FeedBounds { trimmed: 8, end: 9 };
    assert_eq!(Index::open(&path, &memory(), owner(2), more_is_gone).err(), Some(Unusable::Trimmed));
    let other_shard = Owner { shard: ShardId(4), ..owner(2) };
    assert_eq!(Index::open(&path, &memory(), other_shard, feed).err(), Some(Unusable::OtherVersion));
    assert_eq!(reopened(&directory, 2, 7).unwrap().applied(), 7);
    let mut index = reopened(&directory, 5, 7).expect("owners that never opened it are in nobody's way");
    assert!(!index.is_of_owner_before(5));
    index.own(5).unwrap();
    drop(index);
    assert_eq!(reopened(&directory, 5, 7).err(), Some(Unusable::OtherOwner), "epoch 5 has written to it");

    let mut batch = WriteBatch::new();
    let database = Database::open(&path, &memory()).unwrap();
    database.put(&mut batch, Family::Meta, &keys::state(), &[keys::version() + 1, 0, 0]);
    database.write(batch).unwrap();
    drop(database);
    assert_eq!(reopened(&directory, 6, 7).err(), Some(Unusable::OtherVersion));
    std::fs::write(path.join("CURRENT"), "nonsense").unwrap();
    assert_eq!(reopened(&directory, 6, 7).err(), Some(Unusable::Torn));
    assert_eq!(Index::create(&path, &memory(), owner(6)).unwrap().applied(), 0);
}

// TL-2
#[test]
fn an_index_is_whole_for_the_owner_just_after_the_one_that_left_it_so() {
    let directory = TempDir::new().unwrap();
    let index = created(&directory);
    drop(index);
    assert!(!reopened(&directory, 2, 0).unwrap().is_whole(), "it was left in no order");
    let mut index = reopened(&directory, 2, 0).unwrap();
    index.own(2).unwrap();
    index.leave_whole().unwrap();
    drop(index);
    assert!(reopened(&directory, 3, 0).unwrap().is_whole());
    assert!(!reopened(&directory, 4, 0).unwrap().is_whole(), "somebody had the shard in between");
    let mut index = reopened(&directory, 3, 0).unwrap();
    index.own(3).unwrap();
    drop(index);
    assert!(!reopened(&directory, 4, 0).unwrap().is_whole(), "its last owner did not say so");
}

// TL-2
#[test]
fn a_crash_at_the_mark_of_a_whole_index_leaves_it_with_the_mark_or_without() {
    for (side, is_marked) in [(Side::Before, false), (Side::After, true)] {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("shard");
        let index = created(&directory);
        let (database, written) = (index.database(), index.database().batches());
        fuse::lay(&path, 0, side);
        let left = catch_unwind(AssertUnwindSafe(move || index.leave_whole()));
        assert!(left.is_err() && !fuse::remove(&path), "the fuse burns at this batch as at any other");
        assert_eq!(database.batches() - written, u64::from(is_marked), "the mark is a batch");
        drop(database);
        assert_eq!(reopened(&directory, 2, 0).unwrap().is_whole(), is_marked, "{side:?}");
    }
}

// LAN-1
#[test]
fn the_number_of_a_key_that_nobody_needs_is_another_keys_of_the_same_destination() {
    let directory = TempDir::new().unwrap();
    let mut index = created(&directory);
    let key =
        |destination: &str, key: &str| LaneName { ordering: OrderingDomain::Key(key.to_owned()), ..name(destination) };
    let number = |index: &mut Index, name: &LaneName| {
        let mut step = index.begin();
        let number = step.lane_number(name, |_| false);
        commit(step);
        number
    };
    let (idle, busy) = (number(&mut index, &key("sink", "a")), number(&mut index, &key("sink", "b")));
    let plain = number(&mut index, &name("sink"));
    let mut step = index.begin();
    step.schedule(&Entry { order: Some(7), ..entry(busy, 7) });
    commit(step);
    assert_eq!(index.vacate(LaneNumber(0), 2, |_| false).unwrap(), (2, LaneNumber(2)), "something else is known of it");
    assert_eq!(number(&mut index, &key("sink", "c")), LaneNumber(3), "nothing is free");
    assert_eq!(index.vacate(LaneNumber(0), 10, |_| true).unwrap(), (4, LaneNumber(0)));
    let elsewhere = number(&mut index, &key("other", "a"));
    assert!(![idle, busy, plain, LaneNumber(3)].contains(&elsewhere), "another destination has other limits");
    drop(index);

    let mut index = reopened(&directory, 2, 100).unwrap();
    assert_eq!(index.lanes().iter().map(|lane| lane.is_vacant).collect::<Vec<_>>(), [true, false, false, true, false]);
    let reused = number(&mut index, &key("sink", "d"));
    assert!([idle, LaneNumber(3)].contains(&reused));
    let mut step = index.begin();
    step.schedule(&Entry { order: Some(8), ..entry(reused, 8) });
    commit(step);
    assert_eq!(number(&mut index, &key("sink", "d")), reused, "it has a number now");
    assert_ne!(number(&mut index, &key("sink", "a")), busy);
    drop(index);
    let mut index = reopened(&directory, 3, 100).unwrap();
    assert_eq!(number(&mut index, &key("sink", "d")), reused);
    assert_eq!((line(&index, busy), line(&index, reused)), (vec![7], vec![8]));
}

// LAN-4
#[test]
fn a_key_that_shares_a_lane_goes_on_to_until_nothing_of_that_lane_is_left() {
    let directory = TempDir::new().unwrap();
    let mut index = created(&directory);
    index.lanes.exact_max = 2;
    let key = |key: &str| LaneName { ordering: OrderingDomain::Key(key.to_owned()), ..name("sink") };
    let number = |index: &mut Index, key: &LaneName, is_busy: bool| {
        let mut step = index.begin();
        let number = step.lane_number(key, |_| is_busy);
        commit(step);
        number
    };
    let exact = [number(&mut index, &key("a"), false), number(&mut index, &key("b"), false)];
    let shared = number(&mut index, &key("c"), false);
    assert!(!exact.contains(&shared));
    assert!(matches!(index.lanes()[shared.0 as usize].name.ordering, OrderingDomain::Hash(_)));
    let mut step = index.begin();
    step.schedule(&Entry { order: Some(1), ..entry(shared, 1) });
    commit(step);
    // Lanes become free, and what came first of `c` still waits, is in flight, and then is gone.
    assert_eq!(index.vacate(LaneNumber(0), 2, |_| true).unwrap().0, 2);
    assert_eq!(number(&mut index, &key("c"), false), shared);
    drop(index);
    let mut index = reopened(&directory, 2, 100).unwrap();
    index.lanes.exact_max = 2;
    assert_eq!(number(&mut index, &key("c"), false), shared, "after a restart as well");
    let mut step = index.begin();
    step.claim(&Entry { order: Some(1), ..entry(shared, 1) }).unwrap();
    commit(step);
    assert_eq!(number(&mut index, &key("c"), true), shared);
    let own = number(&mut index, &key("c"), false);
    assert!(exact.contains(&own));
    assert_eq!(number(&mut index, &key("c"), true), own);
}

/// What is in memory of a line is what its keys say, whatever joins and leaves it in which order, in lanes that keep an
/// order and in others, and across restarts.
// TL-1
#[test]
fn the_head_of_a_line_is_the_first_of_its_keys_after_any_history() {
    for seed in 0..8 {
        let directory = TempDir::new().unwrap();
        let mut index = created(&directory);
        let mut random = SmallRng::seed_from_u64(seed);
        let (mut epoch, mut next) = (1, 0);
        let is_ordered = seed % 2 == 0;
        let lane = schedule(&mut index, 0..0);
        let mut standing: BTreeMap<Position, Entry> = BTreeMap::new();
        for _ in 0..250 {
            match random.random_range(0..10) {
                0..=4 => {
                    let mut step = index.begin();
                    for _ in 0..random.random_range(1..=12) {
                        next += 1;
                        let eligible_at = DUE_AT + Duration::from_millis(random.random_range(0..50));
                        let order = is_ordered.then(|| random.random_range(0..30));
                        let joins = Entry { eligible_at, order, expire_at: None, ..entry(lane, next) };
                        step.schedule(&joins);
                        standing.insert(joins.position(), joins);
                    }
                    commit(step);
                }
                5..=7 => {
                    let mut step = index.begin();
                    let mut walk = step.walk(lane);
                    for _ in 0..random.random_range(1..=20) {
                        let first = standing.pop_first().map(|(_, entry)| entry);
                        assert_eq!(walk.head(&mut step).unwrap(), first, "seed {seed}");
                        let Some(first) = first else { break };
                        step.claim(&first).unwrap();
                    }
                    commit(step);
                }
                8 => {
                    let gone: Vec<Position> =
                        standing.keys().copied().filter(|_| random.random_bool(0.3)).take(10).collect();
                    let mut step = index.begin();
                    for position in gone {
                        step.withdraw(&standing.remove(&position).unwrap()).unwrap();
                    }
                    commit(step);
                }
                _ => {
                    drop(index);
                    epoch += 1;
                    index = reopened(&directory, epoch, 0).unwrap();
                    index.lanes.at(lane).ready_at = None;
                    let mut step = index.begin();
                    step.touch(lane);
                    commit(step);
                }
            }
            assert_eq!(index.lanes()[0].pending(), standing.len() as u64, "seed {seed}");
            assert_eq!(index.head(lane).unwrap(), standing.values().next().copied(), "seed {seed}");
            let from = index.lanes()[0].eligible_from();
            assert_eq!(from, standing.values().next().map(|head| head.eligible_at), "seed {seed}: of a known head");
        }
    }
}
