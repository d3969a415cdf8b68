//! The memory for bodies: who waits for it, in which order, and how a wait ends.

use tokio::sync::mpsc;

use super::*;
use crate::model::ids::{EventId, WorkItemId};

const KIB: usize = 1_024;
/// The memory of these executors.
const BODIES_BYTES_MAX: usize = 4 * KIB;

fn executors(harness: &Harness, slots: u32) -> Executors {
    let options = ExecuteOptions { slots, bodies_bytes_max: BODIES_BYTES_MAX, ..ExecuteOptions::default() };
    Executors::new(harness.parts(options))
}

fn body(bytes: usize) -> String {
    "x".repeat(bytes)
}

/// A harness whose flow ends once for each permit of the gate.
async fn gated() -> (Harness, Arc<Semaphore>, mpsc::UnboundedReceiver<EventId>) {
    let harness = Harness::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    let starts = harness.load(move |_, _| Step::Wait(Arc::clone(&waiting)));
    (harness, gate, starts)
}

/// Makes sure that the next to run is `expected`.
async fn starts_next(harness: &Harness, starts: &mut mpsc::UnboundedReceiver<EventId>, expected: WorkItemId) {
    let started = starts.recv().await.unwrap();
    let expected = harness.detail(expected).await;
    assert_eq!(started, expected.event_id, "instead of {expected:?}");
}

// CLM-3, CLM-6
#[tokio::test]
async fn rows_wait_for_memory_in_the_order_of_their_claim_and_keep_their_leases() {
    let (harness, gate, mut starts) = gated().await;
    let half = body(BODIES_BYTES_MAX / 2);
    let ids = harness.enqueue([half.as_str(); 4]).await;
    let executors = executors(&harness, 4);
    assert_eq!(harness.claim_into(&executors, 4).await, 4);
    starts_next(&harness, &mut starts, ids[0]).await;
    starts_next(&harness, &mut starts, ids[1]).await;

    let keeper = executors.lease_keeper();
    for _ in 0..3 {
        harness.clock.advance(LEASE * 2 / 3);
        assert_eq!(keeper.tick(harness.now()).await, Renewed::Rows { kept: 4, lost: 0 });
    }
    assert!(starts.try_recv().is_err(), "there is memory for two");
    for id in &ids[2..] {
        gate.add_permits(1);
        starts_next(&harness, &mut starts, *id).await;
    }
    gate.add_permits(2);
    executors.idle().await;
    for id in ids {
        let row = harness.detail(id).await;
        assert_eq!((row.state, row.attempt), (WorkState::Done, 1));
    }
}

// CLM-3
#[tokio::test]
async fn a_body_larger_than_the_memory_has_it_for_itself_and_nobody_passes_it() {
    let (harness, gate, mut starts) = gated().await;
    let (small, whole, larger) = (body(1), body(BODIES_BYTES_MAX), body(3 * BODIES_BYTES_MAX));
    let ids = harness.enqueue([small.as_str(), &larger, &small, &whole]).await;
    let executors = executors(&harness, 4);
    assert_eq!(harness.claim_into(&executors, 4).await, 4);
    starts_next(&harness, &mut starts, ids[0]).await;
    for next in &ids[1..] {
        executors.lease_keeper().tick(harness.now()).await;
        assert!(starts.try_recv().is_err(), "it is not its turn");
        gate.add_permits(1);
        starts_next(&harness, &mut starts, *next).await;
    }
    gate.add_permits(1);
    executors.idle().await;
    assert_eq!(executors.vitals().finishes(), 4);
}

// CLM-6
#[tokio::test]
async fn a_row_whose_lease_is_lost_while_it_waits_for_memory_is_dropped() {
    let (harness, _gate, mut starts) = gated().await;
    let whole = body(BODIES_BYTES_MAX);
    let ids = harness.enqueue([whole.as_str(); 2]).await;
    let executors = executors(&harness, 2);
    harness.claim_into(&executors, 2).await;
    starts_next(&harness, &mut starts, ids[0]).await;
    harness.clock.advance(LEASE);
    assert_eq!(executors.lease_keeper().tick(harness.now()).await, Renewed::Nothing);
    executors.idle().await;
    assert!(starts.try_recv().is_err(), "it never ran");
    for id in ids {
        let row = harness.detail(id).await;
        assert_eq!((row.state, row.failures), (WorkState::Processing, 0), "nothing was recorded");
    }
}

#[tokio::test]
async fn a_drain_releases_what_waits_for_memory() {
    let (harness, _gate, mut starts) = gated().await;
    let whole = body(BODIES_BYTES_MAX);
    let ids = harness.enqueue([whole.as_str(); 3]).await;
    let executors = executors(&harness, 3);
    harness.claim_into(&executors, 3).await;
    starts_next(&harness, &mut starts, ids[0]).await;
    executors.drain(SOON).await;
    assert!(starts.try_recv().is_err());
    for id in ids {
        let row = harness.detail(id).await;
        assert_eq!((row.state, row.failures, row.attempt), (WorkState::Ready, 0, 0), "as if it had not been claimed");
    }
    assert_eq!((executors.free(), executors.vitals().finishes()), (3, 0));
}

#[tokio::test]
async fn one_packs_bodies_hold_up_no_other_pack() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|event, _| if event.body.len() == 1 { succeed() } else { Step::Hang });
    let whole = body(BODIES_BYTES_MAX);
    let [huge, small] = harness.enqueue([whole.as_str(), "x"]).await;
    let (full, other) = (executors(&harness, 1), executors(&harness, 1));
    harness.claim_into(&full, 1).await;
    starts_next(&harness, &mut starts, huge).await;
    run_all(&harness, &other).await;
    assert_eq!(harness.detail(small).await.state, WorkState::Done);
    full.drain(SOON).await;
}
