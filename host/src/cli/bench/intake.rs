//! `forebay bench intake`: durable admissions per second, and the latency of their answers.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::Shared;
use super::load::{self, Load};
use super::report::{Admitted, Machine};
use crate::env::Env;
use crate::rig::github::Delivery;
use crate::rig::site::{GITHUB_SECRET, NAMESPACE, Site};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    shared: Shared,
    /// Also measure the bare loop (axum, HMAC and a group-committed insert), and print the ratio
    #[arg(long)]
    baseline: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    connections: u16,
    body_bytes: usize,
    durability: &'static str,
    forebay: Admitted,
    baseline: Option<Admitted>,
    ratio: Option<f64>,
}

/// Durability of both stores before they answer.
const DURABILITY: &str = "SQLite WAL, group commit; every 202 after its fsync";

pub(super) async fn run(arguments: Arguments, env: &Env) -> anyhow::Result<()> {
    let shared = arguments.shared;
    let deliveries = Arc::new(load::pushes(GITHUB_SECRET.as_bytes()));
    let baseline = match arguments.baseline {
        true => Some(measure_baseline(&shared, deliveries.clone(), env).await?),
        false => None,
    };
    let forebay = measure_host(&shared, deliveries.clone(), env).await?;
    let report = Report {
        machine: Machine::this(),
        connections: shared.connections,
        body_bytes: deliveries[0].body.len(),
        durability: DURABILITY,
        ratio: baseline.as_ref().map(|baseline| forebay.rate / baseline.rate),
        forebay,
        baseline,
    };
    if shared.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

/// Admitted events stay in the queue, as with a long backlog: this measures intake, not execution.
const HELD_BACK: &str = "[inbound]\nworkers_per_pack = 0\n";

/// A host that only admits.
async fn measure_host(shared: &Shared, deliveries: Arc<Vec<Delivery>>, env: &Env) -> anyhow::Result<Admitted> {
    let site = Site::new(std::env::current_exe()?, vec![shared.pack.clone()], HELD_BACK)?;
    let host = site.host.start(env).await?;
    let outcome = load::run(to(site.host.intake, shared, deliveries), env).await?;
    host.kill().await?;
    Ok(Admitted::from(&outcome))
}

async fn measure_baseline(shared: &Shared, deliveries: Arc<Vec<Delivery>>, env: &Env) -> anyhow::Result<Admitted> {
    let folder = tempfile::tempdir()?;
    let (mut child, address) = start_baseline(folder.path()).await?;
    let outcome = load::run(to(address, shared, deliveries), env).await?;
    child.kill().await?;
    Ok(Admitted::from(&outcome))
}

async fn start_baseline(data: &std::path::Path) -> anyhow::Result<(Child, SocketAddr)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "serve-baseline"]).arg(data);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let stdout = child.stdout.take().context("its output is piped")?;
    let line = BufReader::new(stdout).lines().next_line().await?.context("the baseline ended at its start")?;
    Ok((child, line.parse()?))
}

fn to(address: SocketAddr, shared: &Shared, deliveries: Arc<Vec<Delivery>>) -> Load {
    Load {
        address,
        path: format!("/in/{NAMESPACE}/github"),
        connections: usize::from(shared.connections),
        duration: shared.duration(),
        deliveries,
    }
}

fn print(report: &Report) {
    println!("durable intake: {} connections, {} byte signed GitHub push", report.connections, report.body_bytes);
    println!("  on       {}", report.machine.describe());
    println!("  with     {}", report.durability);
    println!("  forebay  {}", report.forebay.describe());
    if let (Some(baseline), Some(ratio)) = (&report.baseline, report.ratio) {
        println!("  bare     {}", baseline.describe());
        println!("  ratio    {ratio:.2}");
    }
}
