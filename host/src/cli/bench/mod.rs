//! `forebay bench`: measures a host from outside, and says on what. Nothing here asserts a time.
//!
//! But for `drr`, `drain`, `claim`, `guest`, `timeline` and `neighbours`, the host runs in a process of its own, as in
//! production; the load generator and the receiver share the machine with it, and their cost is part of every figure.

mod baseline;
mod claim;
mod drain;
mod drr;
mod flow;
mod guest;
mod intake;
mod load;
mod neighbours;
mod outbound;
mod queue;
mod report;
mod timeline;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::env::Env;

/// `forebay bench`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Durable intake: signed pushes over keep-alive connections, each answered after its commit
    Intake(intake::Arguments),
    /// End to end: intake, the guest's `prepare` and `run`, one message emitted, optionally delivered
    Flow(flow::Arguments),
    /// The queue alone: a backlog worked off by a native flow that does nothing
    Drain(drain::Arguments),
    /// Claim, finish, renewal and promotion beside a large backlog, in four shapes
    Claim(claim::Arguments),
    /// Guests alone: what a flow costs, a start from the cache, and what neighbours feel of a guest that never ends
    Guest(guest::Arguments),
    /// What one decision of the fair sharing between lanes costs, or whether its bounds hold
    Drr(drr::Arguments),
    /// The timeline: scheduling in bulk, memory, what is due, lateness, restart
    Timeline(timeline::Arguments),
    /// How late quiet lanes are beside a tarpit, a storm of failures and a flood
    Neighbours(neighbours::Arguments),
    /// The bare loop that `intake --baseline` measures
    #[command(hide = true)]
    ServeBaseline {
        /// The folder for its database
        data: PathBuf,
    },
}

/// What every benchmark takes.
#[derive(Debug, Clone, Args)]
struct Shared {
    /// The github pack
    #[arg(long, value_name = "FILE")]
    pack: PathBuf,
    /// Keep-alive connections, each with one request in flight
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    connections: u16,
    /// How long requests are sent
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Shared {
    fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// Runs a benchmark.
pub async fn run(arguments: BenchArguments, env: &Env) -> anyhow::Result<()> {
    match arguments.what {
        What::Intake(arguments) => intake::run(arguments, env).await,
        What::Flow(arguments) => flow::run(arguments, env).await,
        What::Drain(arguments) => drain::run(arguments, env).await,
        What::Claim(arguments) => claim::run(arguments, env).await,
        What::Guest(arguments) => guest::run(arguments, env).await,
        What::Drr(arguments) => drr::run(&arguments, env),
        What::Timeline(arguments) => timeline::run(arguments, env).await,
        What::Neighbours(arguments) => neighbours::run(arguments, env).await,
        What::ServeBaseline { data } => baseline::serve(&data, crate::rig::site::GITHUB_SECRET.as_bytes()).await,
    }
}
