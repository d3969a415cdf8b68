//! `forebay message`: what is on its way out and why it waits; cancelling it, moving it to another time, sending it
//! again.

use std::fmt::Write;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use jiff::{Span, SpanRelativeTo};

use super::client::{Answer, Client, HostArguments};
use super::event::headers_and_body;
use super::exit::Failure;
use super::lane::Target;
use super::output::{Table, fields, print};
use crate::admin::wire;
use crate::model::ids::{EventId, MessageId};
use crate::model::message::MessageState;
use crate::model::names::{DestinationName, Namespace};
use crate::store::Resolution;

/// `forebay message`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List messages, newest first
    #[command(after_help = LIST_HELP)]
    List(ListArguments),
    /// Show one message
    #[command(after_help = "Example:\n  forebay message show msg_019a…")]
    Show(OneArguments),
    /// Cancel a message that is not being published yet
    #[command(after_help = CANCEL_HELP)]
    Cancel(OneArguments),
    /// Move a message that is not being published yet to another time
    #[command(after_help = RESCHEDULE_HELP)]
    Reschedule(RescheduleArguments),
    /// Say why a message is not sent, and what to do about it
    #[command(after_help = WHY_HELP)]
    Why(OneArguments),
    /// Send dead messages again, with their idempotency keys
    #[command(after_help = REDRIVE_HELP)]
    Redrive(RedriveArguments),
    /// Record what became of an attempt whose outcome is unknown
    #[command(after_help = RESOLVE_HELP)]
    Resolve(ResolveArguments),
}

const LIST_HELP: &str = "\
Examples:
  forebay message list --state scheduled
  forebay message list --event evt_019a…";

const CANCEL_HELP: &str = "\
Example:
  forebay message cancel msg_019a…

Exit code 4: it is too late; the message is being published, has ended, or may have arrived by an earlier attempt.";

const RESCHEDULE_HELP: &str = "\
Examples:
  forebay message reschedule msg_019a… --in 90s
  forebay message reschedule msg_019a… --in '2d 12h'
  forebay message reschedule msg_019a… --at 2030-01-31T08:00:00Z

Exit code 4: it is too late; the message is being published, has ended, or may have arrived by an earlier attempt.";

const REDRIVE_HELP: &str = "\
Examples:
  forebay message redrive msg_019a…
  forebay message redrive --lane acme/sink

Exit code 4: the message is not dead, or has expired.";

const RESOLVE_HELP: &str = "\
For messages that are uncertain, and for those that are retried after an uncertain attempt. Ask the receiver first.

  published  it arrived: the message ends as published
  dead       it did not arrive, and is given up
  retry      it is sent again at once, with the same idempotency key

Example:
  forebay message resolve msg_019a… --as published

Exit code 4: no attempt of the message is uncertain.";

const WHY_HELP: &str = "\
If several reasons hold, the first in this order is shown: lane_closed, lane_paused, ordering_head, clock_gated, recovering, \
capability, circuit_open, retry_backoff, throttled, lane_full, capacity, fairness.

Example:
  forebay message why msg_019a…";

#[derive(Debug, Args)]
pub(super) struct RedriveArguments {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The message
    #[arg(value_name = "ID")]
    id: Option<MessageId>,
    /// Every dead message of a lane
    #[arg(long, value_name = "NAMESPACE/DESTINATION")]
    lane: Option<Target>,
}

