//! Coalescing: who ends one goes on with the latest of the same source.

use super::*;
use crate::model::pack::Coalescing;

/// Delivers an event of `repo` whose route coalesces, and returns its work item.
async fn deliver(fixture: &Fixture, key: &str) -> WorkItemId {
    deliver_as(fixture, key, QueueClass::Default).await
}

async fn deliver_as(fixture: &Fixture, key: &str, queue_class: QueueClass) -> WorkItemId {
    let event = NewEvent { queue_class, ..fixture.event(key, Some("repo"), key) };
    let id = event.work_item_id;
    let delivery = Delivery { coalescing: Coalescing::LatestBySource, ..fixture.delivery(vec![event]) };
    fixture.store.enqueue(delivery).await.unwrap();
    id
}

/// Ends a row well, and asks for its successor.
async fn hand_over(fixture: &Fixture, item: &ClaimedWorkItem) -> Finished {
    let lease = LeaseToken::new(fixture.now(), fixture.entropy());
    let successor = Some(Successor { lease, lease_duration: LEASE });
    fixture.store.finish(Finish { successor, ..fixture.ending(item, done(vec![])) }).await.unwrap()
}

// COA-1
#[tokio::test]
async fn whoever_ends_one_goes_on_with_the_latest() {
    let fixture = start().await;
    let first = deliver(&fixture, "d-1").await;
    let item = fixture.claim(1).await.pop().unwrap();
    assert_eq!(item.id, first);
    let (second, third) = (deliver(&fixture, "d-2").await, deliver(&fixture, "d-3").await);
    let latest = deliver(&fixture, "d-4").await;

    let Finished::Continued(next) = hand_over(&fixture, &item).await else { panic!("it has a successor") };
    assert_eq!((next.id, next.attempt, next.epoch, next.reclaimed), (latest, 1, 1, false));
    assert_eq!(fixture.state(first).await, WorkState::Done);
    for superseded in [second, third] {
        let row = fixture.store.work_item(superseded).await.unwrap().unwrap();
        assert_eq!((row.state, row.ignored, row.attempt), (WorkState::Done, true, 0));
        assert_eq!(row.note, Some(format!("superseded by {latest}")));
    }
    assert!(fixture.claim(10).await.is_empty());

    // It is held as any other: renewed, ended, or taken over when its lease runs out.
    let renewal = Renewal { rows: vec![(next.id, next.lease, next.epoch)], lease_duration: LEASE, now: fixture.now() };
    assert_eq!(fixture.store.renew(renewal).await.unwrap(), [latest]);
    assert_eq!(hand_over(&fixture, &item).await, Finished::LeaseLost, "it has ended");
    assert_eq!(hand_over(&fixture, &next).await, Finished::Applied, "nobody waits");
    assert_eq!(fixture.state(latest).await, WorkState::Done);
    fixture.assert_counted().await;
}

// COA-1: what the caller no longer holds is neither ended nor followed.
#[tokio::test]
async fn a_lost_lease_hands_nothing_over() {
    let fixture = start().await;
    deliver(&fixture, "d-1").await;
    let lost = fixture.claim(1).await.pop().unwrap();
    let (second, third) = (deliver(&fixture, "d-2").await, deliver(&fixture, "d-3").await);
    fixture.advance(LEASE * 2);
    let owner = fixture.claim(1).await.pop().unwrap();
    assert_eq!(hand_over(&fixture, &lost).await, Finished::LeaseLost);
    for waiting in [second, third] {
        assert_eq!(fixture.state(waiting).await, WorkState::Blocked);
    }
    let Finished::Continued(next) = hand_over(&fixture, &owner).await else { panic!("it has a successor") };
    assert_eq!(next.id, third);
    fixture.assert_counted().await;
}

// COA-1: if the successor cannot be claimed, nothing was ended.
#[tokio::test]
async fn losing_the_successor_undoes_the_completion() {
    let fixture = start().await;
    let first = deliver(&fixture, "d-1").await;
    let item = fixture.claim(1).await.pop().unwrap();
    let (second, third) = (deliver(&fixture, "d-2").await, deliver(&fixture, "d-3").await);
    // What no transaction of a store does: another one waits in the lane and is made its head.
    let mut tampering = Tampering::with(&fixture).await;
    tampering.execute("UPDATE work_item SET blockers = 2 WHERE state = 0").await;
    let lease = LeaseToken::new(fixture.now(), fixture.entropy());
    let successor = Some(Successor { lease, lease_duration: LEASE });
    let finish = Finish { successor, ..fixture.ending(&item, done(vec![fixture.message("sink", START)])) };
    assert!(fixture.store.finish(finish.clone()).await.is_err());
    assert_eq!(fixture.state(first).await, WorkState::Processing);
    for waiting in [second, third] {
        assert_eq!(fixture.state(waiting).await, WorkState::Blocked);
    }
    assert_eq!(fixture.store.stats().await.unwrap().messages[&MessageState::Scheduled], 0);
    tampering.execute("UPDATE work_item SET blockers = 1 WHERE state = 0").await;
    tampering.close().await;
    assert!(matches!(fixture.store.finish(finish).await.unwrap(), Finished::Continued(next) if next.id == third));
    fixture.assert_counted().await;
}

