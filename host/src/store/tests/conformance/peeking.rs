//! A look at who is next, and exact statistics: what they say is what a claim does.

use super::*;

// CLM-3, CLM-4, STA-1
#[tokio::test]
async fn a_look_shows_who_is_claimed_next_and_why_others_are_not() {
    let fixture = start().await;
    for (key, seconds) in [("due", 1), ("delayed", 3_600)] {
        fixture.deliver(key, None).await;
        let run_after = fixture.now() + Duration::from_secs(seconds);
        fixture.end_next(Disposition::Retry { failure: failure(), run_after, leaves_lane: false }).await;
    }
    fixture.deliver("stale", None).await;
    fixture.claim(1).await;
    fixture.advance(LEASE);
    fixture.deliver("head", Some("repo")).await;
    fixture.deliver("blocked", Some("repo")).await;
    fixture.advance(Duration::from_secs(2));
    let peeked = fixture.store.peek(&fixture.look()).await.unwrap();
    let claimable: Vec<WorkItemId> =
        peeked.next.iter().filter(|item| item.is_claimable()).map(|item| item.id).collect();
    let standings: Vec<&str> = peeked.next.iter().map(|item| item.standing.as_str()).collect();
    assert_eq!((standings, peeked.blocked), (vec!["stale", "due", "ready", "delayed"], 1));
    let exact = fixture.store.exact_stats(fixture.now()).await.unwrap();
    assert_eq!(exact.claimable.total(), claimable.len() as u64);
    assert_eq!(exact.rows, exact.counters);
    let claimed = fixture.claim(10).await;
    assert_eq!(ids(&claimed), claimable, "who was shown is who is claimed, in that order");
    let peeked = fixture.store.peek(&fixture.look()).await.unwrap();
    let standings: Vec<&str> = peeked.next.iter().map(|item| item.standing.as_str()).collect();
    assert_eq!(standings, ["delayed", "leased", "leased", "leased"]);
    let limited = fixture.store.peek(&PeekRequest { rows_max: 1, ..fixture.look() }).await.unwrap();
    assert_eq!(limited.next, peeked.next[..1]);
}

// CLM-4
#[tokio::test]
async fn a_look_does_not_see_work_of_other_types() {
    let fixture = start().await;
    fixture.deliver("other", None).await;
    let mut tampering = Tampering::with(&fixture).await;
    let other = "UPDATE work_item_counter SET work_type = 2";
    tampering.execute(other).await;
    tampering.close().await;
    let peeked = fixture.store.peek(&fixture.look()).await.unwrap();
    assert_eq!(peeked, Peeked { next: Vec::new(), blocked: 0 });
}

#[tokio::test]
async fn what_may_be_work_changes_a_queues_mark() {
    let fixture = start().await;
    let empty = fixture.store.queue_mark(&pack()).await.unwrap();
    assert_eq!(fixture.store.queue_mark(&pack()).await.unwrap(), empty);
    fixture.deliver("d-1", Some("repo")).await;
    let stored = fixture.store.queue_mark(&pack()).await.unwrap();
    assert_ne!(stored, empty);
    fixture.deliver("d-2", Some("repo")).await;
    let item = fixture.claim(1).await.pop().unwrap();
    let claimed = fixture.store.queue_mark(&pack()).await.unwrap();
    fixture.finish(&item, done(vec![])).await;
    assert_ne!(fixture.store.queue_mark(&pack()).await.unwrap(), claimed, "a successor became the head");
}
