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

    for arguments in [&["stats"][..], &["event", "list"], &["event", "show", &event], &["message", "show", &message]] {
        let output = forebay(&world, arguments);
        assert!(output.status.success() && !output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
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
