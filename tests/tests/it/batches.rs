//! Requests that carry many events, on a route that works them off strictly one after another.

use forebay_tests::world::{World, event_ids, signed};
use http::StatusCode;
use serde_json::{Value, json};

fn batch(events: &[Value]) -> String {
    json!({ "events": events }).to_string()
}

fn note(id: &str, source: usize) -> Value {
    json!({ "id": id, "source": format!("s-{source}"), "do": "note", "text": id })
}

/// The one work item of an event.
async fn work_item(world: &World, event: &str) -> anyhow::Result<Value> {
    let detail = world.admin().event(event).await?;
    Ok(detail["work_items"][0].clone())
}

async fn assert_no_repairs(world: &World) -> anyhow::Result<()> {
    assert_eq!(world.admin().metric("forebay_lane_repairs_total").await?, Some(0.0));
    Ok(())
}

// ADM-6, CLM-3, COA-2
#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_many_requests_are_worked_off_in_the_order_of_their_arrival() -> anyhow::Result<()> {
    let mut world = World::start(&["hostile"]).await?;
    let mut events = Vec::new();
    for request in 0..4 {
        let notes: Vec<Value> = (0..10).map(|n| note(&format!("e-{request}-{n}"), n % 3)).collect();
        let answer = world.deliver_to("batch", &signed("ignored", "batch", batch(&notes))).await?;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{:?}", answer.body);
        let ids = event_ids(&answer)?;
        assert_eq!(ids.len(), 10, "the answer names every event");
        events.extend(ids);
        if request == 1 {
            // What stands in the lanes outlasts the host.
            world.kill().await?;
            world.restart().await?;
        }
    }
    world.settle().await?;
    let mut ends = Vec::new();
    for event in &events {
        let item = work_item(&world, event).await?;
        assert_eq!(item["state"], "done", "{item}");
        ends.push(item["finished_at"].as_str().map(str::to_owned));
    }
    // RFC 3339 in UTC sorts as text.
    assert!(ends.is_sorted(), "not in the order of arrival: {ends:?}");
    assert_no_repairs(&world).await?;
    assert!(world.stop().await?.success());
    Ok(())
}

// ADM-6, CLM-8
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_event_among_good_ones_dies_alone_and_a_bad_request_leaves_nothing() -> anyhow::Result<()> {
    let mut world = World::start(&["hostile"]).await?;
    let bad = json!({ "id": "bad", "source": "s-1", "do": "reject", "reason": "no" });
    let body = batch(&[note("good", 1), bad, note("after", 1)]);
    let answer = world.deliver_to("batch", &signed("ignored", "batch", body)).await?;
    let ids = event_ids(&answer)?;
    world.settle().await?;
    for (id, state) in ids.iter().zip(["done", "dead", "done"]) {
        assert_eq!(work_item(&world, id).await?["state"], state);
    }
    let too_many: Vec<Value> = (0..51).map(|n| note(&format!("many-{n}"), n)).collect();
    let refused = world.deliver_to("batch", &signed("ignored", "batch", batch(&too_many))).await?;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE, "{:?}", refused.body);
    let keyless = batch(&[note("new", 1), json!({ "do": "note", "text": "no id" })]);
    let refused = world.deliver_to("batch", &signed("ignored", "batch", keyless)).await?;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{:?}", refused.body);
    assert_eq!(world.admin().events().await?.len(), 3);
    assert_no_repairs(&world).await?;
    assert!(world.stop().await?.success());
    Ok(())
}
