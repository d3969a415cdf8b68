//! Source projections: one generation stands for its source, one more at most is queued behind it.

use super::*;
use crate::model::pack::Coalescing;

const PROJECTED: &str = "projected";

/// A delivery of events of `repo` that are its projection, and their work items.
fn delivery(fixture: &Fixture, keys: &[&str]) -> (Vec<WorkItemId>, Delivery) {
    let events: Vec<_> = keys.iter().map(|key| fixture.event(key, Some("repo"), key)).collect();
    let ids = events.iter().map(|event| event.work_item_id).collect();
    let (route, ordering) = (PROJECTED.parse().unwrap(), Ordering::None);
    let coalescing = Coalescing::SourceProjection;
    (ids, Delivery { route, ordering, coalescing, ..fixture.delivery(events) })
}

async fn deliver(fixture: &Fixture, key: &str) -> WorkItemId {
    let (ids, delivery) = delivery(fixture, &[key]);
    assert!(matches!(fixture.store.enqueue(delivery).await.unwrap(), Enqueued::Stored { .. }));
    ids[0]
}

async fn part(fixture: &Fixture, id: WorkItemId) -> (WorkState, ProjectionPart) {
    let row = fixture.store.work_item(id).await.unwrap().unwrap();
    (row.state, row.projection.unwrap())
}

const READY: (WorkState, ProjectionPart) = (WorkState::Ready, ProjectionPart::Active);
const QUEUED: (WorkState, ProjectionPart) = (WorkState::Blocked, ProjectionPart::Queued);
const OVER: (WorkState, ProjectionPart) = (WorkState::Done, ProjectionPart::Ended);

// COA-3: a queued successor is not ready, and becomes so with the end of the one before it.
#[tokio::test]
async fn a_queued_generation_waits_for_the_end_of_the_active_one() {
    let fixture = start().await;
    let active = deliver(&fixture, "d-1").await;
    let queued = deliver(&fixture, "d-2").await;
    assert_eq!(part(&fixture, active).await, READY);
    assert_eq!(part(&fixture, queued).await, QUEUED);
    let item = fixture.claim(10).await.pop().unwrap();
    assert_eq!(item.id, active);
    assert!(fixture.claim(10).await.is_empty());
    // A failure is no end: it is the active one that is tried again.
    let retry = Disposition::Retry { failure: failure(), run_after: fixture.now() + LEASE, leaves_lane: true };
    fixture.finish(&item, retry).await;
    assert_eq!(part(&fixture, active).await, (WorkState::Delayed, ProjectionPart::Active));
    assert_eq!(part(&fixture, queued).await, QUEUED);
    fixture.advance(LEASE);
    let item = fixture.claim(10).await.pop().unwrap();
    assert_eq!(item.id, active);
    fixture.finish(&item, Disposition::Release).await;
    assert_eq!(part(&fixture, active).await, READY);
    fixture.end_next(done(vec![])).await;
    assert_eq!((part(&fixture, active).await, part(&fixture, queued).await), (OVER, READY));
    assert_eq!(fixture.drain().await, [queued]);
    let next = deliver(&fixture, "d-3").await;
    assert_eq!(part(&fixture, next).await, READY, "nobody is active");
    fixture.assert_counted().await;
}

// COA-3: however many come, one is queued: the last.
#[tokio::test]
async fn a_burst_leaves_one_active_and_one_queued_generation() {
    let fixture = start().await;
    let (first, delivery) = delivery(&fixture, &["d-1", "d-2", "d-3"]);
    fixture.store.enqueue(delivery).await.unwrap();
    let mut superseded = vec![first[1]];
    let mut last = first[2];
    for key in ["d-4", "d-5"] {
        superseded.push(last);
        last = deliver(&fixture, key).await;
        let row = fixture.store.work_item(superseded[superseded.len() - 1]).await.unwrap().unwrap();
        assert_eq!((row.state, row.ignored, row.attempt), (WorkState::Done, true, 0));
        assert_eq!(row.note, Some(format!("superseded by {last}")));
        assert_eq!(row.finished_at, Some(fixture.now()));
    }
    let stats = fixture.store.stats().await.unwrap();
    let counts = [WorkState::Ready, WorkState::Blocked, WorkState::Done].map(|state| stats.work_items[&state]);
    assert_eq!(counts, [1, 1, 3]);
    assert_eq!(part(&fixture, superseded[0]).await, OVER);
    assert_eq!(fixture.drain().await, [first[0], last]);
    fixture.assert_counted().await;
}

