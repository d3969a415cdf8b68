//! Two runtimes and one shard.

use super::*;

// TL-7
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_was_paused_past_its_lease_publishes_nothing() {
    let mut world = World::new().await;
    // Its clock stands still: for it no time passes, so it relies on its lease for ever.
    let old = world.start_on("old", Arc::new(ManualClock::at(START)), 16).await;
    old.until_active().await;
    let before = world.emit_one("ok", START).await;
    assert_eq!(world.receiver.next().await, before);
    world.until_state(before, MessageState::Published).await;

    world.clock.jump_to(old.clock.now());
    world.clock.advance(2 * LEASE);
    let new = world.start_on("new", Arc::clone(&world.clock), 16).await;
    new.until_active().await;
    // Due for both of them; the old one finds out that it owns nothing when it asks for admission.
    let messages = (0..50).map(|_| world.message("ok", START)).collect();
    let ids = world.emit(messages).await;
    old.timeline.wake();
    assert_eq!(world.receiver.next_sorted(50).await, ids);
    world.barrier().await;
    for id in ids {
        world.until_state(id, MessageState::Published).await;
        assert_eq!(world.entry(id).await.attempt, 1, "admitted once");
    }
    until(async || !old.timeline.is_active()).await;
    old.stop().await;
    new.stop().await;
}

// TL-7
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_is_acquired_once_the_other_owner_has_given_it_up() {
    let mut world = World::new().await;
    let old = world.start().await;
    let new = world.start_on("new", Arc::clone(&world.clock), 16).await;
    world.barrier().await;
    assert!(!new.timeline.is_active());
    old.stop().await;
    new.until_active().await;
    world.barrier().await;
    new.stop().await;
}
