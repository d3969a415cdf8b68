//! Retention: what ended long enough ago goes, whole; what is live, failed or referred to stays.

use super::publishing::{acquire, admit, record, shard};
use super::*;
use crate::model::message::{AfterAttempt, NewMessage};
use crate::model::retention::{DAY, Keep};

const KEEP: Keep = Keep::of_days(30, 30, None);
const KEEP_FAILED_TOO: Keep = Keep::of_days(30, 30, Some(60));

/// Clears every shelf, page by page, as a keeper does.
async fn clear(fixture: &Fixture, keep: &Keep) -> Removed {
    let mut removed = Removed::default();
    for shelf in Shelf::ALL {
        let mut from = None;
        loop {
            let retired = fixture.store.retire(shelf, keep, from, fixture.now()).await.unwrap();
            removed += retired.removed;
            from = retired.next;
            if from.is_none() {
                break;
            }
        }
    }
    fixture.assert_counted().await;
    let exact = fixture.store.exact_stats(fixture.now()).await.unwrap();
    assert_eq!((exact.uncovered, &exact.rows), (0, &exact.counters));
    assert_eq!(fixture.store.stats().await.unwrap(), exact.rows);
    removed
}

fn rows(events: u64, work_items: u64, messages: u64) -> Removed {
    Removed { events, work_items, messages }
}

/// The newest event, message and replay stay. These are they.
async fn newest(fixture: &Fixture) {
    let message = fixture.message("sink", fixture.now() + 400 * DAY);
    fixture.emit(vec![message]).await;
}

/// Rows in each table.
async fn counts(fixture: &Fixture) -> Vec<i64> {
    let mut tampering = Tampering::with(fixture).await;
    let mut counts = Vec::new();
    for table in ["receipt", "event", "work_item", "work_item_read", "message", "message_payload"] {
        counts.push(tampering.count(&format!("SELECT count(*) FROM {table}")).await);
    }
    tampering.close().await;
    counts
}

async fn publish(fixture: &Fixture, ids: &[MessageId]) {
    let lease = acquire(fixture, shard(fixture)).await;
    for id in ids {
        assert_eq!(admit(fixture, lease, *id, 1).await, Admission::Admitted { attempt: 1 });
        assert!(record(fixture, lease, *id, 1, AfterAttempt::Published).await);
    }
    fixture.store.release_shard(lease).await.unwrap();
}

// RET-1, RET-3
#[tokio::test]
async fn an_event_goes_with_all_that_is_of_it_once_its_messages_have_gone() {
    let fixture = start().await;
    let emitted = fixture.emit(vec![fixture.message("sink", START), fixture.message("sink", START)]).await;
    let event = fixture.store.message(emitted[0]).await.unwrap().unwrap().summary.entry.event_id;
    publish(&fixture, &emitted).await;
    newest(&fixture).await;
    let kept = counts(&fixture).await;
    fixture.advance(30 * DAY);
    assert_eq!(clear(&fixture, &KEEP).await, rows(0, 0, 0), "not before the days are over");
    fixture.advance(Duration::from_millis(1));
    let longer = Keep { messages: 31 * DAY, ..KEEP };
    assert_eq!(clear(&fixture, &longer).await, rows(0, 0, 0), "its messages keep it");
    assert!(fixture.store.event(event).await.unwrap().is_some());
    assert_eq!(clear(&fixture, &KEEP).await, rows(1, 1, 2));
    assert!(fixture.store.event(event).await.unwrap().is_none());
    assert!(fixture.store.message(emitted[0]).await.unwrap().is_none());
    let left = counts(&fixture).await;
    let gone: Vec<i64> = kept.iter().zip(&left).map(|(before, after)| before - after).collect();
    assert_eq!(gone, [1, 1, 1, 0, 2, 2]);
    assert_eq!(fixture.store.cancel(emitted[0], fixture.now()).await.unwrap(), Cancelled::NotFound);
    assert_eq!(clear(&fixture, &KEEP).await, rows(0, 0, 0));
}

// RET-1: a delivery is recognized as long as its Event is kept.
#[tokio::test]
async fn a_delivery_is_a_duplicate_while_its_event_is_kept_and_new_afterwards() {
    let fixture = start().await;
    let (event, _) = fixture.deliver("once", None).await;
    fixture.drain().await;
    newest(&fixture).await;
    let again = async || {
        let delivery = fixture.delivery(vec![fixture.event("once", None, "once")]);
        fixture.store.enqueue(delivery).await.unwrap()
    };
    fixture.advance(30 * DAY);
    assert_eq!(clear(&fixture, &KEEP).await, rows(0, 0, 0));
    assert!(matches!(again().await, Enqueued::Duplicate { events, .. } if events == [event]));
    fixture.advance(Duration::from_millis(1));
    assert_eq!(clear(&fixture, &KEEP).await, rows(1, 1, 0));
    assert!(matches!(again().await, Enqueued::Stored { events } if events != [event]), "nobody remembers it");
    assert_eq!(fixture.drain().await.len(), 1);
}

