//! `forebay bench drain`: the rate at which a backlog is run without a guest: scheduler, limiter, claim, loading,
//! finish.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::runtime::Handle;

use super::queue::{self, Database, On, Queue};
use super::report::Machine;
use crate::claim::ClaimOptions;
use crate::env::{self, Env};
use crate::execute::{ExecuteOptions, ExecutorParts, Generations, NoopFlow, Unconnected};
use crate::model::pack::{
    Answer, Coalescing, FailedHeadPolicy, GuestLimits, Manifest, Ordering, QueueClassRule, Route,
};
use crate::model::queue::QueueClass;
use crate::model::verification::Verification;
use crate::model::work_item::WorkState;
use crate::supervise::Pool;

/// Between two looks at the rest.
const LOOK: Duration = Duration::from_millis(20);
/// Between two progress reports.
const REPORT: Duration = Duration::from_secs(2);
/// Time for the pool to stop.
const STOP: Duration = Duration::from_secs(10);

/// `forebay bench drain`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Work items are stored first, as deliveries are. Then a pool with a native flow that does nothing runs them, \
                  and the time to the last recorded outcome is measured."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    on: On,
    /// Number of work items
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    items: u64,
    /// Sources, each with an ordered lane; 0 for no order
    #[arg(long, value_name = "N", default_value_t = 0)]
    lanes: u64,
    /// Number of workers
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    workers: u32,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    database: Database,
    durability: &'static str,
    items: u64,
    lanes: u64,
    workers: u32,
    claims: u64,
    seconds: f64,
    items_per_second: f64,
}

pub(super) async fn run(arguments: Arguments, env: &Env) -> anyhow::Result<()> {
    let server = queue::server(arguments.on.database)?;
    let queue = Queue::open(server.as_ref(), env).await?;
    let lanes = arguments.lanes;
    let source = |n: u64| n.checked_rem(lanes).map(|lane| format!("source-{lane}"));
    queue.fill("drain", arguments.items, QueueClass::Default, source).await?;
    let (took, claims) = drain(&queue, &arguments).await?;
    let report = Report {
        machine: Machine::this(),
        database: arguments.on.database,
        durability: arguments.on.database.durability(),
        items: arguments.items,
        lanes,
        workers: arguments.workers,
        claims,
        seconds: took.as_secs_f64(),
        items_per_second: arguments.items as f64 / took.as_secs_f64(),
    };
    if arguments.on.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    queue.store.close().await;
    Ok(())
}

/// Runs the whole backlog. Returns the time and the number of claims.
async fn drain(queue: &Queue, arguments: &Arguments) -> anyhow::Result<(Duration, u64)> {
    let generations = Generations::default();
    generations.insert(queue.pack.clone(), queue.generation, Arc::new(NoopFlow::new(Arc::new(manifest(queue)))));
    let parts = ExecutorParts {
        pack: queue.pack.clone(),
        options: ExecuteOptions { slots: arguments.workers, ..ExecuteOptions::default() },
        store: queue.store.clone(),
        generations,
        env: queue.env.clone(),
        caller: Arc::new(Unconnected),
        runtime: Handle::current(),
    };
    let began = queue.env.clock.monotonic();
    let pool = Pool::start(ClaimOptions::default(), parts);
    let mut reported = began;
    let took = loop {
        env::sleep(LOOK).await;
        let done = queue.store.stats().await?.work_items[&WorkState::Done];
        let now = queue.env.clock.monotonic();
        if done >= arguments.items {
            break now - began;
        }
        if now - reported >= REPORT {
            eprintln!("  {done} of {} work items are done", arguments.items);
            reported = now;
        }
    };
    let claims = pool.executors().vitals().claims();
    pool.drain(STOP).await;
    Ok((took, claims))
}

/// A route without deliveries: rows are put into the store, and run under its rules.
fn manifest(queue: &Queue) -> Manifest {
    let route = Route {
        path: queue.route.clone(),
        verification: Verification::Plain,
        event_list: None,
        delivery_key: None,
        source_key: None,
        ordering: Ordering::Source,
        coalescing: Coalescing::None,
        failed_head: FailedHeadPolicy::DEFAULT,
        queue_class: QueueClassRule::DEFAULT,
        keep_headers: Vec::new(),
        answer: Answer::Receipt,
        handshake: None,
    };
    Manifest {
        name: queue.pack.clone(),
        version: "1".to_owned(),
        imports: Vec::new(),
        limits: GuestLimits::DEFAULT,
        routes: vec![route],
        readers: Vec::new(),
        destinations: Vec::new(),
        settings: std::collections::BTreeMap::new(),
    }
}

fn print(report: &Report) {
    let order = if report.lanes == 0 { "no order".to_owned() } else { format!("{} lanes", report.lanes) };
    println!("drain: {} work items, {order}, {} workers, a flow that does nothing", report.items, report.workers);
    println!("  on       {}", report.machine.describe());
    println!("  with     {}", report.durability);
    let each = report.items as f64 / report.claims.max(1) as f64;
    println!("  drained  {:>8.0}/s   ({:.1} s, {each:.0} rows a claim)", report.items_per_second, report.seconds);
}
