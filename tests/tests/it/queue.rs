//! The queue under an operator's hands: what runs next, and what a backlog does to the scheduler: nothing.

use std::process::Command;

use forebay_tests::world::{World, event_ids, signed};
use forebay_tests::{paths, wait};
use serde_json::{Value, json};

/// A host of which one setting is otherwise than the suites have it.
async fn start((usual, other): (&str, &str)) -> anyhow::Result<World> {
    let mut world = World::prepare(&["hostile"], "").await?;
    let settings = std::fs::read_to_string(&world.site.host.config)?;
    assert!(settings.contains(usual), "{settings}");
    std::fs::write(&world.site.host.config, settings.replace(usual, other))?;
    world.restart().await?;
    Ok(world)
}

/// `forebay event run`: its exit code, and what it printed.
fn run(world: &World, event: &str) -> (Option<i32>, Value, String) {
    let mut command = Command::new(paths::binary());
    command.args(["event", "run", event, "--json"]);
    command.env("FOREBAY_ADMIN_URL", format!("http://{}", world.site.host.admin));
    let output = command.output().expect("the binary can be started");
    let printed = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), printed, String::from_utf8_lossy(&output.stderr).into_owned())
}

async fn deliver(world: &World, route: &str, body: &Value) -> anyhow::Result<String> {
    let id = body["id"].as_str().unwrap_or("unnamed");
    let answer = world.deliver_to(route, &signed(id, route, body.to_string())).await?;
    Ok(event_ids(&answer)?.remove(0))
}

async fn work_item(world: &World, event: &str) -> anyhow::Result<Value> {
    Ok(world.admin().event(event).await?["work_items"][0].clone())
}

// CLM-1: it is next, and passes nothing but those who are not.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_an_operator_wants_is_run_before_those_that_came_before_it() -> anyhow::Result<()> {
    const EVENTS: usize = 60;
    let mut world = start(("lease_seconds = 7", "lease_seconds = 7\nworkers_per_pack = 1")).await?;
    let mut events = Vec::new();
    for n in 0..EVENTS {
        // Each takes its whole fuel, and is over then: it is tried again later, behind the others.
        let body = json!({ "id": format!("e-{n}"), "do": "loop" });
        events.push(deliver(&world, "hostile", &body).await?);
    }
    let wanted = json!({ "id": "wanted", "do": "note", "text": "wanted" });
    let wanted = deliver(&world, "hostile", &wanted).await?;
    let before = world.admin().stats().await?["work_items"]["ready"].as_u64();
    let (code, item, said) = run(&world, &wanted);
    assert_eq!(code, Some(0), "{item} {said}");
    let done = async || work_item(&world, &wanted).await;
    wait::until("it is done", done, |item| item["state"] == "done").await?;
    let untouched = work_item(&world, &events[EVENTS - 1]).await?;
    assert_eq!(untouched["attempt"], 0, "it passed those that came before it: {untouched}; {before:?} were ready");
    let (code, _, said) = run(&world, &wanted);
    assert!(code == Some(4) && said.contains("forebay event replay"), "{code:?} {said}");
    world.kill().await?;
    Ok(())
}

// CLM-1, CLM-3, SCH-3: what waits for its lane or its time is said to, and no backlog of such rows rebuilds a
// scheduler.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_and_delayed_backlog_is_passed_by_nobody_and_rebuilds_no_scheduler() -> anyhow::Result<()> {
    let patient = "retry_initial_ms = 600_000\nretry_max_ms = 600_000\nfailures_max";
    let mut world = start(("retry_initial_ms = 50\nretry_max_ms = 200\nfailures_max", patient)).await?;
    let mut events = Vec::new();
    for n in 0..12 {
        let body = json!({ "id": format!("e-{n}"), "source": format!("s-{}", n % 3), "do": "other", "reason": "no" });
        events.push(deliver(&world, "in-order", &body).await?);
    }
    let delayed = |stats: &Value| stats["work_items"]["delayed"] == 3 && stats["work_items"]["blocked"] == 9;
    wait::until("heads are delayed, the others blocked", async || world.admin().stats().await, delayed).await?;
    for (event, state, why) in
        [(&events[0], "delayed", "it runs again at "), (&events[3], "blocked", "before it in its lane")]
    {
        let before = work_item(&world, event).await?;
        assert_eq!(before["state"], state, "{before}");
        let (code, _, said) = run(&world, event);
        assert!(code == Some(4) && said.contains(why), "{code:?} {said}");
        assert_eq!(work_item(&world, event).await?, before, "a refusal changes nothing");
    }
    // As long as it takes for the supervisor to look at its pools a few times.
    let claims = world.admin().metric("forebay_claims_total{pack=\"hostile\"}").await?;
    for n in 0..3 {
        let free = json!({ "id": format!("free-{n}"), "do": "note", "text": "free" });
        let free = deliver(&world, "hostile", &free).await?;
        let looked = async || work_item(&world, &free).await;
        wait::until("work beside it goes on", looked, |item| item["state"] == "done").await?;
    }
    assert!(claims.is_some_and(|claims| claims > 0.0));
    for reason in ["dead", "configuration"] {
        let rebuilds = format!("forebay_scheduler_rebuilds_total{{pack=\"hostile\",reason=\"{reason}\"}}");
        assert_eq!(world.admin().metric(&rebuilds).await?, Some(0.0), "{reason}");
    }
    let stats = world.admin().stats().await?;
    assert!(delayed(&stats), "{stats}");
    world.kill().await?;
    Ok(())
}
