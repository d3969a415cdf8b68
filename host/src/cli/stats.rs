//! `forebay stats`: counts by state.

use clap::Args;

use super::client::{Client, HostArguments, Query};
use super::exit::Failure;
use super::output::Table;
use crate::admin::wire;

const HELP: &str = "\
Examples:
  forebay stats
  forebay stats --exact --json";

/// `forebay stats`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// Count the rows instead of reading counters, and show what could be claimed now; this takes longer
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    host: HostArguments,
}

pub(super) async fn run(Arguments { exact, host }: Arguments) -> Result<(), Failure> {
    let query = Query::new("/api/v1/stats").and("exact", exact.then_some(true));
    Client::new(&host)?.get(query.as_str()).await?.show(&host, |stats: wire::Stats| stats_text(&stats))
}

fn stats_text(stats: &wire::Stats) -> String {
    let wire::Stats { work_items, messages, exact } = stats;
    let mut table = Table::new(["KIND", "STATE", "COUNT"]);
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
    let Some(exact) = exact else { return table.render() };
    for (kind, state, count) in [
        ("claimable", "ready", exact.ready),
        ("claimable", "due", exact.due),
        ("claimable", "stale", exact.stale),
        ("projections", "queued", exact.queued),
        ("events", "uncovered", exact.uncovered_events),
    ] {
        table.row([kind, state, &count.to_string()]);
    }
    let agreement = if exact.counters_agree {
        "the counters agree with the rows"
    } else {
        "the counters differ from the rows: `forebay migrate` corrects them; please report it"
    };
    format!("{}{agreement}\n", table.render())
}