// RET-2: what waits, runs or is held is looked at by nobody, however old.
#[tokio::test]
async fn nothing_that_is_live_goes() {
    let fixture = start().await;
    let later = fixture.now() + 500 * DAY;
    let waiting = fixture.emit(vec![fixture.message("sink", later)]).await[0];
    fixture.deliver("ready", None).await;
    let (_, delayed) = fixture.deliver("delayed", None).await;
    let claimed = fixture.claim(2).await;
    let item = claimed.iter().find(|item| item.id == delayed).unwrap();
    let retry = Disposition::Retry { failure: failure(), run_after: later, leaves_lane: false };
    assert_eq!(fixture.finish(item, retry).await, Finished::Applied);
    for key in ["head", "behind"] {
        fixture.deliver(key, Some("source")).await;
    }
    let uncertain = emit_in(&fixture, fixture.message("sink", START), "other").await;
    let lease = acquire(&fixture, shard(&fixture)).await;
    admit(&fixture, lease, uncertain, 1).await;
    assert!(record(&fixture, lease, uncertain, 1, AfterAttempt::Uncertain).await);
    newest(&fixture).await;
    let before = counts(&fixture).await;
    fixture.advance(400 * DAY);
    assert_eq!(clear(&fixture, &KEEP_FAILED_TOO).await, rows(0, 0, 0));
    assert_eq!(counts(&fixture).await, before);
    assert_eq!(fixture.message_state(waiting).await, MessageState::Scheduled);
}

// RET-2
#[tokio::test]
async fn what_failed_stays_until_an_operator_acts_or_its_own_days_are_over() {
    let fixture = start().await;
    let dead = Disposition::Dead { failure: failure(), leaves_lane: true };
    let holding = Disposition::Dead { failure: failure(), leaves_lane: false };
    let (_, replayed) = fixture.deliver("replayed", None).await;
    fixture.end_next(dead.clone()).await;
    let (failed, _) = fixture.deliver("failed", None).await;
    fixture.end_next(dead).await;
    let (holder, _) = fixture.deliver("holder", Some("source")).await;
    fixture.end_next(holding).await;
    let message = fixture.emit(vec![fixture.message("sink", START)]).await[0];
    let lease = acquire(&fixture, shard(&fixture)).await;
    admit(&fixture, lease, message, 1).await;
    assert!(record(&fixture, lease, message, 1, AfterAttempt::Dead).await);
    fixture.advance(100 * DAY);
    assert_eq!(clear(&fixture, &KEEP).await, rows(0, 0, 0));
    // An operator ran one again: it goes with its replay, thirty days after that one's end.
    fixture.replay_first(replayed).await;
    fixture.drain().await;
    newest(&fixture).await;
    let last = fixture.deliver("last", None).await.1;
    fixture.drain().await;
    fixture.replay_first(last).await;
    fixture.advance(31 * DAY);
    assert_eq!(clear(&fixture, &KEEP).await, rows(1, 2, 0));
    let gone = clear(&fixture, &KEEP_FAILED_TOO).await;
    assert_eq!(gone, rows(2, 2, 1), "the dead message, its event, and the one that failed");
    assert!(fixture.store.event(failed).await.unwrap().is_none());
    assert!(fixture.store.event(holder).await.unwrap().is_some(), "it holds its lane up");
}

// RET-3
#[tokio::test]
async fn an_action_goes_with_its_work_item_and_that_ones_replays() {
    let fixture = start().await;
    let action = fixture.action("remind", START);
    let (id, shard) = (action.id, fixture.store.shard_of(&namespace(), &action.destination));
    fixture.emit(vec![action]).await;
    let lease = acquire(&fixture, shard.0).await;
    admit(&fixture, lease, id, 1).await;
    assert!(record(&fixture, lease, id, 1, AfterAttempt::HandedOff).await);
    let applies = fixture.store.message(id).await.unwrap().unwrap().action.unwrap().work_item.unwrap();
    newest(&fixture).await;
    fixture.advance(31 * DAY);
    assert_eq!(clear(&fixture, &KEEP).await, rows(0, 0, 0), "it waits to be applied");
    let apply_all = async || {
        let request = ClaimRequest { work_types: vec![WorkType::WorkflowActionApply], ..fixture.request(8) };
        for item in fixture.store.claim(request).await.unwrap() {
            assert_eq!(fixture.finish(&item, done(vec![])).await, Finished::Applied);
        }
    };
    apply_all().await;
    fixture.advance(20 * DAY);
    fixture.replay_first(applies).await;
    fixture.advance(20 * DAY);
    assert_eq!(clear(&fixture, &KEEP).await, rows(0, 0, 0), "its replay waits");
    apply_all().await;
    // The newest replay is another one.
    let other = fixture.deliver("other", None).await.1;
    fixture.drain().await;
    fixture.replay_first(other).await;
    fixture.advance(31 * DAY);
    assert_eq!(clear(&fixture, &KEEP).await, rows(1, 3, 1));
    assert!(fixture.store.work_item(applies).await.unwrap().is_none());
}

