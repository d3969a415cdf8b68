//! What stops a pool that runs, what does not, and what brings it back.

use std::time::Duration;

use super::*;
use crate::claim::WantedAnswer;
use crate::env;
use crate::model::queue::QueueClass;
use crate::store::Tampering;

async fn supervise(harness: &Harness) -> Supervisor {
    nothing_is_active(harness).await;
    let supervisor = Supervisor::start(options(), Vec::new(), parts(harness)).await.unwrap();
    supervisor.loaded(
        &pack(),
        harness.generation,
        Arc::new(NoopFlow::new(Arc::new(manifest(FailedHeadPolicy::DEFAULT)))),
    );
    assert_eq!(supervisor.state().pools.len(), 1);
    supervisor
}

async fn tampering(harness: &Harness) -> Tampering {
    Tampering::in_directory(&harness.directory().join("data")).await
}

/// Delivers an event, and waits until it is worked off.
async fn work_off(harness: &Harness, body: &str) {
    let [id] = harness.enqueue([body]).await;
    while harness.detail(id).await.state != WorkState::Done {
        tokio::task::yield_now().await;
    }
}

/// Until the supervisor, asked again and again, sees it so.
async fn until(supervisor: &Supervisor, what: &str, so: impl Fn(&Supervisor) -> bool) {
    for _ in 0..1_000 {
        supervisor.tick().await;
        if so(supervisor) {
            return;
        }
        env::sleep(Duration::from_millis(1)).await;
    }
    panic!("{what}: {:?}", supervisor.readiness());
}

// RDY-1: the schema
#[tokio::test]
async fn a_schema_that_is_confirmed_to_lack_something_stops_the_pool_until_it_is_there_again() {
    let harness = Harness::new().await;
    let supervisor = supervise(&harness).await;
    work_off(&harness, "before").await;
    let mut tampering = tampering(&harness).await;
    tampering.execute("ALTER TABLE lane RENAME COLUMN head TO chief").await;
    supervisor.tick().await;
    assert!(supervisor.state().pools.is_empty());
    let reasons = supervisor.readiness().reasons;
    assert!(reasons[0].starts_with("the database lacks what claims are made with ("), "{reasons:?}");
    assert!(reasons[0].contains("forebay migrate"), "it says what to do: {reasons:?}");
    tampering.execute("ALTER TABLE lane RENAME COLUMN chief TO head").await;
    until(&supervisor, "the pool is back", |supervisor| supervisor.state().pools.len() == 1).await;
    assert!(supervisor.readiness().ready, "{:?}", supervisor.readiness());
    work_off(&harness, "after").await;
    supervisor.drain().await;
}

// RDY-1, RDY-3: the coverage, of this pack alone
#[tokio::test]
async fn events_that_lack_their_work_items_stop_the_pool_of_their_pack_until_they_are_repaired() {
    let harness = Harness::new().await;
    let supervisor = supervise(&harness).await;
    let other = "other".parse().unwrap();
    let flow = Arc::new(NoopFlow::new(Arc::new(manifest(FailedHeadPolicy::DEFAULT))));
    supervisor.loaded(&other, GenerationNumber(1), flow);
    work_off(&harness, "covered").await;
    let mut tampering = tampering(&harness).await;
    tampering.execute("DELETE FROM work_item").await;
    tampering.execute("DELETE FROM work_item_counter").await;
    until(&supervisor, "the pool stops", |supervisor| supervisor.state().pools.len() == 1).await;
    assert!(supervisor.state().pools.contains_key(&other), "the others go on");
    let reasons = supervisor.readiness().reasons;
    assert!(reasons[0].starts_with("events of pack `github` have no work item (1, the first is evt_"), "{reasons:?}");
    let waiting = harness.enqueue(["waits"]).await;
    supervisor.tick().await;
    assert_eq!(harness.detail(waiting[0]).await.state, WorkState::Ready, "nobody claims it");

    tampering.execute("DELETE FROM event WHERE ordinal * 16 + 1 NOT IN (SELECT ordinal FROM work_item)").await;
    until(&supervisor, "the pool is back", |supervisor| supervisor.state().pools.len() == 2).await;
    while harness.detail(waiting[0]).await.state != WorkState::Done {
        tokio::task::yield_now().await;
    }
    supervisor.drain().await;
}

// RDY-2
#[tokio::test]
async fn a_store_that_does_not_answer_stops_no_pool() {
    let harness = Harness::new().await;
    let supervisor = supervise(&harness).await;
    work_off(&harness, "before").await;
    let held = harness.store.hold_readers().await;
    // As a look does whose probe was answered, and nothing else.
    supervisor.confirm().await;
    assert_eq!(supervisor.state().pools.len(), 1);
    drop(held);
    supervisor.tick().await;
    assert_eq!(supervisor.state().pools.len(), 1);
    assert!(supervisor.state().gates.gaps().is_empty());
    harness.store.close().await;
    supervisor.tick().await;
    assert_eq!(supervisor.state().pools.len(), 1, "it is the store that is away: nothing is confirmed");
    supervisor.drain().await;
}

// RDY-1
#[tokio::test]
async fn nothing_is_claimed_before_all_is_confirmed() {
    let harness = Harness::new().await;
    let supervisor = Supervisor::idle(options(), parts(&harness));
    let flow = Arc::new(NoopFlow::new(Arc::new(manifest(FailedHeadPolicy::DEFAULT))));
    supervisor.loaded(&pack(), harness.generation, flow);
    let [id] = harness.enqueue(["a"]).await;
    assert!(supervisor.state().pools.is_empty());
    let reason = "pack `github` waits until the store is confirmed to have all that its work needs";
    assert_eq!(supervisor.readiness().reasons, [reason]);
    assert_eq!(supervisor.run_next(&pack(), id, QueueClass::Default).await, None);
    supervisor.confirm().await;
    assert_eq!(supervisor.state().pools.len(), 1);
    while harness.detail(id).await.state != WorkState::Done {
        tokio::task::yield_now().await;
    }
    assert_eq!(supervisor.run_next(&pack(), id, QueueClass::Default).await, Some(WantedAnswer::NotClaimable));
    supervisor.drain().await;
}
