//! In which order a transaction holds lanes, on a server: two transactions that hold them in different orders deadlock.

use super::shared::begin;
use super::*;
use crate::model::pack::Coalescing;
use crate::store::engine::codes::sql;
use crate::store::engine::dialect::is_conflict;
use crate::store::engine::sequences::Sequences;
use crate::store::work::finalize;
use crate::store::writer::unit::{Terms, Unit};

const OF_A_ROUTE: &str = sql!("SELECT id FROM lane WHERE kind = {delivery_lane}");
const OF_A_SOURCE: &str = sql!("SELECT id FROM lane WHERE kind = {source_lane}");

/// A finish that may have a successor.
fn handing_over(fixture: &Fixture, item: &ClaimedWorkItem) -> Finish {
    let lease = LeaseToken::new(fixture.now(), fixture.entropy());
    let successor = Some(Successor { lease, lease_duration: LEASE });
    Finish { successor, ..fixture.ending(item, done(vec![])) }
}

#[tokio::test]
async fn finishes_hold_lanes_of_routes_before_those_of_sources() {
    let fixture = begin(LeaseTime::Runtime).await;
    let coalescing = |key: &str| Delivery {
        coalescing: Coalescing::LatestBySource,
        ..fixture.delivery(vec![fixture.event(key, Some("repo"), key)])
    };
    fixture.deliver_strictly("strict", "s-1", None).await;
    fixture.store.enqueue(coalescing("c-1")).await.unwrap();
    let items = fixture.claim(2).await;
    fixture.store.enqueue(coalescing("c-2")).await.unwrap();
    let mut others = Tampering::with(&fixture).await;
    let (route, source) = (others.count(OF_A_ROUTE).await, others.count(OF_A_SOURCE).await);

    others.connection().begin().await.unwrap();
    others.count(&format!("SELECT id FROM lane WHERE id = {route} FOR UPDATE")).await;
    let mut finisher = Tampering::with(&fixture).await;
    finisher.execute("SET SESSION innodb_lock_wait_timeout = 1").await;
    let mut connection = finisher.connection();
    connection.begin().await.unwrap();
    let terms = Terms { shard_count: 2, stripe: 0, database_now: None };
    let mut unit = Unit::new(connection, Sequences::default(), terms, 0);
    let finishes = items.iter().map(|item| handing_over(&fixture, item)).collect();
    // Its statement ends by the timeout; what its transaction held before that, it still holds.
    let late = finalize::finish(&mut unit, finishes).await.err().expect("the lane of the route is held");
    assert!(is_conflict(&late), "{late}");

    // It has no lane of a source while it waits for one of a route.
    others.count(&format!("SELECT id FROM lane WHERE id = {source} FOR UPDATE NOWAIT")).await;
    assert_eq!(items.len(), 2);
    unit.connection.rollback().await.unwrap();
    others.let_go().await;
}
