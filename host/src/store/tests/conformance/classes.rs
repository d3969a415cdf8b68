//! Queue classes: who sees what, and what comes first.

use super::*;

async fn deliver(fixture: &Fixture, key: &str, source: Option<&str>, queue_class: QueueClass) -> WorkItemId {
    let event = NewEvent { queue_class, ..fixture.event(key, source, key) };
    let id = event.work_item_id;
    fixture.enqueue(vec![event]).await;
    fixture.advance(Duration::from_millis(1));
    id
}

async fn claim(
    fixture: &Fixture,
    rows_max: u32,
    classes: &[QueueClass],
    preference: &[QueueClass],
) -> Vec<ClaimedWorkItem> {
    let (classes, preference) = (QueueClasses::of(classes), QueueClasses::of(preference));
    let request = ClaimRequest { classes, preference, ..fixture.request(rows_max) };
    fixture.store.claim(request).await.unwrap()
}

const ALL: &[QueueClass] = &QueueClass::ALL;
const BULK: &[QueueClass] = &[QueueClass::Bulk];
const LATENCY: &[QueueClass] = &[QueueClass::Interactive, QueueClass::Default];

// QCL-1
#[tokio::test]
async fn other_classes_are_invisible_fresh_delayed_and_stale() {
    let fixture = start().await;
    let bulk = deliver(&fixture, "d-1", None, QueueClass::Bulk).await;
    let usual = deliver(&fixture, "d-2", None, QueueClass::Default).await;
    let urgent = deliver(&fixture, "d-3", None, QueueClass::Interactive).await;
    assert!(claim(&fixture, 10, &[], BULK).await.is_empty());
    assert_eq!(ids(&claim(&fixture, 10, LATENCY, &[]).await), [usual, urgent]);
    let held = claim(&fixture, 10, BULK, &[]).await;
    assert_eq!(ids(&held), [bulk]);

    let run_after = fixture.now() + Duration::from_secs(1);
    fixture.finish(&held[0], Disposition::Retry { failure: failure(), run_after, leaves_lane: false }).await;
    fixture.advance(Duration::from_secs(1));
    assert!(claim(&fixture, 10, LATENCY, &[]).await.is_empty());
    assert_eq!(ids(&claim(&fixture, 10, BULK, &[]).await), [bulk]);

    fixture.advance(LEASE * 2);
    assert_eq!(ids(&claim(&fixture, 10, BULK, &[]).await), [bulk]);
    assert_eq!(ids(&claim(&fixture, 10, LATENCY, &[]).await), [usual, urgent]);
}

// QCL-2, CLM-3
#[tokio::test]
async fn preferred_heads_come_first_and_each_tier_is_in_order() {
    let fixture = start().await;
    let mut usual = Vec::new();
    let mut bulk = Vec::new();
    for n in 0..4 {
        usual.push(deliver(&fixture, &format!("u-{n}"), None, QueueClass::Default).await);
        bulk.push(deliver(&fixture, &format!("b-{n}"), None, QueueClass::Bulk).await);
    }
    assert_eq!(ids(&claim(&fixture, 2, ALL, BULK).await), bulk[..2]);
    assert_eq!(ids(&claim(&fixture, 4, ALL, BULK).await), [bulk[2], bulk[3], usual[0], usual[1]]);
    assert_eq!(ids(&claim(&fixture, 4, ALL, BULK).await), usual[2..], "it borrows what is not preferred");
}

// QCL-3
#[tokio::test]
async fn a_preferred_row_does_not_pass_its_lane() {
    let fixture = start().await;
    let head = deliver(&fixture, "d-1", Some("repo"), QueueClass::Default).await;
    let preferred = deliver(&fixture, "d-2", Some("repo"), QueueClass::Bulk).await;
    let other = deliver(&fixture, "d-3", Some("other"), QueueClass::Default).await;
    assert!(claim(&fixture, 10, BULK, BULK).await.is_empty(), "it waits behind a head that is not served here");
    let claimed = claim(&fixture, 10, ALL, BULK).await;
    assert_eq!(ids(&claimed), [head, other]);
    fixture.finish(&claimed[0], done(vec![])).await;
    assert_eq!(ids(&claim(&fixture, 10, ALL, BULK).await), [preferred]);
}

// QCL-4
#[tokio::test]
async fn without_a_preference_the_order_is_the_plain_one_whatever_the_class() {
    let fixture = start().await;
    let classes = [QueueClass::Bulk, QueueClass::Interactive, QueueClass::Default, QueueClass::Bulk];
    let mut expected = Vec::new();
    for (n, class) in classes.into_iter().enumerate() {
        expected.push(deliver(&fixture, &format!("d-{n}"), None, class).await);
    }
    assert_eq!(ids(&claim(&fixture, 10, ALL, &[]).await), expected);
}

// QCL-4, QCL-1
#[tokio::test]
async fn a_stale_reclaim_has_no_preference() {
    let fixture = start().await;
    let usual = deliver(&fixture, "d-1", None, QueueClass::Default).await;
    claim(&fixture, 1, ALL, &[]).await;
    fixture.advance(Duration::from_millis(1));
    let bulk = deliver(&fixture, "d-2", None, QueueClass::Bulk).await;
    claim(&fixture, 1, ALL, &[]).await;
    let fresh = deliver(&fixture, "d-3", None, QueueClass::Bulk).await;
    fixture.advance(LEASE * 2);
    assert_eq!(ids(&claim(&fixture, 1, ALL, BULK).await), [usual], "the lease that ran out first");
    assert_eq!(ids(&claim(&fixture, 10, ALL, BULK).await), [bulk, fresh], "and stale rows before fresh ones");
}

// PRS-2, PRS-3
#[tokio::test]
async fn rows_in_work_are_counted_until_they_end() {
    let fixture = start().await;
    let count = async || {
        let ProcessingRows { rows, stale } = fixture.store.processing_rows(&pack(), fixture.now()).await.unwrap();
        (rows, stale)
    };
    assert_eq!(count().await, (0, 0));
    for n in 0..3 {
        deliver(&fixture, &format!("d-{n}"), None, QueueClass::ALL[n]).await;
    }
    let claimed = fixture.claim(2).await;
    assert_eq!(count().await, (2, 0));
    fixture.advance(LEASE * 2);
    assert_eq!(count().await, (2, 2), "a stale row is still somebody's");
    assert_eq!(fixture.claim(10).await.len(), 3);
    assert_eq!(count().await, (3, 0));
    assert_eq!(fixture.finish(&claimed[0], done(vec![])).await, Finished::LeaseLost);
    let other = fixture.store.processing_rows(&"gitlab".parse().unwrap(), fixture.now()).await.unwrap();
    assert_eq!((other.rows, other.stale), (0, 0));
}
