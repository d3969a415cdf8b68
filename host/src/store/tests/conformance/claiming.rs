//! Claims: who gets what, in which order, and at what cost.

use super::*;

// CLM-1
#[tokio::test]
async fn a_row_has_one_owner() {
    let fixture = Arc::new(start().await);
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
    let fixture = start().await;
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
    let fixture = start().await;
    fixture.deliver("d-1", None).await;
    let mut other = fixture.request(10);
    other.work_types = vec![WorkType::WorkflowActionApply];
    assert!(fixture.store.claim(other).await.unwrap().is_empty());
    assert_eq!(fixture.claim(10).await.len(), 1);
}

// CLM-1, CLM-4: one row that is asked for is taken under the predicates of every claim.
#[tokio::test]
async fn a_row_that_is_asked_for_is_taken_if_any_claim_would_take_it() {
    let fixture = start().await;
    fixture.deliver("d-0", None).await;
    let (_, head) = fixture.deliver("d-1", Some("repo")).await;
    let (_, behind) = fixture.deliver("d-2", Some("repo")).await;
    let only = |id| ClaimRequest { only: Some(id), ..fixture.request(1) };
    let claim = async |request: ClaimRequest| fixture.store.claim(request).await.unwrap();
    assert!(claim(only(behind)).await.is_empty(), "it is not the head");
    let mut elsewhere =
        vec![ClaimRequest { stale_only: true, ..only(head) }, ClaimRequest { generations: vec![], ..only(head) }];
    elsewhere.push(ClaimRequest { work_types: vec![WorkType::WorkflowActionApply], ..only(head) });
    elsewhere.push(ClaimRequest { classes: QueueClasses::of(&[QueueClass::Bulk]), ..only(head) });
    elsewhere.push(ClaimRequest { pack: "gitlab".parse().unwrap(), ..only(head) });
    for request in elsewhere {
        assert!(claim(request.clone()).await.is_empty(), "{request:?}");
    }
    let item = claim(only(head)).await.pop().unwrap();
    assert_eq!((item.id, item.attempt), (head, 1));
    assert!(claim(only(head)).await.is_empty(), "it is leased");
    let run_after = fixture.now() + Duration::from_secs(5);
    fixture.finish(&item, Disposition::Retry { failure: failure(), run_after, leaves_lane: false }).await;
    assert!(claim(only(head)).await.is_empty(), "it is delayed");
    fixture.advance(Duration::from_secs(5));
    assert_eq!(ids(&claim(only(head)).await), [head]);
    fixture.advance(LEASE * 2);
    let taken_over = claim(ClaimRequest { stale_only: true, ..only(head) }).await.pop().unwrap();
    assert!(taken_over.reclaimed);
    assert_eq!(fixture.finish(&taken_over, done(vec![])).await, Finished::Applied);
    assert!(claim(only(head)).await.is_empty(), "it has ended");
    assert!(claim(only(WorkItemId::from_bytes([9; 16]))).await.is_empty(), "there is none");
    assert_eq!(ids(&claim(only(behind)).await), [behind]);
    fixture.assert_counted().await;
}

// CLM-3
#[tokio::test]
async fn heads_are_claimed_in_the_order_of_their_places() {
    let fixture = start().await;
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
    let fixture = start().await;
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
    let fixture = start().await;
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
    let fixture = start().await;
    let (_, delayed) = fixture.deliver("d-1", None).await;
    let item = fixture.claim(1).await.pop().unwrap();
    let run_after = fixture.now() + Duration::from_secs(5);
    fixture.finish(&item, Disposition::Retry { failure: failure(), run_after, leaves_lane: false }).await;
    fixture.advance(Duration::from_millis(4_999));
    assert!(fixture.claim(10).await.is_empty(), "it is not due");
    let (_, later) = fixture.deliver("d-2", None).await;
    assert_eq!(fixture.store.next_claimable_at(&pack(), fixture.now()).await.unwrap(), Some(run_after));
    fixture.advance(Duration::from_millis(1));
    assert_eq!(ids(&fixture.claim(10).await), [delayed, later]);
}

// CLM-5
#[tokio::test]
async fn a_stale_lease_is_reclaimed_and_the_loser_changes_nothing() {
    let fixture = start().await;
    let (_, id) = fixture.deliver("d-1", Some("repo")).await;
    fixture.deliver("d-2", Some("repo")).await;
    let loser = fixture.claim(1).await.pop().unwrap();
    assert_eq!(fixture.store.next_claimable_at(&pack(), START).await.unwrap(), Some(loser.lease_until));
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

// SCH-3
#[tokio::test]
async fn the_next_timer_is_looked_for_from_a_time_on() {
    let fixture = start().await;
    fixture.deliver("d-1", None).await;
    let abandoned = fixture.claim(1).await.pop().unwrap();
    fixture.advance(LEASE * 2);
    let mut delivery = fixture.delivery(vec![fixture.event("d-2", None, "body")]);
    delivery.generation = fixture.install(2).await.number;
    let mut newer = fixture.request(1);
    newer.generations = vec![delivery.generation];
    fixture.store.enqueue(delivery).await.unwrap();
    let held = fixture.store.claim(newer).await.unwrap().pop().unwrap();

    let next = async |from| fixture.store.next_claimable_at(&pack(), from).await.unwrap();
    assert_eq!(next(START).await, Some(abandoned.lease_until));
    assert_eq!(next(fixture.now()).await, Some(held.lease_until), "whoever could claim the overdue row has done so");
    assert_eq!(next(held.lease_until).await, Some(held.lease_until));
    assert_eq!(next(held.lease_until + Duration::from_millis(1)).await, None);
}

// PRS-1
#[tokio::test]
async fn stale_only_never_takes_a_fresh_row() {
    let fixture = start().await;
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
    let fixture = start().await;
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

// CLM-2: what decides stands on the WorkItem's row.
#[test]
fn no_statement_of_a_claim_reads_an_event() {
    let claiming = include_str!("../../work/claiming.rs");
    for table in ["event", "receipt"] {
        for read in [format!("FROM {table}"), format!("JOIN {table}"), format!("{table}.")] {
            assert!(!claiming.contains(&read), "{read}");
        }
    }
    assert!(claiming.contains("FROM work_item"), "it is the file with the statements");
}
