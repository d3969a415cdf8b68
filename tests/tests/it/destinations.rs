//! Destinations that are set while the host runs, by command.

use std::process::{Command, Output};

use forebay_tests::world::{World, event_ids, signed};
use forebay_tests::{cases, paths, wait};
use serde_json::Value;

fn forebay(world: &World, arguments: &[&str]) -> Output {
    let mut command = Command::new(paths::binary());
    command.args(arguments).env("FOREBAY_ADMIN_URL", format!("http://{}", world.site.host.admin));
    command.output().expect("the binary can be started")
}

/// Its exit code, and what it printed: as JSON, and to say what went wrong.
fn said(world: &World, arguments: &[&str]) -> (Option<i32>, Value, String) {
    let output = forebay(world, arguments);
    let value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), value, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Has the pack emit two messages to `notifications`: one that is due, and one that is due tomorrow.
async fn emit(world: &World, id: &str) -> anyhow::Result<String> {
    let mut body: Value = serde_json::from_slice(&cases::github_body("pull_request"))?;
    body["action"] = "opened".into();
    let event = event_ids(&world.deliver(&signed(id, "pull_request", body.to_string())).await?)?.remove(0);
    let messages = async || Ok(world.admin().event(&event).await?["messages"].clone());
    let both = |messages: &Value| messages.as_array().is_some_and(|messages| messages.len() == 2);
    let messages: Value = wait::until("both are emitted", messages, both).await?;
    let now = forebay::admin::wire::rfc3339(forebay::env::Env::system().now());
    let due = messages.as_array().into_iter().flatten();
    let mut due = due.filter(|message| message["due_at"].as_str().is_some_and(|due_at| due_at <= now.as_str()));
    Ok(due.next_back().and_then(|message| message["id"].as_str()).expect("one of them is due").to_owned())
}

async fn until_arrived(world: &World, count: usize) -> anyhow::Result<()> {
    wait::until("it arrives", async || Ok(world.sink.received().len()), |received| *received == count).await?;
    Ok(())
}

