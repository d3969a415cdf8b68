//! An actor that panics: it is begun again, once nothing of the one before is left, and not for ever.

use super::*;
use crate::store::testing::namespace;
use crate::timeline::fuse::{self, Side};

fn path(world: &World) -> PathBuf {
    world.shared.directory.path().join("timeline").join("shard-00000")
}

async fn epoch(world: &World) -> u64 {
    world.store.shards().await.unwrap()[0].epoch
}

/// Lets time pass until the shard's trouble is as it is waited for.
async fn until_trouble(running: &Running, holds: impl Fn(&ShardTrouble) -> bool) -> ShardTrouble {
    let mut found = None;
    until(async || {
        running.advance(SECOND / 10);
        env::sleep(Duration::from_millis(2)).await;
        found = running.timeline.troubles().into_iter().find(&holds);
        found.is_some()
    })
    .await;
    found.unwrap()
}

// TL-7, TL-2
#[tokio::test(flavor = "multi_thread")]
async fn an_actor_that_panics_is_begun_again_and_loses_nothing() {
    for side in [Side::Before, Side::After] {
        let mut world = World::new().await;
        let running = world.start().await;
        let before = epoch(&world).await;
        fuse::lay_panics(&path(&world), side, PANICS_MAX - 1);
        let mut sent = world.emit((0..20).map(|_| world.message("ok", world.now())).collect()).await;
        let trouble = until_trouble(&running, |trouble| trouble.panics == PANICS_MAX - 1).await;
        assert_eq!(trouble.reason, "the test has this actor panic here");
        running.until_active().await;
        sent.sort_unstable();
        assert_eq!(world.receiver.next_sorted(sent.len()).await, sent);
        world.barrier().await;
        for id in sent {
            world.until_state(id, MessageState::Published).await;
            assert_eq!(world.entry(id).await.attempt, 1, "{side:?}: it was sent once");
        }
        assert_eq!(running.timeline.troubles()[0].next, AfterTrouble::Opened);
        assert!(running.timeline.troubles_now().is_empty());
        assert!(epoch(&world).await >= before + u64::from(PANICS_MAX - 1), "each one acquired the shard anew");
        running.stop().await;
    }
}

// TL-7, TL-6
#[tokio::test(flavor = "multi_thread")]
async fn the_next_actor_begins_once_what_the_one_before_had_sent_has_its_outcome() {
    let mut world = World::new().await;
    let running = world.start().await;
    let held = world.emit_one("hold", world.now()).await;
    world.receiver.until_held(1).await;
    let before = epoch(&world).await;
    fuse::lay_panics(&path(&world), Side::Before, 1);
    let other = world.emit_one("ok", world.now()).await;
    let trouble = until_trouble(&running, |_| true).await;
    assert!(matches!(trouble.next, AfterTrouble::OpenedAt(_)), "{trouble:?}");
    let troubles = running.timeline.troubles_now();
    assert_eq!((troubles.len(), troubles[0].panics), (1, 1), "it is down, and says so");
    assert!(!running.timeline.is_looked_after());
    for _ in 0..20 {
        running.advance(LEASE);
        env::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(epoch(&world).await, before, "nobody else acts meanwhile");
    world.receiver.let_go();
    running.until_active().await;
    assert_eq!(world.receiver.next_sorted(2).await, {
        let mut both = [held, other];
        both.sort_unstable();
        both
    });
    world.until_state(held, MessageState::Published).await;
    let detail = world.store.message(held).await.unwrap().unwrap();
    assert_eq!((detail.summary.entry.attempt, detail.uncertain_attempts), (1, 0), "its outcome was recorded");
    running.stop().await;
}

// TL-7
#[tokio::test(flavor = "multi_thread")]
async fn one_that_panics_time_after_time_stays_down_and_says_so() {
    let world = World::new().await;
    let running = world.start().await;
    fuse::lay_panics(&path(&world), Side::Before, u32::MAX);
    let message = world.emit_one("ok", world.now()).await;
    let trouble = until_trouble(&running, |trouble| trouble.next == AfterTrouble::Down).await;
    assert_eq!(trouble.panics, PANICS_MAX);
    running.timeline.stopped().await;
    assert!(!running.timeline.is_looked_after());
    assert_eq!(running.timeline.troubles_now(), [trouble]);
    assert_eq!(world.store.shards().await.unwrap()[0].owner, None, "whoever is started next need not wait");
    running.stop().await;

    // The next start begins anew, and finds all that was there.
    fuse::remove(&path(&world));
    let mut world = world;
    let running = world.start().await;
    assert_eq!(world.receiver.next().await, message);
    running.stop().await;
}

// TL-7
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_whose_actor_panics_time_after_time_is_left_to_another_runtime() {
    let mut world = World::over(Fixture::on_server().await).await;
    let mut beside = World::over(world.shared.beside(0).await).await;
    let name = {
        let store = &world.store;
        let mut names = (0..).map(|number| format!("to-{number}"));
        names.find(|name| store.shard_of(&namespace(), &name.parse().unwrap()) == ShardId(0)).unwrap()
    };
    world.add(&name, "ok", |_| {});
    beside.add(&name, "ok", |_| {});
    let first = world.start().await;
    fuse::lay_panics(&path(&world), Side::Before, u32::MAX);
    let message = world.emit_one(&name, world.now()).await;
    until_trouble(&first, |trouble| trouble.next == AfterTrouble::LeftToOthers).await;
    beside.clock.jump_to(world.clock.now());
    let second = beside.start_on("timeline", Arc::clone(&beside.clock), 16).await;
    let arrived = async {
        loop {
            first.advance(SECOND / 10);
            second.advance(SECOND / 10);
            env::sleep(Duration::from_millis(5)).await;
            if let Ok((id, _)) = beside.receiver.received.try_recv() {
                break id;
            }
        }
    };
    let arrived = tokio::time::timeout_at(env::deadline(PATIENCE), arrived).await.expect("the other one sends it");
    assert_eq!(arrived, message);
    let withdrawals = world.store.withdrawals().await.unwrap();
    assert!(withdrawals.iter().any(|one| one.reason.contains("its actor panicked")), "{withdrawals:?}");
    fuse::remove(&path(&world));
    first.stop().await;
    second.stop().await;
}
