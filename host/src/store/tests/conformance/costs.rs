//! What operations cost, counted: virtual machine steps of SQLite, rows that MariaDB's handlers read.

use super::*;

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
    let plain = start().await;
    fill(&plain, "head", 32, heads).await;
    let base = plain.claim_cost().await;

    let deep_lane = start().await;
    fill(&deep_lane, "head", 32, heads).await;
    fill(&deep_lane, "deep", BACKLOG, |_| Some("head-0".to_owned())).await;

    let many_lanes = start().await;
    fill(&many_lanes, "lane", BACKLOG, heads).await;

    let many_finished = start().await;
    fill(&many_finished, "finished", BACKLOG, |_| None).await;
    finish_all(&many_finished, done(vec![])).await;
    fill(&many_finished, "head", 32, heads).await;

    let many_delayed = start().await;
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
        let cost = fixture.claim_cost().await;
        assert!(cost * 10 <= base * 13, "{shape}: {cost} steps instead of {base}");
    }
}

/// [`fill`], with rows of one class and no order among them.
async fn fill_class(fixture: &Fixture, queue_class: QueueClass, rows: usize) {
    let event = |n| NewEvent { queue_class, ..fixture.event(&format!("{}-{n}", queue_class.as_str()), None, "{}") };
    for first in (0..rows).step_by(1_000) {
        let events = (first..(first + 1_000).min(rows)).map(event).collect();
        fixture.store.enqueue(fixture.delivery(events)).await.unwrap();
    }
}

// CLM-9, QCL-1
#[tokio::test]
async fn a_claim_of_a_class_does_not_pay_for_the_backlog_of_another() {
    const BACKLOG: usize = 10_000;
    let latency = QueueClasses::of(&[QueueClass::Interactive, QueueClass::Default]);
    let plain = start().await;
    fill_class(&plain, QueueClass::Interactive, 32).await;
    let base = plain.claim_cost_of(latency).await;

    let ready = start().await;
    fill_class(&ready, QueueClass::Bulk, BACKLOG).await;
    fill_class(&ready, QueueClass::Interactive, 32).await;

    // They are due, and only a claim of theirs makes them ready.
    let due = start().await;
    fill_class(&due, QueueClass::Bulk, BACKLOG).await;
    let run_after = due.now() + Duration::from_secs(1);
    finish_all(&due, Disposition::Retry { failure: failure(), run_after, leaves_lane: false }).await;
    due.advance(Duration::from_secs(2));
    fill_class(&due, QueueClass::Interactive, 32).await;

    for (shape, fixture) in [("ready", ready), ("due", due)] {
        let cost = fixture.claim_cost_of(latency).await;
        assert!(cost * 10 <= base * 13, "{shape}: {cost} steps instead of {base}");
    }
}
