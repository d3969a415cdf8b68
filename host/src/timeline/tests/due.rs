//! When messages are published, and when not.

use rand::rngs::{StdRng, SysRng};
use rand::{RngExt, SeedableRng, TryRng};

use super::*;
use crate::store::{Cancelled, Rescheduled};

const HOUR: Duration = Duration::from_secs(3_600);

// TL-1, TL-3
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_published_when_it_is_due_and_not_before() {
    let mut world = World::new().await;
    let running = world.start().await;
    let later = world.emit_one("ok", world.now() + HOUR).await;
    world.barrier().await;
    running.advance(HOUR - SECOND);
    world.barrier().await;
    running.advance(SECOND);
    assert_eq!(world.receiver.next().await, later);
    world.until_state(later, MessageState::Published).await;
    running.stop().await;
}

// TL-3
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_ahead_publishes_nothing_early() {
    let mut world = World::new().await;
    let running = world.start().await;
    let later = world.emit_one("ok", world.now() + HOUR).await;
    world.barrier().await;
    let before = world.now();
    world.clock.jump_to(before + 2 * HOUR);
    running.advance(SECOND / 4);
    until(async || !running.timeline.is_active()).await;
    // Back before it was believed.
    world.clock.jump_to(before + SECOND / 4);
    running.timeline.wake();
    running.until_active().await;
    world.barrier().await;
    assert_eq!(world.entry(later).await.state, MessageState::Scheduled);
    running.advance(HOUR);
    assert_eq!(world.receiver.next().await, later);
    running.stop().await;
}

// TL-5
#[tokio::test(flavor = "multi_thread")]
async fn what_was_cancelled_or_moved_in_time_is_not_published() {
    let mut world = World::new().await;
    let running = world.start().await;
    let due_at = world.now() + HOUR;
    let ids = world.emit((0..3).map(|_| world.message("ok", due_at)).collect()).await;
    assert_eq!(world.store.cancel(ids[0], world.now()).await.unwrap(), Cancelled::Cancelled);
    let moved = world.store.reschedule(ids[1], due_at + HOUR).await.unwrap();
    assert_eq!(moved, Rescheduled::Rescheduled { generation: 2 });
    running.advance(HOUR);
    assert_eq!(world.receiver.next().await, ids[2]);
    world.barrier().await;
    running.advance(HOUR);
    assert_eq!(world.receiver.next().await, ids[1]);
    world.barrier().await;
    running.stop().await;
}

// TL-5
#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_cancel_is_never_overtaken_however_the_two_interleave() {
    const MESSAGES: usize = 300;
    let seed = SysRng.try_next_u64().unwrap();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut world = World::new().await;
    world.add("ok2", "ok", |_| {});
    let running = world.start().await;
    let start = world.now() + SECOND;
    let messages = (0..MESSAGES).map(|_| {
        let destination = ["ok", "ok2"][random.random_range(0..2)];
        world.message(destination, start + Duration::from_millis(random.random_range(0..500)))
    });
    let messages: Vec<_> = messages.collect();
    let ids = world.emit(messages).await;
    running.advance(SECOND);

    let mut expected = std::collections::BTreeMap::new();
    for id in &ids {
        expected.insert(*id, world.entry(*id).await.due_at);
    }
    for id in ids {
        running.advance(Duration::from_millis(random.random_range(0..4)));
        match random.random_range(0..3) {
            0 if world.store.cancel(id, world.now()).await.unwrap() == Cancelled::Cancelled => {
                expected.remove(&id);
            }
            1 => {
                let due_at = world.now() + Duration::from_millis(random.random_range(0..300));
                if let Rescheduled::Rescheduled { .. } = world.store.reschedule(id, due_at).await.unwrap() {
                    expected.insert(id, due_at);
                }
            }
            _ => {}
        }
    }
    running.advance(SECOND);
    let wanted: Vec<_> = expected.keys().copied().collect();
    let mut arrived = Vec::new();
    while arrived.len() < wanted.len() {
        let (id, at) = world.receiver.next_at().await;
        let due_at = expected.get(&id).copied();
        assert!(due_at.is_some(), "{id} was cancelled, and that was acknowledged");
        assert!(due_at.unwrap() <= at, "{id} was published early");
        arrived.push(id);
        running.timeline.wake();
    }
    arrived.sort();
    assert_eq!(arrived, wanted);
    world.barrier().await;
    running.stop().await;
}

// TL-3
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_cannot_be_published_in_time_expires() {
    let mut world = World::new().await;
    let running = world.start().await;
    let until = world.now() + SECOND;
    let messages = vec![
        NewMessage { expire_at: Some(until), ..world.message("nowhere", world.now()) },
        NewMessage { expire_at: Some(until + HOUR), ..world.message("nowhere", world.now()) },
        NewMessage { expire_at: Some(until), ..world.message("ok", world.now() + HOUR) },
    ];
    let ids = world.emit(messages).await;
    world.barrier().await;
    running.advance(2 * SECOND);
    for (id, state) in ids.iter().zip([MessageState::Expired, MessageState::Scheduled, MessageState::Expired]) {
        world.until_state(*id, state).await;
    }
    running.advance(HOUR);
    world.until_state(ids[1], MessageState::Expired).await;
    world.barrier().await;
    running.stop().await;
}
