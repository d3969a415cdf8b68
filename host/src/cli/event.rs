//! `forebay event`: what was delivered, and what became of it.

mod verify;

use std::fmt::Write;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

use super::client::{Client, HostArguments};
use super::exit::Failure;
use super::message::message_table;
use super::output::{Table, fields, print, printable_lines};
use super::work_item::{replay, work_item_fields};
use crate::admin::wire;
use crate::model::ids::EventId;
use crate::model::names::{Namespace, PackName, RouteName};
use crate::model::work_item::WorkState;

pub(super) const HELP: &str = "\
Examples, when something went wrong:
  forebay event list --state dead       what ended badly, newest first
  forebay event show evt_019a…          why, attempt by attempt, and what was read for it
  forebay event replay evt_019a…        run it again, once the cause is mended
  forebay event verify --last 100       whether finished runs would have the same output today";

/// `forebay event`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List events, newest first
    #[command(
        after_help = "Examples:\n  forebay event list --state dead\n  forebay event list --pack github --limit 10 --json"
    )]
    List(ListArguments),
    /// Show one event: its body, its executions, its messages
    #[command(after_help = SHOW_HELP)]
    Show(ShowArguments),
    /// Run the work item of an event next, before all others that wait
    #[command(after_help = RUN_HELP)]
    Run(ShowArguments),
    /// Run an event again: replay its last work item, which is done or dead
    #[command(after_help = REPLAY_HELP)]
    Replay(ShowArguments),
    /// Repeat finished runs, with the same reads on the same generation, and compare the outputs
    #[command(after_help = verify::HELP)]
    Verify(verify::Arguments),
}

const SHOW_HELP: &str = "\
Event ids are in the answer that the provider got, in `forebay event list`, and in the host's log.

Examples:
  forebay event show evt_019a…
  forebay event show evt_019a… --json

Exit code 3: there is no such event.";

const REPLAY_HELP: &str = "\
Creates one new work item on the same event, on the generation that ran it before. The event is not changed, and the messages \
that the replay emits are new ones. Each work item can be replayed once. See also: `forebay work-item replay`.

Example:
  forebay event replay evt_019a…

Exit code 4: the last work item has not ended, or an executor of the older protocol replayed the event.";

const RUN_HELP: &str = "\
The host claims the work item before all others, if a worker is free and the limiter allows it. The claim respects the lane, \
the delay and any lease. To run again what has ended, use `forebay event replay`. `forebay queue peek` shows what is next \
anyway.

Example:
  forebay event run evt_019a…

Exit code 4: the work item cannot be claimed now; the error says why.";

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Only events of this tenant
    #[arg(long, value_name = "NAME")]
    namespace: Option<Namespace>,
    /// Only events of this pack
    #[arg(long, value_name = "NAME")]
    pack: Option<PackName>,
    /// Only events of this route
    #[arg(long, value_name = "NAME")]
    route: Option<RouteName>,
    /// Only events with a work item in this state
    #[arg(long, value_parser = PossibleValuesParser::new(WorkState::ALL.map(WorkState::as_str)))]
    state: Option<String>,
    /// Continue behind this event
    #[arg(long, value_name = "ID")]
    after: Option<EventId>,
    /// Number of events
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// The event
    #[arg(value_name = "ID")]
    id: EventId,
    #[command(flatten)]
    host: HostArguments,
}

pub(super) async fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List(arguments) => list(arguments).await,
        Verb::Show(arguments) => show(arguments).await,
        Verb::Run(arguments) => run_next(arguments).await,
        Verb::Replay(arguments) => replay_last(arguments).await,
        Verb::Verify(arguments) => verify::verify(arguments).await,
    }
}

async fn run_next(arguments: ShowArguments) -> Result<(), Failure> {
    let answer = Client::new(&arguments.host)?.post(&format!("/api/v1/events/{}/run", arguments.id)).await?;
    if arguments.host.json {
        return Ok(print(&answer.text())?);
    }
    Ok(print(&work_item_fields(&answer.read()?))?)
}

