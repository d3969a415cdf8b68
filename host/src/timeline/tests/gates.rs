//! Gates, ordered lanes, and what is sent again.

use super::*;
use crate::model::destination_lane::{Gate, Ordering};
use crate::model::message::TooLate;
use crate::store::{Cancelled, GateChange, Redriven, Resolution, Resolved, SetBy};

impl World {
    pub(super) async fn set_gate(&self, destination: &str, namespace: Option<&str>, gate: Gate) {
        let change = GateChange {
            destination: destination.parse().unwrap(),
            namespace: namespace.map(|namespace| namespace.parse().unwrap()),
            gate,
            reason: None,
            by: SetBy::Operator,
            now: self.now(),
        };
        self.store.set_gate(change).await.unwrap();
    }

    /// Waits until the shard has taken up that a lane is held: what is emitted then stays where it is.
    async fn until_held(&mut self, destination: &str) {
        loop {
            let probe = self.emit_one(destination, self.now()).await;
            let barrier = self.emit_one("ok", self.now()).await;
            let first = self.receiver.next().await;
            if first == barrier && self.entry(probe).await.attempt == 0 {
                assert_eq!(self.store.cancel(probe, self.now()).await.unwrap(), Cancelled::Cancelled);
                return;
            }
            let second = self.receiver.next().await;
            assert!([first, second] == [probe, barrier] || [second, first] == [probe, barrier]);
        }
    }

    pub(super) fn ordered(&self, key: &str, destination: &str) -> NewMessage {
        NewMessage { ordering_key: Some(key.to_owned()), ..self.message(destination, self.now()) }
    }
}

// LAN-3
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_that_wait_behind_a_pause_are_all_sent_when_it_ends_and_a_restart_changes_nothing() {
    let mut world = World::new().await;
    world.add("sink", "ok", |_| {});
    let running = world.start().await;
    world.set_gate("sink", None, Gate::Paused).await;
    world.until_held("sink").await;
    let mut ids = world.emit((0..1_000).map(|_| world.message("sink", world.now())).collect()).await;
    world.barrier().await;
    running.stop().await;
    let running = world.start().await;
    world.barrier().await;
    assert_eq!(world.entry(ids[0]).await.attempt, 0, "the pause outlives the runtime");
    world.set_gate("sink", None, Gate::Open).await;
    ids.sort();
    assert_eq!(world.receiver.next_sorted(1_000).await, ids);
    running.stop().await;
}

// LAN-3
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_a_closed_lane_stays_there_and_one_tenants_gate_is_not_anothers() {
    let mut world = World::new().await;
    world.add("sink", "ok", |_| {});
    let running = world.start().await;
    world.set_gate("sink", Some("umbrella"), Gate::Closed).await;
    let id = world.emit_one("sink", world.now()).await;
    assert_eq!(world.receiver.next().await, id);
    let namespace = world.entry(id).await.namespace;
    world.set_gate("sink", Some(namespace.as_str()), Gate::Closed).await;
    world.until_held("sink").await;
    let ids = world.emit((0..10).map(|_| world.message("sink", world.now())).collect()).await;
    world.barrier().await;
    for id in &ids {
        assert_eq!(world.entry(*id).await.state, MessageState::Scheduled);
    }
    world.set_gate("sink", None, Gate::Open).await;
    assert_eq!(world.receiver.next_sorted(10).await, ids, "to open the destination opens every tenant's lanes");
    running.stop().await;
}

// LAN-3, TL-3
#[tokio::test(flavor = "multi_thread")]
async fn a_message_expires_behind_a_pause() {
    let mut world = World::new().await;
    world.add("sink", "ok", |_| {});
    let running = world.start().await;
    world.set_gate("sink", None, Gate::Paused).await;
    world.until_held("sink").await;
    let message = NewMessage { expire_at: Some(world.now() + SECOND), ..world.message("sink", world.now()) };
    let id = world.emit(vec![message]).await[0];
    world.barrier().await;
    assert_eq!(world.entry(id).await.state, MessageState::Scheduled);
    running.advance(2 * SECOND);
    world.until_state(id, MessageState::Expired).await;
    world.set_gate("sink", None, Gate::Open).await;
    world.barrier().await;
    running.stop().await;
}

