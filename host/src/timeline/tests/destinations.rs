//! Destinations that are set, changed and removed while shards are owned.

use serde_json::{Value, json};

use super::*;
use crate::lanes::Held;
use crate::store::{DestinationChange, DestinationChanged, DestinationWish};

impl World {
    async fn change(&self, name: &str, wish: DestinationWish) {
        let change = DestinationChange { name: name.parse().unwrap(), wish, expected: None, now: self.now() };
        let changed = self.store.change_destination(change).await.unwrap();
        assert!(matches!(changed, DestinationChanged::Done(_)), "{changed:?}");
    }

    /// Sets a destination that the receiver answers as `path`, with these keys.
    async fn set(&self, name: &str, path: &str, keys: Value) {
        let mut document = json!({ "url": format!("http://{}/{path}", self.receiver.address) });
        document.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        self.change(name, DestinationWish::Set(document.to_string())).await;
    }

    fn keyed(&self, destination: &str, key: &str) -> NewMessage {
        NewMessage { ordering_key: Some(key.to_owned()), ..self.message(destination, self.now()) }
    }

    async fn until_why_is(&self, running: &Running, id: MessageId, held: Held) {
        until(async || {
            let entry = self.entry(id).await;
            running.timeline.why(crate::store::ShardId(0), entry).await == Some(held)
        })
        .await;
    }
}

impl Running {
    /// The lanes to a destination: their names, and what they have in flight.
    async fn lanes_to(&self, destination: &str) -> Vec<(String, u32)> {
        let lanes = self.timeline.look().await.into_iter().flat_map(|(_, lanes)| lanes);
        let lanes = lanes.filter(|lane| lane.name.destination.as_str() == destination);
        let mut lanes: Vec<_> = lanes.map(|lane| (lane.name.to_string(), lane.in_flight_messages)).collect();
        lanes.sort();
        lanes
    }
}

// LAN-5, LAN-4
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_destination_that_nobody_knows_is_sent_once_it_is_set_and_again_after_it_was_removed() {
    let mut world = World::new().await;
    let running = world.start().await;
    let first = world.emit((0..3).map(|_| world.message("late", world.now())).collect()).await;
    world.until_why_is(&running, first[0], Held::Capability).await;
    world.barrier().await;
    world.set("late", "ok", json!({})).await;
    assert_eq!(world.receiver.next_sorted(3).await, first);
    for id in &first {
        world.until_state(*id, MessageState::Published).await;
        assert_eq!(world.entry(*id).await.attempt, 1, "to wait costs no attempt");
    }

    world.change("late", DestinationWish::Remove).await;
    until(async || !running.timeline.can_call(&"late".parse().unwrap())).await;
    let second = world.emit_one("late", world.now()).await;
    world.until_why_is(&running, second, Held::Capability).await;
    world.barrier().await;
    assert_eq!(world.entry(second).await.state, MessageState::Scheduled);
    world.set("late", "ok", json!({})).await;
    assert_eq!(world.receiver.next().await, second);
    world.until_state(second, MessageState::Published).await;
    // Its shard hears of the outcome after the store has it.
    until(async || running.lanes_to("late").await == [("acme/late".to_owned(), 0)]).await;
    running.stop().await;
}

// LAN-5
#[tokio::test(flavor = "multi_thread")]
async fn limits_change_while_messages_are_in_flight_and_all_of_them_are_accounted_for() {
    let mut world = World::new().await;
    world.set("slow", "hold", json!({"in_flight_messages": 2, "deadline_ms": 120_000})).await;
    let running = world.start().await;
    let ids = world.emit((0..12).map(|_| world.message("slow", world.now())).collect()).await;
    world.receiver.until_held(2).await;
    world.set("slow", "hold", json!({"in_flight_messages": 5, "weight": 7, "deadline_ms": 120_000})).await;
    world.receiver.until_held(5).await;
    // Fewer than are in flight: nobody else is sent, and nothing is taken back.
    world.set("slow", "hold", json!({"in_flight_messages": 1, "deadline_ms": 120_000})).await;
    world.until_why_is(&running, *ids.last().unwrap(), Held::LaneFull).await;
    world.barrier().await;
    assert_eq!((world.receiver.held(), running.lanes_to("slow").await), (Some(5), vec![("acme/slow".to_owned(), 5)]));
    world.receiver.let_go();
    let mut sorted = ids.clone();
    sorted.sort();
    assert_eq!(world.receiver.next_sorted(12).await, sorted);
    for id in ids {
        world.until_state(id, MessageState::Published).await;
        assert_eq!(world.entry(id).await.attempt, 1);
    }
    until(async || running.lanes_to("slow").await == [("acme/slow".to_owned(), 0)]).await;
    running.stop().await;
}

