//! `forebay bench`: measures a host, and names the machine. No benchmark asserts a time.
//!
//! In `intake` and `flow` the host runs in a separate process, as in production. The load generator and the receiver
//! share the machine with it, and their cost is part of every figure. The other benchmarks run in one process.

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

const HELP: &str = "\
Examples:
  forebay bench intake --pack github.fpk --seconds 30
  forebay bench flow --pack github.fpk
  forebay bench drain --items 100000
  forebay bench claim --json
  forebay bench guest --pack github.fpk
  forebay bench drr --check
  forebay bench timeline
  forebay bench neighbours";

/// `forebay bench`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
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
    /// The queue alone: a backlog, and a native flow that does nothing
    Drain(drain::Arguments),
    /// Claim, finish, renewal and promotion with a large backlog, in four shapes
    Claim(claim::Arguments),
    /// Guests alone: the cost of a flow, a start from the cache, and the effect of an endless guest on neighbours
    Guest(guest::Arguments),
    /// Fair sharing between lanes: the cost of a decision, or a check of its bounds
    Drr(drr::Arguments),
    /// The timeline: bulk scheduling, memory, due messages, lateness, restart
    Timeline(timeline::Arguments),
    /// Lateness of quiet lanes next to a tarpit, a storm of failures and a flood
    Neighbours(neighbours::Arguments),
    /// The bare loop that `intake --baseline` measures
    #[command(hide = true)]
    ServeBaseline {
        /// The folder for its database
        data: PathBuf,
    },
}

/// Arguments of the benchmarks with a load generator.
#[derive(Debug, Clone, Args)]
struct Shared {
    /// The github pack
    #[arg(long, value_name = "FILE")]
    pack: PathBuf,
    /// Keep-alive connections, each with one request in flight
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    connections: u16,
    /// Seconds of load
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
