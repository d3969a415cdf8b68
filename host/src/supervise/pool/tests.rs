//! Pools over a real store: what restarts a scheduler, what does not, and how a pool stops.

use std::time::Duration;

use super::Pool;
use crate::claim::{ClaimOptions, HostPressure, Probe};
use crate::execute::ExecuteOptions;
use crate::execute::testing::{Harness, Step, succeed};
use crate::model::failure::FailureClass;
use crate::model::work_item::WorkState;
use crate::store::testing::pack;
use crate::supervise::readiness::complaint;

fn pool(harness: &Harness, slots: u32) -> Pool {
    Pool::start(ClaimOptions::default(), harness.parts(ExecuteOptions { slots, ..ExecuteOptions::default() }))
}

// SCH-3
#[tokio::test]
async fn blocked_and_delayed_rows_are_no_reason_to_rebuild_a_scheduler() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|_, _| Step::Fail(FailureClass::Trap));
    let [head, behind] = harness.enqueue_in_lane("pr-1", ["head", "behind"]).await;
    let mut pool = pool(&harness, 2);
    let first = pool.scheduler.id();
    starts.recv().await.unwrap();
    pool.executors().idle().await;
    assert_eq!(harness.detail(head).await.state, WorkState::Delayed);
    assert_eq!(harness.detail(behind).await.state, WorkState::Blocked);
    for _ in 0..3 {
        pool.revive(&ClaimOptions::default());
    }
    assert_eq!(pool.scheduler.id(), first);
    pool.drain(Duration::ZERO).await;
}

// SCH-3
#[tokio::test]
async fn a_dead_scheduler_is_noticed_and_rebuilt() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|_, _| succeed());
    let mut pool = pool(&harness, 2);
    let first = pool.scheduler.id();
    pool.scheduler.abort();
    while pool.condition().scheduler_alive {
        tokio::task::yield_now().await;
    }
    harness.enqueue(["a"]).await;
    pool.revive(&ClaimOptions::default());
    assert_ne!(pool.scheduler.id(), first);
    assert!(pool.condition().scheduler_alive);
    starts.recv().await.unwrap();
    pool.drain(Duration::from_secs(10)).await;
}

// SCH-3
#[tokio::test]
async fn a_scheduler_is_rebuilt_when_it_is_configured_otherwise_and_not_when_it_is_told_the_same() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|_, _| succeed());
    let mut pool = pool(&harness, 2);
    let first = pool.scheduler.id();
    let otherwise = ClaimOptions { poll: Duration::from_secs(3), ..ClaimOptions::default() };
    assert_eq!(ClaimOptions::default().fingerprint(), ClaimOptions::default().fingerprint());
    assert_ne!(ClaimOptions::default().fingerprint(), otherwise.fingerprint());
    pool.revive(&ClaimOptions::default());
    assert_eq!(pool.scheduler.id(), first);
    // The one before it ends first: a pack has one scheduler at a time.
    pool.revive(&otherwise);
    while pool.condition().scheduler_alive {
        tokio::task::yield_now().await;
    }
    pool.revive(&otherwise);
    let second = pool.scheduler.id();
    assert_ne!(second, first);
    pool.revive(&otherwise);
    assert_eq!(pool.scheduler.id(), second);
    harness.enqueue(["a"]).await;
    starts.recv().await.unwrap();
    pool.drain(Duration::from_secs(10)).await;
}

// RDY-2
#[tokio::test]
async fn a_failed_probe_leaves_the_pool_running_and_the_next_one_brings_the_work_back() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|_, _| succeed());
    let mut pool = pool(&harness, 2);
    let first = pool.scheduler.id();
    pool.measured(HostPressure { probe: Probe::Failed, ..HostPressure::default() });
    pool.revive(&ClaimOptions::default());
    assert_eq!(pool.scheduler.id(), first);
    assert!(pool.condition().scheduler_alive);
    harness.enqueue(["a"]).await;
    pool.measured(HostPressure::default());
    starts.recv().await.unwrap();
    pool.drain(Duration::from_secs(10)).await;
}

// SCH-5
#[tokio::test]
async fn a_panic_leaves_scheduler_and_neighbours_alone() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|event, _| if event.body == "bad" { Step::Panic } else { succeed() });
    let pool = pool(&harness, 1);
    let first = pool.scheduler.id();
    let [bad, good] = harness.enqueue(["bad", "good"]).await;
    starts.recv().await.unwrap();
    starts.recv().await.unwrap();
    pool.executors().idle().await;
    assert_eq!(harness.detail(bad).await.failures, 1);
    assert_eq!(harness.detail(good).await.state, WorkState::Done);
    assert_eq!(pool.scheduler.id(), first);
    assert!(pool.condition().scheduler_alive);
    pool.drain(Duration::ZERO).await;
}

#[tokio::test]
async fn a_pool_whose_rows_only_come_back_is_not_ready() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|_, _| Step::Fail(FailureClass::NotRun));
    let pool = pool(&harness, 1);
    harness.enqueue(["a"]).await;
    starts.recv().await.unwrap();
    // Less than a lease: nobody else gets the row.
    let stall = Duration::from_secs(10);
    harness.clock.advance(stall + Duration::from_secs(1));
    starts.recv().await.unwrap();
    starts.recv().await.unwrap();
    let now = harness.env.clock.monotonic();
    let reason = complaint(&pack(), pool.condition(), now, stall).unwrap();
    assert_eq!(reason, "nothing of pack `github` has drained for 11 s");
    pool.drain(Duration::ZERO).await;
}

#[tokio::test]
async fn a_pool_that_stops_releases_what_has_not_ended() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|_, _| Step::Hang);
    let ids = harness.enqueue(["a", "b", "c"]).await;
    let pool = pool(&harness, 2);
    starts.recv().await.unwrap();
    starts.recv().await.unwrap();
    pool.drain(Duration::ZERO).await;
    for id in ids {
        let row = harness.detail(id).await;
        assert_eq!((row.state, row.failures), (WorkState::Ready, 0));
    }
}
