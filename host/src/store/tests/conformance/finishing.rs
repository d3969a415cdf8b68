//! Finishes: who counts, what becomes of the lane, what is emitted.

use super::*;

// CLM-5
#[tokio::test]
async fn a_finish_counts_once_and_for_its_owner() {
    let fixture = start().await;
    let (_, id) = fixture.deliver("d-1", None).await;
    let item = fixture.claim(1).await.pop().unwrap();

    let stranger = ClaimedWorkItem { lease: LeaseToken::new(START, [9; 10]), ..item.clone() };
    let older = ClaimedWorkItem { epoch: item.epoch - 1, ..item.clone() };
    for loser in [stranger, older] {
        assert_eq!(fixture.finish(&loser, done(vec![fixture.message("sink", START)])).await, Finished::LeaseLost);
    }
    assert_eq!(fixture.state(id).await, WorkState::Processing);
    assert_eq!(fixture.finish(&item, done(vec![])).await, Finished::Applied);
    assert_eq!(fixture.finish(&item, done(vec![])).await, Finished::LeaseLost);
    assert_eq!(fixture.state(id).await, WorkState::Done);
    assert_eq!(fixture.store.stats().await.unwrap().messages[&MessageState::Scheduled], 0);
}

// CLM-5
#[tokio::test]
async fn a_finish_whose_lease_ran_out_counts_until_somebody_reclaims() {
    let fixture = start().await;
    let (_, id) = fixture.deliver("d-1", None).await;
    let item = fixture.claim(1).await.pop().unwrap();
    fixture.advance(LEASE * 2);
    assert_eq!(fixture.finish(&item, done(vec![])).await, Finished::Applied);
    assert_eq!(fixture.state(id).await, WorkState::Done);
}

// CLM-3
#[tokio::test]
async fn a_lane_goes_on_head_by_head() {
    let fixture = start().await;
    let mut expected = Vec::new();
    for n in 0..5 {
        expected.push(fixture.deliver(&format!("d-{n}"), Some("repo")).await.1);
    }
    let mut order = Vec::new();
    for _ in 0..5 {
        let claimed = fixture.claim(10).await;
        assert_eq!(claimed.len(), 1, "only the head shows");
        order.push(claimed[0].id);
        fixture.finish(&claimed[0], done(vec![])).await;
    }
    assert_eq!(order, expected);
    assert!(fixture.claim(10).await.is_empty());
    // The lane is empty: the next one is its head at once.
    let (_, next) = fixture.deliver("d-5", Some("repo")).await;
    assert_eq!(fixture.state(next).await, WorkState::Ready);
}

// CLM-7
#[tokio::test]
async fn only_a_failure_spends_the_budget() {
    let fixture = start().await;
    let (_, id) = fixture.deliver("d-1", None).await;
    let item = fixture.claim(1).await.pop().unwrap();
    fixture.finish(&item, Disposition::Release).await;
    let released = fixture.store.work_item(id).await.unwrap().unwrap();
    assert_eq!((released.state, released.attempt, released.failures), (WorkState::Ready, 0, 0));

    let item = fixture.claim(1).await.pop().unwrap();
    assert_eq!((item.attempt, item.epoch), (1, 2), "the epoch does not go back");
    let run_after = fixture.now() + Duration::from_secs(5);
    fixture.finish(&item, Disposition::Retry { failure: failure(), run_after, leaves_lane: false }).await;
    let retrying = fixture.store.work_item(id).await.unwrap().unwrap();
    assert_eq!((retrying.state, retrying.attempt, retrying.failures), (WorkState::Delayed, 1, 1));
    assert_eq!((retrying.run_after, retrying.failure), (run_after, Some(failure())));

    fixture.advance(Duration::from_secs(5));
    let item = fixture.claim(1).await.pop().unwrap();
    assert_eq!((item.attempt, item.failures), (2, 1));
    fixture.finish(&item, Disposition::Dead { failure: failure(), leaves_lane: true }).await;
    let dead = fixture.store.work_item(id).await.unwrap().unwrap();
    assert_eq!((dead.state, dead.failures, dead.finished_at), (WorkState::Dead, 2, Some(fixture.now())));
}