/// Destinations are shown, and one that there is none of is not known.
fn is_shown(world: &World) {
    for arguments in [&["destination", "list"][..], &["destination", "show", "notifications"]] {
        let output = forebay(world, arguments);
        assert!(output.status.success() && !output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
    assert_eq!(said(world, &["destination", "show", "none"]).0, Some(3));
}

/// The lane of `notifications` is shut and opened although there is nothing to call; one that nothing waits for is not
/// known.
fn is_shut_and_opened(world: &World) {
    for verb in ["pause", "resume"] {
        let (code, _, error) = said(world, &["lane", verb, "notifications", "--json"]);
        assert_eq!(code, Some(0), "{verb}: {error}");
    }
    assert_eq!(said(world, &["lane", "pause", "nowhere", "--json"]).0, Some(3));
}

// LAN-5, OBS-4
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_sent_once_its_destination_is_set_and_nothing_is_lost_when_it_is_removed() -> anyhow::Result<()> {
    let mut world = World::prepare_without_destinations(&["github"]).await?;
    world.restart().await?;
    let first = emit(&world, "one").await?;
    let why = async || Ok(said(&world, &["message", "why", &first, "--json"]).1);
    let why = wait::until("it says why", why, |why| why["reason"] == "capability").await?;
    let advice = why["advice"].as_str().unwrap_or_default();
    assert!(advice.contains("forebay destination set notifications url="), "{why}");

    let url = format!("url=http://{}/notifications", world.sink.address());
    let hostile: [(&[&str], &str); 8] = [
        (&["url=http://10.1.2.3/"], "is in 10.0.0.0/8"),
        (&["url=http://me:hunter2@a.example/"], "user or a password"),
        (&["url=ftp://a.example/"], "http:// or https://"),
        (&[&url, "secret=no-such"], "there is no secret `no-such`"),
        (&[&url, "secret=../../etc/passwd"], "must be the name of a secret"),
        (&[&url, "in_flight_messages=30000"], "half of `publish.in_flight_max`"),
        (&[&url, "weigth=4"], "did you mean `destinations.notifications.weight`"),
        (&["weight=4"], "a destination needs an address"),
    ];
    for (keys, reason) in hostile {
        let (code, _, error) = said(&world, &[&["destination", "set", "notifications"], keys].concat());
        assert!(code == Some(2) && error.contains(reason) && !error.contains("hunter2"), "{keys:?}: {error}");
    }
    assert_eq!(said(&world, &["destination", "set", "Big.name", &url]).0, Some(2));
    let (_, listed, _) = said(&world, &["destination", "list", "--json"]);
    assert_eq!(listed["items"], Value::Array(Vec::new()), "nothing of that changed anything");

    let set = ["destination", "set", "notifications", &url, "secret=notifications", "--version", "0", "--json"];
    let (code, answer, error) = said(&world, &set);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!((&answer["destination"]["origin"], &answer["destination"]["version"]), (&"set".into(), &1.into()));
    until_arrived(&world, 1).await?;
    assert!(world.sink.received()[0].is_signed_with(forebay::rig::site::DESTINATION_SECRET));
    assert_eq!(said(&world, &set).0, Some(4), "it is there already");
    assert_eq!(said(&world, &["destination", "set", "notifications", "weight=3", "--version", "9"]).0, Some(4));
    let (code, answer, _) = said(&world, &["destination", "set", "notifications", "weight=3", "--json"]);
    let settings = &answer["destination"]["settings"];
    assert_eq!((code, &settings["weight"], &settings["secret"]), (Some(0), &3.into(), &"notifications".into()));
    assert_eq!(
        settings["url"],
        format!("http://{}/…", world.sink.address()),
        "what is behind the host may be a secret"
    );

    // The other one is due tomorrow.
    let (code, _, error) = said(&world, &["destination", "remove", "notifications"]);
    assert!(code == Some(4) && error.contains("1 message waits for `notifications`"), "{error}");
    let (code, _, error) = said(&world, &["destination", "set", "notifications", "ordering=exact"]);
    assert!(code == Some(4) && error.contains("1 message waits"), "{error}");
    let (code, answer, _) = said(&world, &["destination", "remove", "notifications", "--pending", "wait", "--json"]);
    assert_eq!((code, &answer["pending"]["messages"]), (Some(0), &1.into()));
    assert_eq!(said(&world, &["destination", "list", "--json"]).1["items"][0]["origin"], "removed");

    world.kill().await?;
    world.restart().await?;
    let second = emit(&world, "two").await?;
    let why = async || Ok(said(&world, &["message", "why", &second, "--json"]).1);
    wait::until("it waits", why, |why| why["reason"] == "capability").await?;
    is_shut_and_opened(&world);
    let output = forebay(&world, &["destination", "set", "notifications", &url, "secret=notifications"]);
    assert!(output.status.success(), "{output:?}");
    until_arrived(&world, 2).await?;
    world.kill().await?;
    world.restart().await?;
    emit(&world, "three").await?;
    until_arrived(&world, 3).await?;
    is_shown(&world);
    Ok(())
}

// LAN-5
#[tokio::test(flavor = "multi_thread")]
async fn what_the_configuration_has_is_changed_there() -> anyhow::Result<()> {
    let world = World::start(&["github"]).await?;
    let (code, listed, _) = said(&world, &["destination", "list", "--json"]);
    assert_eq!((code, &listed["items"][0]["origin"]), (Some(0), &"configuration".into()));
    for arguments in [&["destination", "set", "sink", "weight=2"][..], &["destination", "remove", "sink"]] {
        let (code, _, error) = said(&world, arguments);
        assert!(code == Some(4) && error.contains("change it there"), "{arguments:?}: {error}");
    }
    Ok(())
}
