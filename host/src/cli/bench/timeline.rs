//! `forebay bench timeline`: bulk scheduling, memory with many pending messages, the rate and lateness of due messages,
//! and the time from a restart to the first publish, from the own index and from a checkpoint.

use std::time::Duration;

use anyhow::{bail, ensure};
use bytes::Bytes;
use clap::Args;
use serde::Serialize;

use super::outbound::{Answer, Lateness, Outbound, Running, message, resident_mib};
use super::queue::{self, Database, On};
use super::report::Machine;
use crate::env::Env;
use crate::model::message::{MessageState, NewMessage};
use crate::model::names::DestinationName;
use crate::model::time::Timestamp;
use crate::timeline::Asked;

/// Destinations that the messages are spread over, each with this many in flight.
const DESTINATIONS: usize = 8;
const IN_FLIGHT_EACH: u32 = 128;
/// Due time of pending messages: after the run.
const PENDING_FOR: Duration = Duration::from_secs(30 * 86_400);
/// Messages that are prepared before they are scheduled.
const PART: usize = 100_000;
/// Least time between scheduling and the first due message, and its least multiple of the measured time of scheduling.
const LEAD: Duration = Duration::from_secs(2);
const LEAD_FACTOR: f64 = 2.0;

/// `forebay bench timeline`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Messages are emitted by the ends of executions, 100 each, as flows emit them. Destinations are functions of this \
                  process that take every message at once. All of it runs in one process: its memory is that of store and timeline \
                  together."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    on: On,
    /// Pending messages that are not due during the run
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    messages: u64,
    /// Messages that are due at one time
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    due: u64,
    /// Messages per second of the lateness measurement
    #[arg(long, value_name = "N", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate: u64,
    /// Seconds of the lateness measurement
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Size of a body in bytes
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    bytes: u32,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    database: Database,
    durability: &'static str,
    pending: u64,
    body_bytes: u32,
    scheduled_per_second: f64,
    applied_per_second: f64,
    resident_before_mib: f64,
    resident_mib: f64,
    due: u64,
    published_per_second: f64,
    rate: u64,
    lateness: Lateness,
    restart_to_first_publish_ms: f64,
    /// Without an index, with checkpoints.
    checkpoint_to_first_publish_ms: f64,
}

pub(super) async fn run(arguments: Arguments, env: &Env) -> anyhow::Result<()> {
    let server = queue::server(arguments.on.database)?;
    let names = (0..DESTINATIONS).map(|number| format!("sink-{number}"));
    let outbound = Outbound::open(server.as_ref(), names, IN_FLIGHT_EACH, env).await?;
    let mut bench = Bench { names: outbound.names(), body: vec![b'x'; arguments.bytes as usize].into(), outbound };
    let report = bench.measure(&arguments).await?;
    if arguments.on.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    bench.outbound.queue.store.close().await;
    Ok(())
}

struct Bench {
    outbound: Outbound,
    names: Vec<DestinationName>,
    body: Bytes,
}

impl Bench {
    async fn measure(&mut self, arguments: &Arguments) -> anyhow::Result<Report> {
        let clock = self.outbound.queue.env.clock.clone();
        let pending = usize::try_from(arguments.messages)?;
        let resident_before_mib = resident_mib();
        let scheduling = self.schedule_pending(pending).await?;
        let began = clock.monotonic();
        let running = self.outbound.start(|_| Answer::Taken).await?;
        self.outbound.until("applied", pending, async || running.pending().await.0).await?;
        self.outbound.until("in step", 1, async || usize::from(running.timeline.is_active())).await?;
        let applying = clock.monotonic() - began;
        let resident = resident_mib();
        let each = scheduling.as_secs_f64() / pending.max(1) as f64;
        let published = self.publish_due(arguments.due, each).await?;
        let lateness = self.publish_steadily(arguments.rate, arguments.seconds, each).await?;
        ensure!(lateness.early == 0, "{} messages were early", lateness.early);
        checkpoint(&running).await?;
        running.stop().await;
        let restart = self.restart().await?;
        std::fs::remove_dir_all(self.outbound.index_folder())?;
        let from_checkpoint = self.restart().await?;
        Ok(Report {
            machine: Machine::this(),
            database: arguments.on.database,
            durability: arguments.on.database.durability(),
            pending: arguments.messages,
            body_bytes: arguments.bytes,
            scheduled_per_second: pending as f64 / scheduling.as_secs_f64().max(f64::EPSILON),
            applied_per_second: pending as f64 / applying.as_secs_f64(),
            resident_before_mib,
            resident_mib: resident,
            due: arguments.due,
            published_per_second: arguments.due as f64 / published.as_secs_f64(),
            rate: arguments.rate,
            lateness,
            restart_to_first_publish_ms: restart.as_secs_f64() * 1e3,
            checkpoint_to_first_publish_ms: from_checkpoint.as_secs_f64() * 1e3,
        })
    }

