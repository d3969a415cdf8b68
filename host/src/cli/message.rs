//! `forebay message`: showing, cancelling, rescheduling, redriving and resolving messages, and why one waits.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use jiff::{Span, SpanRelativeTo};

use super::client::{Client, HostArguments, Query};
use super::event::headers_and_body;
use super::exit::Failure;
use super::lane::Target;
use super::output::{NONE, Table, fields, generation, next_page, print};
use crate::admin::wire;
use crate::lanes::Held;
use crate::model::ids::{EventId, MessageId};
use crate::model::message::MessageState;
use crate::model::names::{DestinationName, Namespace};
use crate::store::Resolution;

pub(super) const HELP: &str = "\
Examples:
  forebay message list --state retry_wait     messages whose last attempt failed
  forebay message why msg_019a…               why a message is not sent, and what to do
  forebay message redrive --lane acme/sink    send the dead messages of a lane again";

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
    /// Explain why a message is not sent, and what to do
    #[command(after_help = why_help())]
    Why(OneArguments),
    /// Send a dead message, or those of a lane, again with the same idempotency keys
    #[command(after_help = REDRIVE_HELP)]
    Redrive(RedriveArguments),
    /// Record the outcome of an uncertain message
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

Exit code 4: too late; the message is being published, has ended, or may have arrived by an earlier attempt.";

const RESCHEDULE_HELP: &str = "\
Examples:
  forebay message reschedule msg_019a… --in 90s
  forebay message reschedule msg_019a… --in '2d 12h'
  forebay message reschedule msg_019a… --at 2030-01-31T08:00:00Z

Exit code 4: too late; the message is being published, has ended, or may have arrived by an earlier attempt.";

const REDRIVE_HELP: &str = "\
Examples:
  forebay message redrive msg_019a…
  forebay message redrive --lane acme/sink

Exit code 4: the message is not dead, or has expired.";

const RESOLVE_HELP: &str = "\
For messages that are uncertain or waiting for a retry after an uncertain attempt. Ask the receiver first.

Outcomes:
  published  it arrived: the message ends as published
  dead       it did not arrive: the message ends as dead
  retry      it did not arrive: it is sent again at once, with the same idempotency key

Example:
  forebay message resolve msg_019a… --as published

Exit code 4: no attempt of the message is uncertain.";

/// The help of `why`, with the reasons in their order of precedence.
fn why_help() -> String {
    format!(
        "If several reasons hold, the first one in this order is shown: {}.\n\nExample:\n  forebay message why msg_019a…",
        Held::ALL.map(Held::as_str).join(", ")
    )
}

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
    /// The outcome
    #[arg(long = "as", value_name = "OUTCOME", value_parser = PossibleValuesParser::new(Resolution::ALL.map(Resolution::as_str)))]
    resolution: String,
    #[command(flatten)]
    host: HostArguments,
}

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Only messages of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<Namespace>,
    /// Only messages to this destination
    #[arg(long, value_name = "NAME")]
    destination: Option<DestinationName>,
    /// Only messages in this state
    #[arg(long, value_name = "STATE", value_parser = PossibleValuesParser::new(MessageState::ALL.map(MessageState::as_str)))]
    state: Option<String>,
    /// Only messages that the flows of this event emitted
    #[arg(long, value_name = "ID")]
    event: Option<EventId>,
    /// Continue after this message
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
    /// After this time from now, by the host's clock
    #[arg(long = "in", value_name = "DURATION", value_parser = parse_delay_ms)]
    delay_ms: Option<u64>,
}

