//! `forebay shard`: who owns which Delay Shard, how far it is, and its checkpoints.

use std::fmt::Write;

use clap::{Args, Subcommand};

use super::client::{Client, HostArguments};
use super::exit::Failure;
use super::output::{Table, print, printable};
use crate::admin::wire;

/// `forebay shard`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the Delay Shards: owner, epoch, progress, newest checkpoint
    #[command(
        after_help = "Some columns are known only to the host that owns a shard; other hosts show `–`.\n\nExample:\n  forebay shard list"
    )]
    List(HostArguments),
    /// Make a checkpoint of a shard now; ask the host that owns it
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
    if host.json {
        return Ok(print(&answer.text())?);
    }
    let shards = answer.read::<wire::Shards>()?.items;
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
    for shard in &shards {
        let known = |value: fn(&wire::ShardHere) -> u64| match &shard.here {
            Some(here) => value(here).to_string(),
            None => "–".to_owned(),
        };
        table.row([
            &shard.shard.to_string(),
            shard.owner.as_deref().unwrap_or("–"),
            &shard.epoch.to_string(),
            &shard.lease_until,
            &known(|here| here.applied),
            &known(|here| here.lag),
            &known(|here| here.pending),
            &known(|here| here.in_flight),
            &known(|here| here.lanes),
            shard.checkpoint.as_ref().map_or("–", |checkpoint| checkpoint.created_at.as_str()),
            &held(shard.here.as_ref()),
        ]);
    }
    let mut text = table.render();
    for (shard, withdrawn) in shards.iter().flat_map(|shard| shard.withdrawn.iter().map(move |one| (shard, one))) {
        let wire::Withdrawn { runtime, until, reason } = withdrawn;
        let line =
            format!("runtime {runtime} cannot open shard {} and is not asked before {until}: {reason}", shard.shard);
        let _ = writeln!(text, "{}", printable(&line));
    }
    for (shard, trouble) in shards.iter().filter_map(|shard| Some((shard, shard.trouble.as_ref()?))) {
        let _ = writeln!(text, "{}", printable(&trouble.sentence(shard.shard)));
    }
    Ok(print(&text)?)
}

/// Why nothing of a shard is published, if nothing is, and what it is short of.
fn held(here: Option<&wire::ShardHere>) -> String {
    let Some(here) = here else { return "–".to_owned() };
    let short_of = here.pressing.iter().map(|one| format!("{} {}", one.resource, one.level));
    let words: Vec<String> = here.held.iter().cloned().chain(short_of).collect();
    if words.is_empty() { "–".to_owned() } else { words.join(", ") }
}

async fn checkpoint(CheckpointArguments { shard, host }: CheckpointArguments) -> Result<(), Failure> {
    let answer = Client::new(&host)?.post(&format!("/api/v1/shards/{shard}/checkpoint")).await?;
    if host.json {
        return Ok(print(&answer.text())?);
    }
    let text = match answer.read::<wire::CheckpointAnswer>()?.checkpoint {
        Some(made) => format!(
            "shard {shard} has a checkpoint of {} bytes, with its feed applied up to {}\n",
            made.bytes, made.applied
        ),
        None => format!("the checkpoint of shard {shard} is still being made: `forebay shard list` shows when it is\n"),
    };
    Ok(print(&text)?)
}
