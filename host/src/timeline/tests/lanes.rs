//! What one destination does to itself and not to others.

use super::*;

// LAN-1, TL-4
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_has_no_more_in_flight_than_it_may_and_what_waits_costs_no_attempt() {
    let mut world = World::new().await;
    world.add("narrow", "hold", |destination| destination.limits.messages = 3);
    let running = world.start().await;
    let ids = world.emit((0..10).map(|_| world.message("narrow", world.now())).collect()).await;
    world.receiver.until_held(3).await;
    world.barrier().await;
    assert_eq!(world.receiver.held(), Some(3));
    let mut attempts = Vec::new();
    for id in &ids {
        let entry = world.entry(*id).await;
        attempts.push((entry.state, entry.attempt));
    }
    attempts.sort();
    assert_eq!(attempts[..7], [(MessageState::Scheduled, 0); 7]);
    assert_eq!(attempts[7..], [(MessageState::Publishing, 1); 3]);
    world.receiver.let_go();
    assert_eq!(world.receiver.next_sorted(10).await, ids);
    running.stop().await;
}

// LAN-2
#[tokio::test(flavor = "multi_thread")]
async fn a_tarpit_holds_up_nobody_else() {
    const LANES: usize = 20;
    const EACH: usize = 20;
    let mut world = World::new().await;
    for lane in 0..LANES {
        world.add(&format!("healthy-{lane}"), "ok", |_| {});
    }
    let running = world.start().await;
    world.emit((0..100).map(|_| world.message("hold", world.now())).collect()).await;
    world.receiver.until_held(16).await;
    let mut healthy = Vec::new();
    for lane in 0..LANES {
        let messages = (0..EACH).map(|_| world.message(&format!("healthy-{lane}"), world.now()));
        healthy.extend(world.emit(messages.collect()).await);
    }
    healthy.sort();
    assert_eq!(world.receiver.next_sorted(LANES * EACH).await, healthy);
    assert_eq!(world.receiver.held(), Some(16), "the tarpit has its permits and no more");
    world.receiver.let_go();
    world.receiver.next_sorted(100).await;
    running.stop().await;
}

// LAN-2
#[tokio::test(flavor = "multi_thread")]
async fn a_tarpit_of_many_keys_and_tenants_has_half_of_everything_and_the_others_are_sent_beside_it() {
    const CLAIMED_MAX: usize = 64;
    const EACH: usize = 400;
    let mut world = World::new().await;
    world.add("tarpit", "hold", |destination| destination.ordering = Ordering::Exact);
    let running = world.start_on("timeline", Arc::clone(&world.clock), CLAIMED_MAX).await;
    running.until_active().await;
    let keyed = (0..EACH).map(|key| world.ordered(&format!("key-{key}"), "tarpit")).collect();
    world.emit(keyed).await;
    world.receiver.until_held(u32::try_from(CLAIMED_MAX / 2).unwrap()).await;
    // Of what comes afterwards, each is sent while the tarpit holds all that it may: no place is waited for.
    for _ in 0..20 {
        world.barrier().await;
    }
    assert_eq!(world.receiver.held(), Some(u32::try_from(CLAIMED_MAX / 2).unwrap()));
    world.receiver.let_go();
    world.receiver.next_sorted(EACH).await;
    running.stop().await;
}

// LAN-3
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_destination_is_left_alone_and_loses_nothing() {
    const MESSAGES: usize = 200;
    let mut world = World::new().await;
    let running = world.start().await;
    let ids = world.emit((0..MESSAGES).map(|_| world.message("fail", world.now())).collect()).await;
    let untouched = async |world: &World| {
        let entries = world.store.message_entries(&ids).await.unwrap();
        entries.iter().filter(|entry| entry.attempt == 0).count()
    };
    until(async || {
        let entries = world.store.message_entries(&ids).await.unwrap();
        entries.iter().filter(|entry| entry.state == MessageState::RetryWait).count() >= 10
            && !entries.iter().any(|entry| entry.state == MessageState::Publishing)
    })
    .await;
    world.barrier().await;
    // Those that found it out, and those that were on their way by then.
    assert!(untouched(&world).await >= MESSAGES - 10 - 16, "{}", untouched(&world).await);
    world.receiver.recover();
    let mut arrived = 0;
    while arrived < MESSAGES {
        running.advance(SECOND);
        env::sleep(Duration::from_millis(5)).await;
        while world.receiver.received.try_recv().is_ok() {
            arrived += 1;
        }
    }
    for id in ids {
        world.until_state(id, MessageState::Published).await;
    }
    running.stop().await;
}

// LAN-1
#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_asks_for_a_pause_gets_one_for_its_whole_lane() {
    let mut world = World::new().await;
    world.add("busy", "busy", |destination| destination.limits.messages = 1);
    let running = world.start().await;
    let ids = world.emit((0..5).map(|_| world.message("busy", world.now())).collect()).await;
    world.until_state(ids[0], MessageState::RetryWait).await;
    world.barrier().await;
    running.advance(20 * SECOND);
    world.barrier().await;
    assert_eq!(world.entry(ids[1]).await.attempt, 0, "the lane is left alone, not the message");
    running.advance(30 * SECOND);
    world.until_state(ids[1], MessageState::RetryWait).await;
    running.stop().await;
}

// LAN-3
#[tokio::test(flavor = "multi_thread")]
async fn messages_to_a_destination_that_is_not_configured_wait_until_it_is() {
    let mut world = World::new().await;
    let running = world.start().await;
    let ids = world.emit((0..100).map(|_| world.message("later", world.now())).collect()).await;
    world.barrier().await;
    running.stop().await;
    assert_eq!(world.entry(ids[0]).await.state, MessageState::Scheduled);
    world.add("later", "ok", |_| {});
    let running = world.start().await;
    assert_eq!(world.receiver.next_sorted(100).await, ids);
    running.stop().await;
}
