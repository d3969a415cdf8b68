//! `forebay stats`: how many stand in which state.

use clap::Args;

use super::client::{Client, HostArguments};
use super::exit::Failure;
use super::output::{Table, print};
use crate::admin::wire;

/// `forebay stats`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Count the rows instead of reading counters, and say how many could be claimed now; this takes longer
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    host: HostArguments,
}

pub(super) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let path = if arguments.exact { "/api/v1/stats?exact=true" } else { "/api/v1/stats" };
    let answer = Client::new(&arguments.host)?.get(path).await?;
    if arguments.host.json {
        return Ok(print(&answer.text())?);
    }
    let stats: wire::Stats = answer.read()?;
    let mut table = Table::new(["WHAT", "STATE", "COUNT"]);
    let wire::Stats { work_items, messages, exact } = stats;
    for (kind, state, count) in [
        ("work items", "ready", work_items.ready),
        ("work items", "delayed", work_items.delayed),
        ("work items", "blocked", work_items.blocked),
        ("work items", "processing", work_items.processing),
        ("work items", "done", work_items.done),
        ("work items", "dead", work_items.dead),
        ("messages", "scheduled", messages.scheduled),
        ("messages", "publishing", messages.publishing),
        ("messages", "retry_wait", messages.retry_wait),
        ("messages", "uncertain", messages.uncertain),
        ("messages", "published", messages.published),
        ("messages", "cancelled", messages.cancelled),
        ("messages", "expired", messages.expired),
        ("messages", "dead", messages.dead),
        ("messages", "handed_off", messages.handed_off),
    ] {
        table.row([kind, state, &count.to_string()]);
    }
    let Some(exact) = exact else { return Ok(print(&table.render())?) };
    for (state, count) in [("ready", exact.ready), ("due", exact.due), ("stale", exact.stale)] {
        table.row(["claimable", state, &count.to_string()]);
    }
    table.row(["projections", "queued", &exact.queued.to_string()]);
    table.row(["events", "uncovered", &exact.uncovered_events.to_string()]);
    let agree = if exact.counters_agree {
        "the counters say the same"
    } else {
        "the counters say something else: please report it"
    };
    Ok(print(&format!("{}{agree}\n", table.render()))?)
}