pub(super) async fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List(arguments) => list(arguments).await,
        Verb::Show(OneArguments { id, host }) => {
            let answer = Client::new(&host)?.get(&format!("/api/v1/messages/{id}")).await?;
            answer.show(&host, message_text)
        }
        Verb::Cancel(OneArguments { id, host }) => {
            let answer = Client::new(&host)?.post(&format!("/api/v1/messages/{id}/cancel")).await?;
            answer.show(&host, message_text)
        }
        Verb::Reschedule(RescheduleArguments { id, when, host }) => {
            let wish = wire::Reschedule { due_at: when.at.map(|at| at.to_string()), delay_ms: when.delay_ms };
            let answer = Client::new(&host)?.post_json(&format!("/api/v1/messages/{id}/reschedule"), &wish).await?;
            answer.show(&host, message_text)
        }
        Verb::Why(OneArguments { id, host }) => {
            let answer = Client::new(&host)?.get(&format!("/api/v1/messages/{id}/why")).await?;
            answer.show(&host, |why: wire::Why| why_text(&why))
        }
        Verb::Redrive(RedriveArguments { which: Which { id: Some(id), .. }, host }) => {
            let answer = Client::new(&host)?.post(&format!("/api/v1/messages/{id}/redrive")).await?;
            answer.show(&host, message_text)
        }
        Verb::Redrive(RedriveArguments { which: Which { lane, .. }, host }) => redrive_lane(lane, &host).await,
        Verb::Resolve(ResolveArguments { id, resolution, host }) => {
            let wish = wire::Resolve { resolution };
            let answer = Client::new(&host)?.post_json(&format!("/api/v1/messages/{id}/resolve"), &wish).await?;
            answer.show(&host, message_text)
        }
    }
}

fn why_text(why: &wire::Why) -> String {
    fields(&[
        ("message", Some(&why.message)),
        ("lane", Some(&why.lane)),
        ("shard", Some(&why.shard.to_string())),
        ("state", Some(&why.state)),
        ("reason", why.reason.as_deref()),
        ("why", Some(&why.explanation)),
        ("what to do", why.advice.as_deref()),
    ])
}

/// Redrives the dead messages of a lane, page by page.
async fn redrive_lane(lane: Option<Target>, host: &HostArguments) -> Result<(), Failure> {
    let Some(Target { namespace: Some(namespace), destination }) = lane else {
        return Err(Failure::Usage("--lane must be NAMESPACE/DESTINATION".to_owned()));
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
    let expired = if sum.expired > 0 { format!("; {} have expired and are not", sum.expired) } else { String::new() };
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
        .map_err(|_| "months and years vary in length: use days".to_owned())?;
    u64::try_from(duration.as_millis()).map_err(|_| "it must not be in the past".to_owned())
}

async fn list(arguments: ListArguments) -> Result<(), Failure> {
    let ListArguments { namespace, destination, state, event, after, limit, host } = arguments;
    let query = Query::new("/api/v1/messages")
        .and("limit", Some(limit))
        .and("namespace", namespace)
        .and("destination", destination)
        .and("state", state)
        .and("event", event)
        .and("after", after);
    Client::new(&host)?.get(query.as_str()).await?.show(&host, |page: wire::List<wire::MessageSummary>| {
        message_table(&page.items) + &next_page(page.next.as_deref())
    })
}

/// Messages as a table.
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
            message.finished_at.as_deref().unwrap_or(NONE),
        ]);
    }
    table.render()
}

/// The time of the next attempt of a waiting message, if it is not the due time.
fn next_attempt(message: &wire::MessageSummary) -> Option<&str> {
    let waits = matches!(message.state.as_str(), "scheduled" | "retry_wait");
    (waits && message.eligible_at != message.due_at).then_some(message.eligible_at.as_str())
}

fn message_text(message: wire::MessageDetail) -> String {
    let summary = &message.summary;
    let action = message.action.as_ref();
    let uncertain = format!("{} attempts with an unknown outcome", message.uncertain_attempts);
    let mut text = fields(&[
        ("message", Some(&summary.id)),
        ("event", Some(&summary.event_id)),
        ("work item", Some(&summary.work_item_id)),
        ("namespace", Some(&summary.namespace)),
        ("destination", Some(&summary.destination)),
        ("adapter", Some(&summary.adapter)),
        ("action", action.map(|action| action.name.as_str())),
        ("pack", action.map(|action| generation(&action.pack, action.generation)).as_deref()),
        ("handed off as", action.and_then(|action| action.work_item.as_deref())),
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
        ("content-type", Some(message.content_type.as_str()).filter(|text| !text.is_empty())),
    ]);
    text.push_str(&headers_and_body(&message.headers, &message.body));
    text
}
