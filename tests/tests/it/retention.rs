//! Retention in a host that runs: what ended goes by itself, what is live stays, and operators see it.

use std::process::{Command, Output};

use forebay_tests::world::{World, event_ids, signed};
use forebay_tests::{cases, paths, wait};
use serde_json::Value;
use sqlx::{ConnectOptions, Connection as _};

/// More than the thirty days that everything is kept.
const PAST_MS: i64 = 31 * 24 * 60 * 60 * 1_000;

fn forebay(world: &World, arguments: &[&str]) -> Output {
    let mut command = Command::new(paths::binary());
    command.args(arguments).env("FOREBAY_ADMIN_URL", format!("http://{}", world.site.host.admin));
    command.output().expect("the binary can be started")
}

fn json(world: &World, arguments: &[&str]) -> Value {
    serde_json::from_slice(&forebay(world, arguments).stdout).unwrap_or(Value::Null)
}

async fn deliver(world: &World, id: &str, event: &str) -> anyhow::Result<(String, bool)> {
    let mut body: Value = serde_json::from_slice(&cases::github_body(event))?;
    body["action"] = "opened".into();
    let answer = world.deliver(&signed(id, event, body.to_string())).await?;
    let is_duplicate = answer.json()?["status"] == "duplicate" || answer.json()?["duplicate"] == true;
    Ok((event_ids(&answer)?.remove(0), is_duplicate))
}

/// Makes all that has ended so much older.
async fn age(world: &World) -> anyhow::Result<()> {
    let file = world.site.host.data.join("forebay.sqlite");
    let mut connection = sqlx::sqlite::SqliteConnectOptions::new().filename(file).connect().await?;
    for table in ["work_item", "message"] {
        let statement = format!("UPDATE {table} SET finished_at = finished_at - {PAST_MS}");
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await?;
    }
    Ok(connection.close().await?)
}

// RET-1, RET-2, RET-5
#[tokio::test(flavor = "multi_thread")]
async fn what_ended_goes_by_itself_and_what_is_live_stays() -> anyhow::Result<()> {
    let mut world = World::start_with(&["github"], "[retention]\nstart_after_seconds = 0\n").await?;
    let (gone, _) = deliver(&world, "gone", "star").await?;
    // Each of these emits a message that is due, and one that is due tomorrow.
    let (live, _) = deliver(&world, "live", "pull_request").await?;
    world.settle().await?;
    let (newest, _) = deliver(&world, "newest", "pull_request").await?;
    world.settle().await?;
    assert_eq!(world.sink.received().len(), 2);
    assert!(world.stop().await?.success());
    age(&world).await?;

    world.restart().await?;
    let retention = async || Ok(json(&world, &["retention", "--json"]));
    let cleared = |seen: &Value| seen["removed"]["events"] == 1 && !seen["last_pass"].is_null();
    let seen = wait::until("what has ended is removed", retention, cleared).await?;
    assert_eq!(seen["phase"], "resting", "{seen}");
    let shown = forebay(&world, &["retention"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("until an operator acts"), "{shown:?}");
    let missing = forebay(&world, &["event", "show", &gone]);
    let said = String::from_utf8_lossy(&missing.stderr);
    assert!(missing.status.code() == Some(3) && said.contains("it was removed"), "{said}");
    for event in [&live, &newest] {
        let messages = world.admin().event(event).await?["messages"].clone();
        let states: Vec<&Value> = messages.as_array().into_iter().flatten().map(|message| &message["state"]).collect();
        assert!(states.contains(&&"scheduled".into()), "{states:?}");
    }
    let messages = world.admin().event(&live).await?["messages"].clone();
    assert_eq!(messages.as_array().map(Vec::len), Some(1), "what was sent is gone: {messages}");
    let exact = json(&world, &["stats", "--exact", "--json"]);
    assert_eq!((&exact["exact"]["counters_agree"], &exact["exact"]["uncovered_events"]), (&true.into(), &0.into()));

    assert_eq!(deliver(&world, "live", "pull_request").await?, (live, true), "it is kept");
    let (again, is_duplicate) = deliver(&world, "gone", "star").await?;
    assert!(again != gone && !is_duplicate, "nobody remembers it");
    world.settle().await?;
    Ok(())
}
