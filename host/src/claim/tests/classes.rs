//! Queue classes: which slots a claim is for, and who gets them.

use std::task::Poll;

use super::*;
use crate::execute::ExecuteOptions;
use crate::execute::testing::mixed_manifest;
use crate::lanes::{Profile, Shape};
use crate::model::queue::QueueClass;

/// Executors whose rows stay in work, of a pack that admits all classes.
fn busy_executors(harness: &Harness, slots: u32, profile: Profile) -> Executors {
    harness.load_under(mixed_manifest(), |_, _| Step::Hang);
    Executors::new(harness.parts(ExecuteOptions { slots, profile, ..ExecuteOptions::default() }))
}

fn free(executors: &Executors) -> [u32; Shape::COUNT] {
    let layout = executors.layout();
    Shape::ALL.map(|shape| executors.free_of(&layout, shape))
}

// QCL-5
#[tokio::test]
async fn a_claim_reserves_the_slots_of_its_shape_only() {
    let harness = Harness::new().await;
    let executors = busy_executors(&harness, 16, Profile::DefaultHeavy);
    let mut scheduler = scheduler(&harness, &executors, patient());
    for expected in [[0, 0, 4, 8], [4, 0, 0, 8], [4, 0, 4, 0]] {
        assert_eq!(free(&executors), [4, 0, 4, 8]);
        {
            let mut tick = std::pin::pin!(scheduler.tick(harness.now()));
            let first = futures_util::poll!(tick.as_mut());
            assert_eq!(first, Poll::Pending, "the claim is under way");
            assert_eq!(free(&executors), expected);
            let found = tick.await;
            assert!(matches!(found, Tick::ShapeDrained { rows: 0 } | Tick::Drained { rows: 0 }), "{found:?}");
        }
        // What one shape finds empty says nothing of the next one's turn here.
        harness.clock.advance(Duration::from_secs(1));
    }
}

// QCL-5, PRS-2
#[tokio::test]
async fn a_shape_that_finds_nothing_takes_nothing_of_the_budget() {
    let harness = Harness::new().await;
    let executors = busy_executors(&harness, 16, Profile::Reserved);
    harness.enqueue_of(QueueClass::Bulk, 40).await;
    let budget = ClaimOptions { max_processing_rows: NonZeroU32::new(4), ..patient() };
    let mut scheduler = scheduler(&harness, &executors, budget);
    assert_eq!(scheduler.tick(harness.now()).await, Tick::ShapeDrained { rows: 0 });
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Full { rows: 4 });
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Denied(Denial::BudgetSpent));
}

// QCL-6, QCL-1
#[tokio::test]
async fn old_bulk_work_leaves_a_quarter_of_the_slots_to_fresh_interactive_work() {
    for (profile, bulk_rows) in [(Profile::Reserved, 12), (Profile::DefaultHeavy, 12)] {
        let harness = Harness::new().await;
        let executors = busy_executors(&harness, 16, profile);
        harness.enqueue_of(QueueClass::Bulk, 100).await;
        let mut scheduler = scheduler(&harness, &executors, patient());
        while !matches!(scheduler.tick(harness.now()).await, Tick::Denied(_)) {}
        assert_eq!(executors.rows_in_work(), bulk_rows, "{profile:?}");

        let fresh = harness.enqueue_of(QueueClass::Interactive, 4).await;
        harness.clock.advance(Duration::from_secs(1));
        assert_eq!(scheduler.tick(harness.now()).await, Tick::Full { rows: 4 });
        for id in fresh {
            assert_eq!(harness.detail(id).await.state, WorkState::Processing);
        }
    }
}

// QCL-6, QCL-4
#[tokio::test]
async fn a_flood_of_interactive_work_leaves_a_quarter_of_the_slots_to_bulk() {
    for profile in [Profile::Reserved, Profile::DefaultHeavy] {
        let harness = Harness::new().await;
        let executors = busy_executors(&harness, 16, profile);
        harness.enqueue_of(QueueClass::Interactive, 100).await;
        let bulk = harness.enqueue_of(QueueClass::Bulk, 4).await;
        let mut scheduler = scheduler(&harness, &executors, patient());
        while !matches!(scheduler.tick(harness.now()).await, Tick::Denied(_)) {}
        assert_eq!(executors.rows_in_work(), 16, "{profile:?}");
        for id in bulk {
            assert_eq!(harness.detail(id).await.state, WorkState::Processing, "{profile:?}");
        }
    }
}

// QCL-4
#[tokio::test]
async fn a_shape_with_a_preference_borrows_what_others_may_do_too() {
    let harness = Harness::new().await;
    let executors = busy_executors(&harness, 16, Profile::DefaultHeavy);
    harness.enqueue_of(QueueClass::Interactive, 100).await;
    let mut scheduler = scheduler(&harness, &executors, patient());
    while !matches!(scheduler.tick(harness.now()).await, Tick::Denied(_)) {}
    assert_eq!(free(&executors), [0; Shape::COUNT], "no executor is set aside for bulk that does not come");
}

// QCL-6: with all others busy, somebody who waits for an answer does not wait for a slot to be freed.
#[tokio::test]
async fn the_scheduler_hears_of_interactive_work_while_bulk_fills_the_other_slots() {
    let harness = Harness::with_system_clock().await;
    let executors = busy_executors(&harness, 4, Profile::Reserved);
    let mut starts = harness.load_under(mixed_manifest(), |_, _| Step::Hang);
    harness.enqueue_of(QueueClass::Bulk, 100).await;
    let stop = CancellationToken::new();
    let running = env::spawn("scheduler", scheduler(&harness, &executors, patient()).run(stop.clone()));
    for _ in 0..3 {
        starts.recv().await.unwrap();
    }
    harness.enqueue_of(QueueClass::Interactive, 1).await;
    starts.recv().await.unwrap();
    stop.cancel();
    running.await.unwrap();
    assert_eq!(executors.free(), 0);
}
