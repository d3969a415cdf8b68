//! What operations cost, counted: virtual machine steps of SQLite, rows that MariaDB's handlers read.

use futures_util::future::join_all;

use super::backlog::Shape;
use super::measure::Costs;
use super::publishing::{acquire, admit, record, shard};
use super::*;
use crate::model::message::AfterAttempt;
use crate::model::retention::{DAY, Keep};

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
        assert!(join_all(finishes).await.iter().all(|finished| *finished == Finished::Applied));
    }
}

/// What each operation costs beside so many rows.
async fn costs_beside(shape: Shape, rows: u32) -> Costs {
    let fixture = start().await;
    fill(&fixture, "head", 32, |n| Some(format!("head-{n}"))).await;
    let line = (0..3).map(|n| NewEvent {
        queue_class: QueueClass::Interactive,
        ..fixture.event(&format!("line-{n}"), Some("line"), "{}")
    });
    fixture.enqueue(line.collect()).await;
    let mut tampering = Tampering::with(&fixture).await;
    tampering.add_backlog(shape, rows).await;
    tampering.close().await;
    if rows == FEW {
        fixture.assert_counted().await;
    }
    let costs = fixture.costs().await;
    fixture.store.close().await;
    costs
}

const FEW: u32 = 1_000;
const MANY: u32 = 200_000;

// CLM-9
#[tokio::test]
async fn no_operation_costs_more_beside_a_large_backlog() {
    let measured = Shape::ALL.map(async |shape| {
        let few = costs_beside(shape, FEW).await;
        (shape, few, costs_beside(shape, MANY).await)
    });
    for (shape, few, many) in join_all(measured).await {
        for ((operation, few), (_, many)) in few.named().into_iter().zip(many.named()) {
            assert!(
                many * 20 <= few * 21,
                "{shape:?}: a {operation} costs {many} beside {MANY} rows and {few} beside {FEW}"
            );
        }
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

/// What a page of each kind costs beside so many rows that ended a while ago, and may not go yet.
async fn retention_costs_beside(rows: u32) -> [[u64; 2]; 2] {
    let fixture = start().await;
    let lease = acquire(&fixture, shard(&fixture)).await;
    for _ in 0..32 {
        let id = fixture.emit(vec![fixture.message("sink", START)]).await[0];
        admit(&fixture, lease, id, 1).await;
        assert!(record(&fixture, lease, id, 1, AfterAttempt::Published).await);
        fixture.deliver(&format!("alone-{id}"), None).await;
        fixture.drain().await;
    }
    let mut tampering = Tampering::with(&fixture).await;
    tampering.add_backlog(Shape::ManyFinished, rows).await;
    tampering.end_backlog(rows, START + 20 * DAY).await;
    tampering.close().await;
    fixture.emit(vec![fixture.message("sink", START)]).await;
    fixture.advance(31 * DAY);
    let keep = Keep::of_days(30, 30, None);
    let costs = [Shelf::Messages, Shelf::Events];
    let costs = [fixture.retention_costs(costs[0], &keep).await, fixture.retention_costs(costs[1], &keep).await];
    fixture.store.close().await;
    costs
}

// RET-5: looking for what may go, and removing it, read what they are about.
#[tokio::test]
async fn retention_costs_no_more_beside_a_large_store() {
    let (few, many) = (retention_costs_beside(FEW).await, retention_costs_beside(MANY / 4).await);
    for (few, many) in few.into_iter().flatten().zip(many.into_iter().flatten()) {
        assert!(many * 20 <= few * 23, "{many:?} beside many rows, {few:?} beside few");
    }
}
