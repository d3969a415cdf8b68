//! Work classes of a shard at work: with ordinary scheduling full, everything else still has its turn in time.

use super::*;
use crate::model::destination_lane::Gate;
use crate::store::{Cancelled, Rescheduled};

const BUSY: usize = 8;
/// Messages that are due at once: many more than may be claimed.
const FLOOD: usize = 3_000;
const CLAIMED_MAX: usize = 64;
/// Messages that are due later and are moved to now while the flood goes on.
const MOVED: usize = 10;

// WRK-1, WRK-2
#[tokio::test(flavor = "multi_thread")]
async fn with_ordinary_scheduling_full_cancel_pause_outcome_and_renewal_have_their_turns() {
    let mut world = World::new().await;
    let busy: Vec<String> = (0..BUSY).map(|number| format!("busy-{number}")).collect();
    for name in busy.iter().map(String::as_str).chain(["paused"]) {
        world.add(name, "ok", |_| {});
    }
    let running = world.start_on("timeline", Arc::clone(&world.clock), CLAIMED_MAX).await;
    running.until_active().await;
    let epoch = world.store.shards().await.unwrap()[0].epoch;
    let later = world.now() + 6 * LEASE;
    // Commands about these are told by the feed, and take effect while the flood goes on.
    let mut to_move = world.emit((0..MOVED).map(|_| world.message("ok", later)).collect()).await;
    let moved = to_move.clone();
    let to_cancel = world.emit((0..50).map(|_| world.message("busy-0", later)).collect()).await;
    let flood = (0..FLOOD).map(|number| world.message(&busy[number % BUSY], world.now())).collect();
    let mut flood = world.emit(flood).await;
    world.set_gate("paused", None, Gate::Paused).await;
    let mut arrived = Vec::new();
    let mut cancelled = to_cancel.iter();
    while arrived.len() < FLOOD + MOVED {
        arrived.push(loop {
            tokio::select! {
                id = world.receiver.next() => break id,
                // What was put off because the store was busy is done when time has passed.
                () = env::sleep(BARRIER_LOOK) => running.advance(SECOND / 10),
            }
        });
        // Between what arrives, operators cancel, and time goes on: leases are renewed, or lost.
        if let Some(id) = to_move.pop() {
            let rescheduled = world.store.reschedule(id, world.now()).await.unwrap();
            assert!(matches!(rescheduled, Rescheduled::Rescheduled { .. }), "{rescheduled:?}");
        } else if let Some(id) = cancelled.next() {
            assert_eq!(world.store.cancel(*id, world.now()).await.unwrap(), Cancelled::Cancelled);
        } else if arrived.len().is_multiple_of(400) {
            running.advance(LEASE / 4);
        }
    }
    for id in &moved {
        let place = arrived.iter().position(|arrived| arrived == id).unwrap();
        assert!(place < FLOOD * 2 / 3, "what was moved to now arrived as number {place} of {FLOOD}");
    }
    flood.extend(moved);
    arrived.sort();
    flood.sort();
    assert_eq!(arrived, flood, "each once, and nothing else");
    let held = world.emit_one("paused", world.now()).await;
    running.advance(LEASE / 4);
    world.barrier().await;
    assert_eq!(world.entry(held).await.attempt, 0, "the pause has been taken up");
    for _ in 0..24 {
        running.advance(LEASE / 4);
        running.until_active().await;
    }
    world.barrier().await;
    for id in &to_cancel {
        assert_eq!(world.entry(*id).await.state, MessageState::Cancelled);
    }
    assert_eq!(world.store.shards().await.unwrap()[0].epoch, epoch, "the shard never lost its lease");
    let (view, _) = running.timeline.look().await.pop().unwrap();
    for wait in view.waits {
        assert!(wait.longest <= wait.bound, "{wait:?}");
    }
    running.stop().await;
}

// WRK-3
#[tokio::test]
async fn a_timeline_that_would_stand_still_does_not_start_and_says_why() {
    let options = |claimed_max, memory_bytes| TimelineOptions {
        directory: "timeline".into(),
        lease: LEASE,
        poll: SECOND,
        claimed_max,
        memory_bytes,
        floors: Floors::default(),
        after_panic: AFTER_PANIC,
        namespace_weights: BTreeMap::new(),
        clock_uncertainty_max: SECOND,
        checkpoints: CheckpointOptions { place: CheckpointPlace::Folder("checkpoints".into()), every: None, kept: 1 },
    };
    assert!(work_plan(&options(1_024, 64 << 20), 64).is_ok(), "the defaults do for as many shards as there may be");
    let refused =
        |claimed_max, memory_bytes, shards| work_plan(&options(claimed_max, memory_bytes), shards).unwrap_err().0;
    assert_eq!(
        refused(0, 64 << 20, 1),
        "the timeline's shards cannot do their work: work class outcome_and_control is starved: its queue is 0: lower \
         `timeline.claimed_max`, or raise `timeline.memory_mib`"
    );
    let oversold = refused(65_536, 8 << 20, 8);
    assert!(
        oversold.contains("the reserves of the work classes are") && oversold.contains("bytes together"),
        "{oversold}"
    );
}

// WRK-1, OBS-1, LAN-3
#[tokio::test(flavor = "multi_thread")]
async fn more_lanes_than_a_turn_has_room_for_are_all_told_of_and_all_have_their_gates() {
    let mut world = World::new().await;
    world.add("keyed", "ok", |destination| destination.ordering = Ordering::Exact);
    let running = world.start().await;
    let due_at = world.now() + 3_600 * SECOND;
    for part in 0..3 {
        let keys = (0..1_000).map(|number| Some(format!("{part}-{number}")));
        let messages = keys.map(|ordering_key| NewMessage { ordering_key, ..world.message("keyed", due_at) });
        world.emit(messages.collect()).await;
    }
    world.barrier().await;
    world.set_gate("keyed", None, Gate::Paused).await;
    until(async || {
        let (view, lanes) = running.timeline.look().await.pop().unwrap();
        let names: std::collections::BTreeSet<_> = lanes.iter().map(|lane| format!("{:?}", lane.name)).collect();
        assert_eq!((view.lanes, lanes.len(), names.len()), (3_001, 3_001, 3_001), "each once");
        let is_shut = |lane: &LaneView| lane.gate == Gate::Paused && lane.held == Some(Held::LanePaused);
        lanes.iter().filter(|lane| lane.name.destination.as_str() == "keyed").all(is_shut)
    })
    .await;
    let (view, _) = running.timeline.look().await.pop().unwrap();
    for wait in view.waits {
        assert!(wait.longest <= wait.bound, "{wait:?}");
    }
    running.stop().await;
}