// COA-3: it blocks nobody: not what another route brought about the same source, and no other source.
#[tokio::test]
async fn a_queued_generation_holds_nobody_up() {
    let fixture = start().await;
    deliver(&fixture, "d-1").await;
    fixture.claim(10).await;
    let queued = deliver(&fixture, "d-2").await;
    let (_, ordered) = fixture.deliver("d-3", Some("repo")).await;
    let strict = fixture.deliver_strictly("strict", "d-4", None).await;
    let event = fixture.event("d-5", Some("other"), "d-5");
    let other = event.work_item_id;
    let (_, delivery) = delivery(&fixture, &[]);
    fixture.store.enqueue(Delivery { events: vec![event], ..delivery }).await.unwrap();
    assert_eq!(fixture.drain().await, [ordered, strict, other]);
    assert_eq!(part(&fixture, queued).await, QUEUED);
    assert_eq!(fixture.store.exact_stats(fixture.now()).await.unwrap().claimable.total(), 0);
    fixture.assert_counted().await;
}

// COA-3: without a source it is an event like any other.
#[tokio::test]
async fn an_event_without_its_source_is_no_generation() {
    let fixture = start().await;
    let events = vec![fixture.event("d-1", None, "1"), fixture.event("d-2", None, "2")];
    let ids: Vec<_> = events.iter().map(|event| event.work_item_id).collect();
    let (_, delivery) = delivery(&fixture, &[]);
    fixture.store.enqueue(Delivery { events, ..delivery }).await.unwrap();
    assert_eq!(fixture.drain().await, ids);
    assert_eq!(fixture.store.work_item(ids[0]).await.unwrap().unwrap().projection, None);
}

// COA-3, CLM-8: a dead generation is over, unless its route has it hold its successor.
#[tokio::test]
async fn a_dead_generation_ends_when_it_is_out_of_the_way() {
    let fixture = start().await;
    let dead = |leaves_lane| Disposition::Dead { failure: failure(), leaves_lane };
    let first = deliver(&fixture, "d-1").await;
    let second = deliver(&fixture, "d-2").await;
    fixture.end_next(dead(true)).await;
    assert_eq!(part(&fixture, first).await, (WorkState::Dead, ProjectionPart::Ended));
    assert_eq!(part(&fixture, second).await, READY);
    let third = deliver(&fixture, "d-3").await;
    fixture.end_next(dead(false)).await;
    assert_eq!(part(&fixture, second).await, (WorkState::Dead, ProjectionPart::Active));
    assert_eq!(part(&fixture, third).await, QUEUED);
    assert!(fixture.store.skip_dead(second).await.unwrap());
    assert_eq!(part(&fixture, second).await, (WorkState::Dead, ProjectionPart::Ended));
    assert_eq!(fixture.drain().await, [third]);
    fixture.assert_counted().await;
}

// COA-3, RPL-1: a replay stands in the line, and is superseded by nothing.
#[tokio::test]
async fn a_replay_waits_for_the_active_generation_and_is_kept() {
    let fixture = start().await;
    let first = deliver(&fixture, "d-1").await;
    fixture.end_next(done(vec![])).await;
    let active = deliver(&fixture, "d-2").await;
    let item = fixture.claim(10).await.pop().unwrap();
    let replay = fixture.replay_first(first).await;
    let superseded = deliver(&fixture, "d-3").await;
    let last = deliver(&fixture, "d-4").await;
    assert_eq!(fixture.state(replay).await, WorkState::Blocked);
    assert_eq!(part(&fixture, superseded).await, OVER);
    fixture.finish(&item, done(vec![])).await;
    assert_eq!(part(&fixture, active).await, OVER);
    assert_eq!(fixture.drain().await, [replay, last]);
    fixture.assert_counted().await;
}

// COA-3, CLM-1: the statement that takes a row asks for its activation, whatever else the row says.
#[tokio::test]
async fn a_claim_takes_no_generation_that_was_not_activated() {
    let fixture = start().await;
    let active = deliver(&fixture, "d-1").await;
    let mut tampering = Tampering::with(&fixture).await;
    tampering.execute("UPDATE work_item SET projection_active_key = NULL").await;
    assert!(fixture.claim(10).await.is_empty());
    assert_eq!(fixture.store.exact_stats(fixture.now()).await.unwrap().claimable.total(), 0);
    tampering.execute("UPDATE work_item SET projection_active_key = projection_key").await;
    tampering.close().await;
    assert_eq!(ids(&fixture.claim(10).await), [active]);
}

