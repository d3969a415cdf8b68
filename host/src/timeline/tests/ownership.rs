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

// TL-3, TL-7
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_forward_does_not_end_the_ownership_of_a_host_that_is_alone() {
    let mut world = World::new().await;
    let running = world.start().await;
    world.emit_one("hold", world.now()).await;
    world.receiver.until_held(1).await;
    let epoch = world.store.shards().await.unwrap()[0].epoch;
    world.clock.jump_to(world.now() + 360 * LEASE);
    let id = world.emit_one("ok", world.now()).await;
    // The clock is trusted again before the lease is renewed by it.
    let arrived = loop {
        tokio::select! {
            arrived = world.receiver.next() => break arrived,
            () = env::sleep(Duration::from_millis(20)) => running.advance(SECOND / 20),
        }
    };
    assert_eq!((arrived, world.store.shards().await.unwrap()[0].epoch), (id, epoch));
    world.receiver.let_go();
    running.stop().await;
}