// LAN-3
#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_says_it_is_gone_pauses_its_lane_and_no_message_is_lost() {
    let mut world = World::new().await;
    world.add("gone", "gone", |destination| {
        destination.limits.messages = 1;
        destination.retry.failures_max = 1;
    });
    let running = world.start().await;
    let ids = world.emit((0..5).map(|_| world.message("gone", world.now())).collect()).await;
    until(async || !world.store.gates().await.unwrap().is_empty()).await;
    running.advance(10 * SECOND);
    world.barrier().await;
    let gate = world.store.gates().await.unwrap().remove(0);
    assert_eq!((gate.destination.as_str(), gate.gate), ("gone", Gate::Paused));
    assert!(gate.namespace.is_some() && gate.reason.unwrap().contains("410"));
    for id in &ids {
        assert!(!world.entry(*id).await.state.is_terminal());
    }
    world.receiver.recover();
    world.set_gate("gone", None, Gate::Open).await;
    for id in ids {
        until(async || {
            running.advance(SECOND / 10);
            env::sleep(Duration::from_millis(2)).await;
            world.entry(id).await.state == MessageState::Published
        })
        .await;
    }
    running.stop().await;
}

// LAN-3
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_resumes_a_lane_that_said_it_was_gone_though_another_of_its_messages_says_so_afterwards() {
    let mut world = World::new().await;
    // All of them are on their way when the first says that it is gone.
    world.add("gone", "gone", |destination| destination.limits.messages = 8);
    let running = world.start().await;
    let ids = world.emit((0..8).map(|_| world.message("gone", world.now())).collect()).await;
    until(async || !world.store.gates().await.unwrap().is_empty()).await;
    // The gate is opened again and again, as long as anybody still says so: only what the store says counts in the end.
    world.receiver.recover();
    for id in ids {
        until(async || {
            world.set_gate("gone", None, Gate::Open).await;
            let namespace = world.entry(id).await.namespace;
            world.set_gate("gone", Some(namespace.as_str()), Gate::Open).await;
            running.advance(SECOND / 10);
            env::sleep(Duration::from_millis(2)).await;
            world.entry(id).await.state == MessageState::Published
        })
        .await;
    }
    running.stop().await;
}

// LAN-4
#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_lane_sends_heads_only_and_keeps_the_order_through_failures_and_a_restart() {
    const EACH: usize = 20;
    let mut world = World::new().await;
    world.add("ordered", "fail", |destination| destination.ordering = Ordering::Hashed { domains: 4 });
    let running = world.start().await;
    let messages: Vec<NewMessage> =
        (0..3 * EACH).map(|number| world.ordered(&format!("key-{}", number % 3), "ordered")).collect();
    let keys: Vec<_> = messages.iter().map(|message| (message.id, message.ordering_key.clone())).collect();
    let ids = world.emit(messages).await;
    world.until_state(ids[0], MessageState::RetryWait).await;
    world.barrier().await;
    let attempted = world.store.message_entries(&ids).await.unwrap().into_iter().filter(|entry| entry.attempt > 0);
    assert!(attempted.count() <= 3, "one head a key");
    running.stop().await;
    world.receiver.recover();
    let running = world.start().await;
    let mut arrived = Vec::new();
    while arrived.len() < ids.len() {
        running.advance(SECOND);
        env::sleep(Duration::from_millis(2)).await;
        while let Ok((id, _)) = world.receiver.received.try_recv() {
            arrived.push(id);
        }
    }
    for key in 0..3 {
        let of_key = |id: &&MessageId| keys.contains(&(**id, Some(format!("key-{key}"))));
        let sent: Vec<_> = arrived.iter().filter(of_key).collect();
        assert_eq!(sent, ids.iter().filter(of_key).collect::<Vec<_>>());
    }
    running.stop().await;
}

