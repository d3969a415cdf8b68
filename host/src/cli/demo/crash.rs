//! The fifth act: a crowd delivers, the host is killed with SIGKILL and restarted, and all events are counted.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use http::StatusCode;
use tokio::sync::watch;

use super::{Stage, event_id, say};
use crate::admin::wire::Stats;
use crate::env;
use crate::rig::github::{Delivery, push_body};
use crate::rig::http::Connection;
use crate::rig::process::HostProcess;
use crate::rig::site::{GITHUB_SECRET, NAMESPACE};

/// Deliveries of the crowd.
const CROWD: usize = 400;
/// Acknowledged deliveries at the kill.
const ACCEPTED_BEFORE: usize = 150;
/// Concurrent connections.
const CONNECTIONS: usize = 8;
/// Repositories that the crowd pushes to: each is a lane.
const REPOSITORIES: usize = 20;
/// Size of a push in bytes.
const BODY_BYTES: usize = 3_000;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Time for all events after the restart; those that were claimed at the kill wait for their lease first.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// Kills and restarts the host, and checks that nothing was lost.
pub(super) async fn show(stage: &Stage, host: HostProcess) -> anyhow::Result<HostProcess> {
    let deliveries: Vec<Delivery> = (0..CROWD).map(delivery).collect();
    let before = stage.ask::<Stats>("/api/v1/stats").await?;
    let arrived_before = stage.sink.received().len();

    let pid = host.pid()?;
    let (accepted, unanswered) = deliver_until_killed(stage, host, &deliveries).await?;
    let rest = CROWD - accepted.len() - unanswered;
    say::line(format_args!("process {pid} killed with SIGKILL, of {CROWD} deliveries in {REPOSITORIES} repositories:"));
    say::line(format_args!("  {} had their 202, {unanswered} had no answer yet, {rest} were not sent", accepted.len()));
    say::line(format_args!("  {} messages had arrived", stage.sink.received().len() - arrived_before));

    let host = stage.start().await?;
    for event in &accepted {
        stage.event(event).await.with_context(|| format!("{event} had its 202 and is lost"))?;
    }
    say::line(format_args!("all {} that had their 202 are there", accepted.len()));
    deliver_again(stage, &deliveries, &accepted).await?;

    let emitted = settle(stage, &before).await?;
    show_totals(stage, emitted, arrived_before)?;
    Ok(host)
}

fn delivery(number: usize) -> Delivery {
    let body = push_body(number % REPOSITORIES, BODY_BYTES);
    Delivery::signed(GITHUB_SECRET.as_bytes(), format!("c0ffee00-cc78-11e3-81ab-{number:012x}"), "push", body)
}

/// Delivers over many connections and kills the host in the middle. Returns the acknowledged Events, and the number of
/// requests without an answer.
async fn deliver_until_killed(
    stage: &Stage,
    host: HostProcess,
    deliveries: &[Delivery],
) -> anyhow::Result<(BTreeSet<String>, usize)> {
    let crowd = Arc::new(Crowd {
        deliveries: deliveries.to_vec(),
        next: AtomicUsize::new(0),
        accepted: Mutex::default(),
        counted: watch::channel(0).0,
    });
    let intake = stage.site.host.intake;
    let workers: Vec<_> = (0..CONNECTIONS).map(|_| env::spawn("demo crowd", deliver(crowd.clone(), intake))).collect();
    crowd.counted.subscribe().wait_for(|accepted| *accepted >= ACCEPTED_BEFORE).await?;
    host.kill().await?;
    let mut unanswered = 0;
    for worker in workers {
        unanswered += worker.await?;
    }
    let accepted = crowd.accepted.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok((accepted, unanswered))
}

struct Crowd {
    deliveries: Vec<Delivery>,
    next: AtomicUsize,
    accepted: Mutex<BTreeSet<String>>,
    counted: watch::Sender<usize>,
}

/// Delivers until the crowd is through or the host is gone. Returns 1 for a request without an answer.
async fn deliver(crowd: Arc<Crowd>, intake: std::net::SocketAddr) -> usize {
    let Ok(mut connection) = Connection::open(intake).await else { return 0 };
    let path = format!("/in/{NAMESPACE}/github");
    while let Some(delivery) = crowd.deliveries.get(crowd.next.fetch_add(1, Ordering::Relaxed)) {
        let Ok(request) = delivery.request(&intake.to_string(), &path) else { return 1 };
        let Ok(answer) = connection.send(request).await else { return 1 };
        if answer.status == StatusCode::ACCEPTED
            && let Ok(event) = event_id(&answer)
        {
            let mut accepted = crowd.accepted.lock().unwrap_or_else(PoisonError::into_inner);
            accepted.insert(event);
            crowd.counted.send_replace(accepted.len());
        }
    }
    0
}

/// Delivers all requests again, as a provider without answers does.
async fn deliver_again(stage: &Stage, deliveries: &[Delivery], accepted: &BTreeSet<String>) -> anyhow::Result<()> {
    let mut known = 0;
    let mut unacknowledged = 0;
    for delivery in deliveries {
        let answer = stage.deliver(delivery).await?;
        ensure!(answer.status == StatusCode::ACCEPTED, "again: {answer:?}");
        let event = event_id(&answer)?;
        match (answer.json()?["duplicate"] == true, accepted.contains(&event)) {
            (true, true) => known += 1,
            (true, false) => unacknowledged += 1,
            (false, true) => anyhow::bail!("{event} had its 202 and was admitted a second time"),
            (false, false) => {}
        }
    }
    ensure!(known == accepted.len(), "{known} of {} were known", accepted.len());
    say::line(format_args!(
        "all {CROWD} sent again: {known} known as duplicates, {unacknowledged} more that were durable before their answer \
         got out, {} new",
        CROWD - known - unacknowledged
    ));
    Ok(())
}

/// Waits until the crowd's events are done and their messages published. Returns the number of messages.
async fn settle(stage: &Stage, before: &Stats) -> anyhow::Result<usize> {
    let begin = stage.env.clock.monotonic();
    loop {
        let now = stage.ask::<Stats>("/api/v1/stats").await?;
        let waited = stage.env.clock.monotonic() - begin;
        ensure!(now.work_items.dead == 0 && now.messages.dead == 0, "some are dead: {now:?}");
        let done = now.work_items.done - before.work_items.done == CROWD as u64;
        let under_way = now.messages.publishing + now.messages.retry_wait + now.messages.uncertain;
        if done && under_way == 0 && now.messages.scheduled <= before.messages.scheduled {
            say::line(format_args!("{CROWD} Events, {CROWD} done, 0 dead, {} s after the restart", waited.as_secs()));
            return Ok(usize::try_from(now.messages.published - before.messages.published)?);
        }
        ensure!(waited < SETTLE_MAX, "not settled: {now:?}\n{}", stage.site.host.log_tail());
        env::sleep(LOOK).await;
    }
}

fn show_totals(stage: &Stage, emitted: usize, arrived_before: usize) -> anyhow::Result<()> {
    let received = stage.sink.received();
    let arrived = &received[arrived_before..];
    let distinct: BTreeSet<&str> = arrived.iter().map(|received| received.id.as_str()).collect();
    ensure!(emitted == CROWD, "{emitted} messages were published for {CROWD} events");
    ensure!(distinct.len() == emitted, "{} of {emitted} messages arrived", distinct.len());
    say::line(format_args!(
        "{emitted} messages published, {} received, {} of them a second time under the same webhook-id",
        distinct.len(),
        arrived.len() - distinct.len()
    ));
    Ok(())
}
