//! Why a message is not sent: each reason that a lane or a shard can give, in their order.

use super::*;
use crate::lanes::Held;
use crate::model::destination_lane::{Gate, Ordering};

impl World {
    async fn why(&self, running: &Running, id: MessageId) -> Held {
        let entry = self.entry(id).await;
        running.timeline.why(crate::store::ShardId(0), entry).await.unwrap()
    }

    async fn until_why(&self, running: &Running, id: MessageId, held: Held) {
        until(async || self.why(running, id).await == held).await;
    }
}

// OBS-4, LAN-4
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_waits_says_why() {
    let mut world = World::new().await;
    world.add("narrow", "hold", |destination| destination.limits.messages = 1);
    world.add("busy", "busy", |destination| destination.limits.messages = 1);
    world.add("ordered", "fail", |destination| destination.ordering = Ordering::Exact);
    let running = world.start().await;
    let full = world.emit((0..2).map(|_| world.message("narrow", world.now())).collect()).await;
    world.until_why(&running, full[1], Held::LaneFull).await;
    let throttled = world.emit((0..2).map(|_| world.message("busy", world.now())).collect()).await;
    world.until_why(&running, throttled[1], Held::Throttled).await;
    let strange = world.emit_one("strange", world.now()).await;
    world.until_why(&running, strange, Held::Capability).await;
    let ordered =
        |key: &str| NewMessage { ordering_key: Some(key.to_owned()), ..world.message("ordered", world.now()) };
    let behind = world.emit(vec![ordered("a"), ordered("a")]).await;
    world.until_state(behind[0], MessageState::RetryWait).await;
    world.until_why(&running, behind[0], Held::RetryBackoff).await;
    world.until_why(&running, behind[1], Held::OrderingHead).await;
    let failing = world.emit((0..40).map(|_| world.message("fail", world.now())).collect()).await;
    let untried = failing[39];
    world.until_why(&running, untried, Held::CircuitOpen).await;
    world.set_gate("fail", None, Gate::Paused).await;
    world.until_why(&running, untried, Held::LanePaused).await;
    world.set_gate("fail", Some("acme"), Gate::Closed).await;
    world.set_gate("fail", None, Gate::Closed).await;
    world.until_why(&running, untried, Held::LaneClosed).await;

    let (shard, lanes) = running.timeline.look().await.remove(0);
    assert_eq!((shard.shard.0, shard.lag, shard.held), (0, 0, None));
    assert!(shard.pending >= 40 && shard.applied > 0 && shard.lanes == lanes.len() as u64);
    let of = |name: &str| lanes.iter().find(|lane| lane.name.destination.as_str() == name).unwrap();
    assert_eq!((of("fail").gate, of("fail").circuit), (Gate::Closed, "open"));
    assert_eq!((of("narrow").in_flight_messages, of("narrow").pending), (1, 1));
    assert_eq!(of("narrow").held, Some(Held::LaneFull));
    assert!(of("ordered").name.to_string().ends_with("/ordered:a"));
    world.receiver.let_go();
    running.stop().await;
}
