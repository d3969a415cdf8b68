//! The scheduler over a real store: when it claims, how much, and when it leaves the queue alone.

mod budget;
mod classes;
mod pressure;
mod shared;
mod wanted;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::{CentralClaimScheduler, ClaimOptions, Denial, Probe, SchedulerHandle, StaleOnlyReason, Tick};
use crate::env;
use crate::execute::testing::{Harness, Step, succeed};
use crate::execute::{Executors, Generations};
use crate::model::failure::FailureClass;
use crate::model::ids::{EventId, WorkItemId};
use crate::model::work_item::WorkState;
use crate::store::testing::Loss;

/// Longer than any test: with it, nothing is found by polling.
const NEVER: Duration = Duration::from_secs(3_600);

fn patient() -> ClaimOptions {
    ClaimOptions { poll: NEVER, ..ClaimOptions::default() }
}

fn scheduler(harness: &Harness, executors: &Executors, options: ClaimOptions) -> CentralClaimScheduler {
    scheduler_behind(&SchedulerHandle::default(), harness, executors, options)
}

fn scheduler_behind(
    handle: &SchedulerHandle,
    harness: &Harness,
    executors: &Executors,
    options: ClaimOptions,
) -> CentralClaimScheduler {
    CentralClaimScheduler::new(options, harness.store.clone(), executors.clone(), harness.env.clone(), handle.clone())
}

// SCH-1
#[tokio::test]
async fn a_pool_of_one_executor_claims_through_the_scheduler_too() {
    let harness = Harness::new().await;
    harness.load(|_, _| succeed());
    let ids = harness.enqueue(["a", "b", "c"]).await;
    let executors = harness.executors(1);
    let mut scheduler = scheduler(&harness, &executors, patient());
    for id in ids {
        assert_eq!(scheduler.tick(harness.now()).await, Tick::Full { rows: 1 });
        executors.idle().await;
        assert_eq!(harness.detail(id).await.state, WorkState::Done, "in order of arrival");
    }
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Drained { rows: 0 });
    assert_eq!(executors.vitals().claims(), 4);
}

// SCH-1: whatever wants rows to execute gets them from a scheduler. The bench claims by itself.
#[test]
fn nobody_but_the_scheduler_asks_the_store_for_a_claim() {
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut callers) = (vec![sources.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let is_for_tests = ["tests", "tests.rs", "testing.rs", "bench"].contains(&name.as_str());
            if path.is_dir() && !is_for_tests {
                folders.push(path);
            } else if name.ends_with(".rs")
                && !is_for_tests
                && std::fs::read_to_string(&path).unwrap().contains("store.claim(")
            {
                callers.push(path.strip_prefix(&sources).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    assert_eq!(callers, ["claim/scheduler.rs"]);
}

// SCH-2
#[tokio::test]
async fn more_executors_claim_bigger_batches_not_more_often() {
    let mut claims = Vec::new();
    for slots in [1, 8, 64] {
        let harness = Harness::new().await;
        harness.load(|_, _| succeed());
        harness.enqueue(["event"; 40]).await;
        let executors = harness.executors(slots);
        let stop = CancellationToken::new();
        let running = env::spawn("scheduler", scheduler(&harness, &executors, patient()).run(stop.clone()));
        while executors.vitals().finishes() < 40 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
        running.await.unwrap();
        claims.push(executors.vitals().claims());
    }
    assert!(claims[0] >= 40, "one at a time: {claims:?}");
    assert!(claims.is_sorted_by(|fewer, more| fewer > more), "{claims:?}");
}

#[tokio::test]
async fn the_queue_is_left_alone_while_no_slot_is_free() {
    let harness = Harness::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    harness.load(move |_, _| Step::Wait(Arc::clone(&waiting)));
    harness.enqueue(["a", "b", "c"]).await;
    let executors = harness.executors(2);
    let mut scheduler = scheduler(&harness, &executors, patient());
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Full { rows: 2 });
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Denied(Denial::NoSlot));
    assert_eq!(executors.vitals().claims(), 1);
    gate.add_permits(2);
    executors.idle().await;
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Drained { rows: 1 });
}

// PRS-2
#[tokio::test]
async fn the_drain_budget_holds_whatever_the_slots() {
    let harness = Harness::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    harness.load(move |_, _| Step::Wait(Arc::clone(&waiting)));
    harness.enqueue(["event"; 10]).await;
    let executors = harness.executors(8);
    let budget = ClaimOptions { max_processing_rows: NonZeroU32::new(3), ..patient() };
    let mut scheduler = scheduler(&harness, &executors, budget);
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Full { rows: 3 });
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Denied(Denial::BudgetSpent));
    gate.add_permits(3);
    executors.idle().await;
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Full { rows: 3 });
}

