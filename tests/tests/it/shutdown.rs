//! SIGTERM drains; a second signal does not wait; neither loses anything.

use std::time::Duration;

use forebay::env;
use forebay::rig::github::push_body;
use forebay::rig::http::Connection;
use forebay::rig::receiver::Reply;
use forebay::rig::site::NAMESPACE;
use forebay_tests::admin::count;
use forebay_tests::unfinished::{REQUESTS_IN_FLIGHT, Unfinished};
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

// ADM-2
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_does_not_use_up_the_time_to_stop() -> anyhow::Result<()> {
    // The sender may take longer than the stop: waiting for it would end in failure.
    let settings = "[intake]\ndeadline_ms = 60_000\n[shutdown]\ntimeout_seconds = 20\n";
    let mut world = World::start_with(&["github"], settings).await?;
    let mut slow = Unfinished::begin(&world, "slow", &String::from_utf8(push_body(1, 2_000))?).await?;
    world.admin().until_metric(REQUESTS_IN_FLIGHT, 1.0).await?;
    let host = world.take_host()?;
    host.signal(Signal::TERM)?;
    let answer = slow.answer().await?.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 503"), "{answer}");
    assert!(answer.contains("\r\nretry-after: ") && answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert_eq!(host.wait().await?.code(), Some(0), "{}", world.site.host.log_tail());
    world.restart().await?;
    assert!(world.admin().events().await?.is_empty());
    Ok(())
}

/// Has a host in the middle of attempts that take longer than it may: the events that had their `202`.
async fn begin_what_does_not_end(world: &World) -> anyhow::Result<Vec<String>> {
    world.sink.reply(Reply::Late(Duration::from_secs(600)));
    let acknowledged = deliver(world).await?;
    let under_way = |stats: &serde_json::Value| count(stats, "messages", "publishing") > 0;
    wait::until("a message is under way", async || world.admin().stats().await, under_way).await?;
    Ok(acknowledged)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_takes_too_long_is_a_failure_and_loses_nothing() -> anyhow::Result<()> {
    let mut world = World::start_with(&["github"], "[shutdown]\ntimeout_seconds = 1\n").await?;
    let acknowledged = begin_what_does_not_end(&world).await?;
    let status = world.stop().await?;
    let log = world.site.host.log_tail();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("not stopped after 1 s, while "), "{log}");
    world.sink.reply(Reply::OK);
    all_are_done(&mut world, &acknowledged).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_at_once_and_loses_nothing() -> anyhow::Result<()> {
    let mut world = World::start(&["github"]).await?;
    let acknowledged = begin_what_does_not_end(&world).await?;
    let host = world.take_host()?;
    host.signal(Signal::TERM)?;
    let draining = async || {
        let answer = forebay::rig::http::get(world.site.host.admin, "/readyz").await;
        Ok(answer.map(|answer| answer.status).ok())
    };
    wait::until("it drains", draining, |status| *status != Some(StatusCode::OK)).await?;
    host.signal(Signal::TERM)?;
    let ended = tokio::time::timeout_at(env::deadline(Duration::from_secs(20)), host.wait()).await;
    let log = world.site.host.log_tail();
    let status = ended.map_err(|_| anyhow::anyhow!("it still waits: {log}"))??;
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("stopped at once"), "{log}");
    world.sink.reply(Reply::OK);
    all_are_done(&mut world, &acknowledged).await
}
