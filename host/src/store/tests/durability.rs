//! Commits that are not yet on disk: who hears of them, and when.

use std::task::Poll;

use futures_util::poll;

use super::*;

fn event(fixture: &Fixture, key: &str) -> Delivery {
    fixture.delivery(vec![fixture.event(key, None, key)])
}

async fn ready(store: &Store) -> u64 {
    store.count_rows().await.unwrap().work_items[&WorkState::Ready]
}

/// Lets everything run that can, until the event is there to be read.
async fn visible(fixture: &Fixture, events: u64) {
    while ready(&fixture.store).await < events {
        tokio::task::yield_now().await;
    }
}

// ADM-3
#[tokio::test]
async fn nobody_is_answered_before_his_commit_is_on_disk() {
    let fixture = Fixture::new().await;
    let work = fixture.store.subscribe_work();
    let disk = fixture.store.hold_disk().await;
    let mut first = std::pin::pin!(fixture.store.enqueue(event(&fixture, "d-1")));
    assert!(poll!(&mut first).is_pending());
    visible(&fixture, 1).await;
    let mut second = std::pin::pin!(fixture.store.enqueue(event(&fixture, "d-2")));
    assert!(poll!(&mut second).is_pending());
    visible(&fixture, 2).await;

    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending(), "both are committed, and not on disk");
    assert!(!work.has_changed().unwrap(), "and nobody is told to look for them");
    drop(disk);
    assert!(matches!(first.await, Ok(Enqueued::Stored { .. })));
    assert!(matches!(second.await, Ok(Enqueued::Stored { .. })));
    assert!(work.has_changed().unwrap());
}

// TL-2
#[tokio::test]
async fn an_index_is_built_on_nothing_that_a_crash_of_the_machine_takes_away() {
    let fixture = Fixture::new().await;
    fixture.deliver("d-1", None).await;
    let item = fixture.claim(1).await.pop().unwrap();
    let message = fixture.message("sink", START);
    let shard = fixture.store.shard_of(&namespace(), &message.destination);
    let disk = fixture.store.hold_disk().await;
    let mut finish = std::pin::pin!(fixture.finish(&item, done(vec![message.clone()])));
    assert!(poll!(&mut finish).is_pending());
    while fixture.store.count_rows().await.unwrap().messages[&MessageState::Scheduled] == 0 {
        tokio::task::yield_now().await;
    }

    let reads = async {
        let fed = fixture.store.feed(shard, 0, false, 10).await.unwrap();
        let end = fixture.store.feed_end(shard).await.unwrap();
        let entries = fixture.store.message_entries(&[message.id]).await.unwrap();
        (fed.entries.len(), end, entries.len())
    };
    let mut reads = std::pin::pin!(reads);
    // Read it has, long before this many turns.
    for _ in 0..1_000 {
        assert_eq!(poll!(&mut reads), Poll::Pending);
        tokio::task::yield_now().await;
    }
    drop(disk);
    assert_eq!(reads.await, (1, 1, 1));
    finish.await;
}

// ADM-3
#[tokio::test]
async fn a_disk_that_fails_is_told_and_nothing_is_promised_until_the_store_is_opened_anew() {
    let fixture = Fixture::new().await;
    fixture.deliver("d-1", None).await;
    fixture.store.fail_sync();
    let doubtful = fixture.store.enqueue(event(&fixture, "d-2")).await;
    assert!(matches!(&doubtful, Err(StoreError::Unknown(why)) if why.contains("restart")), "{doubtful:?}");
    for key in ["d-3", "d-4"] {
        let refused = fixture.store.enqueue(event(&fixture, key)).await;
        assert!(matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains("restart")), "{refused:?}");
    }
    assert!(matches!(fixture.store.probe().await, Err(StoreError::Unavailable(_))), "it is not ready either");
    let shard = fixture.store.shard_of(&namespace(), &"sink".parse().unwrap());
    assert!(fixture.store.feed(shard, 0, false, 1).await.is_err(), "and no index is built on it");

    fixture.store.close().await;
    let store = Store::open(options(&fixture.directory), fixture.env.clone()).await.unwrap();
    assert_eq!(ready(&store).await, 2, "what was promised, and what was in doubt and is there");
    assert!(matches!(store.enqueue(event(&fixture, "d-2")).await, Ok(Enqueued::Duplicate { .. })));
    assert!(matches!(store.enqueue(event(&fixture, "d-3")).await, Ok(Enqueued::Stored { .. })));
}

// ADM-3
#[tokio::test]
async fn stopping_answers_what_waits_for_the_disk() {
    let fixture = Fixture::new().await;
    let disk = fixture.store.hold_disk().await;
    let mut delivery = std::pin::pin!(fixture.store.enqueue(event(&fixture, "d-1")));
    assert!(poll!(&mut delivery).is_pending());
    let mut close = std::pin::pin!(fixture.store.close());
    assert!(poll!(&mut close).is_pending());
    visible(&fixture, 1).await;
    drop(disk);
    assert!(matches!(delivery.await, Ok(Enqueued::Stored { .. })));
    close.await;
}
