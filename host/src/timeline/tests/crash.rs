//! A shard's actor that crashes at each of its batches in turn, before it is written and after.

use super::*;
use crate::store::Cancelled;
use crate::timeline::fuse::{self, Side};

/// More batches than the history below has.
const BATCHES_MAX: usize = 64;

/// The messages of one history.
struct History {
    /// Sent, the last two of them in one ordered lane.
    sent: [MessageId; 4],
    cancelled: MessageId,
    expired: MessageId,
}

/// Schedules one message of each kind while the actor runs, or has crashed already.
async fn schedule(world: &World) -> History {
    let later = world.now() + 2 * SECOND;
    let now = world.emit_one("ok", world.now()).await;
    let due_later = world.emit_one("ok", later).await;
    let cancelled = world.emit_one("ok", later).await;
    let ordered = |key: &str| NewMessage { ordering_key: Some(key.to_owned()), ..world.message("line", later) };
    let line = world.emit(vec![ordered("one"), ordered("one")]).await;
    let expiring = NewMessage { expire_at: Some(later), ..world.message("ok", later) };
    let expired = world.emit(vec![expiring]).await[0];
    assert_eq!(world.store.cancel(cancelled, world.now()).await.unwrap(), Cancelled::Cancelled);
    History { sent: [now, due_later, line[0], line[1]], cancelled, expired }
}

async fn until_over(world: &World, running: &Running, history: &History) {
    until(async || {
        running.advance(SECOND / 10);
        env::sleep(Duration::from_millis(2)).await;
        let mut ids = history.sent.to_vec();
        ids.extend([history.cancelled, history.expired]);
        world.store.message_entries(&ids).await.unwrap().iter().all(|entry| entry.state.is_terminal())
    })
    .await;
}

/// Whether the actor crashed within the history.
async fn crash(batches: usize, side: Side) -> bool {
    let mut world = World::new().await;
    world.add("line", "ok", |destination| destination.ordering = Ordering::Exact);
    let path = world.shared.directory.path().join("timeline").join("shard-00000");
    fuse::lay(&path, batches, side);
    let running = world.start_on("timeline", Arc::clone(&world.clock), 16).await;
    let history = schedule(&world).await;
    tokio::select! {
        () = until_over(&world, &running, &history) => {}
        () = running.timeline.stopped() => {}
    }
    running.stop().await;
    // It may also have crashed just after the history was over.
    let crashed = !fuse::remove(&path);

    world.clock.advance(2 * LEASE);
    let next = world.start().await;
    until_over(&world, &next, &history).await;
    let context = format!("{side:?} batch {batches}");
    for id in history.sent {
        let entry = world.entry(id).await;
        assert_eq!((entry.state, entry.attempt), (MessageState::Published, 1), "{context}");
    }
    assert_eq!(world.entry(history.cancelled).await.state, MessageState::Cancelled, "{context}");
    assert_eq!(world.entry(history.expired).await.state, MessageState::Expired, "{context}");
    let mut arrived = Vec::new();
    while let Ok((id, _)) = world.receiver.received.try_recv() {
        arrived.push(id);
    }
    let place = |id| arrived.iter().position(|arrived| *arrived == id).unwrap_or_else(|| panic!("{context}: lost"));
    assert!(place(history.sent[2]) < place(history.sent[3]), "{context}: the order of the line");
    arrived.sort_unstable();
    let mut sent = history.sent;
    sent.sort_unstable();
    assert_eq!(arrived, sent, "{context}: each once, and nothing else");
    next.stop().await;
    crashed
}

// TL-2, TL-5: the publisher outlives it, so every attempt has its outcome; attempts without one are `recovery`'s.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_batch_loses_nothing_and_sends_nothing_twice() {
    for side in [Side::Before, Side::After] {
        let mut batches = 0;
        while crash(batches, side).await {
            batches += 1;
            assert!(batches < BATCHES_MAX, "the history ends");
        }
        assert!(batches >= 5, "only {batches} batches were crashed at");
    }
}