// LAN-5
#[tokio::test(flavor = "multi_thread")]
async fn the_next_attempt_is_made_where_the_destination_is_then() {
    let world = World::new().await;
    let keys = json!({"retry_initial_ms": 1_000, "retry_max_ms": 1_000});
    world.set("moved", "fail", keys.clone()).await;
    let running = world.start().await;
    let id = world.emit_one("moved", world.now()).await;
    world.until_state(id, MessageState::RetryWait).await;
    world.set("moved", "ok", keys).await;
    until(async || {
        running.advance(SECOND / 10);
        env::sleep(Duration::from_millis(2)).await;
        world.entry(id).await.state == MessageState::Published
    })
    .await;
    running.stop().await;
}

// LAN-5, LAN-4
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_waited_for_an_ordered_destination_are_sent_in_order_once_it_is_set() {
    let mut world = World::new().await;
    let running = world.start().await;
    let ids = world.emit(["a", "a", "b", "a"].map(|key| world.keyed("line", key)).into()).await;
    world.until_why_is(&running, ids[0], Held::Capability).await;
    assert_eq!(running.lanes_to("line").await, [("acme/line".to_owned(), 0)], "nobody said that they have an order");
    world.set("line", "hold", json!({"ordering": "exact", "deadline_ms": 120_000})).await;
    let one_a_key = [("acme/line:a".to_owned(), 1), ("acme/line:b".to_owned(), 1)];
    until(async || {
        running.advance(SECOND / 10);
        env::sleep(Duration::from_millis(2)).await;
        running.lanes_to("line").await == one_a_key
    })
    .await;
    world.receiver.until_held(2).await;
    world.barrier().await;
    assert_eq!(world.receiver.held(), Some(2), "heads only");
    world.until_why_is(&running, ids[1], Held::OrderingHead).await;

    // Removed and set again as it was, its lines stay: what is emitted meanwhile stands in them.
    world.change("line", DestinationWish::Remove).await;
    until(async || !running.timeline.can_call(&"line".parse().unwrap())).await;
    let last = world.emit_one("ok", world.now()).await;
    assert_eq!(world.receiver.next().await, last);
    let behind = world.emit(vec![world.keyed("line", "a")]).await;
    world.barrier().await;
    assert_eq!(running.lanes_to("line").await, one_a_key);
    world.receiver.let_go();
    world.set("line", "ok", json!({"ordering": "exact"})).await;
    let mut arrived = Vec::new();
    while arrived.len() < 5 {
        arrived.push(world.receiver.next().await);
    }
    arrived.retain(|id| *id != ids[2]);
    assert_eq!(arrived, [ids[0], ids[1], ids[3], behind[0]]);
    running.stop().await;
}

// LAN-5
#[tokio::test(flavor = "multi_thread")]
async fn what_is_set_survives_a_restart_and_the_index_is_gone_on_with() {
    let mut world = World::new().await;
    world.set("line", "ok", json!({"ordering": "hashed", "ordering_domains": 2})).await;
    let running = world.start().await;
    let later = world.now() + 60 * SECOND;
    let id = world.emit(vec![NewMessage { due_at: later, ..world.keyed("line", "a") }]).await[0];
    until(async || running.lanes_to("line").await.len() == 1).await;
    running.stop().await;
    let running = world.start().await;
    let (shard, _) = running.timeline.look().await.remove(0);
    assert_eq!((shard.restored, shard.pending), (RestoredFrom::Here, 1));
    running.advance(61 * SECOND);
    assert_eq!(world.receiver.next().await, id);
    running.stop().await;
}