#[derive(Debug, Args)]
pub(super) struct ResolveArguments {
    /// The message
    #[arg(value_name = "ID")]
    id: MessageId,
    /// What you have found out
    #[arg(long = "as", value_name = "WHAT", value_parser = PossibleValuesParser::new(Resolution::ALL.map(Resolution::as_str)))]
    resolution: String,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Only messages of this tenant
    #[arg(long, value_name = "NAME")]
    namespace: Option<Namespace>,
    /// Only messages to this destination
    #[arg(long, value_name = "NAME")]
    destination: Option<DestinationName>,
    /// Only messages in this state
    #[arg(long, value_parser = PossibleValuesParser::new(MessageState::ALL.map(MessageState::as_str)))]
    state: Option<String>,
    /// Only messages that this event's flows emitted
    #[arg(long, value_name = "ID")]
    event: Option<EventId>,
    /// Continue behind this message
    #[arg(long, value_name = "ID")]
    after: Option<MessageId>,
    /// Number of messages
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(super) struct OneArguments {
    /// The message
    #[arg(value_name = "ID")]
    id: MessageId,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(super) struct RescheduleArguments {
    /// The message
    #[arg(value_name = "ID")]
    id: MessageId,
    #[command(flatten)]
    when: When,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct When {
    /// At this time (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    at: Option<jiff::Timestamp>,
    /// So long from now, by the host's clock
    #[arg(long = "in", value_name = "DURATION", value_parser = parse_delay_ms)]
    delay_ms: Option<u64>,
}

pub(super) async fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List(arguments) => list(arguments).await,
        Verb::Show(OneArguments { id, host }) => {
            print_message(&Client::new(&host)?.get(&format!("/api/v1/messages/{id}")).await?, &host)
        }
        Verb::Cancel(OneArguments { id, host }) => {
            print_message(&Client::new(&host)?.post(&format!("/api/v1/messages/{id}/cancel")).await?, &host)
        }
        Verb::Reschedule(RescheduleArguments { id, when, host }) => {
            let wish = wire::Reschedule { due_at: when.at.map(|at| at.to_string()), delay_ms: when.delay_ms };
            let path = format!("/api/v1/messages/{id}/reschedule");
            print_message(&Client::new(&host)?.post_json(&path, &wish).await?, &host)
        }
        Verb::Why(OneArguments { id, host }) => why(id, &host).await,
        Verb::Redrive(RedriveArguments { which: Which { id: Some(id), .. }, host }) => {
            print_message(&Client::new(&host)?.post(&format!("/api/v1/messages/{id}/redrive")).await?, &host)
        }
        Verb::Redrive(RedriveArguments { which: Which { lane, .. }, host }) => redrive_lane(lane, &host).await,
        Verb::Resolve(ResolveArguments { id, resolution, host }) => {
            let path = format!("/api/v1/messages/{id}/resolve");
            let answer = Client::new(&host)?.post_json(&path, &wire::Resolve { resolution }).await?;
            print_message(&answer, &host)
        }
    }
}

async fn why(id: MessageId, host: &HostArguments) -> Result<(), Failure> {
    let answer = Client::new(host)?.get(&format!("/api/v1/messages/{id}/why")).await?;
    if host.json {
        return Ok(print(&answer.text())?);
    }
    let why: wire::Why = answer.read()?;
    Ok(print(&fields(&[
        ("message", Some(&why.message)),
        ("lane", Some(&why.lane)),
        ("shard", Some(&why.shard.to_string())),
        ("state", Some(&why.state)),
        ("reason", why.reason.as_deref()),
        ("why", Some(&why.explanation)),
        ("what to do", why.advice.as_deref()),
    ]))?)
}

/// Sends every dead message of a lane again, page by page.
async fn redrive_lane(lane: Option<Target>, host: &HostArguments) -> Result<(), Failure> {
    let Some(Target { namespace: Some(namespace), destination }) = lane else {
        return Err(Failure::Usage("--lane must be NAMESPACE/DESTINATION: one tenant's lane".to_owned()));
    };
    let client = Client::new(host)?;
    let mut sum = wire::Redriven { redriven: 0, expired: 0, next: None };
    loop {
        let (namespace, destination) = (namespace.to_string(), destination.to_string());
        let wish = wire::RedriveLane { namespace, destination, after: sum.next.take() };
        let page: wire::Redriven = client.post_json("/api/v1/lanes/redrive", &wish).await?.read()?;
        sum.redriven += page.redriven;
        sum.expired += page.expired;
        sum.next = page.next;
        if sum.next.is_none() {
            break;
        }
    }
    if host.json {
        let text = serde_json::to_string(&sum).map_err(|error| Failure::Failed(error.to_string()))?;
        return Ok(print(&format!("{text}\n"))?);
    }
    let expired = if sum.expired > 0 { format!(", {} had expired", sum.expired) } else { String::new() };
    Ok(print(&format!("{} dead messages are sent again{expired}\n", sum.redriven))?)
}

/// `2030-01-31T08:00:00Z`.
fn parse_time(text: &str) -> Result<jiff::Timestamp, String> {
    text.parse().map_err(|_| "use an RFC 3339 time like 2030-01-31T08:00:00Z, less than ten years away".to_owned())
}

/// `90s`, `2h 30m`, `1d`: days have 24 hours.
pub(super) fn parse_delay_ms(text: &str) -> Result<u64, String> {
    let span: Span = text.parse().map_err(|_| "use a duration like 90s, 15m, 2h or 1d".to_owned())?;
    let duration = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| "months and years are not all of one length: use days".to_owned())?;
    u64::try_from(duration.as_millis()).map_err(|_| "it must not lie in the past".to_owned())
}

