//! `forebay queue`: what is next in a pack's queue, and why it is not running yet.

use clap::{Args, Subcommand};

use super::client::{Client, HostArguments};
use super::exit::Failure;
use super::output::{Table, print};
use crate::admin::wire;
use crate::model::names::PackName;

/// `forebay queue`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Show what is next, in the order of claims, and why it is not running yet
    #[command(after_help = PEEK_HELP)]
    Peek(PeekArguments),
}

const PEEK_HELP: &str = "\
Lists heads of lanes, and work items without a lane; the items behind them are only counted. A worker that prefers a queue \
class claims that class first.

Example:
  forebay queue peek --pack github --limit 5";

#[derive(Debug, Args)]
pub(super) struct PeekArguments {
    /// The pack
    #[arg(long, value_name = "NAME")]
    pack: PackName,
    /// Number of items
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    #[command(flatten)]
    host: HostArguments,
}

pub(super) async fn run(verb: Verb) -> Result<(), Failure> {
    let Verb::Peek(PeekArguments { pack, limit, host }) = verb;
    let answer = Client::new(&host)?.get(&format!("/api/v1/packs/{pack}/queue?limit={limit}")).await?;
    if host.json {
        return Ok(print(&answer.text())?);
    }
    let queue: wire::Queue = answer.read()?;
    let mut table = Table::new(["WORK ITEM", "GENERATION", "CLASS", "STANDING", "AT", "ATTEMPT", "WHY"]);
    for item in &queue.next {
        table.row([
            &item.id,
            &item.generation.to_string(),
            &item.queue_class,
            &item.standing,
            item.at.as_deref().unwrap_or("–"),
            &item.attempt.to_string(),
            &item.why,
        ]);
    }
    Ok(print(&format!("{}{} more wait behind heads of their lanes\n", table.render(), queue.blocked))?)
}
