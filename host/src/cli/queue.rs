//! `forebay queue`: the head of a pack's queue, and why each item is not running.

use clap::{Args, Subcommand};

use super::client::{Client, HostArguments, Query};
use super::exit::Failure;
use super::output::{NONE, Table, generation};
use crate::admin::wire;
use crate::model::names::PackName;

pub(super) const HELP: &str = "\
Example:
  forebay queue peek --pack github";

/// `forebay queue`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Show the head of a pack's queue, in the order of claims, and why each item is not running
    #[command(after_help = PEEK_HELP)]
    Peek(PeekArguments),
}

const PEEK_HELP: &str = "\
Lists heads of lanes, and work items without a lane; work items behind them are only counted. A worker that prefers a queue \
class claims that class first.

Example:
  forebay queue peek --pack github --limit 5";

#[derive(Debug, Args)]
pub(super) struct PeekArguments {
    /// The pack
    #[arg(long, value_name = "NAME")]
    pack: PackName,
    /// Number of work items
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    #[command(flatten)]
    host: HostArguments,
}

pub(super) async fn run(verb: Verb) -> Result<(), Failure> {
    let Verb::Peek(PeekArguments { pack, limit, host }) = verb;
    let query = Query::new(format!("/api/v1/packs/{pack}/queue")).and("limit", Some(limit));
    Client::new(&host)?.get(query.as_str()).await?.show(&host, |queue: wire::Queue| {
        let mut table = Table::new(["WORK ITEM", "GENERATION", "CLASS", "STANDING", "AT", "ATTEMPT", "WHY"]);
        for item in &queue.items {
            table.row([
                &item.id,
                &generation(pack.as_str(), item.generation),
                &item.queue_class,
                &item.standing,
                item.at.as_deref().unwrap_or(NONE),
                &item.attempt.to_string(),
                &item.why,
            ]);
        }
        format!("{}{} more wait behind heads of lanes\n", table.render(), queue.blocked)
    })
}