#[tokio::test]
async fn rows_of_generations_that_are_not_loaded_are_left_to_others() {
    let harness = Harness::new().await;
    harness.enqueue(["a"]).await;
    let executors = harness.executors(1);
    let mut scheduler = scheduler(&harness, &executors, patient());
    assert_eq!(scheduler.tick(harness.now()).await, Tick::NothingLoaded);
    assert_eq!(executors.vitals().claims(), 0);
    harness.load(|_, _| succeed());
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Full { rows: 1 });
}

// PRS-1
#[tokio::test]
async fn a_failed_probe_leaves_fresh_rows_and_reclaims_stale_ones() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|_, attempt| if attempt == 1 { Step::Hang } else { succeed() });
    harness.enqueue(["stale"]).await;
    let abandoned = harness.suspended_executors(1);
    harness.claim_into(&abandoned, 1).await;
    starts.recv().await.unwrap();
    harness.enqueue(["fresh"]).await;
    harness.clock.advance(abandoned.lease() + Duration::from_secs(1));

    let executors = harness.executors(8);
    let handle = SchedulerHandle::default();
    let mut scheduler = scheduler_behind(&handle, &harness, &executors, patient());
    handle.probed(Probe::Failed);
    assert_eq!(scheduler.tick(harness.now()).await, Tick::StaleOnly { rows: 1, reason: StaleOnlyReason::Degraded });
    assert_eq!(scheduler.tick(harness.now()).await, Tick::StaleOnly { rows: 0, reason: StaleOnlyReason::Degraded });
    handle.probed(Probe::Answered);
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Drained { rows: 1 });
}

// PRS-1
#[tokio::test]
async fn a_store_that_failed_is_left_alone_until_the_pause_is_over() {
    let harness = Harness::new().await;
    harness.load(|_, _| succeed());
    let executors = harness.executors(1);
    let mut scheduler = scheduler(&harness, &executors, patient());
    harness.store.close().await;
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Failed);
    let denied = scheduler.tick(harness.now()).await;
    assert!(matches!(denied, Tick::Denied(Denial::StoreFailing { .. })), "{denied:?}");
    assert_eq!(executors.vitals().claims(), 1);
    assert_eq!(executors.free(), 1, "a failed claim keeps no slot");
    harness.clock.advance(Duration::from_secs(1));
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Failed);
}

// CLM-5
#[tokio::test]
async fn rows_of_a_claim_whose_answer_got_lost_come_back_when_their_lease_runs_out() {
    for (loss, attempt) in [(Loss::BeforeCommit, 1), (Loss::AfterCommit, 2)] {
        let harness = Harness::new().await;
        harness.load(|_, _| succeed());
        let [id] = harness.enqueue(["a"]).await;
        let executors = harness.executors(1);
        let mut scheduler = scheduler(&harness, &executors, patient());
        harness.store.lose_answer(loss);
        assert_eq!(scheduler.tick(harness.now()).await, Tick::Failed);
        assert_eq!(executors.free(), 1);
        harness.clock.advance(executors.lease() + Duration::from_secs(1));
        // The first claim after a failure asks for stale rows only.
        while harness.detail(id).await.state != WorkState::Done {
            scheduler.tick(harness.now()).await;
            executors.idle().await;
        }
        assert_eq!(harness.detail(id).await.attempt, attempt, "{loss:?}");
    }
}

// CLM-5: they are looked for by the claim's token, and do not stand still as long as its lease lasts.
#[tokio::test]
async fn rows_of_a_claim_whose_answer_got_lost_are_given_back() {
    for loss in Loss::ALL {
        let harness = Harness::new().await;
        harness.load(|_, _| succeed());
        let [id] = harness.enqueue(["a"]).await;
        let executors = harness.executors(1);
        let mut scheduler = scheduler(&harness, &executors, patient());
        harness.store.lose_answer(loss);
        assert_eq!(scheduler.tick(harness.now()).await, Tick::Failed);
        harness.clock.advance(executors.lease() / 2);
        // The first claim after a failure asks for stale rows only.
        for _ in 0..2 {
            scheduler.tick(harness.now()).await;
            executors.idle().await;
        }
        let row = harness.detail(id).await;
        assert_eq!((row.state, row.attempt), (WorkState::Done, 1), "{loss:?}");
    }
}

// SCH-3
#[tokio::test]
async fn an_idle_scheduler_claims_when_called_and_not_otherwise() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|_, _| succeed());
    let executors = harness.executors(4);
    let stop = CancellationToken::new();
    let running = env::spawn("scheduler", scheduler(&harness, &executors, patient()).run(stop.clone()));
    const EVENTS: u64 = 20;
    for _ in 0..EVENTS {
        harness.enqueue(["a"]).await;
        starts.recv().await.unwrap();
        executors.idle().await;
    }
    // One look at the start, and for each event one for its enqueue and at most one for what its finish may have
    // promoted: none because a slot was free.
    assert!(executors.vitals().claims() <= 1 + 2 * EVENTS, "{} claims", executors.vitals().claims());
    stop.cancel();
    running.await.unwrap();
}