// CLM-8
#[tokio::test]
async fn a_retrying_head_holds_its_lane_unless_it_leaves() {
    for leaves_lane in [false, true] {
        let fixture = start().await;
        let (_, head) = fixture.deliver("d-1", Some("repo")).await;
        let (_, next) = fixture.deliver("d-2", Some("repo")).await;
        let (_, last) = fixture.deliver("d-3", Some("repo")).await;
        let item = fixture.claim(1).await.pop().unwrap();
        let run_after = fixture.now() + Duration::from_secs(5);
        fixture.finish(&item, Disposition::Retry { failure: failure(), run_after, leaves_lane }).await;
        let claimed = fixture.claim(10).await;
        assert_eq!(ids(&claimed), if leaves_lane { vec![next] } else { vec![] });

        // Whoever left comes back on its own, and its end moves nobody.
        fixture.advance(Duration::from_secs(5));
        let back = fixture.claim(10).await;
        assert_eq!(ids(&back), [head]);
        fixture.finish(&back[0], done(vec![])).await;
        let (next_state, last_state) = (fixture.state(next).await, fixture.state(last).await);
        if leaves_lane {
            assert_eq!((next_state, last_state), (WorkState::Processing, WorkState::Blocked));
        } else {
            assert_eq!((next_state, last_state), (WorkState::Ready, WorkState::Blocked));
        }
    }
}

// CLM-8
#[tokio::test]
async fn a_dead_head_holds_its_lane_until_it_is_skipped() {
    let fixture = start().await;
    let (_, head) = fixture.deliver("d-1", Some("repo")).await;
    let (_, next) = fixture.deliver("d-2", Some("repo")).await;
    let item = fixture.claim(1).await.pop().unwrap();
    assert!(!fixture.store.skip_dead(head).await.unwrap(), "it is not dead");
    fixture.finish(&item, Disposition::Dead { failure: failure(), leaves_lane: false }).await;
    assert!(fixture.claim(10).await.is_empty());
    let (_, late) = fixture.deliver("d-3", Some("repo")).await;
    assert_eq!(fixture.state(late).await, WorkState::Blocked);

    assert!(fixture.store.skip_dead(head).await.unwrap());
    assert!(!fixture.store.skip_dead(head).await.unwrap(), "it is skipped already");
    assert_eq!(ids(&fixture.claim(10).await), [next]);
}

// CLM-8
#[tokio::test]
async fn a_dead_head_that_leaves_lets_its_lane_go_on() {
    let fixture = start().await;
    fixture.deliver("d-1", Some("repo")).await;
    let (_, next) = fixture.deliver("d-2", Some("repo")).await;
    let item = fixture.claim(1).await.pop().unwrap();
    fixture.finish(&item, Disposition::Dead { failure: failure(), leaves_lane: true }).await;
    assert_eq!(ids(&fixture.claim(10).await), [next]);
}

// GST-5: an execution that runs again emits the same messages, and each is stored once.
#[tokio::test]
async fn a_message_is_emitted_once() {
    let fixture = start().await;
    let message = fixture.message("sink", START);
    fixture.emit(vec![message.clone(), message.clone()]).await;
    fixture.emit(vec![message.clone(), fixture.message("sink", START)]).await;
    assert_eq!(fixture.store.stats().await.unwrap().messages[&MessageState::Scheduled], 2);
    fixture.store.assert_counted().await;

    let payloads = fixture.store.payloads(&[message.id]).await.unwrap();
    let [payload] = payloads.as_slice() else { panic!("{payloads:?}") };
    assert_eq!(payload.idempotency_key, message.id.to_string());
    assert_eq!((&payload.headers, &payload.body), (&message.headers, &message.body));
}

// CLM-6
#[tokio::test]
async fn a_renewal_says_which_rows_are_still_the_callers() {
    let fixture = start().await;
    for n in 0..3 {
        fixture.deliver(&format!("d-{n}"), None).await;
    }
    let items = fixture.claim(3).await;
    fixture.finish(&items[0], done(vec![])).await;
    let held = |item: &ClaimedWorkItem| (item.id, item.lease, item.epoch);
    let stranger = (items[2].id, LeaseToken::new(START, [9; 10]), items[2].epoch);
    fixture.advance(Duration::from_secs(20));
    let renewal =
        Renewal { rows: vec![held(&items[0]), held(&items[1]), stranger], lease_duration: LEASE, now: fixture.now() };
    assert_eq!(fixture.store.renew(renewal).await.unwrap(), [items[1].id]);

    // The one that was not renewed runs out, the other one does not.
    fixture.advance(Duration::from_secs(20));
    let stale = fixture.claim(10).await;
    assert_eq!(ids(&stale), [items[2].id]);
}
