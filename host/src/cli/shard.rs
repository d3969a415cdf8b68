//! `forebay shard`: the Delay Shards with their owners and progress, and making checkpoints.

use std::fmt::Write;

use clap::{Args, Subcommand};

use super::client::{Client, HostArguments};
use super::exit::Failure;
use super::output::{NONE, Table, printable};
use crate::admin::wire;

pub(super) const HELP: &str = "\
Examples:
  forebay shard list
  forebay shard checkpoint 0";

/// `forebay shard`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the Delay Shards: owner, epoch, progress, newest checkpoint
    #[command(
        after_help = "Only the owner of a shard knows its progress; other hosts show `–`.\n\nExamples:\n  forebay shard list\n  forebay shard list --json"
    )]
    List(HostArguments),
    /// Make a checkpoint of a shard, on the host that owns it
    #[command(after_help = "Example:\n  forebay shard checkpoint 0")]
    Checkpoint(CheckpointArguments),
}

#[derive(Debug, Args)]
pub(super) struct CheckpointArguments {
    /// The shard's number
    #[arg(value_name = "SHARD", value_parser = parse_shard)]
    shard: u16,
    #[command(flatten)]
    host: HostArguments,
}

fn parse_shard(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "use a shard's number, as `forebay shard list` shows it".to_owned())
}

pub(super) async fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List(host) => list(host).await,
        Verb::Checkpoint(arguments) => checkpoint(arguments).await,
    }
}

async fn list(host: HostArguments) -> Result<(), Failure> {
    let answer = Client::new(&host)?.get("/api/v1/shards").await?;
    answer.show(&host, |shards: wire::Shards| shard_table(&shards.items))
}

fn shard_table(shards: &[wire::Shard]) -> String {
    let mut table = Table::new([
        "SHARD",
        "OWNER",
        "EPOCH",
        "LEASED UNTIL",
        "APPLIED",
        "LAG",
        "PENDING",
        "IN FLIGHT",
        "LANES",
        "CHECKPOINT",
        "HELD",
    ]);
    for shard in shards {
        let known = |value: fn(&wire::ShardHere) -> u64| match &shard.here {
            Some(here) => value(here).to_string(),
            None => NONE.to_owned(),
        };
        table.row([
            &shard.shard.to_string(),
            shard.owner.as_deref().unwrap_or(NONE),
            &shard.epoch.to_string(),
            &shard.lease_until,
            &known(|here| here.applied),
            &known(|here| here.lag),
            &known(|here| here.pending),
            &known(|here| here.in_flight),
            &known(|here| here.lanes),
            shard.checkpoint.as_ref().map_or(NONE, |checkpoint| checkpoint.created_at.as_str()),
            &held(shard.here.as_ref()),
        ]);
    }
    let mut text = table.render();
    for shard in shards {
        let number = shard.shard;
        for wire::Withdrawn { runtime, until, reason } in &shard.withdrawn {
            let line = format!("host {runtime} cannot open shard {number}, and does not try before {until}: {reason}");
            let _ = writeln!(text, "{}", printable(&line));
        }
        if let Some(trouble) = &shard.trouble {
            let _ = writeln!(text, "{}", printable(&trouble.sentence(number)));
        }
    }
    text
}

/// Why a shard publishes nothing, and its shortages.
fn held(here: Option<&wire::ShardHere>) -> String {
    let Some(here) = here else { return NONE.to_owned() };
    let short_of = here.pressing.iter().map(|one| format!("{} {}", one.resource, one.level));
    let words: Vec<String> = here.held.iter().cloned().chain(short_of).collect();
    if words.is_empty() { NONE.to_owned() } else { words.join(", ") }
}

async fn checkpoint(CheckpointArguments { shard, host }: CheckpointArguments) -> Result<(), Failure> {
    let answer = Client::new(&host)?.post(&format!("/api/v1/shards/{shard}/checkpoint")).await?;
    answer.show(&host, |answer: wire::CheckpointAnswer| match answer.checkpoint {
        Some(made) => format!(
            "shard {shard} has a checkpoint of {} bytes, with its feed applied up to {}\n",
            made.bytes, made.applied
        ),
        None => {
            format!("the checkpoint of shard {shard} is still being made; `forebay shard list` shows it when ready\n")
        }
    })
}
