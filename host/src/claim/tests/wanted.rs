//! Single work items that an operator asked for: first, but by no other way.

use super::*;
use crate::claim::{HostPressure, Level, WANTED_MAX, WantedAnswer};
use crate::model::queue::QueueClass;

/// Asks for one, and has the scheduler look once.
async fn want(
    handle: &SchedulerHandle,
    scheduler: &mut CentralClaimScheduler,
    harness: &Harness,
    id: WorkItemId,
) -> WantedAnswer {
    let answer = handle.want(id, QueueClass::Default).unwrap();
    scheduler.tick(harness.now()).await;
    answer.await.unwrap()
}

// CLM-1, SCH-1
#[tokio::test]
async fn one_that_is_wanted_is_claimed_before_all_others_and_past_no_lane() {
    let harness = Harness::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    harness.load(move |_, _| Step::Wait(Arc::clone(&waiting)));
    let ids = harness.enqueue(["event"; 10]).await;
    let [head, behind] = harness.enqueue_in_lane("repo", ["head", "behind"]).await;
    let executors = harness.executors(1);
    let handle = SchedulerHandle::default();
    let mut scheduler = scheduler_behind(&handle, &harness, &executors, patient());
    assert_eq!(want(&handle, &mut scheduler, &harness, ids[7]).await, WantedAnswer::Claimed);
    assert_eq!(harness.detail(ids[7]).await.state, WorkState::Processing);
    assert_eq!(harness.detail(ids[0]).await.state, WorkState::Ready, "the only executor has the other one");
    // Without a free executor it keeps its turn.
    let answer = handle.want(head, QueueClass::Default).unwrap();
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Denied(Denial::NoSlot));
    gate.add_permits(1);
    executors.idle().await;
    scheduler.tick(harness.now()).await;
    assert_eq!(answer.await.unwrap(), WantedAnswer::Claimed);
    gate.add_permits(1);
    executors.idle().await;
    assert_eq!(harness.detail(head).await.state, WorkState::Done);
    assert_eq!(want(&handle, &mut scheduler, &harness, head).await, WantedAnswer::NotClaimable, "it has ended");
    gate.add_permits(20);
    executors.idle().await;
    assert_eq!(harness.detail(behind).await.state, WorkState::Ready);
}

// CLM-1, PRS-1
#[tokio::test]
async fn what_is_wanted_waits_like_everything_else() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|_, attempt| {
        if attempt == 1 { Step::Fail(FailureClass::Retry { delay: Some(Duration::from_secs(60)) }) } else { succeed() }
    });
    let [head, behind] = harness.enqueue_in_lane("repo", ["head", "behind"]).await;
    let executors = harness.executors(2);
    let handle = SchedulerHandle::default();
    let mut scheduler = scheduler_behind(&handle, &harness, &executors, patient());
    assert_eq!(want(&handle, &mut scheduler, &harness, behind).await, WantedAnswer::NotClaimable, "it is not the head");
    starts.recv().await.unwrap();
    executors.idle().await;
    assert_eq!(harness.detail(head).await.state, WorkState::Delayed);
    assert_eq!(
        want(&handle, &mut scheduler, &harness, head).await,
        WantedAnswer::NotClaimable,
        "its time has not come"
    );
    harness.clock.advance(Duration::from_secs(60));
    handle.measured(HostPressure { disk: Level::Exhausted, ..HostPressure::default() });
    assert_eq!(want(&handle, &mut scheduler, &harness, head).await, WantedAnswer::Denied("disk"));
    handle.measured(HostPressure::default());
    assert_eq!(want(&handle, &mut scheduler, &harness, head).await, WantedAnswer::Claimed);
    executors.idle().await;
    assert_eq!(harness.detail(head).await.state, WorkState::Done);
}

#[tokio::test]
async fn so_many_are_wanted_at_once_and_no_more() {
    let harness = Harness::new().await;
    let [id] = harness.enqueue(["a"]).await;
    let handle = SchedulerHandle::default();
    let mut asked: Vec<_> = (0..WANTED_MAX).map(|_| handle.want(id, QueueClass::Default).unwrap()).collect();
    assert!(handle.want(id, QueueClass::Default).is_none());
    asked.pop();
    assert!(handle.want(id, QueueClass::Default).is_some(), "whoever went away makes room");
}