/// Runs a scheduler until a row that fails once is done: its delay's end is waited for, not polled for.
async fn fails_once_and_is_done_in_time(
    harness: &Harness,
    executors: &Executors,
    starts: &mut mpsc::UnboundedReceiver<EventId>,
    id: WorkItemId,
) {
    let stop = CancellationToken::new();
    let running = env::spawn("scheduler", scheduler(harness, executors, patient()).run(stop.clone()));
    starts.recv().await.unwrap();
    starts.recv().await.unwrap();
    executors.idle().await;
    assert_eq!(harness.detail(id).await.state, WorkState::Done);
    assert!(executors.vitals().claims() <= 8, "{} claims", executors.vitals().claims());
    stop.cancel();
    running.await.unwrap();
}

// SCH-3
#[tokio::test]
async fn a_delayed_row_is_claimed_when_its_time_comes_without_polling() {
    let harness = Harness::with_system_clock().await;
    let mut starts = harness.load(|_, attempt| {
        if attempt == 1 {
            Step::Fail(FailureClass::Retry { delay: Some(Duration::from_millis(30)) })
        } else {
            succeed()
        }
    });
    let [id] = harness.enqueue(["a"]).await;
    let executors = harness.executors(1);
    fails_once_and_is_done_in_time(&harness, &executors, &mut starts, id).await;
}

#[tokio::test]
async fn a_backlog_is_drained_in_batches() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|_, _| succeed());
    harness.enqueue(["event"; 200]).await;
    let executors = harness.executors(16);
    let stop = CancellationToken::new();
    let running = env::spawn("scheduler", scheduler(&harness, &executors, patient()).run(stop.clone()));
    for _ in 0..200 {
        starts.recv().await.unwrap();
    }
    stop.cancel();
    running.await.unwrap();
    executors.idle().await;
    assert_eq!(executors.vitals().finishes(), 200);
    assert!(executors.vitals().claims() < 100, "{} claims", executors.vitals().claims());
}

// SCH-3
#[tokio::test]
async fn rows_that_nobody_here_can_claim_hide_no_timer() {
    let mut harness = Harness::with_system_clock().await;
    harness.load(|_, _| Step::Fail(FailureClass::Retry { delay: Some(Duration::ZERO) }));
    let [overdue] = harness.enqueue(["overdue"]).await;
    let earlier = harness.executors(1);
    harness.claim_into(&earlier, 1).await;
    earlier.idle().await;
    assert_eq!(harness.detail(overdue).await.state, WorkState::Delayed);
    // Its generation is no longer loaded.
    harness.generations = Generations::default();

    harness.install_next_generation().await;
    let mut starts = harness.load(|_, attempt| {
        if attempt == 1 {
            Step::Fail(FailureClass::Retry { delay: Some(Duration::from_millis(300)) })
        } else {
            succeed()
        }
    });
    let [id] = harness.enqueue(["a"]).await;
    let executors = harness.executors(2);
    fails_once_and_is_done_in_time(&harness, &executors, &mut starts, id).await;
}

#[tokio::test]
async fn rows_that_only_come_back_are_no_sign_that_the_queue_drains() {
    let harness = Harness::new().await;
    harness.load(|_, _| Step::Fail(FailureClass::NotRun));
    harness.enqueue(["a"]).await;
    let executors = harness.executors(2);
    let mut scheduler = scheduler(&harness, &executors, patient());
    for _ in 0..3 {
        harness.clock.advance(Duration::from_secs(1));
        assert_eq!(scheduler.tick(harness.now()).await, Tick::Drained { rows: 1 });
        executors.idle().await;
    }
    assert_eq!((executors.vitals().drained_at(), executors.vitals().finishes()), (Duration::ZERO, 0));
}

#[tokio::test]
async fn an_empty_queue_is_drained_once_nothing_is_in_work() {
    let harness = Harness::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    harness.load(move |_, _| Step::Wait(Arc::clone(&waiting)));
    harness.enqueue(["a"]).await;
    let executors = harness.executors(2);
    let mut scheduler = scheduler(&harness, &executors, patient());
    let mut drained_after = async |expected: Tick| {
        harness.clock.advance(Duration::from_secs(1));
        assert_eq!(scheduler.tick(harness.now()).await, expected);
        executors.vitals().drained_at().as_secs()
    };
    assert_eq!(drained_after(Tick::Drained { rows: 1 }).await, 0);
    assert_eq!(drained_after(Tick::Drained { rows: 0 }).await, 0, "what is in work has to show by its outcome");
    gate.add_permits(1);
    executors.idle().await;
    assert_eq!(executors.vitals().drained_at().as_secs(), 2);
    assert_eq!(drained_after(Tick::Drained { rows: 0 }).await, 3);
}