async fn replay_last(arguments: ShowArguments) -> Result<(), Failure> {
    let client = Client::new(&arguments.host)?;
    let event: wire::EventDetail = client.get(&format!("/api/v1/events/{}", arguments.id)).await?.read()?;
    match event.work_items.iter().rfind(|item| item.replayed_at.is_none()) {
        Some(last) => replay(&client, &last.id, arguments.host.json).await,
        None => {
            let text = format!("event {} has no work item yet: `forebay doctor` lists such events", arguments.id);
            Err(Failure::NotFound(text))
        }
    }
}

async fn list(arguments: ListArguments) -> Result<(), Failure> {
    let mut path = format!("/api/v1/events?limit={}", arguments.limit);
    // Names, states and ids are of characters that need no escape in a query.
    let mut narrow = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(path, "&{name}={value}");
        }
    };
    narrow("namespace", arguments.namespace.map(|name| name.to_string()));
    narrow("pack", arguments.pack.map(|name| name.to_string()));
    narrow("route", arguments.route.map(|name| name.to_string()));
    narrow("state", arguments.state);
    narrow("after", arguments.after.map(|id| id.to_string()));
    let answer = Client::new(&arguments.host)?.get(&path).await?;
    if arguments.host.json {
        return Ok(print(&answer.text())?);
    }
    let page: wire::List<wire::EventSummary> = answer.read()?;
    let mut table = Table::new(["EVENT", "RECEIVED", "NAMESPACE", "ROUTE", "STATE", "ATTEMPT", "BYTES", "DELIVERY"]);
    for event in &page.items {
        // What died and was run again is nobody's trouble any more.
        let replayed = if event.replayed_at.is_some() { ", replayed" } else { "" };
        table.row([
            &event.id,
            &event.received_at,
            &event.namespace,
            &event.route,
            &format!("{}{replayed}", event.state),
            &event.attempt.to_string(),
            &event.body_bytes.to_string(),
            &event.delivery_key,
        ]);
    }
    let mut text = table.render();
    if let Some(next) = page.next {
        let _ = writeln!(text, "\nmore with --after {next}");
    }
    Ok(print(&text)?)
}

async fn show(arguments: ShowArguments) -> Result<(), Failure> {
    let answer = Client::new(&arguments.host)?.get(&format!("/api/v1/events/{}", arguments.id)).await?;
    if arguments.host.json {
        return Ok(print(&answer.text())?);
    }
    let event: wire::EventDetail = answer.read()?;
    let mut text = fields(&[
        ("event", Some(&event.id)),
        ("receipt", Some(&event.receipt_id)),
        ("received", Some(&event.received_at)),
        ("namespace", Some(&event.namespace)),
        ("pack", Some(&format!("{} #{}", event.pack, event.generation))),
        ("route", Some(&event.route)),
        ("delivery", Some(&event.delivery_key)),
        ("source", event.source_key.as_deref()),
        ("content-type", Some(&event.content_type)),
        ("sha256", Some(&event.payload_sha256)),
    ]);
    for item in &event.work_items {
        let _ = write!(text, "\n{}", work_item_fields(item));
    }
    if !event.messages.is_empty() {
        let _ = write!(text, "\n{}", message_table(&event.messages));
    }
    text.push_str(&headers_and_body(&event.headers, &event.body));
    Ok(print(&text)?)
}

/// Headers, an empty line, and as much of the body as was sent.
pub(super) fn headers_and_body(headers: &[wire::HeaderValue], body: &wire::Body) -> String {
    let mut text = String::from("\n");
    for header in headers {
        let value = header.value.as_deref().unwrap_or("(not shown)");
        let _ = writeln!(text, "{}: {}", printable_lines(&header.name), printable_lines(value));
    }
    if !headers.is_empty() {
        text.push('\n');
    }
    let _ = writeln!(text, "{}", printable_lines(&body.data));
    let encoding = match body.encoding {
        wire::Encoding::Utf8 => "",
        wire::Encoding::Base64 => ", shown in base64",
    };
    let cut = if body.truncated { ", cut" } else { "" };
    let _ = writeln!(text, "({} bytes{encoding}{cut})", body.bytes);
    text
}
