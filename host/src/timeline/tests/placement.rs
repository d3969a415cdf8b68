//! Two runtimes over one database.

use super::*;
use crate::model::message::MessageState;
use crate::store::testing::namespace;

/// A destination of each shard.
pub(super) fn names(store: &Store) -> Vec<String> {
    let of = |shard: u16| {
        let mut names = (0..).map(|number| format!("to-{number}"));
        names.find(|name| store.shard_of(&namespace(), &name.parse().unwrap()) == ShardId(shard)).unwrap()
    };
    (0..store.shard_count()).map(of).collect()
}

/// Lets time pass for both until each looks after so many shards.
pub(super) async fn until_shared(first: &Running, second: &Running, shares: [usize; 2]) {
    until(async || {
        first.advance(SECOND / 10);
        second.advance(SECOND / 10);
        env::sleep(Duration::from_millis(5)).await;
        let of = async |running: &Running| {
            let views = running.timeline.look().await;
            views.iter().filter(|(shard, _)| shard.held.is_none()).count()
        };
        [of(first).await, of(second).await] == shares
    })
    .await;
}

// TL-7
#[tokio::test(flavor = "multi_thread")]
async fn shards_are_shared_out_over_runtimes_and_move_when_one_leaves() {
    let mut world = World::over(Fixture::on_server().await).await;
    let mut beside = World::over(world.shared.beside(0).await).await;
    let names = names(&world.store);
    for name in &names {
        world.add(name, "ok", |_| {});
        beside.add(name, "ok", |_| {});
    }
    let first = world.start().await;
    beside.clock.jump_to(world.clock.now());
    let second = beside.start_on("timeline", Arc::clone(&beside.clock), 16).await;
    until_shared(&first, &second, [1, 1]).await;
    assert!(first.timeline.is_looked_after() && second.timeline.is_looked_after());

    let send = || world.emit(names.iter().map(|name| world.message(name, START)).collect());
    let mut sent = send().await;
    let mut arrived = [world.receiver.next().await, beside.receiver.next().await];
    sent.sort_unstable();
    arrived.sort_unstable();
    assert_eq!(arrived, sent[..], "each runtime published what is its own");

    first.stop().await;
    second.until_active().await;
    let mut sent = world.emit(names.iter().map(|name| world.message(name, START)).collect()).await;
    sent.sort_unstable();
    assert_eq!(beside.receiver.next_sorted(2).await, sent);
    second.stop().await;
}

// TL-7
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_dies_leaves_its_shards_to_the_others_once_its_leases_are_over() {
    let world = World::over(Fixture::on_server().await).await;
    let beside = World::over(world.shared.beside(0).await).await;
    let first = world.start().await;
    beside.clock.jump_to(world.clock.now());
    let second = beside.start_on("timeline", Arc::clone(&beside.clock), 16).await;
    until_shared(&first, &second, [1, 1]).await;
    // Time stands still for the first: it says nothing any more, and renews nothing.
    second.until_active().await;
    assert!(second.clock.now().since(first.clock.now()) >= LEASE / 2, "not before its lease was over");
    first.stop().await;
    second.stop().await;
}

// TL-7
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_its_runtime_cannot_open_goes_to_the_next_for_all_to_see() {
    let mut world = World::over(Fixture::on_server().await).await;
    let mut beside = World::over(world.shared.beside(0).await).await;
    let names = names(&world.store);
    for name in &names {
        world.add(name, "ok", |_| {});
        beside.add(name, "ok", |_| {});
    }
    // A disk on which no index can be had: a file stands where each shard's folder is to be.
    let broken = world.shared.directory.path().join("timeline");
    std::fs::create_dir_all(&broken).unwrap();
    for shard in 0..world.store.shard_count() {
        std::fs::write(broken.join(format!("shard-{shard:05}")), "no folder").unwrap();
    }
    let first = world.start_on("timeline", Arc::clone(&world.clock), 16).await;
    beside.clock.jump_to(world.clock.now());
    let second = beside.start_on("timeline", Arc::clone(&beside.clock), 16).await;
    until_shared(&first, &second, [0, 2]).await;

    let withdrawals = world.store.withdrawals().await.unwrap();
    // It is given the other shard for the one that it leaves, if that comes first.
    assert!((1..=2).contains(&withdrawals.len()), "{withdrawals:?}");
    assert!(withdrawals.iter().all(|one| one.runtime == withdrawals[0].runtime && one.until > world.now()));
    assert!(withdrawals.iter().all(|one| one.reason.contains("os error")), "{withdrawals:?}");
    until(async || {
        first.advance(SECOND / 10);
        second.advance(SECOND / 10);
        env::sleep(Duration::from_millis(5)).await;
        first.timeline.is_looked_after()
    })
    .await;
    let mut sent = world.emit(names.iter().map(|name| world.message(name, START)).collect()).await;
    sent.sort_unstable();
    assert_eq!(beside.receiver.next_sorted(2).await, sent);
    for id in sent {
        beside.until_state(id, MessageState::Published).await;
    }
    first.stop().await;
    second.stop().await;
}
