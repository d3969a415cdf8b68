//! The command line: what it prints for programs, and what its exit codes mean.

use std::process::{Command, Output};

use forebay_tests::world::{World, event_ids, signed};
use forebay_tests::{cases, paths};
use serde_json::Value;

/// Runs a command against the world's host.
fn forebay(world: &World, arguments: &[&str]) -> Output {
    let mut command = Command::new(paths::binary());
    command.args(arguments).env("FOREBAY_ADMIN_URL", format!("http://{}", world.site.host.admin));
    command.output().expect("the binary can be started")
}

/// Its exit code, and what it printed as JSON.
fn json(world: &World, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = forebay(world, arguments);
    let value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), value)
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_print_what_the_api_says() -> anyhow::Result<()> {
    let world = World::start(&["github"]).await?;
    let delivery = signed("one", "pull_request", cases::github_body("pull_request"));
    let event = event_ids(&world.deliver(&delivery).await?)?.remove(0);
    world.settle().await?;

    let (code, stats) = json(&world, &["stats", "--json"]);
    assert_eq!((code, &stats), (Some(0), &world.admin().stats().await?));
    let (code, events) = json(&world, &["event", "list", "--json"]);
    assert_eq!((code, &events["items"][0]["id"]), (Some(0), &Value::from(event.as_str())));
    let (code, shown) = json(&world, &["event", "show", &event, "--json"]);
    assert_eq!((code, &shown["delivery_key"]), (Some(0), &Value::from("one")));
    let (code, messages) = json(&world, &["message", "list", "--json"]);
    assert_eq!(code, Some(0));
    let message = messages["items"][0]["id"].as_str().expect("a message has an id").to_owned();
    let (code, shown) = json(&world, &["message", "show", &message, "--json"]);
    assert_eq!((code, &shown["event_id"]), (Some(0), &Value::from(event.as_str())));

    let shown: [(&[&str], &str); 7] = [
        (&["stats"], "retry_wait"),
        (&["event", "list"], &event),
        (&["event", "show", &event], "github@1"),
        (&["message", "show", &message], "http"),
        (&["queue", "peek", "--pack", "github"], "wait behind heads of lanes"),
        (&["lane", "list", "--namespace", "demo"], "ELIGIBLE FROM"),
        (&["message", "why", "--help"], "retry_backoff"),
    ];
    for (arguments, text) in shown {
        let output = forebay(&world, arguments);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && printed.contains(text), "{arguments:?}: {printed}");
    }
    let (code, queue) = json(&world, &["queue", "peek", "--pack", "github", "--json"]);
    assert_eq!((code, &queue["items"]), (Some(0), &Value::Array(Vec::new())));
    let (code, lanes) = json(&world, &["lane", "list", "--troubled", "--json"]);
    assert_eq!((code, &lanes["items"]), (Some(0), &Value::Array(Vec::new())));
    Ok(())
}

