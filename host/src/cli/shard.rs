//! `forebay shard`: who owns which Delay Shard, and how far it is.

use clap::Subcommand;

use super::client::{Client, HostArguments};
use super::exit::Failure;
use super::output::{Table, print};
use crate::admin::wire;

/// `forebay shard`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the Delay Shards: owner, epoch, how far each is
    #[command(after_help = "What only a shard's owner knows is shown by the host that owns it; elsewhere it is `–`.")]
    List(HostArguments),
}

pub(super) async fn run(verb: Verb) -> Result<(), Failure> {
    let Verb::List(host) = verb;
    let answer = Client::new(&host)?.get("/api/v1/shards").await?;
    if host.json {
        return Ok(print(&answer.text())?);
    }
    let shards: Vec<wire::Shard> = answer.read()?;
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
            shard.here.as_ref().and_then(|here| here.held.as_deref()).unwrap_or("–"),
        ]);
    }
    Ok(print(&table.render())?)
}
