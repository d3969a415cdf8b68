//! What a loss, a crash or a stop leaves.

use rocksdb::WriteBatch;

use super::*;
use crate::model::destination_lane::Gate;
use crate::store::{Admission, AdmissionRequest, ShardId, ShardLease};
use crate::timeline::database::Database;
use crate::timeline::keys::{self, Family, LaneNumber, Position};

fn shard_path(world: &World) -> std::path::PathBuf {
    world.shared.directory.path().join("timeline/shard-00000")
}

/// Emits messages that are due in an hour, and waits until they are in the index.
async fn indexed(world: &mut World, running: &Running, count: usize) -> Vec<MessageId> {
    let due_at = world.now() + 3_600 * SECOND;
    let ids = world.emit((0..count).map(|_| world.message("ok", due_at)).collect()).await;
    // It comes behind them in the feed.
    world.barrier().await;
    assert!(running.timeline.is_active());
    ids
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn losing_the_index_loses_nothing() {
    let mut world = World::new().await;
    let running = world.start().await;
    let ids = indexed(&mut world, &running, 1_000).await;
    running.stop().await;
    std::fs::remove_dir_all(shard_path(&world)).unwrap();
    let running = world.start().await;
    world.barrier().await;
    running.advance(3_600 * SECOND);
    assert_eq!(world.receiver.next_sorted(1_000).await, ids);
    world.barrier().await;
    running.stop().await;
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn a_torn_value_has_the_index_built_again_and_loses_nothing() {
    let mut world = World::new().await;
    let running = world.start().await;
    let ids = indexed(&mut world, &running, 100).await;
    let due_at = world.entry(ids[50]).await.due_at;
    let seq = world.entry(ids[50]).await.seq;
    running.stop().await;

    let database = Database::open(&shard_path(&world), &Memory::new(1 << 20)).unwrap();
    let key = keys::due(LaneNumber(0), Position { at: due_at, order: seq, id: ids[50] });
    let mut value = database.raw(Family::Timeline, &key);
    value[9] ^= 0x40;
    let mut batch = WriteBatch::new();
    database.put_raw(&mut batch, Family::Timeline, &key, &value);
    database.write(batch).unwrap();
    drop(database);

    let running = world.start().await;
    world.barrier().await;
    running.advance(3_600 * SECOND);
    // The shard begins again, and so does the time that its clock needs to be trusted.
    let mut arrived = Vec::new();
    until(async || {
        running.advance(SECOND / 10);
        while let Ok((id, _)) = world.receiver.received.try_recv() {
            arrived.push(id);
        }
        arrived.len() == ids.len()
    })
    .await;
    arrived.sort();
    assert_eq!(arrived, ids);
    running.stop().await;
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_where_the_last_one_stopped() {
    let mut world = World::new().await;
    let running = world.start().await;
    let ids = indexed(&mut world, &running, 100).await;
    running.stop().await;
    world.store.cancel(ids[0], world.now()).await.unwrap();
    let more = world.emit_one("ok", world.now() + 3_600 * SECOND).await;
    let running = world.start().await;
    running.advance(3_601 * SECOND);
    let mut expected = ids[1..].to_vec();
    expected.push(more);
    assert_eq!(world.receiver.next_sorted(100).await, expected);
    world.barrier().await;
    running.stop().await;
}

/// A runtime that admits messages and dies.
async fn admit_and_die(world: &World, ids: &[MessageId]) {
    let runtime = world.shared.runtime();
    let lease: ShardLease = world.store.acquire_shard(ShardId(0), runtime, SECOND, world.now()).await.unwrap().unwrap();
    let requests = ids.iter().map(|id| AdmissionRequest { id: *id, generation: 1 }).collect();
    let admissions = world.store.admit(lease, requests, world.now()).await.unwrap();
    assert!(admissions.iter().all(|admission| *admission == Admission::Admitted { attempt: 1 }));
}

/// How long an owner is given to do what it must not.
const TEMPTATION: Duration = Duration::from_millis(300);

// TL-3, TL-6
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_not_trusted_yet_ends_no_message_that_may_have_been_published() {
    let mut world = World::new().await;
    let expire_at = Some(world.now() + 1_800 * SECOND);
    let message = NewMessage { expire_at, ..world.message("ok", world.now()) };
    let ids = world.emit(vec![message]).await;
    admit_and_die(&world, &ids).await;
    // The machine starts with a clock that is an hour ahead, which is set right before it could be trusted.
    let right = world.now() + 2 * LEASE;
    world.clock.jump_to(right + 3_600 * SECOND);
    let running = world.start_on("timeline", Arc::clone(&world.clock), 16).await;
    env::sleep(TEMPTATION).await;
    world.clock.jump_to(right);
    running.until_active().await;
    running.advance(2 * SECOND);
    assert_eq!(world.receiver.next().await, ids[0]);
    world.until_state(ids[0], MessageState::Published).await;
    assert_eq!(world.entry(ids[0]).await.attempt, 2);
    running.stop().await;
}

// TL-6
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_without_an_outcome_ends_as_its_destination_says() {
    let mut world = World::new().await;
    world.add("held", "ok", |destination| destination.uncertain = UncertainPolicy::Hold);
    world.add("ended", "ok", |destination| destination.uncertain = UncertainPolicy::End);
    let messages = ["ok", "held", "ended", "nowhere"].map(|name| world.message(name, world.now()));
    let ids = world.emit(messages.into()).await;
    admit_and_die(&world, &ids).await;

    let running = world.start_on("timeline", Arc::clone(&world.clock), 16).await;
    // Its lease has to run out first.
    running.until_active().await;
    world.until_state(ids[1], MessageState::Uncertain).await;
    world.until_state(ids[2], MessageState::Dead).await;
    world.until_state(ids[3], MessageState::Uncertain).await;
    running.advance(2 * SECOND);
    assert_eq!(world.receiver.next().await, ids[0], "again, under the same identity");
    world.until_state(ids[0], MessageState::Published).await;
    assert_eq!(world.entry(ids[0]).await.attempt, 2);
    world.barrier().await;
    running.stop().await;
}

// TL-6
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_what_is_in_flight_and_gives_the_shard_up() {
    let world = World::new().await;
    let running = world.start().await;
    let id = world.emit_one("hold", world.now()).await;
    world.receiver.until_held(1).await;
    running.stop.cancel();
    world.receiver.let_go();
    running.stop().await;
    assert_eq!(world.entry(id).await.state, MessageState::Published);
    let other = world.shared.runtime();
    let lease = world.store.acquire_shard(ShardId(0), other, SECOND, world.now()).await.unwrap();
    assert!(lease.is_some(), "nobody has to wait for its lease");
}

// TL-3, TL-6
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_expires_after_an_admission_that_nobody_heard_of_is_not_left_as_it_is() {
    let mut world = World::new().await;
    world.add("shut", "ok", |_| {});
    world.set_gate("shut", None, Gate::Paused).await;
    let running = world.start().await;
    let expire_at = Some(world.now() + 5 * SECOND);
    let ids = world.emit(vec![NewMessage { expire_at, ..world.message("shut", world.now()) }]).await;
    world.barrier().await;
    // Committed long after it was taken for refused.
    let lease = ShardLease { shard: ShardId(0), epoch: 1, until: world.now() };
    let requests = vec![AdmissionRequest { id: ids[0], generation: 1 }];
    let admitted = world.store.admit(lease, requests, world.now()).await.unwrap();
    assert_eq!(admitted, [Admission::Admitted { attempt: 1 }]);
    running.advance(6 * SECOND);
    world.until_state(ids[0], MessageState::Expired).await;
    running.stop().await;
}
