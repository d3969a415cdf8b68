//! Claims: who gets what, in which order, and at what cost.

use sqlx::Connection;

use super::*;
use crate::store::unit::{Sequences, Unit};

// CLM-1
#[tokio::test]
async fn a_row_has_one_owner() {
    let fixture = Arc::new(Fixture::new().await);
    let events = (0..300).map(|n| fixture.event(&format!("d-{n}"), None, "body")).collect();
    fixture.store.enqueue(fixture.delivery(events)).await.unwrap();
    let calls: Vec<_> = (0..40)
        .map(|_| {
            let fixture = Arc::clone(&fixture);
            crate::env::spawn("test", async move { fixture.claim(10).await })
        })
        .collect();
    let mut claimed = Vec::new();
    for call in calls {
        claimed.extend(call.await.unwrap());
    }
    assert_eq!(claimed.len(), 300);
    let mut distinct = ids(&claimed);
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 300);
    assert!(claimed.iter().all(|item| (item.attempt, item.epoch, item.reclaimed) == (1, 1, false)));
}

// CLM-2
#[tokio::test]
async fn only_the_scope_that_was_asked_for_is_visible() {
    let fixture = Fixture::new().await;
    let (_, old) = fixture.deliver("d-1", None).await;
    let second = fixture.install(2).await.number;
    let mut delivery = fixture.delivery(vec![fixture.event("d-2", None, "body")]);
    delivery.generation = second;
    let new = delivery.events[0].work_item_id;
    fixture.store.enqueue(delivery).await.unwrap();

    let mut strange = fixture.request(10);
    strange.pack = "gitlab".parse().unwrap();
    assert!(fixture.store.claim(strange).await.unwrap().is_empty());
    let mut nothing = fixture.request(10);
    nothing.generations.clear();
    assert!(fixture.store.claim(nothing).await.unwrap().is_empty());
    let mut newer = fixture.request(10);
    newer.generations = vec![second];
    assert_eq!(ids(&fixture.store.claim(newer).await.unwrap()), [new]);
    assert_eq!(ids(&fixture.claim(10).await), [old]);
}

// CLM-4
#[tokio::test]
async fn other_work_types_are_invisible() {
    let fixture = Fixture::new().await;
    fixture.deliver("d-1", None).await;
    let mut other = fixture.request(10);
    other.work_types = vec![WorkType::WorkflowActionApply];
    assert!(fixture.store.claim(other).await.unwrap().is_empty());
    assert_eq!(fixture.claim(10).await.len(), 1);
}

// CLM-3
#[tokio::test]
async fn heads_are_claimed_in_the_order_of_their_places() {
    let fixture = Fixture::new().await;
    let mut heads = Vec::new();
    for n in 0..6 {
        let (_, id) = fixture.deliver(&format!("d-{n}"), Some(&format!("repo-{}", n % 3))).await;
        heads.extend((n < 3).then_some(id));
        fixture.advance(Duration::from_millis(1));
    }
    assert_eq!(ids(&fixture.claim(2).await), heads[..2]);
    assert_eq!(ids(&fixture.claim(10).await), heads[2..]);
}

// CLM-3
#[tokio::test]
async fn a_busy_lane_does_not_starve_a_new_one() {
    let fixture = Fixture::new().await;
    for n in 0..10 {
        fixture.deliver(&format!("busy-{n}"), Some("busy")).await;
        fixture.advance(Duration::from_millis(1));
    }
    let (_, new) = fixture.deliver("new", Some("new")).await;
    fixture.advance(Duration::from_millis(1));
    for n in 10..20 {
        fixture.deliver(&format!("busy-{n}"), Some("busy")).await;
    }
    // One slot: it serves the ten that came before the new one, then the new one, and then the rest.
    for turn in 0..11 {
        let item = fixture.claim(1).await.pop().unwrap();
        assert_eq!(item.id == new, turn == 10, "{turn}");
        fixture.finish(&item, done(vec![])).await;
    }
}

