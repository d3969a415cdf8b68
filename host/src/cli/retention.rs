//! `forebay retention`: how long what has ended is kept, and how far a host is with removing it.

use clap::Args;

use super::client::{Client, HostArguments};
use super::exit::Failure;
use super::output::Table;
use crate::admin::wire;

/// `forebay retention`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    host: HostArguments,
}

const HELP: &str = "\
PAST counts what ended longer ago than it is kept, up to 100,000. A pass removes it, but for what something still refers to: an \
event with messages that wait, for example. The days are in the configuration, section [retention].

Example:
  forebay retention --json";

pub(super) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let answer = Client::new(&arguments.host)?.get("/api/v1/retention").await?;
    answer.show(&arguments.host, |retention: wire::Retention| shown(&retention))
}

/// For people.
pub(super) fn shown(retention: &wire::Retention) -> String {
    let wire::Retention { days, kept, phase, removed, pass, last_pass_at, last_pass } = retention;
    let failed = days.failed.map_or_else(|| "until an operator acts".to_owned(), in_days);
    let mut table = Table::new(["WHAT", "KEPT", "PAST", "OLDEST ENDED"]);
    for (what, kept_for, shelf) in [
        ("events", in_days(days.events), &kept.events),
        ("dead events", failed.clone(), &kept.dead_events),
        ("messages", in_days(days.messages), &kept.messages),
        ("dead messages", failed, &kept.dead_messages),
    ] {
        table.row([what, &kept_for, &shelf.past.to_string(), shelf.oldest.as_deref().unwrap_or("–")]);
    }
    let mut text = table.render();
    text += &match phase.as_str() {
        "waiting" => {
            "waiting until the clock has run evenly for long enough (retention.start_after_seconds)\n".to_owned()
        }
        "clearing" => format!("a pass is under way: {}\n", of_pass(pass)),
        _ => "resting until the next pass\n".to_owned(),
    };
    text += &match (last_pass, last_pass_at) {
        (Some(pass), Some(at)) => format!("the last pass ended at {at}: {}\n", of_pass(pass)),
        _ => "no pass has ended since the host started\n".to_owned(),
    };
    text + &format!("removed since the host started: {}\n", rows(removed))
}

fn in_days(days: u64) -> String {
    format!("{days} days")
}

fn of_pass(pass: &wire::RetentionPass) -> String {
    format!("looked at {}, removed {}", pass.looked, rows(&pass.removed))
}

fn rows(removed: &wire::Removed) -> String {
    let wire::Removed { events, work_items, messages } = removed;
    format!("{events} events, {work_items} work items, {messages} messages")
}