async fn list(arguments: ListArguments) -> Result<(), Failure> {
    let mut path = format!("/api/v1/messages?limit={}", arguments.limit);
    // Names, states and ids are of characters that need no escape in a query.
    let mut narrow = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(path, "&{name}={value}");
        }
    };
    narrow("namespace", arguments.namespace.map(|name| name.to_string()));
    narrow("destination", arguments.destination.map(|name| name.to_string()));
    narrow("state", arguments.state);
    narrow("event", arguments.event.map(|id| id.to_string()));
    narrow("after", arguments.after.map(|id| id.to_string()));
    let answer = Client::new(&arguments.host)?.get(&path).await?;
    if arguments.host.json {
        return Ok(print(&answer.text())?);
    }
    let page: wire::List<wire::MessageSummary> = answer.read()?;
    let mut text = message_table(&page.items);
    if let Some(next) = page.next {
        let _ = writeln!(text, "\nmore with --after {next}");
    }
    Ok(print(&text)?)
}

/// Messages for people.
pub(super) fn message_table(messages: &[wire::MessageSummary]) -> String {
    let mut table = Table::new(["MESSAGE", "DUE", "NAMESPACE", "DESTINATION", "STATE", "ATTEMPT", "BYTES", "FINISHED"]);
    for message in messages {
        table.row([
            &message.id,
            &message.due_at,
            &message.namespace,
            &message.destination,
            &message.state,
            &message.attempt.to_string(),
            &message.bytes.to_string(),
            message.finished_at.as_deref().unwrap_or("–"),
        ]);
    }
    table.render()
}

/// When a message that waits is tried again, if that is not when it is due.
fn next_attempt(message: &wire::MessageSummary) -> Option<&str> {
    let waits = matches!(message.state.as_str(), "scheduled" | "retry_wait");
    (waits && message.eligible_at != message.due_at).then_some(message.eligible_at.as_str())
}

fn print_message(answer: &Answer, host: &HostArguments) -> Result<(), Failure> {
    if host.json {
        return Ok(print(&answer.text())?);
    }
    let message: wire::MessageDetail = answer.read()?;
    let summary = &message.summary;
    let uncertain = format!("{} attempts with an unknown outcome", message.uncertain_attempts);
    let mut text = fields(&[
        ("message", Some(&summary.id)),
        ("event", Some(&summary.event_id)),
        ("work item", Some(&summary.work_item_id)),
        ("namespace", Some(&summary.namespace)),
        ("destination", Some(&summary.destination)),
        ("state", Some(&summary.state)),
        ("generation", Some(&summary.generation.to_string())),
        ("attempt", Some(&summary.attempt.to_string())),
        ("due", Some(&summary.due_at)),
        ("next attempt", next_attempt(summary)),
        ("expires", summary.expire_at.as_deref()),
        ("admitted", message.admitted_at.as_deref()),
        ("last status", message.status.map(|status| status.to_string()).as_deref()),
        ("last error", message.error.as_deref()),
        ("uncertain", (message.uncertain_attempts > 0).then_some(&uncertain)),
        ("created", Some(&summary.created_at)),
        ("finished", summary.finished_at.as_deref()),
        ("idempotency key", Some(&message.idempotency_key)),
        ("content-type", Some(&message.content_type)),
    ]);
    text.push_str(&headers_and_body(&message.headers, &message.body));
    Ok(print(&text)?)
}