// RET-3: an action's class is that of what emitted it, also when that has gone.
#[tokio::test]
async fn an_action_keeps_the_class_of_what_emitted_it() {
    let fixture = start().await;
    let event = NewEvent { queue_class: QueueClass::Bulk, ..fixture.event("bulk", None, "{}") };
    fixture.enqueue(vec![event]).await;
    let item = fixture.claim(1).await.pop().unwrap();
    let action = fixture.action("remind", START);
    let (id, shard) = (action.id, fixture.store.shard_of(&namespace(), &action.destination));
    assert_eq!(fixture.finish(&item, done(vec![action])).await, Finished::Applied);
    let mut tampering = Tampering::with(&fixture).await;
    tampering.execute("UPDATE message SET work_item_id = event_id").await;
    tampering.close().await;
    let lease = acquire(&fixture, shard.0).await;
    admit(&fixture, lease, id, 1).await;
    assert!(record(&fixture, lease, id, 1, AfterAttempt::HandedOff).await);
    let applies = fixture.store.message(id).await.unwrap().unwrap().action.unwrap().work_item.unwrap();
    assert_eq!(fixture.store.work_item(applies).await.unwrap().unwrap().queue_class, QueueClass::Bulk);
}

// RET-3
#[tokio::test]
async fn a_receipt_goes_with_the_last_of_its_events() {
    let fixture = start().await;
    let events: Vec<_> = ["one", "two", "three"].iter().map(|key| fixture.event(key, None, key)).collect();
    fixture.enqueue(events).await;
    for _ in 0..2 {
        fixture.end_next(done(vec![])).await;
    }
    fixture.advance(20 * DAY);
    fixture.drain().await;
    newest(&fixture).await;
    fixture.advance(20 * DAY);
    assert_eq!(clear(&fixture, &KEEP).await, rows(2, 2, 0));
    assert_eq!(counts(&fixture).await[..2], [2, 2]);
    fixture.advance(20 * DAY);
    assert_eq!(clear(&fixture, &KEEP).await, rows(1, 1, 0));
    assert_eq!(counts(&fixture).await[..2], [1, 1]);
}

// RET-3: numbers are given once, also after all but the newest has gone and the store was opened again.
#[tokio::test]
async fn the_newest_stays_and_no_number_is_given_twice() {
    let fixture = start().await;
    let first = fixture.emit(vec![fixture.message("sink", START)]).await[0];
    publish(&fixture, &[first]).await;
    let (event, item) = fixture.deliver("last", None).await;
    fixture.drain().await;
    let child = fixture.replay_first(item).await;
    fixture.drain().await;
    fixture.advance(31 * DAY);
    // Its only message is the newest, and its only replay too.
    assert_eq!(clear(&fixture, &KEEP).await, rows(0, 0, 0));
    let fixture = fixture.reopen().await;
    let next = fixture.emit(vec![fixture.message("sink", START)]).await[0];
    publish(&fixture, &[next]).await;
    let other = fixture.deliver("other", None).await.1;
    fixture.drain().await;
    fixture.replay_first(other).await;
    fixture.drain().await;
    assert_eq!(clear(&fixture, &KEEP).await, rows(2, 3, 1), "they are the newest no longer");
    assert!(fixture.store.event(event).await.unwrap().is_none());
    assert!(fixture.store.work_item(child).await.unwrap().is_none());
}

