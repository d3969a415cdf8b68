//! `forebay event verify`: re-running finished work items and comparing the outputs.

use std::fmt::Write;

use clap::{ArgGroup, Args};

use crate::admin::PREVIEW_EVENTS_MAX;
use crate::admin::wire;
use crate::cli::client::{Client, HostArguments};
use crate::cli::exit::Failure;
use crate::cli::output::{print, printable_lines};
use crate::model::ids::EventId;
use crate::model::names::PackName;

pub(super) const HELP: &str = "\
The host runs each work item on the generation that ran it before, with the recorded reads. Nothing is stored, sent, read or \
logged.

Examples:
  forebay event verify evt_019a…
  forebay event verify --last 1000 --pack hubspot

Exit code 6: an output differs. Exit code 4: the event has nothing to compare; it is not done, or its output or reads were \
not recorded.";

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["id", "last"]))]
pub(in crate::cli) struct Arguments {
    /// The event
    #[arg(value_name = "ID")]
    id: Option<EventId>,
    /// Verify this many events instead, newest first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(PREVIEW_EVENTS_MAX)))]
    last: Option<u32>,
    /// With --last: only events of this pack
    #[arg(long, value_name = "NAME", requires = "last", conflicts_with = "id")]
    pack: Option<PackName>,
    #[command(flatten)]
    host: HostArguments,
}

pub(super) async fn verify(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { id, last, pack, host } = arguments;
    let client = Client::new(&host)?;
    let answer = match id {
        Some(id) => client.post(&format!("/api/v1/events/{id}/verify")).await?,
        None => {
            let wish =
                wire::VerifyWish { last: last.unwrap_or(PREVIEW_EVENTS_MAX), pack: pack.map(|pack| pack.to_string()) };
            client.post_json("/api/v1/events/verify", &wish).await?
        }
    };
    let verification: wire::Verification = answer.read()?;
    if host.json {
        print(&answer.text())?;
    } else {
        print(&printable_lines(&shown(&verification)))?;
    }
    match (verification.differing, id.is_some(), verification.same) {
        (1.., _, _) => Err(Failure::Differs(format!("{} runs have another output", verification.differing))),
        (0, true, 0) => Err(Failure::Conflict("there is nothing to compare".to_owned())),
        (0, _, _) => Ok(()),
    }
}

fn shown(verification: &wire::Verification) -> String {
    let mut text = String::new();
    for run in &verification.runs {
        let _ =
            writeln!(text, "{:<7}  {}  {}  generation {}", run.verdict, run.event_id, run.work_item_id, run.generation);
        if let Some(reason) = &run.reason {
            let _ = writeln!(text, "         {reason}");
        }
        if let Some(now) = &run.now {
            let _ = writeln!(text, "{}", serde_json::to_string_pretty(now).unwrap_or_default());
        }
    }
    let wire::Verification { same, differing, unknown, .. } = verification;
    let _ = writeln!(text, "{same} the same, {differing} different, {unknown} not comparable");
    if verification.out_of_time {
        text.push_str("time ran out before all events were compared: use a smaller --last\n");
    }
    text
}
