//! `forebay event`: showing, running, replaying and verifying events.

mod verify;

use std::fmt::Write;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

use super::client::{Client, HostArguments, Query};
use super::exit::Failure;
use super::message::message_table;
use super::output::{NONE, Table, fields, generation, next_page, printable_lines};
use super::work_item::{replay, work_item_fields};
use crate::admin::wire;
use crate::model::ids::EventId;
use crate::model::names::{Namespace, PackName, RouteName};
use crate::model::work_item::WorkState;

pub(super) const HELP: &str = "\
Examples:
  forebay event list --state dead       failed events, newest first
  forebay event show evt_019a…          the last failure, the reads, and the messages
  forebay event replay evt_019a…        run it again after the cause is fixed
  forebay event verify --last 100       compare finished runs with runs of today";

/// `forebay event`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List events, newest first
    #[command(
        after_help = "Examples:\n  forebay event list --state dead\n  forebay event list --pack github --limit 10 --json"
    )]
    List(ListArguments),
    /// Show one event with its work items, messages and body
    #[command(after_help = SHOW_HELP)]
    Show(ShowArguments),
    /// Claim the work item of an event next, before all others
    #[command(after_help = RUN_HELP)]
    Run(ShowArguments),
    /// Replay the last work item of an event, which is done or dead
    #[command(after_help = REPLAY_HELP)]
    Replay(ShowArguments),
    /// Re-run finished work items with the same reads and generation, and compare the outputs
    #[command(after_help = verify::HELP)]
    Verify(verify::Arguments),
}

const SHOW_HELP: &str = "\
Event ids are in the answer to the provider, in `forebay event list`, and in the host's log.

Examples:
  forebay event show evt_019a…
  forebay event show evt_019a… --json

Exit code 3: the event does not exist.";

const REPLAY_HELP: &str = "\
The replay is a new work item on the same event and the same generation. It emits new messages. A work item can be replayed \
once; its replay can be replayed in turn. See also `forebay work-item replay`.

Example:
  forebay event replay evt_019a…

Exit code 4: the last work item has not ended, or an older host replayed the event.";

const RUN_HELP: &str = "\
The host claims the work item before all others if a worker is free and the limiter allows it. Lanes, delays and leases still \
apply. To run a finished event again, use `forebay event replay`. `forebay queue peek` shows the head of the queue.

Example:
  forebay event run evt_019a…

Exit code 4: the work item cannot be claimed now; the error names the reason.";

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Only events of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<Namespace>,
    /// Only events of this pack
    #[arg(long, value_name = "NAME")]
    pack: Option<PackName>,
    /// Only events of this route
    #[arg(long, value_name = "NAME")]
    route: Option<RouteName>,
    /// Only events whose last work item has this state; `dead` leaves out replayed ones
    #[arg(long, value_name = "STATE", value_parser = PossibleValuesParser::new(WorkState::ALL.map(WorkState::as_str)))]
    state: Option<String>,
    /// Continue after this event
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

async fn run_next(ShowArguments { id, host }: ShowArguments) -> Result<(), Failure> {
    let answer = Client::new(&host)?.post(&format!("/api/v1/events/{id}/run")).await?;
    answer.show(&host, |item: wire::WorkItem| work_item_fields(&item))
}

async fn replay_last(ShowArguments { id, host }: ShowArguments) -> Result<(), Failure> {
    let client = Client::new(&host)?;
    let event: wire::EventDetail = client.get(&format!("/api/v1/events/{id}")).await?.read()?;
    match event.work_items.iter().rfind(|item| item.replayed_at.is_none()) {
        Some(last) => replay(&last.id, &host).await,
        None => {
            let text = format!("event {id} has no work item yet: `forebay doctor` lists such events");
            Err(Failure::NotFound(text))
        }
    }
}

async fn list(arguments: ListArguments) -> Result<(), Failure> {
    let ListArguments { namespace, pack, route, state, after, limit, host } = arguments;
    let query = Query::new("/api/v1/events")
        .and("limit", Some(limit))
        .and("namespace", namespace)
        .and("pack", pack)
        .and("route", route)
        .and("state", state)
        .and("after", after);
    Client::new(&host)?
        .get(query.as_str())
        .await?
        .show(&host, |page: wire::List<wire::EventSummary>| event_table(&page.items) + &next_page(page.next.as_deref()))
}

fn event_table(events: &[wire::EventSummary]) -> String {
    let mut table =
        Table::new(["EVENT", "RECEIVED", "NAMESPACE", "ROUTE", "STATE", "REPLAYED", "ATTEMPT", "BYTES", "DELIVERY"]);
    for event in events {
        table.row([
            &event.id,
            &event.received_at,
            &event.namespace,
            &event.route,
            &event.state,
            if event.replayed_at.is_some() { "yes" } else { NONE },
            &event.attempt.to_string(),
            &event.body_bytes.to_string(),
            &event.delivery_key,
        ]);
    }
    table.render()
}

async fn show(ShowArguments { id, host }: ShowArguments) -> Result<(), Failure> {
    let answer = Client::new(&host)?.get(&format!("/api/v1/events/{id}")).await?;
    answer.show(&host, |event: wire::EventDetail| event_text(&event))
}

fn event_text(event: &wire::EventDetail) -> String {
    let mut text = fields(&[
        ("event", Some(&event.id)),
        ("receipt", Some(&event.receipt_id)),
        ("received", Some(&event.received_at)),
        ("namespace", Some(&event.namespace)),
        ("pack", Some(&generation(&event.pack, event.generation))),
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
    text
}

/// Headers, an empty line, and the body as far as the host shows it.
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
