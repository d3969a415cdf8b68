//! SIGTERM drains; a second signal does not wait; neither loses anything.

use std::time::Duration;

use forebay::cli::rig::github::push_body;
use forebay::cli::rig::http::Connection;
use forebay::cli::rig::receiver::Reply;
use forebay::cli::rig::site::NAMESPACE;
use forebay::env;
use forebay_tests::admin::count;
use forebay_tests::world::{World, event_ids, signed};
use forebay_tests::{received, wait};
use http::StatusCode;
use rustix::process::Signal;

/// Deliveries that are under way when the signal comes.
const DELIVERIES: usize = 60;

/// Delivers until the host takes no more, over one connection: the events that had their `202`.
async fn deliver(world: &World) -> anyhow::Result<Vec<String>> {
    let intake = world.site.host.intake;
    let mut connection = Connection::open(intake).await?;
    let mut acknowledged = Vec::new();
    for number in 0..DELIVERIES {
        let delivery = signed(format!("delivery-{number}"), "push", push_body(number % 7, 2_000));
        let request = delivery.request(&intake.to_string(), &format!("/in/{NAMESPACE}/github"))?;
        let answer = connection.send(request).await?;
        assert_eq!(answer.status, StatusCode::ACCEPTED);
        acknowledged.extend(event_ids(&answer)?);
    }
    Ok(acknowledged)
}

async fn all_are_done(world: &mut World, acknowledged: &[String]) -> anyhow::Result<()> {
    world.restart().await?;
    world.settle().await?;
    for event in acknowledged {
        let detail = world.admin().event(event).await?;
        assert_eq!(detail["work_items"][0]["state"], "done", "{detail}");
        for message in detail["messages"].as_array().into_iter().flatten() {
            assert_eq!(message["state"], "published", "{message}");
        }
    }
    assert_eq!(received::messages(&world.sink).len(), acknowledged.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_drains_and_loses_nothing() -> anyhow::Result<()> {
    let mut world = World::start(&["github"]).await?;
    let acknowledged = deliver(&world).await?;
    let status = world.stop().await?;
    assert_eq!(status.code(), Some(0), "{}", world.site.host.log_tail());
    all_are_done(&mut world, &acknowledged).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_drains_takes_nothing_new() -> anyhow::Result<()> {
    let mut world = World::start(&["github"]).await?;
    world.sink.reply(Reply::Late(Duration::from_secs(3)));
    let acknowledged = deliver(&world).await?;
    let under_way = |stats: &serde_json::Value| count(stats, "messages", "publishing") > 0;
    wait::until("a message is under way", async || world.admin().stats().await, under_way).await?;
    let host = world.take_host()?;
    host.signal(Signal::TERM)?;
    let late = signed("too-late", "push", push_body(1, 2_000));
    let refused = async || {
        let answer = world.deliver(&late).await;
        Ok(answer.map(|answer| answer.status))
    };
    // What comes before the signal is seen may still be admitted; from then on it is 503, and at the end no connection.
    let gone = |answer: &Result<StatusCode, anyhow::Error>| !matches!(answer, Ok(StatusCode::ACCEPTED));
    let answer = wait::until("the host takes nothing new", refused, gone).await?;
    assert!(answer.map_or(true, |status| status == StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(host.wait().await?.code(), Some(0), "{}", world.site.host.log_tail());
    world.sink.reply(Reply::OK);
    world.restart().await?;
    for event in &acknowledged {
        world.admin().event(event).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_at_once_and_loses_nothing() -> anyhow::Result<()> {
    let mut world = World::start(&["github"]).await?;
    // The drain would wait for these.
    world.sink.reply(Reply::Late(Duration::from_secs(600)));
    let acknowledged = deliver(&world).await?;
    let under_way = |stats: &serde_json::Value| count(stats, "messages", "publishing") > 0;
    wait::until("a message is under way", async || world.admin().stats().await, under_way).await?;
    let host = world.take_host()?;
    host.signal(Signal::TERM)?;
    let draining = async || {
        let answer = forebay::cli::rig::http::get(world.site.host.admin, "/readyz").await;
        Ok(answer.map(|answer| answer.status).ok())
    };
    wait::until("it drains", draining, |status| *status != Some(StatusCode::OK)).await?;
    host.signal(Signal::TERM)?;
    let ended = tokio::time::timeout_at(env::deadline(Duration::from_secs(20)), host.wait()).await;
    assert!(ended.is_ok(), "it still waits: {}", world.site.host.log_tail());
    world.sink.reply(Reply::OK);
    all_are_done(&mut world, &acknowledged).await
}
