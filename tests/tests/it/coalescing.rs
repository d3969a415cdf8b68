//! Routes whose events make one another superfluous: with the latest of a source, and with the projection of a source.

use std::collections::BTreeMap;

use forebay_tests::wait;
use forebay_tests::world::{World, event_ids, signed};
use http::StatusCode;
use serde_json::{Value, json};

fn note(id: &str, source: &str) -> Value {
    json!({ "id": id, "source": source, "do": "note", "text": id })
}

/// Delivers many events in one request: what is behind the first waits before anybody is claimed. Returns the events.
async fn burst(world: &World, route: &str, events: &[Value]) -> anyhow::Result<Vec<String>> {
    let body = json!({ "events": events }).to_string();
    let answer = world.deliver_to(route, &signed("ignored", route, body)).await?;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{:?}", answer.body);
    event_ids(&answer)
}

/// The one work item of an event.
async fn work_item(world: &World, event: &str) -> anyhow::Result<Value> {
    let detail = world.admin().event(event).await?;
    assert_eq!(detail["work_items"].as_array().map(Vec::len), Some(1), "{detail}");
    Ok(detail["work_items"][0].clone())
}

/// Executed, with its own note.
fn assert_executed(item: &Value, text: &str) {
    let seen = (item["state"].as_str(), item["ignored"].as_bool(), item["attempt"].as_u64(), item["note"].as_str());
    assert_eq!(seen, (Some("done"), Some(false), Some(1), Some(text)), "{item}");
}

/// Never executed, because of another one.
fn assert_superseded(item: &Value, by: &Value) {
    let note = format!("superseded by {}", by["id"].as_str().unwrap_or_default());
    let seen = (item["state"].as_str(), item["ignored"].as_bool(), item["attempt"].as_u64(), item["note"].as_str());
    assert_eq!(seen, (Some("done"), Some(true), Some(0), Some(note.as_str())), "{item}");
}

/// A burst on two sources: of each, the first and the latest are executed, and those between name the latest.
async fn assert_coalesces(route: &str) -> anyhow::Result<()> {
    let mut world = World::start(&["hostile"]).await?;
    let sources = |n: usize| if n % 4 == 3 { "s-2" } else { "s-1" };
    let ids: Vec<String> = (0..40).map(|n| format!("e-{n}")).collect();
    let notes: Vec<Value> = ids.iter().enumerate().map(|(n, id)| note(id, sources(n))).collect();
    let events = burst(&world, route, &notes).await?;
    world.settle().await?;
    let mut lines: BTreeMap<&str, Vec<(Value, &String)>> = BTreeMap::new();
    for (n, event) in events.iter().enumerate() {
        lines.entry(sources(n)).or_default().push((work_item(&world, event).await?, &ids[n]));
    }
    for (source, line) in &lines {
        let [(first, first_text), between @ .., (latest, latest_text)] = line.as_slice() else { panic!("{source}") };
        assert!(between.len() >= 8, "{source}: {}", between.len());
        assert_executed(first, first_text);
        assert_executed(latest, latest_text);
        between.iter().for_each(|(item, _)| assert_superseded(item, latest));
    }
    assert_eq!(world.admin().metric("forebay_lane_repairs_total").await?, Some(0.0));
    // What was superseded is not lost: it can be run for itself.
    let superseded = lines["s-1"][1].0["id"].as_str().unwrap_or_default().to_owned();
    let answer = world.admin().post(&format!("/api/v1/work-items/{superseded}/replay"), json!({})).await?;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    world.settle().await?;
    let replay = answer.json()?["work_item"]["id"].as_str().unwrap_or_default().to_owned();
    let replay = world.admin().get(&format!("/api/v1/work-items/{replay}")).await?;
    assert_executed(&replay, lines["s-1"][1].1);
    assert!(world.stop().await?.success());
    Ok(())
}

// COA-1, COA-2
#[tokio::test(flavor = "multi_thread")]
async fn of_a_burst_the_latest_of_each_source_is_executed_and_those_between_name_it() -> anyhow::Result<()> {
    assert_coalesces("latest").await
}

// COA-3
#[tokio::test(flavor = "multi_thread")]
async fn of_a_burst_the_last_generation_of_each_projection_follows_the_first() -> anyhow::Result<()> {
    assert_coalesces("projection").await
}

// COA-3, CLM-5: a host that is killed while a generation is tried again finds projection and successor as they were.
#[tokio::test(flavor = "multi_thread")]
async fn a_queued_generation_outlives_the_host_and_follows_the_end_of_the_active_one() -> anyhow::Result<()> {
    let mut world = World::start(&["hostile"]).await?;
    let retry = json!({ "id": "active", "source": "s-1", "do": "retry", "delay_ms": 200, "reason": "not yet" });
    let events = burst(&world, "projection", &[retry, note("between", "s-1"), note("last", "s-1")]).await?;
    let failed_once = async || work_item(&world, &events[0]).await;
    wait::until("the active generation failed", failed_once, |item| item["failures"].as_u64() > Some(0)).await?;
    world.kill().await?;
    world.restart().await?;
    world.settle().await?;
    let [active, between, last] = [0, 1, 2].map(|n| work_item(&world, &events[n]));
    let (active, between, last) = (active.await?, between.await?, last.await?);
    assert_eq!((active["state"].as_str(), active["projection"].as_str()), (Some("dead"), Some("ended")), "{active}");
    assert_superseded(&between, &last);
    assert_executed(&last, "last");
    assert!(last["finished_at"].as_str() >= active["finished_at"].as_str(), "{active} {last}");
    assert_eq!(world.admin().metric("forebay_lane_repairs_total").await?, Some(0.0));
    assert!(world.stop().await?.success());
    Ok(())
}
