//! Generations change under load: every request has its `202`, every event is worked off, and nothing stays in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use bytes::Bytes;
use forebay::env;
use forebay::guest::PackFile;
use forebay::rig::github::push_body;
use forebay::rig::http::Connection;
use forebay::rig::site::NAMESPACE;
use forebay_tests::world::{World, event_ids, signed};
use forebay_tests::{paths, wait};
use http::StatusCode;
use serde_json::Value;
use tokio::process::Command;

/// How often the generation changes.
const ACTIVATIONS: u32 = 50;
/// Clients that deliver at once.
const CLIENTS: usize = 3;

/// The example pack in another version, which is another file.
fn version(number: u32) -> anyhow::Result<Bytes> {
    let pack = PackFile::parse(&std::fs::read(paths::pack("github"))?)?;
    let text = pack.manifest_text.replace("version = \"0.1.0\"", &format!("version = \"0.1.{number}\""));
    ensure!(text != pack.manifest_text, "the example's version is another one");
    Ok(PackFile::encode(&text, &pack.component)?.into())
}

/// The example pack without the route that its events come in by.
fn renamed() -> anyhow::Result<Vec<u8>> {
    let pack = PackFile::parse(&std::fs::read(paths::pack("github"))?)?;
    Ok(PackFile::encode(&pack.manifest_text.replace("path = \"github\"", "path = \"renamed\""), &pack.component)?)
}

/// Runs a command of `forebay pack` against the world's host.
async fn pack(world: &World, arguments: &[&str]) -> (Option<i32>, Value) {
    let mut command = Command::new(paths::binary());
    command.arg("pack").args(arguments).arg("--json");
    command.env("FOREBAY_ADMIN_URL", format!("http://{}", world.site.host.admin));
    let output = command.output().await.expect("the binary can be started");
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
}

async fn roll_out(world: &World, number: u32) -> anyhow::Result<Value> {
    let file = world.site.path().join("next.fpk");
    std::fs::write(&file, version(number)?)?;
    let (code, answer) = pack(world, &["install", &file.display().to_string(), "--activate"]).await;
    ensure!(code == Some(0), "{code:?}");
    Ok(answer)
}

/// Delivers without a pause until it is stopped. Every answer must be a `202`.
async fn deliver(world: Arc<World>, client: usize, stop: Arc<AtomicBool>) -> anyhow::Result<Vec<String>> {
    let mut connection = Connection::open(world.site.host.intake).await?;
    let mut events = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let delivery = signed(format!("{client}-{}", events.len()), "push", push_body(client, 1_000));
        let answer = connection.send(delivery.request("localhost", &format!("/in/{NAMESPACE}/github"))?).await?;
        ensure!(answer.status == StatusCode::ACCEPTED, "{}: {:?}", answer.status, answer.body);
        events.extend(event_ids(&answer)?);
    }
    Ok(events)
}

// GST-6, MAT-2
#[tokio::test(flavor = "multi_thread")]
async fn fifty_activations_under_load_lose_nothing_and_leave_nothing_behind() -> anyhow::Result<()> {
    let world = Arc::new(World::start(&["github"]).await?);
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| env::spawn("client", deliver(Arc::clone(&world), client, Arc::clone(&stop))))
        .collect();
    for number in 1..=ACTIVATIONS {
        let answer = roll_out(&world, number).await?;
        assert_eq!(answer["activation"]["active"], number + 1, "{answer}");
        assert_eq!(answer["activation"]["previous"], number, "{answer}");
    }
    stop.store(true, Ordering::Relaxed);
    let mut delivered = Vec::new();
    for client in clients {
        delivered.extend(client.await??);
    }
    world.settle().await?;
    let events = world.admin().events().await?;
    assert_eq!(events.len(), delivered.len());
    assert!(events.iter().all(|event| event["state"] == "done"));

    let retired = async || {
        let packs = world.admin().get("/api/v1/packs").await?;
        let items = packs["items"].as_array().context("generations are listed")?.clone();
        Ok(items.iter().filter(|item| item["stage"] == "retired").count())
    };
    wait::until("all but the last are retired", retired, |count| *count == ACTIVATIONS as usize).await?;
    let held = async || {
        let metrics = forebay::rig::http::get(world.admin().address, "/metrics").await?;
        let text = String::from_utf8(metrics.body.to_vec())?;
        let value = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok()).context("there is one")
        };
        Ok((value("forebay_guest_generations")?, value("forebay_guest_instances")?))
    };
    wait::until("one generation is in memory", held, |held| *held == (1.0, 0.0)).await?;

    let (code, rolled_back) = pack(&world, &["rollback", "github"]).await;
    assert_eq!((code, &rolled_back["active"]), (Some(0), &Value::from(ACTIVATIONS)));
    let active = format!("github@{ACTIVATIONS}");
    let (code, preview) = pack(&world, &["preview", &active, "--last", "20", "--fail-on-change"]).await;
    assert_eq!((code, &preview["events"], &preview["changed"]), (Some(0), &Value::from(20), &Value::from(0)));
    let otherwise = world.site.path().join("otherwise.fpk");
    std::fs::write(&otherwise, renamed()?)?;
    let otherwise = otherwise.display().to_string();
    let (code, preview) = pack(&world, &["preview", &otherwise, "--last", "20", "--fail-on-change"]).await;
    assert_eq!((code, &preview["changed"]), (Some(6), &Value::from(20)));
    assert_eq!(pack(&world, &["activate", "github@999"]).await.0, Some(3));
    assert_eq!(pack(&world, &["drain", &active, "--dead-letter"]).await.0, Some(4), "it is active");
    Ok(())
}
