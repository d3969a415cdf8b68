//! Two lanes at once: the lane of a source and the delivery lane of a route.

use super::*;

// CLM-3, COA-2: whatever their sources are.
#[tokio::test]
async fn a_delivery_lane_is_worked_off_one_at_a_time() {
    let fixture = start().await;
    let mut expected = Vec::new();
    for n in 0..5 {
        let source = format!("repo-{}", n % 3);
        let source = (n % 2 == 0).then_some(source.as_str());
        expected.push(fixture.deliver_strictly("strict", &format!("d-{n}"), source).await);
    }
    let claimed = fixture.claim(10).await;
    assert_eq!(ids(&claimed), expected[..1], "only the head shows");
    fixture.finish(&claimed[0], done(vec![])).await;
    assert_eq!(fixture.drain().await, expected[1..]);
    let next = fixture.deliver_strictly("strict", "d-5", Some("repo-0")).await;
    assert_eq!(fixture.state(next).await, WorkState::Ready, "all lanes are empty");
    fixture.assert_counted().await;
}

// CLM-3: each route has a delivery lane of its own, and shares the lanes of the sources.
#[tokio::test]
async fn an_item_waits_until_it_is_the_head_of_both_of_its_lanes() {
    let fixture = start().await;
    let (_, of_source) = fixture.deliver("d-1", Some("repo")).await;
    let of_route = fixture.deliver_strictly("strict", "d-2", None).await;
    let both = fixture.deliver_strictly("strict", "d-3", Some("repo")).await;
    let elsewhere = fixture.deliver_strictly("other", "d-4", Some("other-repo")).await;
    let claimed = fixture.claim(10).await;
    assert_eq!(ids(&claimed), [of_source, of_route, elsewhere]);

    // It becomes the head of one lane, then of the other, in either order.
    fixture.finish(&claimed[0], done(vec![])).await;
    assert_eq!(fixture.state(both).await, WorkState::Blocked);
    let late = fixture.deliver("d-5", Some("repo")).await.1;
    assert_eq!(fixture.state(late).await, WorkState::Blocked, "the head of its lane waits elsewhere");
    fixture.finish(&claimed[1], done(vec![])).await;
    assert_eq!(fixture.state(both).await, WorkState::Ready);
    assert_eq!(fixture.state(late).await, WorkState::Blocked);
    assert_eq!(fixture.drain().await, [both, late]);
    fixture.assert_counted().await;
}

// CLM-3: both lanes become free in one transaction.
#[tokio::test]
async fn both_heads_may_leave_at_once() {
    let fixture = start().await;
    let first = fixture.deliver_strictly("strict", "d-1", Some("repo")).await;
    let second = fixture.deliver_strictly("strict", "d-2", Some("repo")).await;
    let third = fixture.deliver_strictly("strict", "d-3", Some("repo")).await;
    assert_eq!(fixture.drain().await, [first, second, third]);

    let (_, one) = fixture.deliver("d-4", Some("repo")).await;
    let other = fixture.deliver_strictly("strict", "d-5", None).await;
    let both = fixture.deliver_strictly("strict", "d-6", Some("repo")).await;
    let claimed = fixture.claim(10).await;
    assert_eq!(ids(&claimed), [one, other]);
    let finishes = claimed.iter().map(|item| fixture.finish(item, done(vec![])));
    let finished = futures_util::future::join_all(finishes).await;
    assert_eq!(finished, [Finished::Applied, Finished::Applied]);
    assert_eq!(ids(&fixture.claim(10).await), [both]);
}

// CLM-8: the policy is about all lanes of the head.
#[tokio::test]
async fn a_failed_head_holds_both_of_its_lanes_or_neither() {
    for leaves_lane in [false, true] {
        let fixture = start().await;
        let head = fixture.deliver_strictly("strict", "d-1", Some("repo")).await;
        let of_route = fixture.deliver_strictly("strict", "d-2", None).await;
        let (_, of_source) = fixture.deliver("d-3", Some("repo")).await;
        let item = fixture.claim(1).await.pop().unwrap();
        let run_after = fixture.now() + Duration::from_secs(5);
        fixture.finish(&item, Disposition::Retry { failure: failure(), run_after, leaves_lane }).await;
        let claimed = fixture.claim(10).await;
        assert_eq!(ids(&claimed), if leaves_lane { vec![of_route, of_source] } else { vec![] });
        for item in &claimed {
            fixture.finish(item, done(vec![])).await;
        }
        fixture.advance(Duration::from_secs(5));
        let item = fixture.claim(10).await.pop().unwrap();
        assert_eq!(item.id, head);
        fixture.finish(&item, Disposition::Dead { failure: failure(), leaves_lane: false }).await;
        if !leaves_lane {
            assert!(fixture.claim(10).await.is_empty());
            assert!(fixture.store.skip_dead(head).await.unwrap());
            assert_eq!(fixture.drain().await, [of_route, of_source]);
        }
        assert!(!fixture.store.skip_dead(head).await.unwrap(), "it stands in no lane");
        fixture.assert_counted().await;
    }
}

// CLM-8, RPL-1: a replay stands where its parent stood, at the end.
#[tokio::test]
async fn a_replay_of_a_dead_head_waits_at_the_end_of_both_lanes() {
    let fixture = start().await;
    let head = fixture.deliver_strictly("strict", "d-1", Some("repo")).await;
    let of_route = fixture.deliver_strictly("strict", "d-2", None).await;
    let (_, of_source) = fixture.deliver("d-3", Some("repo")).await;
    fixture.end_next(Disposition::Dead { failure: failure(), leaves_lane: false }).await;
    assert!(fixture.claim(10).await.is_empty());
    let child = fixture.replay_first(head).await;
    let claimed = fixture.claim(10).await;
    assert_eq!(ids(&claimed), [of_route, of_source]);
    fixture.finish(&claimed[1], done(vec![])).await;
    assert_eq!(fixture.state(child).await, WorkState::Blocked);
    fixture.finish(&claimed[0], done(vec![])).await;
    assert_eq!(ids(&fixture.claim(10).await), [child]);
    fixture.assert_counted().await;
}

// CLM-5: what is given back, or taken over, stays the head.
#[tokio::test]
async fn a_head_that_changes_hands_keeps_its_place_in_both_lanes() {
    let fixture = start().await;
    let head = fixture.deliver_strictly("strict", "d-1", Some("repo")).await;
    let next = fixture.deliver_strictly("strict", "d-2", Some("repo")).await;
    let lost = fixture.claim(10).await.pop().unwrap();
    fixture.advance(LEASE + Duration::from_millis(1));
    let owner = fixture.claim(10).await;
    assert_eq!(ids(&owner), [head]);
    assert_eq!(fixture.finish(&lost, done(vec![])).await, Finished::LeaseLost);
    assert_eq!(fixture.state(next).await, WorkState::Blocked);
    fixture.finish(&owner[0], Disposition::Release).await;
    assert_eq!(fixture.drain().await, [head, next]);
}

// MAT-5, CLM-3: events of one delivery keep their order in the delivery lane.
#[tokio::test]
async fn events_of_one_delivery_stand_in_payload_order() {
    let fixture = start().await;
    let events: Vec<_> =
        (0..20).map(|n| fixture.event(&format!("d-{n}"), Some(&format!("repo-{}", n % 3)), "{}")).collect();
    let expected: Vec<_> = events.iter().map(|event| event.work_item_id).collect();
    let delivery = Delivery { ordering: Ordering::Delivery, ..fixture.delivery(events) };
    fixture.store.enqueue(delivery).await.unwrap();
    assert_eq!(fixture.drain().await, expected);
}
