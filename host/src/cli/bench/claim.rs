//! `forebay bench claim`: the times of the queue's operations with a backlog, in four shapes.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::queue::{self, Database, On, Queue, done};
use super::report::Machine;
use crate::env::Env;
use crate::model::failure::{Failure, FailureClass};
use crate::model::queue::{QueueClass, QueueClasses};
use crate::model::work_item::ClaimedWorkItem;
use crate::store::{CLAIM_ROWS_MAX, Disposition, Renewal};

/// Rows of one claim, of one renewal, and of the finishes that are sent together.
const BATCH_ROWS: u32 = 32;
/// Delay of delayed rows: longer than any run.
const DELAY: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Time of a renewed lease.
const LEASE: Duration = Duration::from_secs(900);
/// Rows between two progress reports.
const REPORT_ROWS: u64 = 100_000;

/// `forebay bench claim`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Each time is that of a whole call, its commit included: a claim of 32 rows, 32 finishes sent together, a renewal \
                        of 32 leases, and the end of one head, which promotes its successor."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    on: On,
    /// Rows of the backlog, for example 200000 and 1000000
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [1_000, 200_000], value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    rows: Vec<u64>,
    /// The shapes of the backlog; all by default
    #[arg(long, value_enum, value_delimiter = ',')]
    shapes: Vec<Shape>,
    /// Measurements of each operation
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
}

/// The shape of a backlog.
#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Shape {
    /// All wait in one lane
    DeepLane,
    /// All are delayed
    ManyDelayed,
    /// Each is the head of a lane
    ManyLanes,
    /// All are done
    ManyFinished,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    database: Database,
    durability: &'static str,
    rounds: u32,
    measured: Vec<Measured>,
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Measured {
    shape: Shape,
    rows: u64,
    claim: Times,
    renew: Times,
    finish: Times,
    promotion: Times,
}

/// The times of an operation over all rounds.
#[derive(Debug, Serialize)]
struct Times {
    p50_ms: f64,
    max_ms: f64,
}

pub(super) async fn run(arguments: Arguments, env: &Env) -> anyhow::Result<()> {
    let server = queue::server(arguments.on.database)?;
    let shapes = if arguments.shapes.is_empty() { Shape::value_variants() } else { &arguments.shapes };
    let mut measured = Vec::new();
    for shape in shapes {
        for rows in &arguments.rows {
            let queue = Queue::open(server.as_ref(), env).await?;
            shape.fill(&queue, *rows).await?;
            measured.push(measure(*shape, *rows, &queue, arguments.rounds).await?);
            queue.store.close().await;
        }
    }
    let database = arguments.on.database;
    let (machine, rounds) = (Machine::this(), arguments.rounds);
    let report = Report { machine, database, durability: database.durability(), rounds, measured };
    if arguments.on.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

impl Shape {
    /// Puts a backlog of this shape into an empty queue.
    async fn fill(self, queue: &Queue, rows: u64) -> anyhow::Result<()> {
        let name = self.name();
        match self {
            Self::DeepLane => queue.fill(&name, rows, QueueClass::Default, |_| Some("deep".to_owned())).await,
            Self::ManyLanes => queue.fill(&name, rows, QueueClass::Default, |n| Some(format!("lane-{n}"))).await,
            Self::ManyFinished => {
                queue.fill(&name, rows, QueueClass::Default, |_| None).await?;
                end_all(queue, rows, done()).await
            }
            Self::ManyDelayed => {
                queue.fill(&name, rows, QueueClass::Default, |_| None).await?;
                let failure = Failure::new(FailureClass::Trap, "delayed by the benchmark");
                let run_after = queue.env.now() + DELAY;
                end_all(queue, rows, Disposition::Retry { failure, run_after, leaves_lane: false }).await
            }
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Claims all rows and ends them with an outcome.
async fn end_all(queue: &Queue, rows: u64, disposition: Disposition) -> anyhow::Result<()> {
    let (mut ended, mut reported) = (0, 0);
    while let items = queue.claim(CLAIM_ROWS_MAX, QueueClasses::ALL).await?
        && !items.is_empty()
    {
        queue.finish(&items, &disposition).await?;
        ended += items.len() as u64;
        if ended - reported >= REPORT_ROWS {
            eprintln!("  {ended} of {rows} rows have left the line");
            reported = ended;
        }
    }
    Ok(())
}

/// Measures with the backlog: claimed heads, and a lane of another class whose heads follow one another.
async fn measure(shape: Shape, rows: u64, queue: &Queue, rounds: u32) -> anyhow::Result<Measured> {
    let heads = u64::from(rounds) * u64::from(BATCH_ROWS);
    queue.fill("heads", heads, QueueClass::Default, |n| Some(format!("head-{n}"))).await?;
    queue.fill("line", u64::from(rounds) + 1, QueueClass::Interactive, |_| Some("line".to_owned())).await?;
    let (backlog, line) = (QueueClasses::of(&[QueueClass::Default]), QueueClasses::of(&[QueueClass::Interactive]));
    let clock = &queue.env.clock;
    let [mut claims, mut renewals, mut finishes, mut promotions] = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        let before = clock.monotonic();
        let items = queue.claim(BATCH_ROWS, backlog).await?;
        let claimed = clock.monotonic();
        renew(queue, &items).await?;
        let renewed = clock.monotonic();
        queue.finish(&items, &done()).await?;
        let finished = clock.monotonic();
        claims.push(claimed - before);
        renewals.push(renewed - claimed);
        finishes.push(finished - renewed);

        let head = queue.claim(1, line).await?;
        let before = clock.monotonic();
        queue.finish(&head, &done()).await?;
        promotions.push(clock.monotonic() - before);
    }
    eprintln!("  {}, {rows} rows: measured", shape.name());
    let [claim, renew, finish, promotion] = [claims, renewals, finishes, promotions].map(Times::of);
    Ok(Measured { shape, rows, claim, renew, finish, promotion })
}

async fn renew(queue: &Queue, items: &[ClaimedWorkItem]) -> anyhow::Result<()> {
    let rows = items.iter().map(|item| (item.id, item.lease, item.epoch)).collect();
    let kept = queue.store.renew(Renewal { rows, lease_duration: LEASE, now: queue.env.now() }).await?;
    anyhow::ensure!(kept.len() == items.len(), "{} of {} leases were renewed", kept.len(), items.len());
    Ok(())
}

impl Times {
    /// Of at least one measurement.
    fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let ms = |took: Duration| took.as_secs_f64() * 1e3;
        Self { p50_ms: ms(took[took.len() / 2]), max_ms: ms(took[took.len() - 1]) }
    }
}

fn print(report: &Report) {
    println!("claims of {BATCH_ROWS} rows beside a backlog, {} rounds; median and longest, in ms", report.rounds);
    println!("  on    {}", report.machine.describe());
    println!("  with  {}", report.durability);
    println!("  {:<14}{:>10}{:>16}{:>16}{:>16}{:>16}", "backlog", "rows", "claim", "renew", "finish", "promotion");
    for line in &report.measured {
        print!("  {:<14}{:>10}", line.shape.name(), line.rows);
        for times in [&line.claim, &line.renew, &line.finish, &line.promotion] {
            print!("{:>16}", format!("{:.1} / {:.1}", times.p50_ms, times.max_ms));
        }
        println!();
    }
}