// LAN-2, LAN-5
#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_hangs_stops_nobody_else_while_an_index_is_to_be_built_again() {
    let mut world = World::new().await;
    let running = world.start().await;
    let held = world.emit_one("hold", world.now()).await;
    world.receiver.until_held(1).await;
    let line = world.emit(["a", "a"].map(|key| world.keyed("line", key)).into()).await;
    world.until_why_is(&running, line[0], Held::Capability).await;
    let epoch = world.store.shards().await.unwrap()[0].epoch;
    world.set("line", "ok", json!({"ordering": "exact"})).await;
    until(async || running.timeline.can_call(&"line".parse().unwrap())).await;
    // Those whose order is another now wait for that; all others are served, but for the one that hangs.
    for _ in 0..3 {
        world.barrier().await;
    }
    until(async || {
        let lanes = running.timeline.look().await.into_iter().flat_map(|(_, lanes)| lanes);
        let mut of_it = lanes.filter(|lane| lane.name.destination.as_str() == "hold");
        of_it.all(|lane| lane.held == Some(Held::Recovering))
    })
    .await;
    let second = world.emit_one("hold", world.now()).await;
    world.barrier().await;
    assert_eq!(
        (world.receiver.held(), world.entry(second).await.attempt),
        (Some(1), 0),
        "it waits for the next session"
    );
    assert_eq!(world.store.shards().await.unwrap()[0].epoch, epoch);
    world.receiver.let_go();
    let mut arrived = Vec::new();
    while arrived.len() < 4 {
        tokio::select! {
            id = world.receiver.next() => arrived.push(id),
            () = env::sleep(Duration::from_millis(20)) => running.advance(SECOND / 20),
        }
    }
    assert!(arrived.contains(&held) && arrived.contains(&second));
    arrived.retain(|id| line.contains(id));
    assert_eq!(arrived, line, "in order");
    running.stop().await;
}

// LAN-5, TL-2
#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_concerns_no_message_leaves_indexes_and_checkpoints_as_they_are() {
    let mut world = World::new().await;
    world.set("line", "ok", json!({"ordering": "hashed", "ordering_domains": 2})).await;
    let running = world.start().await;
    let id = world.emit(vec![NewMessage { due_at: world.now() + 60 * SECOND, ..world.keyed("line", "a") }]).await[0];
    until(async || running.lanes_to("line").await.len() == 1).await;
    let epoch = world.store.shards().await.unwrap()[0].epoch;
    world.set("other", "ok", json!({"ordering": "exact"})).await;
    until(async || running.timeline.can_call(&"other".parse().unwrap())).await;
    world.barrier().await;
    assert_eq!(world.store.shards().await.unwrap()[0].epoch, epoch, "the session goes on");
    super::checkpoints::make_checkpoint(&running).await;
    running.stop().await;

    world.set("second", "ok", json!({"ordering": "exact"})).await;
    let running = world.start().await;
    let (shard, _) = running.timeline.look().await.remove(0);
    assert_eq!((shard.restored, shard.rows_read, shard.pending), (RestoredFrom::Here, 0, 1));
    running.stop().await;

    std::fs::remove_dir_all(super::checkpoints::shard_path(&world)).unwrap();
    world.set("third", "ok", json!({"ordering": "exact"})).await;
    let running = world.start().await;
    let (shard, _) = running.timeline.look().await.remove(0);
    assert_eq!((shard.restored, shard.pending), (RestoredFrom::Checkpoint, 1));
    running.stop().await;

    // Where it concerns one that waits, both are of no use.
    world.set("line", "ok", json!({"ordering": "hashed", "ordering_domains": 3})).await;
    let running = world.start().await;
    let (shard, _) = running.timeline.look().await.remove(0);
    assert_eq!((shard.restored, shard.pending), (RestoredFrom::Store, 1));
    running.advance(61 * SECOND);
    assert_eq!(world.receiver.next().await, id);
    running.stop().await;
}

// LAN-5, TL-7
#[tokio::test(flavor = "multi_thread")]
async fn every_runtime_over_one_database_follows() {
    let mut world = World::over(Fixture::on_server().await).await;
    let mut beside = World::over(world.shared.beside(0).await).await;
    let names = super::placement::names(&world.store);
    let first = world.start().await;
    beside.clock.jump_to(world.clock.now());
    let second = beside.start_on("timeline", Arc::clone(&beside.clock), 16).await;
    super::placement::until_shared(&first, &second, [1, 1]).await;
    let mut sent = world.emit(names.iter().map(|name| world.message(name, START)).collect()).await;
    for name in &names {
        world.set(name, "ok", json!({})).await;
    }
    // Both are set at the first one's receiver, whoever calls it.
    sent.sort_unstable();
    assert_eq!(world.receiver.next_sorted(2).await, sent);
    for name in &names {
        world.change(name, DestinationWish::Remove).await;
    }
    until(async || {
        let gone = |running: &Running| names.iter().all(|name| !running.timeline.can_call(&name.parse().unwrap()));
        gone(&first) && gone(&second)
    })
    .await;
    let mut sent = world.emit(names.iter().map(|name| world.message(name, START)).collect()).await;
    for name in &names {
        beside.set(name, "ok", json!({})).await;
    }
    sent.sort_unstable();
    assert_eq!(beside.receiver.next_sorted(2).await, sent, "what one of them is told, both know");
    first.stop().await;
    second.stop().await;
}