// LAN-4, TL-6
#[tokio::test(flavor = "multi_thread")]
async fn an_uncertain_head_holds_its_successors_until_an_operator_settles_it() {
    let mut world = World::new().await;
    world.add("ordered", "hold", |destination| {
        destination.ordering = Ordering::Exact;
        destination.uncertain = UncertainPolicy::Hold;
        destination.deadline = Duration::from_millis(50);
    });
    let running = world.start().await;
    let ids = world.emit(vec![world.ordered("a", "ordered"), world.ordered("a", "ordered")]).await;
    let other = world.emit_one("ok", world.now()).await;
    assert_eq!(world.receiver.next().await, other);
    world.until_state(ids[0], MessageState::Uncertain).await;
    running.stop().await;
    // Neither a restart nor an index that is built anew lets the successor go first.
    std::fs::remove_dir_all(world.shared.directory.path().join("timeline")).unwrap();
    world.receiver.let_go();
    let running = world.start().await;
    world.barrier().await;
    assert_eq!(world.entry(ids[1]).await.attempt, 0);
    let (_, lanes) = running.timeline.look().await.remove(0);
    let lane = lanes.iter().find(|lane| lane.name.destination.as_str() == "ordered").unwrap();
    assert_eq!((lane.held, lane.eligible_from, lane.pending), (Some(crate::lanes::Held::OrderingHead), None, 2));
    let resolved = world.store.resolve(ids[0], Resolution::Retry, world.now()).await.unwrap();
    assert_eq!(resolved, Resolved::Resolved);
    assert_eq!([world.receiver.next().await, world.receiver.next().await], [ids[0], ids[1]]);
    let resolved = world.store.resolve(ids[0], Resolution::Dead, world.now()).await.unwrap();
    assert!(matches!(resolved, Resolved::NotUncertain(_)));
    running.stop().await;
}

// LAN-4, TL-2
#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_comes_late_in_the_feed_is_sent_first_also_by_an_owner_that_builds_its_index_anew() {
    // More pages of the feed lie between the two than are read ahead.
    const BETWEEN: usize = 4_000;
    let mut world = World::new().await;
    world.add("ordered", "hold", |destination| {
        destination.ordering = Ordering::Exact;
        destination.uncertain = UncertainPolicy::Hold;
        destination.deadline = Duration::from_millis(50);
    });
    let running = world.start().await;
    let ids = world.emit(vec![world.ordered("a", "ordered"), world.ordered("a", "ordered")]).await;
    world.until_state(ids[0], MessageState::Uncertain).await;
    running.stop().await;
    std::fs::remove_dir_all(world.shared.directory.path().join("timeline")).unwrap();
    let later = world.now() + 3_600 * SECOND;
    for _ in 0..BETWEEN / 500 {
        world.emit((0..500).map(|_| world.message("ok", later)).collect()).await;
    }
    // It keeps its place in the line, and is the last of the feed.
    assert_eq!(world.store.resolve(ids[0], Resolution::Retry, world.now()).await.unwrap(), Resolved::Resolved);
    world.receiver.let_go();
    let running = world.start().await;
    assert_eq!([world.receiver.next().await, world.receiver.next().await], [ids[0], ids[1]]);
    running.stop().await;
}

// TL-5, TL-6
#[tokio::test(flavor = "multi_thread")]
async fn what_may_have_arrived_is_not_cancelled_and_an_operator_settles_it_while_it_waits() {
    let mut world = World::new().await;
    world.add("slow", "hold", |destination| destination.deadline = Duration::from_millis(50));
    let running = world.start().await;
    let ids = world.emit((0..3).map(|_| world.message("slow", world.now())).collect()).await;
    for id in &ids {
        world.until_state(*id, MessageState::RetryWait).await;
        let too_late = TooLate::MayHaveArrived(MessageState::RetryWait);
        assert_eq!(world.store.cancel(*id, world.now()).await.unwrap(), Cancelled::TooLate(too_late));
    }
    world.receiver.let_go();
    for (id, resolution) in ids.iter().zip([Resolution::Published, Resolution::Dead, Resolution::Retry]) {
        assert_eq!(world.store.resolve(*id, resolution, world.now()).await.unwrap(), Resolved::Resolved);
    }
    assert_eq!(world.receiver.next().await, ids[2], "it is tried again at once");
    world.until_state(ids[2], MessageState::Published).await;
    running.advance(120 * SECOND);
    running.until_active().await;
    world.barrier().await;
    for (id, state) in [(ids[0], MessageState::Published), (ids[1], MessageState::Dead)] {
        let entry = world.entry(id).await;
        assert_eq!((entry.state, entry.attempt), (state, 1), "it is not tried any more");
    }
    running.stop().await;
}

// LAN-3, TL-5
#[tokio::test(flavor = "multi_thread")]
async fn what_was_redriven_is_sent_in_a_new_generation() {
    let mut world = World::new().await;
    world.add("fails", "fail", |destination| destination.retry.failures_max = 1);
    let running = world.start().await;
    let id = world.emit_one("fails", world.now()).await;
    world.until_state(id, MessageState::Dead).await;
    world.receiver.recover();
    assert_eq!(world.store.redrive(vec![id], world.now()).await.unwrap(), [Redriven::Redriven { generation: 2 }]);
    assert_eq!(world.receiver.next().await, id);
    running.stop().await;
}
