//! Actions: what a flow asks of itself for later comes due on the timeline, and is applied by the guest, once.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::env;
use forebay_tests::wait;
use forebay_tests::world::{World, event_ids, signed};
use http::StatusCode;
use serde_json::{Value, json};

/// Delivers to the pack `hello`, and returns the event.
async fn remind(world: &World, subject: &str, after_ms: u64) -> anyhow::Result<String> {
    let wish = json!({ "kind": "reminder", "subject": subject, "after_ms": after_ms });
    accepted(world, "hello", wish).await
}

async fn accepted(world: &World, route: &str, body: Value) -> anyhow::Result<String> {
    let answer = world.deliver_to(route, &signed("", "deed", body.to_string())).await?;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{:?}", answer.body);
    Ok(event_ids(&answer)?.remove(0))
}

/// The WorkItems of an event that apply actions.
fn applied(detail: &Value) -> Vec<&Value> {
    let items = detail["work_items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter(|item| item["work_type"] == "workflow_action_apply").collect()
}

async fn cancel(world: &World, message: &Value) -> anyhow::Result<StatusCode> {
    let id = message["id"].as_str().unwrap_or_default();
    Ok(world.admin().post(&format!("/api/v1/messages/{id}/cancel"), json!({})).await?.status)
}

// TL-4, TL-5, CLM-4
#[tokio::test(flavor = "multi_thread")]
async fn an_action_is_applied_when_it_is_due_unless_it_was_cancelled_before() -> anyhow::Result<()> {
    const HOUR_MS: u64 = 3_600_000;
    let mut world = World::start(&["hello"]).await?;
    let now = remind(&world, "now", 0).await?;
    let (cancelled, moved) = (remind(&world, "never", HOUR_MS).await?, remind(&world, "sooner", HOUR_MS).await?);
    world.settle().await?;
    let detail = world.admin().event(&now).await?;
    let message = &detail["messages"][0];
    assert_eq!((&message["adapter"], &message["destination"]), (&json!("flow"), &json!("flow:hello")), "{detail}");
    assert_eq!(message["state"], "handed_off", "{detail}");
    let [item] = &applied(&detail)[..] else { panic!("{detail}") };
    assert_eq!((&item["state"], &item["note"]), (&json!("done"), &json!("hello again, now")), "{detail}");
    assert_eq!(item["action"], message["id"], "{detail}");
    assert_eq!(cancel(&world, message).await?, StatusCode::CONFLICT, "too late");

    for event in [&cancelled, &moved] {
        let detail = world.admin().event(event).await?;
        assert_eq!((&detail["messages"][0]["state"], applied(&detail).len()), (&json!("scheduled"), 0), "{detail}");
    }
    let message = world.admin().event(&cancelled).await?["messages"][0].clone();
    assert_eq!(cancel(&world, &message).await?, StatusCode::OK);
    let message = world.admin().event(&moved).await?["messages"][0].clone();
    let path = format!("/api/v1/messages/{}/reschedule", message["id"].as_str().unwrap_or_default());
    assert_eq!(world.admin().post(&path, json!({ "delay_ms": 0 })).await?.status, StatusCode::OK);
    let is_applied = |detail: &Value| applied(detail).first().is_some_and(|item| item["state"] == "done");
    wait::until("the action is applied", async || world.admin().event(&moved).await, is_applied).await?;
    world.settle().await?;
    let detail = world.admin().event(&cancelled).await?;
    assert_eq!((&detail["messages"][0]["state"], applied(&detail).len()), (&json!("cancelled"), 0), "{detail}");
    assert!(world.stop().await?.success());
    Ok(())
}

// CLM-7, RPL-1
#[tokio::test(flavor = "multi_thread")]
async fn an_action_that_fails_is_tried_again_and_ends_dead_where_an_operator_finds_it() -> anyhow::Result<()> {
    let mut world = World::start(&["hostile"]).await?;
    let retried = json!({ "do": "act", "deed": { "do": "until", "attempt": 3 } });
    let retried = accepted(&world, "hostile", retried).await?;
    let rejected = json!({ "do": "act", "deed": { "do": "reject", "reason": "not for me" } });
    let rejected = accepted(&world, "hostile", rejected).await?;
    let emits = json!({ "do": "act", "deed": { "do": "emit", "count": 2, "destination": "sink" } });
    let emits = accepted(&world, "hostile", emits).await?;
    let keyed = json!({ "do": "act", "key": "the-same", "after_ms": 0 });
    let keyed = [accepted(&world, "hostile", keyed.clone()).await?, accepted(&world, "hostile", keyed).await?];
    world.settle().await?;
    let detail = world.admin().event(&retried).await?;
    let [item] = &applied(&detail)[..] else { panic!("{detail}") };
    assert_eq!((&item["state"], &item["note"]), (&json!("done"), &json!("attempt 3")), "{detail}");
    let detail = world.admin().event(&emits).await?;
    let states: Vec<_> = detail["messages"].as_array().into_iter().flatten().map(|message| &message["state"]).collect();
    assert_eq!(states, ["handed_off", "published", "published"], "{detail}");
    let mut of_key = 0;
    for event in &keyed {
        of_key += applied(&world.admin().event(event).await?).len();
    }
    assert_eq!(of_key, 1, "a second action with the same key is not stored");

    let dead = world.admin().get("/api/v1/events?state=dead").await?;
    assert_eq!(dead["items"][0]["id"], json!(rejected), "{dead}");
    let detail = world.admin().event(&rejected).await?;
    let [item] = &applied(&detail)[..] else { panic!("{detail}") };
    assert_eq!((&item["state"], &item["failure"]["class"]), (&json!("dead"), &json!("rejected")), "{detail}");
    let path = format!("/api/v1/work-items/{}/replay", item["id"].as_str().unwrap_or_default());
    assert_eq!(world.admin().post(&path, json!({})).await?.status, StatusCode::OK);
    world.settle().await?;
    assert_eq!(applied(&world.admin().event(&rejected).await?).len(), 2);
    assert!(world.stop().await?.success());
    Ok(())
}

/// How often the host is killed, and how long it lives each time.
const KILLS: u32 = 6;
const LIFE: Duration = Duration::from_millis(300);
/// Actions of each life.
const ACTIONS: u64 = 40;

// TL-2, TL-4, TL-6
#[tokio::test(flavor = "multi_thread")]
async fn every_action_is_one_work_item_over_many_kills() -> anyhow::Result<()> {
    let mut world = World::start(&["hello"]).await?;
    let mut events = Vec::new();
    for kill in 0..KILLS {
        for number in 0..ACTIONS {
            events.push(remind(&world, &format!("{kill}-{number}"), number * 20).await?);
        }
        // The point of this wait is that it means nothing: the host dies wherever it happens to be.
        env::sleep(LIFE).await;
        world.kill().await?;
        world.restart().await?;
    }
    world.settle_to_the_last().await?;
    for event in &events {
        let detail = world.admin().event(event).await?;
        assert_eq!(detail["messages"][0]["state"], "handed_off", "{detail}");
        let states: BTreeMap<_, _> = applied(&detail).iter().map(|item| (&item["id"], &item["state"])).collect();
        let states: Vec<_> = states.values().collect();
        assert_eq!(states, [&json!("done")].iter().collect::<Vec<_>>(), "{detail}");
    }
    assert!(world.stop().await?.success());
    Ok(())
}
