//! A host that cannot do its work does not start, and says why.

use forebay_tests::world::{World, signed};
use forebay_tests::{cases, wait};
use rustix::process::Signal;
use serde_json::Value;

/// Starts the host and waits until it gives up: its log.
async fn refuses_to_start(world: &World) -> anyhow::Result<String> {
    let _ = std::fs::remove_file(&world.site.host.log);
    let status = world.site.host.spawn()?.wait().await?;
    assert!(!status.success(), "it should not have started");
    assert!(status.code().is_some(), "it was not to crash: {status}");
    Ok(std::fs::read_to_string(&world.site.host.log)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_database_stops_the_start_and_stays_as_it_is() -> anyhow::Result<()> {
    let mut world = World::prepare(&["github"], "").await?;
    let file = world.site.host.data.join("forebay.sqlite");
    std::fs::create_dir_all(&world.site.host.data)?;
    let garbage = b"this is not a database, whatever its name says".repeat(100);
    std::fs::write(&file, &garbage)?;
    let log = refuses_to_start(&world).await?;
    assert!(log.contains("forebay.sqlite"), "{log}");
    assert_eq!(std::fs::read(&file)?, garbage);
    std::fs::remove_file(&file)?;
    world.restart().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_secret_is_said_at_the_start_and_is_why_messages_wait() -> anyhow::Result<()> {
    let mut world = World::prepare(&["github"], "").await?;
    let secret = world.site.host.secrets.join("notifications");
    let held = std::fs::read(&secret)?;
    std::fs::remove_file(&secret)?;
    world.restart().await?;
    let log = std::fs::read_to_string(&world.site.host.log)?;
    assert!(log.contains("destination `notifications`") && log.contains("there is no secret `notifications`"), "{log}");
    assert!(!log.contains("route `github`"), "that one is held: {log}");

    let mut body: Value = serde_json::from_slice(&cases::github_body("pull_request"))?;
    body["action"] = "opened".into();
    world.deliver(&signed("one", "pull_request", body.to_string())).await?;
    let waiting = "/api/v1/messages?state=retry_wait";
    let messages = wait::until(
        "an attempt failed",
        async || world.admin().get(waiting).await,
        |found| found["items"].as_array().is_some_and(|items| !items.is_empty()),
    );
    let id = messages.await?["items"][0]["id"].as_str().expect("it has an id").to_owned();
    let why = world.admin().get(&format!("/api/v1/messages/{id}/why")).await?;
    let explanation = why["explanation"].as_str().expect("there is one");
    assert!(explanation.starts_with("This host cannot send it: there is no secret `notifications`"), "{why}");

    std::fs::write(&secret, held)?;
    world.settle().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_from_the_future_stops_the_start() -> anyhow::Result<()> {
    let mut world = World::start(&["github"]).await?;
    assert!(world.stop().await?.success());
    add_migration_from_the_future(&world).await?;
    let log = refuses_to_start(&world).await?;
    assert!(log.contains("newer"), "{log}");
    Ok(())
}

async fn add_migration_from_the_future(world: &World) -> anyhow::Result<()> {
    use sqlx::{ConnectOptions, Connection};
    let file = world.site.host.data.join("forebay.sqlite");
    let mut connection = sqlx::sqlite::SqliteConnectOptions::new().filename(file).connect().await?;
    sqlx::query(
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
         values (999999, 'from the future', true, x'00', 0)",
    )
    .execute(&mut connection)
    .await?;
    Ok(connection.close().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_host_on_the_same_data_stops_and_harms_nothing() -> anyhow::Result<()> {
    let mut world = World::start(&["github"]).await?;
    let first = world.take_host()?;
    let log_of_the_first = std::fs::read_to_string(&world.site.host.log)?;
    let addresses = (world.site.host.intake, world.site.host.admin);
    world.site.host.intake = forebay::rig::process::free_address()?;
    world.site.host.admin = forebay::rig::process::free_address()?;
    let log = refuses_to_start(&world).await?;
    assert!(log.contains("another") || log.contains("in use"), "{log}");
    (world.site.host.intake, world.site.host.admin) = addresses;
    assert!(world.admin().get("/readyz").await.is_ok(), "the first was harmed: {log_of_the_first}");
    first.signal(Signal::TERM)?;
    assert!(first.wait().await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_too_few_file_descriptors_does_not_start_and_says_what_to_do() -> anyhow::Result<()> {
    let mut world = World::prepare(&["github"], "").await?;
    world.site.host.limits = Some("ulimit -n 300".to_owned());
    let log = refuses_to_start(&world).await?;
    assert!(log.contains("intake.requests_max = 256 needs") && log.contains("may have 300"), "{log}");
    // A soft limit is the host's own to raise.
    world.site.host.limits = Some("ulimit -S -n 300".to_owned());
    world.restart().await
}

// OBS-2
#[tokio::test(flavor = "multi_thread")]
async fn the_start_says_what_the_host_runs_with() -> anyhow::Result<()> {
    let world = World::start(&["github"]).await?;
    let log = std::fs::read_to_string(&world.site.host.log)?;
    let line = log.lines().find(|line| line.contains("the host serves")).expect("it says that it serves");
    for said in [
        "workers_per_pack=64",
        "max_processing_rows=192",
        "store_readers=4",
        "guest_instances_max=128",
        "publish_in_flight_max=512",
        "shards=1",
    ] {
        assert!(line.contains(said), "{said}: {line}");
    }
    assert!(line.contains(&format!("console=http://{}/console/", world.site.host.admin)), "{line}");
    // A pool says the same of itself.
    let pool = log.lines().find(|line| line.contains("a pool starts")).expect("a pool starts");
    assert!(pool.contains("workers=64") && pool.contains("max_processing_rows=192"), "{pool}");
    Ok(())
}