// COA-3: end and activation stand or fall together, and a lost answer changes nothing about that.
#[tokio::test]
async fn a_crash_around_the_end_of_a_generation_leaves_one_active() {
    for loss in Loss::ALL {
        let fixture = start().await;
        let first = deliver(&fixture, "d-1").await;
        let second = deliver(&fixture, "d-2").await;
        let item = fixture.claim(1).await.pop().unwrap();
        let finish = fixture.ending(&item, done(vec![]));
        fixture.store.lose_answer(loss);
        assert!(fixture.store.finish(finish.clone()).await.is_err());
        let expected = match loss {
            Loss::BeforeCommit | Loss::Panic => ((WorkState::Processing, ProjectionPart::Active), QUEUED),
            Loss::AfterCommit => (OVER, READY),
        };
        assert_eq!((part(&fixture, first).await, part(&fixture, second).await), expected, "{loss:?}");
        let again = fixture.store.finish(finish).await.unwrap();
        assert_eq!(again == Finished::Applied, loss == Loss::BeforeCommit, "{loss:?}");
        assert_eq!(fixture.drain().await, [second]);
        fixture.assert_counted().await;
    }
}

// COA-3, CLM-5: a host that dies with the active generation leaves it to the next, and the successor waits for that
// one.
#[tokio::test]
async fn whoever_takes_the_active_generation_over_activates_its_successor() {
    let fixture = start().await;
    let first = deliver(&fixture, "d-1").await;
    let lost = fixture.claim(1).await.pop().unwrap();
    let queued = deliver(&fixture, "d-2").await;
    assert!(fixture.claim(10).await.is_empty());
    fixture.advance(LEASE * 2);
    let fixture = fixture.reopen().await;
    let owner = fixture.claim(10).await.pop().unwrap();
    assert_eq!(owner.id, first);
    assert_eq!(fixture.finish(&lost, done(vec![])).await, Finished::LeaseLost);
    assert_eq!(part(&fixture, queued).await, QUEUED);
    fixture.finish(&owner, done(vec![])).await;
    assert_eq!(fixture.drain().await, [queued]);
    fixture.assert_counted().await;
}

// COA-3: a successor that nobody activated is found by the sweep.
#[tokio::test]
async fn a_sweep_activates_what_was_left_behind() {
    let fixture = start().await;
    let first = deliver(&fixture, "d-1").await;
    let queued = deliver(&fixture, "d-2").await;
    let mut tampering = Tampering::with(&fixture).await;
    tampering.execute("UPDATE work_item SET state = 4, projection_active_key = NULL WHERE state = 1").await;
    tampering.execute("UPDATE work_item_counter SET state = 4 WHERE state = 1").await;
    tampering.close().await;
    assert_eq!(part(&fixture, first).await, OVER);
    let sweep = fixture.store.sweep_lanes(SweepCursor::default()).await.unwrap();
    assert_eq!((sweep.lanes, sweep.repaired), (1, 1));
    assert_eq!(part(&fixture, queued).await, READY);
    assert_eq!(fixture.drain().await, [queued]);
}

// COA-3, RPL-1: the replay of a replay stands in the projection's line too.
#[tokio::test]
async fn a_replay_of_a_replay_waits_for_the_active_generation() {
    let fixture = start().await;
    let first = deliver(&fixture, "d-1").await;
    fixture.end_next(done(vec![])).await;
    let child = fixture.replay_first(first).await;
    assert_eq!(fixture.end_next(done(vec![])).await.id, child);
    let active = deliver(&fixture, "d-2").await;
    let item = fixture.claim(10).await.pop().unwrap();
    assert_eq!(item.id, active);
    let grandchild = fixture.replay_first(child).await;
    assert_eq!(fixture.state(grandchild).await, WorkState::Blocked);
    assert!(fixture.claim(10).await.is_empty(), "one at a time");
    fixture.finish(&item, done(vec![])).await;
    assert_eq!(fixture.drain().await, [grandchild]);
    fixture.assert_counted().await;
}

// COA-3: a replay that is tried again later keeps the line, as the generation that it replays would.
#[tokio::test]
async fn a_replay_that_fails_does_not_leave_the_line() {
    let fixture = start().await;
    let first = deliver(&fixture, "d-1").await;
    fixture.end_next(done(vec![])).await;
    let child = fixture.replay_first(first).await;
    let queued = deliver(&fixture, "d-2").await;
    let run_after = fixture.now() + LEASE;
    assert_eq!(
        fixture.end_next(Disposition::Retry { failure: failure(), run_after, leaves_lane: true }).await.id,
        child
    );
    assert_eq!(part(&fixture, queued).await, QUEUED);
    assert!(fixture.claim(10).await.is_empty());
    fixture.advance(LEASE);
    assert_eq!(fixture.drain().await, [child, queued]);
    fixture.assert_counted().await;
}
