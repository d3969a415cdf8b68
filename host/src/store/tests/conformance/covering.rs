//! Events that have no WorkItem: found, counted, repaired.

use super::*;
use crate::model::pack::Coalescing;

async fn gap(fixture: &Fixture) -> CoverageGap {
    coverage::gap(&mut Tampering::with(fixture).await.connection()).await.unwrap()
}

async fn repair(fixture: &Fixture) -> CoverageRepair {
    coverage::repair(&mut Tampering::with(fixture).await.connection(), &fixture.env, &no_rules).await.unwrap()
}

/// Events as a time left them that knew no WorkItems: `rows` of them, over three sources.
async fn uncovered(fixture: &Fixture, rows: usize) -> Vec<EventId> {
    let events = (0..rows).map(|n| fixture.event(&format!("d-{n}"), Some(&format!("repo-{}", n % 3)), "body"));
    let events: Vec<NewEvent> = events.collect();
    let ids = events.iter().map(|event| event.id).collect();
    fixture.enqueue(events).await;
    let mut tampering = Tampering::with(fixture).await;
    for table in ["work_item", "lane", "work_item_counter"] {
        tampering.execute(&format!("DELETE FROM {table}")).await;
    }
    tampering.close().await;
    ids
}

// RDY-3
#[tokio::test]
async fn events_without_a_work_item_are_counted_and_the_oldest_are_named() {
    let fixture = start().await;
    assert_eq!(gap(&fixture).await, CoverageGap::default());
    let ids = uncovered(&fixture, 50).await;
    fixture.deliver("covered", None).await;
    let found = gap(&fixture).await;
    assert_eq!((found.events, found.first.as_slice()), (50, &ids[..GAP_EVENTS_SHOWN_MAX]));
}

// RDY-3, MAT-6
#[tokio::test]
async fn a_repair_makes_the_work_items_that_are_missing_and_no_others() {
    let fixture = start().await;
    let ids = uncovered(&fixture, 1_200).await;
    let (_, covered) = fixture.deliver("covered", Some("repo-0")).await;
    assert_eq!(repair(&fixture).await, CoverageRepair { repaired: 1_200, left: 0 });
    assert_eq!(repair(&fixture).await, CoverageRepair::default(), "nothing is left to do");
    assert_eq!(gap(&fixture).await, CoverageGap::default());
    fixture.assert_counted().await;
    let stats = fixture.store.stats().await.unwrap();
    assert_eq!((stats.work_items[&WorkState::Ready], stats.work_items[&WorkState::Blocked]), (3, 1_198));

    // In the order of their delivery, behind what was there.
    assert_eq!(fixture.state(covered).await, WorkState::Ready);
    let heads = fixture.claim(10).await;
    let events: Vec<EventId> = heads.iter().map(|item| item.event_id).collect();
    assert!(events.contains(&ids[1]) && events.contains(&ids[2]), "{events:?}");
    let overtaken = "SELECT count(*) FROM work_item AS earlier JOIN work_item AS later \
                     ON later.source_lane_id = earlier.source_lane_id AND later.ordinal > earlier.ordinal \
                     AND later.lane_ordinal <= earlier.lane_ordinal";
    assert_eq!(
        Tampering::with(&fixture).await.count(overtaken).await,
        400,
        "only what was there is before all of its lane"
    );
}

// RDY-3, COA-1, COA-3: by the rules of the generation that admitted them.
#[tokio::test]
async fn a_repair_knows_projections_and_what_coalesces() {
    let fixture = start().await;
    let events = |route: &str| -> Vec<NewEvent> {
        (0..3).map(|n| fixture.event(&format!("{route}-{n}"), Some(route), "body")).collect()
    };
    for route in ["projected", "latest"] {
        let ordering = if route == "projected" { Ordering::None } else { Ordering::Source };
        let delivery = Delivery { route: route.parse().unwrap(), ordering, ..fixture.delivery(events(route)) };
        fixture.store.enqueue(delivery).await.unwrap();
    }
    let mut tampering = Tampering::with(&fixture).await;
    for table in ["work_item", "lane", "work_item_counter"] {
        tampering.execute(&format!("DELETE FROM {table}")).await;
    }
    let rules = |manifest: &str| {
        assert_eq!(manifest, "[pack]", "that of the generation");
        let bulk = |coalescing| RouteRules { coalescing, queue_class: QueueClass::Bulk };
        let rules = [("projected", Coalescing::SourceProjection), ("latest", Coalescing::LatestBySource)];
        rules.map(|(route, coalescing)| (route.parse().unwrap(), bulk(coalescing))).into()
    };
    let repaired = coverage::repair(&mut tampering.connection(), &fixture.env, &rules).await.unwrap();
    assert_eq!(repaired, CoverageRepair { repaired: 6, left: 0 });
    for (what, count) in [
        ("projection_key = 'projected' AND projection_active_key IS NOT NULL AND state = 1", 1),
        ("projection_key = 'projected' AND state = 4 AND ignored = 1", 1),
        ("projection_key = 'projected' AND state = 0", 1),
        ("coalesces = 'latest' AND state = 0", 2),
        ("queue_class = 2", 6),
    ] {
        let rows = tampering.count(&format!("SELECT count(*) FROM work_item WHERE {what}")).await;
        assert_eq!(rows, count, "{what}");
    }
    tampering.close().await;
    fixture.assert_counted().await;
}

// RDY-3
#[tokio::test]
async fn an_event_whose_generation_is_gone_is_left_and_stops_nobody() {
    let fixture = start().await;
    uncovered(&fixture, 2).await;
    let mut tampering = Tampering::with(&fixture).await;
    tampering.execute("UPDATE receipt SET generation = 99").await;
    fixture.deliver("d-9", Some("repo-0")).await;
    tampering.execute("DELETE FROM work_item").await;
    tampering.execute("DELETE FROM work_item_counter").await;
    assert_eq!(repair(&fixture).await, CoverageRepair { repaired: 1, left: 2 });
    assert_eq!(gap(&fixture).await.events, 2);
}
