//! `forebay bench flow`: events a second from the request to the emitted message, and, with `--deliver`, to the
//! receiver.
//!
//! The rate covers the time from the first request to the last event done (or the last message delivered), so that a
//! backlog at the end of the load counts.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::Shared;
use super::load::{self, Load};
use super::report::{Admitted, Machine};
use crate::env::{self, Env};
use crate::rig::http;
use crate::rig::process::HostCommand;
use crate::rig::receiver::{Receiver, Reply};
use crate::rig::site::{GITHUB_SECRET, LOOPBACK_ALLOWED, NAMESPACE, Site, destination};

/// Between two looks at the rest.
const LOOK: Duration = Duration::from_millis(50);
/// Time without progress after which the run fails.
const STALLED: Duration = Duration::from_secs(30);
/// Messages in flight, if they are delivered.
const DELIVERED_AT_ONCE: u32 = 256;
/// Delay of the receiver that does not answer: longer than any measurement.
const HELD: Duration = Duration::from_secs(3_600);

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    shared: Shared,
    /// Also deliver every message over HTTP to a receiver on this machine; otherwise the receiver does not answer the
    /// first one, and the others wait
    #[arg(long)]
    deliver: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    connections: u16,
    delivered: bool,
    intake: Admitted,
    events: u64,
    messages: u64,
    seconds: f64,
    events_per_second: f64,
}

pub(super) async fn run(arguments: Arguments, env: &Env) -> anyhow::Result<()> {
    let shared = arguments.shared;
    let (reply, limit) = if arguments.deliver { (Reply::OK, DELIVERED_AT_ONCE) } else { (Reply::Late(HELD), 1) };
    let receiver = Receiver::start(move |_| reply.clone()).await?;
    let limit = format!("in_flight_messages = {limit}\ndeadline_ms = 300_000");
    let settings = format!("{LOOPBACK_ALLOWED}{}", destination("notifications", receiver.address, &limit));
    let site = Site::new(std::env::current_exe()?, vec![shared.pack.clone()], &settings)?;
    let host = site.host.start(env).await?;
    let load = Load {
        address: site.host.intake,
        path: format!("/in/{NAMESPACE}/github"),
        connections: usize::from(shared.connections),
        duration: shared.duration(),
        deliveries: Arc::new(load::pushes(GITHUB_SECRET.as_bytes())),
    };
    // One event of each repository first, so that the pack is compiled before the measurement.
    let warm_up = load::send_each(&load).await?;
    let before = wait_until_done(&site.host, warm_up, arguments.deliver, env).await?;
    let begin = env.clock.monotonic();
    let outcome = load::run(load, env).await?;
    let done = wait_until_done(&site.host, warm_up + outcome.accepted(), arguments.deliver, env).await?;
    let seconds = (env.clock.monotonic() - begin).as_secs_f64();
    host.kill().await?;
    let report = Report {
        machine: Machine::this(),
        connections: shared.connections,
        delivered: arguments.deliver,
        intake: Admitted::from(&outcome),
        events: done.events - before.events,
        messages: done.messages - before.messages,
        seconds,
        events_per_second: (done.events - before.events) as f64 / seconds,
    };
    if shared.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

/// Rows that reached the measured end.
struct Done {
    events: u64,
    messages: u64,
}

/// Waits until `expected` events are done and, with `delivered`, all of their messages are published.
async fn wait_until_done(host: &HostCommand, expected: u64, delivered: bool, env: &Env) -> anyhow::Result<Done> {
    let mut progress = (0, env.clock.monotonic());
    loop {
        let stats = http::get(host.admin, "/api/v1/stats").await?.json()?;
        let work_items = &stats["work_items"];
        let messages = &stats["messages"];
        let dead = count(work_items, "dead")? + count(messages, "dead")?;
        if dead > 0 {
            bail!("{dead} rows are dead: {}", host.log_tail());
        }
        let events = count(work_items, "done")?;
        let published = count(messages, "published")?;
        let emitted =
            published + count(messages, "scheduled")? + count(messages, "publishing")? + count(messages, "retry_wait")?;
        if events >= expected && (!delivered || published == emitted) {
            return Ok(Done { events, messages: if delivered { published } else { emitted } });
        }
        let now = env.clock.monotonic();
        if events + published > progress.0 {
            progress = (events + published, now);
        } else if now - progress.1 > STALLED {
            bail!("nothing was done for {} s, at {stats}\n{}", STALLED.as_secs(), host.log_tail());
        }
        env::sleep(LOOK).await;
    }
}

fn count(states: &Value, state: &str) -> anyhow::Result<u64> {
    states[state].as_u64().with_context(|| format!("the statistics have no `{state}`: {states}"))
}

fn print(report: &Report) {
    let end = if report.delivered {
        "delivered over HTTP to a receiver on this machine"
    } else {
        "emitted, its destination busy"
    };
    println!("end to end: {} connections, every message {end}", report.connections);
    println!("  on       {}", report.machine.describe());
    println!("  intake   {}", report.intake.describe());
    println!(
        "  flow     {:>8.0}/s   ({} events, {} messages in {:.1} s)",
        report.events_per_second, report.events, report.messages, report.seconds
    );
}
