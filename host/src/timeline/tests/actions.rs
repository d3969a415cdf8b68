//! Actions on the timeline: handed off when they are due, once, whatever happens in between.

use super::*;
use crate::model::destination_lane::Gate;
use crate::model::message::TooLate;
use crate::store::{Admission, AdmissionRequest, Cancelled};

impl World {
    /// How many WorkItems apply an action.
    async fn work_items(&self, id: MessageId) -> usize {
        let event = self.store.event(self.entry(id).await.event_id).await.unwrap().unwrap();
        event.work_items.iter().filter(|item| item.action == Some(id)).count()
    }

    /// Lets time pass until the action is handed off.
    async fn until_handed_off(&self, running: &Running, id: MessageId) {
        until(async || {
            running.advance(SECOND / 10);
            env::sleep(Duration::from_millis(5)).await;
            self.entry(id).await.state == MessageState::HandedOff
        })
        .await;
    }
}

// TL-3, TL-4, TL-5
#[tokio::test(flavor = "multi_thread")]
async fn an_action_is_handed_off_when_it_is_due_and_not_while_its_flow_is_paused() {
    let mut world = World::new().await;
    let running = world.start().await;
    let later = world.now() + 60 * SECOND;
    let (now, then) = (world.shared.action("now", world.now()), world.shared.action("then", later));
    let (now_id, then_id) = (now.id, then.id);
    world.emit(vec![now, then]).await;
    world.until_handed_off(&running, now_id).await;
    assert_eq!((world.work_items(now_id).await, world.work_items(then_id).await), (1, 0));
    world.set_gate("flow:github", None, Gate::Paused).await;
    running.advance(61 * SECOND);
    running.until_active().await;
    world.barrier().await;
    assert_eq!((world.entry(then_id).await.attempt, world.work_items(then_id).await), (0, 0), "its lane is paused");
    world.set_gate("flow:github", None, Gate::Open).await;
    world.until_handed_off(&running, then_id).await;
    assert_eq!(world.work_items(then_id).await, 1);
    let cancelled = world.store.cancel(then_id, world.now()).await.unwrap();
    assert_eq!(cancelled, Cancelled::TooLate(TooLate::Stands(MessageState::HandedOff)));
    running.stop().await;
}

// TL-6: nobody doubts what became of it, whatever the policy of other destinations is.
#[tokio::test(flavor = "multi_thread")]
async fn an_action_whose_owner_died_before_the_handoff_is_handed_off_once_by_the_next() {
    let world = World::new().await;
    let action = world.shared.action("remind", world.now());
    let id = action.id;
    world.emit(vec![action]).await;
    let dead =
        world.store.acquire_shard(ShardId(0), world.shared.runtime(), LEASE, world.now()).await.unwrap().unwrap();
    let request = AdmissionRequest { id, generation: 1 };
    let admitted = world.store.admit(dead, vec![request], world.now()).await.unwrap();
    assert_eq!(admitted, [Admission::Admitted { attempt: 1 }]);
    let running = world.start().await;
    world.until_handed_off(&running, id).await;
    assert_eq!((world.entry(id).await.attempt, world.work_items(id).await), (2, 1));
    running.stop().await;
    // And not again from an index that knows of neither.
    let running = world.start_on("another folder", Arc::clone(&world.clock), 1_024).await;
    running.until_active().await;
    assert_eq!((world.entry(id).await.attempt, world.work_items(id).await), (2, 1));
    running.stop().await;
}