// COA-1, CLM-7: only a success makes what comes later the matter.
#[tokio::test]
async fn a_failure_supersedes_nothing() {
    let fixture = start().await;
    deliver(&fixture, "d-1").await;
    let second = deliver(&fixture, "d-2").await;
    let third = deliver(&fixture, "d-3").await;
    let item = fixture.claim(1).await.pop().unwrap();
    let lease = LeaseToken::new(fixture.now(), fixture.entropy());
    let successor = Some(Successor { lease, lease_duration: LEASE });
    let dead = Disposition::Dead { failure: failure(), leaves_lane: true };
    let finish = Finish { successor, ..fixture.ending(&item, dead) };
    assert_eq!(fixture.store.finish(finish).await.unwrap(), Finished::Applied);
    assert_eq!(fixture.state(third).await, WorkState::Blocked);
    assert_eq!(ids(&fixture.claim(10).await), [second]);
}

// COA-2, CLM-3: what does not coalesce is superseded by nothing, and passed by nobody.
#[tokio::test]
async fn one_that_does_not_coalesce_keeps_its_place() {
    let fixture = start().await;
    deliver(&fixture, "d-1").await;
    let item = fixture.claim(1).await.pop().unwrap();
    let superseded = deliver(&fixture, "d-2").await;
    let next = deliver(&fixture, "d-3").await;
    let strict = fixture.deliver_strictly("strict", "d-4", Some("repo")).await;
    let last = deliver(&fixture, "d-5").await;
    let Finished::Continued(item) = hand_over(&fixture, &item).await else { panic!("it has a successor") };
    assert_eq!(item.id, next);
    assert_eq!(fixture.state(superseded).await, WorkState::Done);
    assert_eq!(hand_over(&fixture, &item).await, Finished::Applied, "the next one is not its like");
    assert_eq!(fixture.drain().await, [strict, last]);
    fixture.assert_counted().await;
}

// COA-1: routes share the lanes of sources, and say different things.
#[tokio::test]
async fn an_event_of_another_route_is_not_superseded() {
    let fixture = start().await;
    deliver(&fixture, "d-1").await;
    let item = fixture.claim(1).await.pop().unwrap();
    let event = fixture.event("d-2", Some("repo"), "d-2");
    let other = event.work_item_id;
    let delivery = fixture.delivery(vec![event]);
    let (route, coalescing) = ("other".parse().unwrap(), Coalescing::LatestBySource);
    fixture.store.enqueue(Delivery { route, coalescing, ..delivery }).await.unwrap();
    let last = deliver(&fixture, "d-3").await;
    assert_eq!(hand_over(&fixture, &item).await, Finished::Applied);
    assert_eq!(fixture.drain().await, [other, last]);
}

// QCL-1, RPL-1: one of another class waits for executors of its own; a replay is wanted for itself.
#[tokio::test]
async fn only_what_the_executor_may_take_is_handed_over() {
    let fixture = start().await;
    let first = deliver(&fixture, "d-1").await;
    fixture.end_next(done(vec![])).await;
    deliver(&fixture, "d-2").await;
    let item = fixture.claim(1).await.pop().unwrap();
    let replay = fixture.replay_first(first).await;
    deliver(&fixture, "d-3").await;
    let bulk = deliver_as(&fixture, "d-4", QueueClass::Bulk).await;
    assert_eq!(hand_over(&fixture, &item).await, Finished::Applied);
    let item = fixture.claim(10).await.pop().unwrap();
    assert_eq!(item.id, replay);
    fixture.finish(&item, done(vec![])).await;
    let item = fixture.claim(10).await.pop().unwrap();
    assert_eq!(hand_over(&fixture, &item).await, Finished::Applied);
    assert_eq!(ids(&fixture.claim(10).await), [bulk]);
    fixture.assert_counted().await;
}
