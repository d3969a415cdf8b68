//! `forebay pack preview`: running a pack on past events without effects, and comparing.

use std::fmt::Write;

use clap::Args;

use super::diff::diff;
use super::{GenerationName, read_file};
use crate::admin::PREVIEW_EVENTS_MAX;
use crate::admin::wire;
use crate::cli::client::{Client, HostArguments};
use crate::cli::exit::Failure;
use crate::cli::output::{print, printable_lines};

pub(super) const HELP: &str = "\
The host runs both sides on the same stored events, with the recorded reads. Nothing is stored, sent, read or logged.

Examples:
  forebay pack preview orders-1.3.0.fpk --last 1000
  forebay pack preview orders@4 --against recorded
  forebay pack preview orders@4 --fail-on-change && forebay pack activate orders@4

Exit code 6, with --fail-on-change: the result of an event differs, or time ran out before all events were compared.";

#[derive(Debug, Args)]
pub(in crate::cli) struct Arguments {
    /// A pack file, or an installed generation as PACK@N
    #[arg(value_name = "FILE|PACK@N")]
    what: String,
    /// Number of events, newest first
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(PREVIEW_EVENTS_MAX)))]
    last: u32,
    /// The baseline: `active`, `recorded` (the generation that admitted each event), or a generation's number
    #[arg(long, value_name = "BASELINE", default_value = "active")]
    against: String,
    /// Exit with 6 if the result of any event differs
    #[arg(long)]
    fail_on_change: bool,
    #[command(flatten)]
    host: HostArguments,
}

pub(super) async fn preview(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { what, last, against, fail_on_change, host } = arguments;
    let is_word = against.chars().all(|character| character.is_ascii_alphanumeric());
    if !is_word {
        return Err(Failure::Usage("--against is `active`, `recorded` or a generation's number".to_owned()));
    }
    let client = Client::new(&host)?;
    // A file of that name comes before a generation.
    let answer = match what.parse::<GenerationName>() {
        Ok(GenerationName { pack, number }) if !std::path::Path::new(&what).exists() => {
            let wish = wire::PreviewWish { generation: number, last, against };
            client.post_json(&format!("/api/v1/packs/{pack}/preview"), &wish).await?
        }
        Ok(_) | Err(_) => {
            let file = read_file(std::path::Path::new(&what))?;
            client.post_file(&format!("/api/v1/packs/preview?last={last}&against={against}"), file).await?
        }
    };
    let preview: wire::Preview = answer.read()?;
    if host.json {
        print(&answer.text())?;
    } else {
        print(&printable_lines(&shown(&preview)))?;
    }
    match (fail_on_change, preview.changed, preview.out_of_time) {
        (true, 1.., _) => Err(Failure::Differs(format!("the results of {} events differ", preview.changed))),
        (true, 0, true) => {
            Err(Failure::Differs("time ran out before all events were compared: use a smaller --last".to_owned()))
        }
        (true, 0, false) | (false, _, _) => Ok(()),
    }
}

fn shown(preview: &wire::Preview) -> String {
    let mut text = String::new();
    for difference in &preview.differences {
        let _ = writeln!(text, "{} ({})", difference.event_id, difference.route);
        text.push_str(&diff(&pretty(&difference.before), &pretty(&difference.after)));
        text.push('\n');
    }
    let hidden = preview.changed - (preview.differences.len() as u64).min(preview.changed);
    if hidden > 0 {
        let _ = writeln!(text, "… {hidden} more events differ\n");
    }
    let _ = writeln!(text, "the results of {} of {} events differ", preview.changed, preview.events);
    if preview.out_of_time {
        text.push_str("time ran out before all events were compared: use a smaller --last\n");
    }
    let each = |total: u64| total / preview.events.max(1);
    let (before, after) = (&preview.before, &preview.after);
    let _ = writeln!(text, "failures  {} before, {} after", before.failures, after.failures);
    let _ = writeln!(text, "fuel      {} before, {} after, per event", each(before.fuel), each(after.fuel));
    let _ = writeln!(text, "time      {} us before, {} us after, per event", each(before.time_us), each(after.time_us));
    text
}

/// An outcome as indented JSON.
fn pretty(outcome: &wire::Outcome) -> String {
    serde_json::to_string_pretty(outcome).unwrap_or_default()
}
