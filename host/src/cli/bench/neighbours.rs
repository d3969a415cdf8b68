//! `forebay bench neighbours`: the lateness of quiet lanes with and without a tarpit, a storm of failures and a flood.

use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use clap::Args;
use serde::Serialize;

use super::outbound::{Answer, Lateness, Outbound, message};
use super::queue::{self, Database, On};
use super::report::Machine;
use crate::env::Env;
use crate::model::message::NewMessage;
use crate::rig::mariadb::MariaDb;

/// Number of lanes; three of them are noisy.
const QUIET: usize = 97;
const NOISY: [&str; 3] = ["tarpit", "storm", "flood"];
const QUIET_PREFIX: &str = "quiet-";
/// The default of a destination.
const IN_FLIGHT_EACH: u32 = 32;
/// Time of the tarpit for every message.
const TARPIT: Duration = Duration::from_secs(30);
/// Messages that are due at once for the tarpit and for the storm.
const TROUBLE: usize = 2_000;
/// Least time between scheduling and the first due message.
const LEAD: Duration = Duration::from_secs(2);
/// Time that is reserved for scheduling a message: more than any machine needs.
const LEAD_EACH: Duration = Duration::from_micros(if cfg!(debug_assertions) { 1_500 } else { 200 });
const BODY: Bytes = Bytes::from_static(&[b'x'; 256]);

/// `forebay bench neighbours`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "One hundred lanes in one process: 97 quiet ones; one whose destination takes 30 s for every message; one whose \
                  destination fails every message; one with a flood that is due at one moment. First the quiet lanes alone, then all."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    on: On,
    /// Messages of the flood
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    flood: u64,
    /// Messages per second of a quiet lane
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    rate: u64,
    /// Seconds of the quiet lanes
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    database: Database,
    durability: &'static str,
    quiet_lanes: usize,
    quiet_messages_per_second: u64,
    flood: u64,
    alone: Lateness,
    beside: Lateness,
    /// Ratio of the p99 with and without noisy lanes, each at least a millisecond.
    ratio: f64,
    flood_published: usize,
    tarpit_attempts: usize,
    storm_attempts: usize,
}

pub(super) async fn run(arguments: Arguments, env: &Env) -> anyhow::Result<()> {
    let server = queue::server(arguments.on.database)?;
    let alone = measure(server.as_ref(), &arguments, Neighbours::None, env).await?;
    let beside = measure(server.as_ref(), &arguments, Neighbours::Noisy, env).await?;
    let report = Report {
        machine: Machine::this(),
        database: arguments.on.database,
        durability: arguments.on.database.durability(),
        quiet_lanes: QUIET,
        quiet_messages_per_second: arguments.rate,
        flood: arguments.flood,
        alone: alone.quiet,
        beside: beside.quiet,
        ratio: beside.quiet.p99_ms.max(1) as f64 / alone.quiet.p99_ms.max(1) as f64,
        flood_published: beside.attempts[2],
        tarpit_attempts: beside.attempts[0],
        storm_attempts: beside.attempts[1],
    };
    if arguments.on.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

/// The noisy lanes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Neighbours {
    None,
    Noisy,
}

struct Measured {
    quiet: Lateness,
    /// Messages of each noisy lane.
    attempts: [usize; NOISY.len()],
}

async fn measure(
    server: Option<&MariaDb>,
    arguments: &Arguments,
    neighbours: Neighbours,
    env: &Env,
) -> anyhow::Result<Measured> {
    let quiet = (0..QUIET).map(|number| format!("{QUIET_PREFIX}{number}"));
    let names = quiet.chain(NOISY.map(str::to_owned));
    let mut outbound = Outbound::open(server, names, IN_FLIGHT_EACH, env).await?;
    let quiet = usize::try_from(arguments.rate * arguments.seconds)? * QUIET;
    let noisy = match neighbours {
        Neighbours::None => [0; NOISY.len()],
        Neighbours::Noisy => [TROUBLE, TROUBLE, usize::try_from(arguments.flood)?],
    };
    let all = quiet + noisy.iter().sum::<usize>();
    let first = env.now() + LEAD + LEAD_EACH * u32::try_from(all)?;
    let mut messages: Vec<NewMessage> = Vec::with_capacity(all);
    for name in outbound.names() {
        if let Some(at) = NOISY.iter().position(|noisy| *noisy == name.as_str()) {
            messages.extend((0..noisy[at]).map(|_| message(&name, first, &BODY, env)));
            continue;
        }
        // Quiet lanes are out of step with one another.
        let step = Duration::from_secs(1) / u32::try_from(arguments.rate)?;
        let offset = step.mul_f64(messages.len() as f64 * 0.618 % 1.0);
        let due_at = |number: u64| first + offset + step * u32::try_from(number).unwrap_or(u32::MAX);
        let count = arguments.rate * arguments.seconds;
        messages.extend((0..count).map(|number| message(&name, due_at(number), &BODY, env)));
    }
    let running = outbound.start(answer).await?;
    outbound.schedule(if neighbours == Neighbours::None { "alone" } else { "beside" }, messages).await?;
    ensure!(env.now() < first, "scheduling took longer than was foreseen: this machine is busy with something else");
    let seen = outbound.seen.clone();
    let is_quiet = |name: &str| name.starts_with(QUIET_PREFIX);
    outbound.until("quiet messages", quiet, async || seen.count(is_quiet)).await?;
    let attempts = NOISY.map(|noisy| seen.count(|name| name == noisy));
    let quiet = seen.take(is_quiet);
    ensure!(quiet.early == 0, "{} messages were early", quiet.early);
    outbound.over.cancel();
    running.stop().await;
    outbound.queue.store.close().await;
    Ok(Measured { quiet, attempts })
}

fn answer(destination: &str) -> Answer {
    match destination {
        "tarpit" => Answer::TakenAfter(TARPIT),
        "storm" => Answer::Failed,
        _ => Answer::Taken,
    }
}

fn print(report: &Report) {
    println!("neighbours: {QUIET} quiet lanes of {}/s each, and three noisy ones", report.quiet_messages_per_second);
    println!("  on      {}", report.machine.describe());
    println!("  with    {}", report.durability);
    for (what, Lateness { p50_ms, p99_ms, max_ms, messages, .. }) in
        [("alone", report.alone), ("beside", report.beside)]
    {
        println!("  {what:<6}  p50 {p50_ms} ms   p99 {p99_ms} ms   max {max_ms} ms   ({messages} messages)");
    }
    println!("  ratio   {:.2} of the p99", report.ratio);
    println!(
        "  noisy   flood {} of {} published, tarpit {} attempts, storm {} attempts",
        report.flood_published, report.flood, report.tarpit_attempts, report.storm_attempts
    );
}
