//! What a host is short of, and what a shard makes of it: less is sent at once, or nothing, and everything else goes
//! on.

use rustix::process::Resource::Nofile;
use rustix::process::{Rlimit, getrlimit, setrlimit};

use super::*;
use crate::lanes::{Level, Resource};
use crate::model::destination_lane::Gate;
use crate::store::Cancelled;
use crate::store::Tampering;

const CLAIMED_MAX: usize = 8;
/// Attempts without an outcome from which on no more are begun: half of the claims.
const WITHOUT_OUTCOME: u64 = 4;

async fn view(running: &Running) -> ShardView {
    running.timeline.look().await.pop().unwrap().0
}

async fn until_view(running: &Running, holds: impl Fn(&ShardView) -> bool) {
    until(async || {
        running.advance(SECOND / 10);
        env::sleep(Duration::from_millis(5)).await;
        holds(&view(running).await)
    })
    .await;
}

/// A floor that lies so many times above what is free. The limit is as high as it may be, for nobody beside this test
/// to change it meanwhile.
fn times_what_is_free(times: u64) -> Floors {
    let Rlimit { maximum, .. } = getrlimit(Nofile);
    setrlimit(Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let room = env::descriptors().expect("the system says how many descriptors there are");
    Floors { descriptors: room.free.saturating_mul(times), ..Floors::default() }
}

// WRK-3, WRK-2
#[tokio::test(flavor = "multi_thread")]
async fn with_next_to_no_descriptors_nothing_is_sent_and_commands_outcomes_and_the_lease_go_on() {
    let mut world = World::new().await;
    world.floors = times_what_is_free(1_000);
    let running = world.start().await;
    let due = world.emit_one("ok", world.now()).await;
    let to_cancel = world.emit_one("ok", world.now()).await;
    until_view(&running, |view| view.pending == 2 && view.held == Some(Held::Capacity)).await;
    assert_eq!(view(&running).await.pressing, [(Resource::Descriptors, Level::Exhausted)]);
    let entry = world.entry(due).await;
    assert_eq!(running.timeline.why(ShardId(0), entry).await, Some(Held::Capacity));

    let epoch = world.store.shards().await.unwrap()[0].epoch;
    assert_eq!(world.store.cancel(to_cancel, world.now()).await.unwrap(), Cancelled::Cancelled);
    world.set_gate("fail", None, Gate::Paused).await;
    until_view(&running, |view| view.pending == 1).await;
    for _ in 0..24 {
        running.advance(LEASE / 4);
        running.until_active().await;
    }
    assert_eq!(world.store.shards().await.unwrap()[0].epoch, epoch, "the lease was renewed");
    assert_eq!(world.entry(due).await.attempt, 0, "what is due is not attempted");
    running.stop().await;

    world.floors = Floors::default();
    let running = world.start().await;
    assert_eq!(world.receiver.next().await, due);
    world.until_state(due, MessageState::Published).await;
    assert_eq!(world.entry(due).await.attempt, 1);
    running.stop().await;
}

// WRK-3
#[tokio::test(flavor = "multi_thread")]
async fn with_few_descriptors_a_quarter_is_sent_at_once_and_everything_arrives() {
    let mut world = World::new().await;
    world.floors = times_what_is_free(2);
    let running = world.start_on("timeline", Arc::clone(&world.clock), CLAIMED_MAX).await;
    running.until_active().await;
    let mut sent = world.emit((0..CLAIMED_MAX * 2).map(|_| world.message("hold", world.now())).collect()).await;
    until_view(&running, |view| view.in_flight > 0 && view.held == Some(Held::Capacity)).await;
    let view = view(&running).await;
    assert_eq!(view.in_flight, (CLAIMED_MAX / 4) as u64, "{view:?}");
    assert_eq!(view.pressing, [(Resource::Descriptors, Level::Tight)]);
    world.receiver.until_held(2).await;
    world.receiver.let_go();
    sent.sort_unstable();
    assert_eq!(world.receiver.next_sorted(sent.len()).await, sent);
    running.stop().await;
}

// WRK-3, TL-6
#[tokio::test(flavor = "multi_thread")]
async fn while_outcomes_cannot_be_recorded_half_of_the_claims_are_kept_for_finding_out() {
    let world = World::new().await;
    let running = world.start_on("timeline", Arc::clone(&world.clock), CLAIMED_MAX).await;
    running.until_active().await;
    // What stands as being published stays so: a disk, a server, a right that fails outcomes alone.
    let mut database = Tampering::in_directory(&world.shared.directory.path().join("data")).await;
    let deny = "CREATE TRIGGER deny BEFORE UPDATE ON message WHEN OLD.state = 1 BEGIN SELECT RAISE(ABORT, 'deny'); END";
    database.execute(deny).await;
    let first = world.emit((0..WITHOUT_OUTCOME).map(|_| world.message("ok", world.now())).collect()).await;
    let is_short = |view: &ShardView| view.pressing == [(Resource::Evidence, Level::Exhausted)];
    until_view(&running, |view| view.in_flight == WITHOUT_OUTCOME && is_short(view)).await;
    let second = world.emit((0..CLAIMED_MAX).map(|_| world.message("ok", world.now())).collect()).await;
    until_view(&running, |view| view.pending == CLAIMED_MAX as u64 && view.held == Some(Held::Capacity)).await;
    assert!(is_short(&view(&running).await));
    for id in &second {
        assert_eq!(world.entry(*id).await.attempt, 0, "none is begun that could not be brought to its end");
    }

    database.execute("DROP TRIGGER deny").await;
    until(async || {
        running.advance(SECOND / 10);
        env::sleep(Duration::from_millis(5)).await;
        let ids: Vec<_> = first.iter().chain(&second).copied().collect();
        let entries = world.store.message_entries(&ids).await.unwrap();
        entries.iter().all(|entry| entry.state == MessageState::Published)
    })
    .await;
    assert!(view(&running).await.pressing.is_empty());
    running.stop().await;
}

// WRK-3, OBS-1
#[tokio::test]
async fn connections_to_destinations_are_counted_as_long_as_they_are_open() {
    let world = World::new().await;
    let running = world.start().await;
    let load = running.publisher.load();
    assert_eq!(
        (load.channels, load.channels_max),
        (0, 1_024 + 3 * 8),
        "none yet, and room for those that are kept idle"
    );
    world.emit((0..3).map(|_| world.message("hold", world.now())).collect()).await;
    world.receiver.until_held(3).await;
    assert_eq!(running.publisher.load().channels, 3);
    world.receiver.let_go();
    let publisher = running.publisher.clone();
    running.stop().await;
    assert_eq!(publisher.load().outcomes_waiting, 0);
    assert_eq!(publisher.load().channels, 3, "they are kept for what comes next");
}