// RPL-1
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_run_again_once_and_its_messages_are_sent_anew() -> anyhow::Result<()> {
    let world = World::start(&["github"]).await?;
    let mut body: Value = serde_json::from_slice(&cases::github_body("pull_request"))?;
    body["action"] = "opened".into();
    let event = event_ids(&world.deliver(&signed("one", "pull_request", body.to_string())).await?)?.remove(0);
    world.settle().await?;
    let before = world.admin().event(&event).await?;
    let parent = before["work_items"][0]["id"].as_str().expect("it has an id");

    let (code, replay) = json(&world, &["event", "replay", &event, "--json"]);
    assert_eq!((code, &replay["already"]), (Some(0), &Value::from(false)), "{replay}");
    assert_eq!(replay["work_item"]["replay_of"], parent);
    world.settle().await?;
    let (code, again) = json(&world, &["work-item", "replay", parent, "--json"]);
    assert_eq!((code, &again["already"]), (Some(0), &Value::from(true)), "{again}");
    assert_eq!(again["work_item"]["id"], replay["work_item"]["id"]);

    let after = world.admin().event(&event).await?;
    assert_eq!(after["work_items"][1]["state"], "done", "{after}");
    let emitted = before["messages"].as_array().map_or(0, Vec::len);
    assert_eq!(after["messages"].as_array().map(Vec::len), Some(2 * emitted), "{after}");
    assert_eq!(world.sink.received().len(), 2, "a receiver sees two messages");
    let output = forebay(&world, &["work-item", "replay", &format!("wi_{}", "0".repeat(32))]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_says_what_it_sees_of_a_host_and_its_directory() -> anyhow::Result<()> {
    let mut world = World::start(&["github"]).await?;
    let data = world.site.host.data.to_str().expect("it is UTF-8").to_owned();
    let admin = format!("http://{}", world.site.host.admin);
    let status = |findings: &Value, name: &str| {
        let found = findings["findings"].as_array().into_iter().flatten().find(|finding| finding["name"] == name);
        found.map(|finding| finding["status"].clone()).unwrap_or_default()
    };
    let (code, running) = json(&world, &["doctor", "--data", &data, "--admin", &admin, "--json"]);
    assert_eq!(code, Some(0), "{running}");
    assert_eq!((status(&running, "readiness"), status(&running, "database")), ("ok".into(), "warning".into()));

    assert!(world.stop().await?.success());
    let (code, stopped) = json(&world, &["doctor", "--data", &data, "--admin", &admin, "--json"]);
    assert_eq!((code, status(&stopped, "host")), (Some(1), "failure".into()), "{stopped}");
    let (code, alone) = json(&world, &["doctor", "--data", &data, "--json"]);
    assert_eq!(code, Some(0), "{alone}");
    for name in ["database", "schema", "coverage"] {
        assert_eq!(status(&alone, name), "ok", "{alone}");
    }
    Ok(())
}

// TL-2, TL-7, WRK-3
#[tokio::test(flavor = "multi_thread")]
async fn shards_are_listed_and_a_checkpoint_is_made_when_it_is_asked_for() -> anyhow::Result<()> {
    let world = World::start(&["github"]).await?;
    world.deliver(&signed("one", "pull_request", cases::github_body("pull_request"))).await?;
    world.settle().await?;
    let (code, shards) = json(&world, &["shard", "list", "--json"]);
    assert_eq!((code, shards["items"].as_array().map(Vec::len)), (Some(0), Some(1)), "{shards}");
    let shard = &shards["items"][0];
    assert!(shard["owner"].is_string() && shard["here"]["applied"].as_u64() > Some(0), "{shard}");
    assert_eq!(
        (&shard["here"]["lag"], &shard["here"]["restored"]),
        (&Value::from(0), &Value::from("store")),
        "{shard}"
    );
    assert_eq!((&shard["trouble"], &shard["checkpoint"]), (&Value::Null, &Value::Null), "{shard}");
    assert!(shard["here"]["pressing"].is_array(), "{shard}");
    for resource in ["disk", "descriptors", "channels", "index", "evidence"] {
        let pressure = format!("forebay_timeline_pressure{{shard=\"0\",resource=\"{resource}\"}}");
        assert!(world.admin().metric(&pressure).await?.is_some(), "{resource}");
    }
    assert!(world.admin().metric("forebay_descriptors_free").await? > Some(0.0));
    assert_eq!(world.admin().metric("forebay_publish_outcomes_waiting").await?, Some(0.0));

    let (code, made) = json(&world, &["shard", "checkpoint", "0", "--json"]);
    assert_eq!(code, Some(0), "{made}");
    assert_eq!(made["checkpoint"]["applied"], shard["here"]["applied"], "{made}");
    let (_, shards) = json(&world, &["shard", "list", "--json"]);
    assert_eq!(shards["items"][0]["checkpoint"], made["checkpoint"], "{shards}");

    let said = |arguments: &[&str]| {
        let output = forebay(&world, arguments);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, text) = said(&["shard", "checkpoint", "0"]);
    assert!(code == Some(0) && text.starts_with("shard 0 has a checkpoint of "), "{code:?} {text}");
    let (code, table) = said(&["shard", "list"]);
    let header = ["SHARD", "OWNER", "EPOCH", "APPLIED", "LAG", "PENDING", "IN FLIGHT", "LANES", "CHECKPOINT", "HELD"];
    assert!(code == Some(0) && header.iter().all(|word| table.contains(word)), "{table}");
    let owner = shard["owner"].as_str().unwrap_or_default();
    assert!(table.lines().nth(1).is_some_and(|row| row.starts_with('0') && row.contains(owner)), "{table}");

    assert_eq!(said(&["shard", "checkpoint", "7"]).0, Some(3), "there is no such shard");
    assert_eq!(said(&["shard", "checkpoint", "first"]).0, Some(2), "that is no number");
    Ok(())
}

// TL-5
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_cancelled_in_time_or_the_answer_is_too_late() -> anyhow::Result<()> {
    let world = World::start(&["github"]).await?;
    let mut body: Value = serde_json::from_slice(&cases::github_body("pull_request"))?;
    body["action"] = "opened".into();
    let event = event_ids(&world.deliver(&signed("one", "pull_request", body.to_string())).await?)?.remove(0);
    world.settle().await?;
    let messages = world.admin().event(&event).await?["messages"].clone();
    let of_state = |state: &str| {
        let found = messages.as_array().into_iter().flatten().find(|message| message["state"] == state);
        found.and_then(|message| message["id"].as_str()).expect("there is one").to_owned()
    };
    let (published, scheduled) = (of_state("published"), of_state("scheduled"));

    assert_eq!(forebay(&world, &["message", "cancel", &published]).status.code(), Some(4), "too late");
    let output = forebay(&world, &["message", "reschedule", &scheduled, "--in", "30d"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(forebay(&world, &["message", "cancel", &scheduled]).status.code(), Some(0));
    assert_eq!(
        forebay(&world, &["message", "reschedule", &scheduled, "--in", "1s"]).status.code(),
        Some(4),
        "too late"
    );
    let (_, shown) = json(&world, &["message", "show", &scheduled, "--json"]);
    assert_eq!(shown["state"], "cancelled");
    assert_eq!(world.sink.received().len(), 1, "only the published one arrived");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_say_what_went_wrong() -> anyhow::Result<()> {
    let mut world = World::start(&["github"]).await?;
    let unknown = format!("evt_{}", "0".repeat(32));
    for (arguments, code) in [
        (&["--version"][..], 0),
        (&["no-such-verb"], 2),
        (&["event", "show", "not-an-id"], 2),
        (&["event", "show", &unknown], 3),
        (&["config", "--check", "/no/such/file"], 2),
    ] {
        let output = forebay(&world, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(code == 0 || !output.stderr.is_empty(), "{arguments:?} says nothing");
    }
    assert!(world.stop().await?.success());
    assert_eq!(forebay(&world, &["stats"]).status.code(), Some(5), "nobody is there");
    Ok(())
}

// FLG-1
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_key_is_an_error_that_names_the_nearest() -> anyhow::Result<()> {
    let world = World::prepare(&["github"], "").await?;
    let file = world.site.path().join("wrong.toml");
    std::fs::write(&file, "[inbound]\nworker_per_pack = 4\n")?;
    let output = forebay(&world, &["config", "--check", file.to_str().expect("it is UTF-8")]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("line 2") && said.contains("inbound.workers_per_pack"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_cannot_be_meant_is_refused_before_the_start_and_its_password_is_not_shown()
-> anyhow::Result<()> {
    let world = World::prepare(&["github"], "").await?;
    let file = world.site.path().join("wrong.toml");
    for (url, reason) in [
        ("postgres://user:hunter2@db/forebay", "does not begin with mysql://"),
        ("mysql://user:hunter2@db:3306", "names no database"),
    ] {
        std::fs::write(&file, format!("[database]\nurl = \"{url}\"\n"))?;
        let output = forebay(&world, &["config", "--check", file.to_str().expect("it is UTF-8")]);
        assert_eq!(output.status.code(), Some(2), "{url}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("database.url") && said.contains(reason) && !said.contains("hunter2"), "{said}");
    }
    Ok(())
}
