//! The command line: one file per verb.
//!
//! A verb reads its arguments, makes one call, and prints the result: data on standard output (aligned, or JSON),
//! everything else on standard error. Exit codes tell scripts what failed ([`exit`]). Verbs about a running host ask
//! its admin listener; none opens the store of a running host.

pub mod bench;
pub mod demo;

mod client;
mod config;
mod destination;
mod dev;
mod doctor;
mod event;
mod exit;
mod fixture;
mod lane;
mod message;
mod migrate;
mod output;
mod pack;
mod queue;
mod retention;
mod serve;
mod shard;
mod stats;
#[cfg(test)]
mod tests;
mod work_item;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::env::Env;
use exit::Failure;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed
  2  wrong usage or configuration
  3  the object does not exist
  4  too late, or in conflict with the state of the object
  5  the host cannot be reached
  6  a comparison found a difference";

/// Receive webhooks durably, run connectors on them, and deliver the messages that they emit
#[derive(Debug, Parser)]
#[command(name = "forebay", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a host
    Serve(serve::Arguments),
    /// Write a connector: build, serve and try it whenever a file is saved
    Dev(dev::Arguments),
    /// Build and test connectors, and change which generation is active
    #[command(subcommand, after_help = pack::HELP)]
    Pack(pack::Verb),
    /// Show deliveries, or run them again
    #[command(subcommand, after_help = event::HELP)]
    Event(event::Verb),
    /// Show work items, skip a dead one, or run one again
    #[command(subcommand, after_help = work_item::HELP)]
    WorkItem(work_item::Verb),
    /// Show what is next in a pack's queue
    #[command(subcommand, after_help = queue::HELP)]
    Queue(queue::Verb),
    /// Show outgoing messages and why they wait; cancel, reschedule or redrive them
    #[command(subcommand, after_help = message::HELP)]
    Message(message::Verb),
    /// Show destinations; set and remove them while hosts run
    #[command(subcommand, after_help = destination::HELP)]
    Destination(destination::Verb),
    /// Show Destination Lanes; pause, close or resume them
    #[command(subcommand, after_help = lane::HELP)]
    Lane(lane::Verb),
    /// Show Delay Shards, or make a checkpoint
    #[command(subcommand, after_help = shard::HELP)]
    Shard(shard::Verb),
    /// Count work items and messages by state
    Stats(stats::Arguments),
    /// Show how long what has ended is kept, and how far a host is with removing it
    Retention(retention::Arguments),
    /// Update a store's schema, and create missing work items
    Migrate(migrate::Arguments),
    /// Check everything that a host needs, with a remedy for each finding
    Doctor(doctor::Arguments),
    /// Check a configuration, or print the reference
    Config(config::Arguments),
    /// Play a demonstration: deliveries go through a host that is killed and recovers
    Demo(demo::DemoArguments),
    /// Measure a host on this machine
    Bench(bench::BenchArguments),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A pipe that is closed before the end of the help is no failure.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::USAGE));
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().thread_name("host").enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::Failed(format!("threads cannot be started: {error}")).report(),
    };
    let outcome = runtime.block_on(run(cli.verb));
    // Tasks that still run were told to stop, and did not in time.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

async fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Serve(arguments) => serve::run(arguments).await,
        Verb::Dev(arguments) => dev::run(arguments).await,
        Verb::Pack(verb) => pack::run(verb).await,
        Verb::Event(verb) => event::run(verb).await,
        Verb::WorkItem(verb) => work_item::run(verb).await,
        Verb::Queue(verb) => queue::run(verb).await,
        Verb::Message(verb) => message::run(verb).await,
        Verb::Destination(verb) => destination::run(verb).await,
        Verb::Lane(verb) => lane::run(verb).await,
        Verb::Shard(verb) => shard::run(verb).await,
        Verb::Stats(arguments) => stats::run(arguments).await,
        Verb::Retention(arguments) => retention::run(arguments).await,
        Verb::Migrate(arguments) => migrate::run(arguments).await,
        Verb::Doctor(arguments) => doctor::run(arguments).await,
        Verb::Config(arguments) => config::run(arguments),
        Verb::Demo(arguments) => Ok(demo::run(arguments, &Env::system()).await?),
        Verb::Bench(arguments) => Ok(bench::run(arguments, &Env::system()).await?),
    }
}
