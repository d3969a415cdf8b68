//! Where places in flight are short: what has none is not claimed, and so is nobody's but its lane's.

use super::*;
use crate::model::destination_lane::{Gate, Ordering};

impl World {
    /// The attempts that were made at these messages, all together.
    async fn attempts(&self, ids: &[MessageId]) -> u32 {
        self.store.message_entries(ids).await.unwrap().iter().map(|entry| entry.attempt).sum()
    }
}

impl Running {
    async fn until_lanes(&self, destination: &str, is_so: impl Fn(&LaneView) -> bool) {
        until(async || {
            let looked = self.timeline.look().await;
            let lanes = looked.iter().flat_map(|(_, lanes)| lanes);
            let of_it: Vec<_> = lanes.filter(|lane| lane.name.destination.as_str() == destination).collect();
            !of_it.is_empty() && of_it.into_iter().all(&is_so)
        })
        .await;
    }
}

// LAN-3, TL-4
#[tokio::test(flavor = "multi_thread")]
async fn after_a_pause_that_a_shard_has_seen_nothing_more_is_admitted_and_what_waits_expires() {
    let mut world = World::new().await;
    // Of which one destination has half.
    world.in_flight_max = 8;
    world.add("slow", "hold", |destination| destination.ordering = Ordering::Exact);
    let running = world.start().await;
    let expire_at = Some(world.now() + 5 * SECOND);
    let message = |key: u32| NewMessage { expire_at, ..world.ordered(&key.to_string(), "slow") };
    let ids = world.emit((0..20).map(message).collect()).await;
    world.receiver.until_held(4).await;
    world.set_gate("slow", None, Gate::Paused).await;
    running.until_lanes("slow", |lane| lane.gate == Gate::Paused).await;
    assert_eq!(world.attempts(&ids).await, 4);
    world.receiver.let_go();
    world.receiver.next_sorted(4).await;
    world.barrier().await;
    running.advance(6 * SECOND);
    let sent = world.store.message_entries(&ids).await.unwrap().into_iter().filter(|entry| entry.attempt > 0);
    let sent: Vec<MessageId> = sent.map(|entry| entry.id).collect();
    for id in ids.iter().filter(|id| !sent.contains(id)) {
        world.until_state(*id, MessageState::Expired).await;
    }
    world.barrier().await;
    assert_eq!(world.attempts(&ids).await, 4, "what was being sent when it was paused, and nothing else");
    running.stop().await;
}

// LAN-3
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_costs_no_more_attempts_than_find_it_out_and_are_under_way_meanwhile() {
    let mut world = World::new().await;
    world.in_flight_max = 16;
    world.add("fails", "fail", |destination| {
        destination.ordering = Ordering::Exact;
        destination.limits.messages = 8;
    });
    let running = world.start().await;
    let ids = world.emit((0..60).map(|key| world.ordered(&key.to_string(), "fails")).collect()).await;
    running.until_lanes("fails", |lane| lane.circuit == "open" && lane.in_flight_messages == 0).await;
    world.barrier().await;
    let attempts = world.attempts(&ids).await;
    assert!((10..=10 + 7).contains(&attempts), "{attempts}");
    running.stop().await;
}