// CLM-3
#[tokio::test]
async fn order_holds_when_the_clock_is_set_back() {
    let fixture = Fixture::new().await;
    let (_, first) = fixture.deliver("d-1", Some("repo")).await;
    fixture.clock.jump_to(Timestamp::from_millis(START.as_millis() - 3_600_000));
    let (_, second) = fixture.deliver("d-2", Some("repo")).await;
    // A new process does not remember the last place it handed out: the lane does.
    let fixture = fixture.reopen().await;
    let (_, third) = fixture.deliver("d-3", Some("repo")).await;
    for expected in [first, second, third] {
        let item = fixture.claim(10).await.pop().unwrap();
        assert_eq!(item.id, expected);
        fixture.finish(&item, done(vec![])).await;
    }
}

// CLM-3
#[tokio::test]
async fn a_delayed_row_is_invisible_until_it_is_due_and_then_keeps_its_place() {
    let fixture = Fixture::new().await;
    let (_, delayed) = fixture.deliver("d-1", None).await;
    let item = fixture.claim(1).await.pop().unwrap();
    let run_after = fixture.now() + Duration::from_secs(5);
    fixture.finish(&item, Disposition::Retry { failure: failure(), run_after, leaves_lane: false }).await;
    fixture.advance(Duration::from_millis(4_999));
    let (_, later) = fixture.deliver("d-2", None).await;
    assert!(!ids(&fixture.claim(0).await).contains(&delayed));
    assert_eq!(fixture.store.next_claimable_at(&pack()).await.unwrap(), Some(run_after));
    fixture.advance(Duration::from_millis(1));
    assert_eq!(ids(&fixture.claim(10).await), [delayed, later]);
}

// CLM-5
#[tokio::test]
async fn a_stale_lease_is_reclaimed_and_the_loser_changes_nothing() {
    let fixture = Fixture::new().await;
    let (_, id) = fixture.deliver("d-1", Some("repo")).await;
    fixture.deliver("d-2", Some("repo")).await;
    let loser = fixture.claim(1).await.pop().unwrap();
    assert_eq!(fixture.store.next_claimable_at(&pack()).await.unwrap(), Some(loser.lease_until));
    fixture.advance(LEASE);
    assert!(fixture.claim(1).await.is_empty(), "the lease holds to its last millisecond");
    fixture.advance(Duration::from_millis(1));
    let winner = fixture.claim(1).await.pop().unwrap();
    assert_eq!((winner.id, winner.reclaimed, winner.attempt, winner.epoch), (id, true, 2, 2));

    let renewal = Renewal { rows: vec![(id, loser.lease, loser.epoch)], lease_duration: LEASE, now: fixture.now() };
    assert!(fixture.store.renew(renewal).await.unwrap().is_empty());
    let run_after = fixture.now();
    for disposition in [
        done(vec![fixture.message("sink", START)]),
        Disposition::Retry { failure: failure(), run_after, leaves_lane: true },
        Disposition::Dead { failure: failure(), leaves_lane: true },
        Disposition::Release,
    ] {
        assert_eq!(fixture.finish(&loser, disposition).await, Finished::LeaseLost);
    }
    let row = fixture.store.work_item(id).await.unwrap().unwrap();
    assert_eq!((row.state, row.attempt, row.lease_until), (WorkState::Processing, 2, Some(winner.lease_until)));
    assert_eq!(fixture.finish(&winner, done(vec![])).await, Finished::Applied);
}

// PRS-1
#[tokio::test]
async fn stale_only_never_takes_a_fresh_row() {
    let fixture = Fixture::new().await;
    let (_, stale) = fixture.deliver("d-1", None).await;
    fixture.claim(1).await;
    let (_, fresh) = fixture.deliver("d-2", None).await;
    fixture.advance(LEASE * 2);
    let mut request = fixture.request(10);
    request.stale_only = true;
    assert_eq!(ids(&fixture.store.claim(request).await.unwrap()), [stale]);
    assert_eq!(ids(&fixture.claim(10).await), [fresh]);
}