    async fn schedule_pending(&mut self, count: usize) -> anyhow::Result<Duration> {
        let due_at = self.now() + PENDING_FOR;
        let mut took = Duration::ZERO;
        let mut scheduled = 0;
        while scheduled < count {
            let part = PART.min(count - scheduled);
            let messages = (0..part).map(|number| self.message(number, due_at)).collect();
            took += self.outbound.schedule("pending", messages).await?;
            scheduled += part;
            eprintln!("  {scheduled} of {count} messages are pending");
        }
        Ok(took)
    }

    /// All messages are due at one time: the time from then to the last recorded outcome.
    async fn publish_due(&mut self, count: u64, each: f64) -> anyhow::Result<Duration> {
        let due_at = self.now() + lead(count, each);
        let wanted = usize::try_from(count)?;
        let messages: Vec<NewMessage> = (0..wanted).map(|number| self.message(number, due_at)).collect();
        let before = self.published().await?;
        self.outbound.schedule("due", messages).await?;
        ensure!(
            self.now() < due_at,
            "scheduling took longer than was foreseen: what is due was due before all of it was there"
        );
        let store = self.outbound.queue.store.clone();
        let published = async || {
            let stats = store.stats().await.ok();
            stats.map_or(0, |stats| usize::try_from(stats.messages[&MessageState::Published] - before).unwrap_or(0))
        };
        self.outbound.until("due and published", wanted, published).await?;
        let took = self.now().since(due_at);
        let seen = self.outbound.seen.take(|_| true);
        ensure!(seen.messages == wanted && seen.early == 0, "not each once and in time: {seen:?}");
        Ok(took)
    }

    async fn publish_steadily(&mut self, rate: u64, seconds: u64, each: f64) -> anyhow::Result<Lateness> {
        let count = rate * seconds;
        let first = self.now() + lead(count, each);
        let messages = (0..count).map(|number| {
            let due_at = first + Duration::from_micros(number * 1_000_000 / rate);
            self.message(usize::try_from(number).unwrap_or(0), due_at)
        });
        let messages: Vec<NewMessage> = messages.collect();
        self.outbound.schedule("steady", messages).await?;
        ensure!(self.now() < first, "scheduling took longer than was foreseen");
        let seen = self.outbound.seen.clone();
        self.outbound.until("steadily due", usize::try_from(count)?, async || seen.count(|_| true)).await?;
        Ok(self.outbound.seen.take(|_| true))
    }

    /// Time from the start of a timeline to its first publish.
    async fn restart(&mut self) -> anyhow::Result<Duration> {
        let message = self.message(0, self.now());
        self.outbound.schedule("after the restart", vec![message]).await?;
        let clock = self.outbound.queue.env.clock.clone();
        let began = clock.monotonic();
        let running = self.outbound.start(|_| Answer::Taken).await?;
        let seen = self.outbound.seen.clone();
        self.outbound.until("first publish", 1, async || seen.count(|_| true)).await?;
        let took = clock.monotonic() - began;
        self.outbound.seen.take(|_| true);
        running.stop().await;
        Ok(took)
    }

    async fn published(&self) -> anyhow::Result<u64> {
        Ok(self.outbound.queue.store.stats().await?.messages[&MessageState::Published])
    }

    fn message(&self, number: usize, due_at: Timestamp) -> NewMessage {
        message(&self.names[number % self.names.len()], due_at, &self.body, &self.outbound.queue.env)
    }

    fn now(&self) -> Timestamp {
        self.outbound.queue.env.now()
    }
}

/// Makes a checkpoint of every shard, one after the other.
async fn checkpoint(running: &Running) -> anyhow::Result<()> {
    for (view, _) in running.timeline.look().await {
        match running.timeline.checkpoint(view.shard).await {
            Asked::Made(_) => {}
            other @ (Asked::NotHere | Asked::UnderWay | Asked::Failed(_)) => {
                bail!("shard {} made no checkpoint: {other:?}", view.shard.0)
            }
        }
    }
    Ok(())
}

fn lead(count: u64, each: f64) -> Duration {
    LEAD + Duration::from_secs_f64(count as f64 * each * LEAD_FACTOR)
}

fn print(report: &Report) {
    println!("timeline: {} messages pending, bodies of {} bytes", report.pending, report.body_bytes);
    println!("  on         {}", report.machine.describe());
    println!("  with       {}", report.durability);
    println!("  scheduled  {:>8.0}/s   through the store, in bulk", report.scheduled_per_second);
    println!("  applied    {:>8.0}/s   from the store into the index", report.applied_per_second);
    println!(
        "  memory     {:>8.0} MiB with all of them pending ({:.0} before)",
        report.resident_mib, report.resident_before_mib
    );
    println!(
        "  due        {:>8.0}/s   {} at one moment, to their recorded outcomes",
        report.published_per_second, report.due
    );
    let Lateness { p50_ms, p99_ms, max_ms, early, .. } = report.lateness;
    println!("  late       p50 {p50_ms} ms   p99 {p99_ms} ms   max {max_ms} ms   early {early}   ({}/s)", report.rate);
    println!(
        "  restarted  {:>8.0} ms to the first publish, {:.0} ms with the index gone, from checkpoints",
        report.restart_to_first_publish_ms, report.checkpoint_to_first_publish_ms
    );
}