// RET-4, TL-2
#[tokio::test]
async fn whoever_has_applied_less_of_a_feed_than_was_removed_is_told() {
    let fixture = start().await;
    let ids = fixture.emit((0..3).map(|_| fixture.message("sink", START)).collect()).await;
    let shard = ShardId(shard(&fixture));
    assert_eq!(fixture.store.cancel(ids[0], fixture.now()).await.unwrap(), Cancelled::Cancelled);
    let seqs: Vec<u64> = fixture.store.feed(shard, 0, false, 9).await.unwrap().entries.iter().map(|e| e.seq).collect();
    assert_eq!(seqs, [2, 3, 4], "the cancel is its last place");
    assert_eq!(fixture.store.feed_trimmed(shard).await.unwrap(), 0);
    newest(&fixture).await;
    fixture.advance(31 * DAY);
    assert_eq!(clear(&fixture, &KEEP).await, rows(0, 0, 1));
    assert_eq!(fixture.store.feed_trimmed(shard).await.unwrap(), 4);
    let page = async |after, open_only| fixture.store.feed(shard, after, open_only, 9).await.unwrap();
    assert!(page(3, false).await.has_gap && !page(4, false).await.has_gap);
    let end = page(4, false).await.end;
    assert!(!page(end, false).await.has_gap, "there is nothing behind it");
    let open: Vec<u64> = page(0, true).await.entries.iter().map(|entry| entry.seq).collect();
    assert_eq!(open, [2, 3, end], "who is live is there");
    // What is removed later and stood before leaves the mark where it is.
    assert_eq!(fixture.store.cancel(ids[1], fixture.now()).await.unwrap(), Cancelled::Cancelled);
    publish(&fixture, &ids[2..]).await;
    newest(&fixture).await;
    fixture.advance(31 * DAY);
    assert_eq!(clear(&fixture, &KEEP).await, rows(1, 1, 2));
    assert_eq!(fixture.store.feed_trimmed(shard).await.unwrap(), end + 1);
}

// RET-1: what a crash leaves is all of a unit, or nothing of it.
#[tokio::test]
async fn a_page_is_removed_whole_or_not_at_all() {
    let fixture = start().await;
    for page in 0..2 {
        let ids = fixture.emit(vec![fixture.message("sink", START)]).await;
        publish(&fixture, &ids).await;
        fixture.deliver(&format!("event-{page}"), None).await;
        fixture.drain().await;
    }
    newest(&fixture).await;
    fixture.advance(31 * DAY);
    let before = counts(&fixture).await;
    for shelf in [Shelf::Messages, Shelf::Events] {
        fixture.store.lose_answer(Loss::BeforeCommit);
        let lost = fixture.store.retire(shelf, &KEEP, None, fixture.now()).await;
        assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
        assert_eq!(counts(&fixture).await, before);
        fixture.assert_counted().await;
    }
    let mut expected = [rows(0, 0, 2), rows(4, 4, 0)].into_iter();
    for shelf in [Shelf::Messages, Shelf::Events] {
        fixture.store.lose_answer(Loss::AfterCommit);
        let lost = fixture.store.retire(shelf, &KEEP, None, fixture.now()).await;
        assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
        fixture.assert_counted().await;
        let again = fixture.store.retire(shelf, &KEEP, None, fixture.now()).await.unwrap();
        assert_eq!(again.removed, Removed::default(), "it was done: {:?}", expected.next());
    }
    assert_eq!(counts(&fixture).await, [1, 1, 1, 0, 1, 1]);
}

// RET-5
#[tokio::test]
async fn what_stays_is_passed_by_and_the_standing_counts_it() {
    let fixture = start().await;
    let later = fixture.now() + 500 * DAY;
    for _ in 0..PAGE_UNITS_MAX + 5 {
        fixture.emit(vec![fixture.message("sink", later)]).await;
    }
    fixture.deliver("behind", None).await;
    fixture.drain().await;
    newest(&fixture).await;
    fixture.advance(31 * DAY);
    let first = fixture.store.retire(Shelf::Events, &KEEP, None, fixture.now()).await.unwrap();
    assert_eq!((first.looked, first.removed), (u64::from(PAGE_UNITS_MAX), Removed::default()));
    let second = fixture.store.retire(Shelf::Events, &KEEP, first.next, fixture.now()).await.unwrap();
    assert_eq!((second.looked, second.removed, second.next), (7, rows(1, 1, 0), None), "one page later");
    let standing = fixture.store.retention_standing(&KEEP, fixture.now()).await.unwrap();
    let expected = OnShelf { past: u64::from(PAGE_UNITS_MAX) + 6, oldest: Some(START) };
    assert_eq!((standing.events, standing.dead_events), (expected, OnShelf::default()));
    assert_eq!(fixture.store.oldest_ended(Shelf::Messages).await.unwrap(), None);
}

/// [`Fixture::emit`], by an event of a source.
async fn emit_in(fixture: &Fixture, message: NewMessage, source: &str) -> MessageId {
    let id = message.id;
    let (_, item) = fixture.deliver(&format!("emit-in-{source}"), Some(source)).await;
    let items = fixture.claim(8).await;
    let item = items.iter().find(|claimed| claimed.id == item).unwrap();
    assert_eq!(fixture.finish(item, done(vec![message])).await, Finished::Applied);
    id
}