// SCH-3: whoever waits for work is told when there is some.
#[tokio::test]
async fn new_work_is_told() {
    let fixture = Fixture::new().await;
    let mut work = fixture.store.subscribe_work();
    work.mark_unchanged();
    fixture.deliver("d-1", Some("repo")).await;
    assert!(work.has_changed().unwrap());
    work.mark_unchanged();
    fixture.deliver("d-2", Some("repo")).await;
    assert!(!work.has_changed().unwrap(), "it waits behind the first");
    let item = fixture.claim(1).await.pop().unwrap();
    fixture.finish(&item, done(vec![])).await;
    assert!(work.has_changed().unwrap());
}

/// Virtual machine steps that SQLite takes for a claim of 32 rows, which is then undone.
async fn claim_cost(fixture: &Fixture) -> u64 {
    let mut connection = Tampering::with(fixture).await.0;
    let mut steps = 0;
    // The second time, the pages are cached and the statements prepared.
    for _ in 0..2 {
        let counter = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&counter);
        connection.lock_handle().await.unwrap().set_progress_handler(1, move || {
            counted.fetch_add(1, Ordering::Relaxed);
            true
        });
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let mut unit = Unit::new(&mut transaction, Sequences::default());
        let answers = crate::store::claiming::apply(&mut unit, vec![fixture.request(32)]).await.unwrap();
        assert_eq!(answers[0].as_ref().unwrap().len(), 32);
        transaction.rollback().await.unwrap();
        connection.lock_handle().await.unwrap().remove_progress_handler();
        steps = counter.load(Ordering::Relaxed);
    }
    connection.close().await.unwrap();
    steps
}

/// Delivers events, each in the lane that `source` names.
async fn fill(fixture: &Fixture, name: &str, rows: usize, source: impl Fn(usize) -> Option<String>) {
    for first in (0..rows).step_by(1_000) {
        let last = (first + 1_000).min(rows);
        let events = (first..last).map(|n| fixture.event(&format!("{name}-{n}"), source(n).as_deref(), "{}")).collect();
        fixture.store.enqueue(fixture.delivery(events)).await.unwrap();
    }
}

async fn finish_all(fixture: &Fixture, disposition: Disposition) {
    loop {
        let items = fixture.claim(CLAIM_ROWS_MAX).await;
        if items.is_empty() {
            return;
        }
        let finishes = items.iter().map(|item| fixture.finish(item, disposition.clone()));
        assert!(futures_util::future::join_all(finishes).await.iter().all(|finished| *finished == Finished::Applied));
    }
}

// CLM-9
#[tokio::test]
async fn a_claims_cost_does_not_grow_with_the_backlog() {
    const BACKLOG: usize = 10_000;
    let heads = |n: usize| Some(format!("head-{n}"));
    let plain = Fixture::new().await;
    fill(&plain, "head", 32, heads).await;
    let base = claim_cost(&plain).await;

    let deep_lane = Fixture::new().await;
    fill(&deep_lane, "head", 32, heads).await;
    fill(&deep_lane, "deep", BACKLOG, |_| Some("head-0".to_owned())).await;

    let many_lanes = Fixture::new().await;
    fill(&many_lanes, "lane", BACKLOG, heads).await;

    let many_finished = Fixture::new().await;
    fill(&many_finished, "finished", BACKLOG, |_| None).await;
    finish_all(&many_finished, done(vec![])).await;
    fill(&many_finished, "head", 32, heads).await;

    let many_delayed = Fixture::new().await;
    fill(&many_delayed, "delayed", BACKLOG, |_| None).await;
    let run_after = many_delayed.now() + Duration::from_secs(3_600);
    finish_all(&many_delayed, Disposition::Retry { failure: failure(), run_after, leaves_lane: false }).await;
    fill(&many_delayed, "head", 32, heads).await;

    for (shape, fixture) in [
        ("deep lane", deep_lane),
        ("many lanes", many_lanes),
        ("many finished", many_finished),
        ("many delayed", many_delayed),
    ] {
        let cost = claim_cost(&fixture).await;
        assert!(cost * 10 <= base * 13, "{shape}: {cost} steps instead of {base}");
    }
}
