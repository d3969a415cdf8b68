//! What expires in an index that does not know what became of it.

use super::checkpoints::{SHARD, make_checkpoint, shard_path, view};
use super::*;
use crate::lanes::Held;
use crate::model::message::Resolution;

// TL-2, TL-6, LAN-4
#[tokio::test(flavor = "multi_thread")]
async fn an_uncertain_head_whose_time_is_over_holds_its_line_also_in_an_index_that_does_not_know() {
    let mut world = World::new().await;
    world.add("line", "ok", |destination| {
        destination.ordering = Ordering::Exact;
        destination.uncertain = UncertainPolicy::Hold;
    });
    let running = world.start().await;
    let due_at = world.now() + 10 * SECOND;
    let ordered = |world: &World| NewMessage { ordering_key: Some("one".to_owned()), ..world.message("line", due_at) };
    let head = NewMessage { expire_at: Some(due_at + 10 * SECOND), ..ordered(&world) };
    let line = world.emit(vec![head, ordered(&world)]).await;
    world.barrier().await;
    make_checkpoint(&running).await;
    running.stop().await;
    world.clock.advance(15 * SECOND);
    world.attempt_elsewhere(line[0]).await;
    std::fs::remove_dir_all(shard_path(&world)).unwrap();
    world.clock.advance(15 * SECOND);

    let running = world.start().await;
    assert_eq!(view(&running).await.restored, RestoredFrom::Checkpoint);
    world.barrier().await;
    let behind = world.entry(line[1]).await;
    assert_eq!((behind.state, behind.attempt), (MessageState::Scheduled, 0), "nobody said what became of the first");
    until(async || running.timeline.why(SHARD, world.entry(line[1]).await).await == Some(Held::OrderingHead)).await;
    world.store.resolve(line[0], Resolution::Published, world.now()).await.unwrap();
    assert_eq!(world.receiver.next().await, line[1]);
    running.stop().await;
}
