//! Messages that retention removed: an index that was not told of their end is built again, and loses nothing.

use super::checkpoints::{SHARD, shard_path};
use super::*;
use crate::model::message::Resolution;
use crate::model::retention::{DAY, Keep};
use crate::store::{Resolved, Shelf, Tampering};

const KEEP: Keep = Keep::of_days(30, 30, None);

async fn restored(running: &Running) -> RestoredFrom {
    loop {
        if let Some((view, _)) = running.timeline.look().await.pop() {
            return view.restored;
        }
        running.until_active().await;
    }
}

/// Removes the messages that ended more than thirty days ago. Says how many those were.
async fn clear(world: &World) -> u64 {
    world.store.retire(Shelf::Messages, &KEEP, None, world.now()).await.unwrap().removed.messages
}

/// A line of two, and nobody knows what became of the first. Everybody has been told.
async fn held_line(world: &mut World) -> Vec<MessageId> {
    let ordered = |world: &World| NewMessage {
        ordering_key: Some("one".to_owned()),
        ..world.message("line", world.now() + 10 * SECOND)
    };
    let line = world.emit((0..2).map(|_| ordered(world)).collect()).await;
    world.barrier().await;
    line
}

/// An operator says that it arrived, and it is removed before any owner hears of it. So is everything else that ended.
async fn settle_and_remove(world: &World, id: MessageId) {
    let resolved = world.store.resolve(id, Resolution::Published, world.now()).await.unwrap();
    assert_eq!(resolved, Resolved::Resolved);
    // The newest message stays.
    world.emit_one("ok", world.now() + 400 * DAY).await;
    world.clock.advance(31 * DAY);
    assert!(clear(world).await >= 1);
    assert!(world.store.message_entries(&[id]).await.unwrap().is_empty());
}

// RET-4, TL-2: nothing of an index that is older than what was removed is relied on.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_was_not_told_of_what_is_gone_is_built_from_sql() {
    let mut world = World::new().await;
    world.add("line", "ok", |destination| destination.ordering = Ordering::Exact);
    let running = world.start().await;
    let line = held_line(&mut world).await;
    running.stop().await;
    world.clock.advance(2 * LEASE);
    world.attempt_elsewhere(line[0]).await;
    // This owner sees that its first one is uncertain, which holds the second.
    let running = world.start().await;
    world.barrier().await;
    running.stop().await;
    settle_and_remove(&world, line[0]).await;

    let running = world.start().await;
    assert_eq!(restored(&running).await, RestoredFrom::Store);
    assert_eq!(world.receiver.next().await, line[1], "nobody holds it any more");
    world.barrier().await;
    running.stop().await;
    // What it applied is newer than what is gone.
    let running = world.start().await;
    assert_eq!(restored(&running).await, RestoredFrom::Here);
    running.stop().await;
}

// RET-4, TL-2
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_is_older_than_what_is_gone_is_refused() {
    let mut world = World::new().await;
    let running = world.start().await;
    let due_at = world.now() + 100 * DAY;
    let ids = world.emit((0..20).map(|_| world.message("ok", due_at)).collect()).await;
    world.barrier().await;
    assert!(matches!(running.timeline.checkpoint(SHARD).await, Asked::Made(_)));
    running.stop().await;
    world.store.cancel(ids[0], world.now()).await.unwrap();
    world.emit_one("ok", due_at).await;
    world.clock.advance(31 * DAY);
    assert!(clear(&world).await >= 1);
    std::fs::remove_dir_all(shard_path(&world)).unwrap();
    let running = world.start().await;
    assert_eq!(restored(&running).await, RestoredFrom::Store);
    let view = running.timeline.look().await.pop().unwrap().0;
    assert_eq!(view.pending, 20, "all that is live");
    running.stop().await;
}

// RET-4: one that lags behind what is removed while it runs finds out by the next page of its feed.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_lags_behind_what_is_gone_begins_again_and_misses_no_message() {
    let mut world = World::new().await;
    let running = world.start().await;
    let later = world.emit_one("ok", world.now() + 3_600 * SECOND).await;
    world.barrier().await;
    let end = world.store.feed_end(SHARD).await.unwrap();
    let mut tampering = Tampering::in_directory(&world.shared.directory.path().join("data")).await;
    tampering.execute(&format!("INSERT INTO shard_trim (shard, seq) VALUES (0, {})", end + 1)).await;
    let next = world.emit_one("ok", world.now()).await;
    until(async || {
        running.advance(SECOND / 10);
        env::sleep(Duration::from_millis(5)).await;
        world.receiver.received.try_recv().is_ok_and(|(id, _)| id == next)
    })
    .await;
    assert_eq!(restored(&running).await, RestoredFrom::Store);
    running.advance(3_600 * SECOND);
    assert_eq!(world.receiver.next().await, later);
    running.stop().await;
}

// RET-4: what an index holds of a message that is gone is let go when its turn comes, and nothing is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_a_message_that_is_gone_is_harmless_and_cleaned_up() {
    let mut world = World::new().await;
    let running = world.start().await;
    let due_at = world.now() + 3_600 * SECOND;
    let ids = world.emit(vec![world.message("ok", due_at), world.message("ok", due_at)]).await;
    world.barrier().await;
    // As if a removal had come without its mark.
    let mut tampering = Tampering::in_directory(&world.shared.directory.path().join("data")).await;
    let gone = world.entry(ids[0]).await.seq;
    tampering.execute("UPDATE message_counter SET count = count - 1 WHERE state = 0").await;
    tampering.execute(&format!("DELETE FROM message WHERE seq = {gone}")).await;
    running.advance(3_600 * SECOND);
    assert_eq!(world.receiver.next().await, ids[1]);
    world.barrier().await;
    until(async || running.timeline.look().await.pop().is_some_and(|(view, _)| view.pending == 0)).await;
    running.stop().await;
}
