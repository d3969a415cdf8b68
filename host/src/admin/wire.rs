//! What goes over the wire: the JSON forms of the API, for the listener that writes them and the commands that read
//! them.
//!
//! Times are RFC 3339 in UTC with milliseconds; ids, states and names are their texts; bytes are UTF-8 text or base64.

mod body;
mod destinations;
mod lanes;
mod packs;
mod preview;
mod queue;
mod retention;
mod verification;

pub use body::{BODY_SHOWN_BYTES_MAX, Body, Encoding, HeaderValue};
pub use destinations::*;
pub use lanes::*;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};

use crate::model::message::MessageState;
use crate::model::time::Timestamp;
use crate::model::work_item::WorkState;
use crate::store::{self, Page};

pub use packs::{Activate, Activation, Drain, DrainOutcome, Generation, Installed, Packs, Rollback};
pub use preview::{Cost, Difference, Message, Outcome, Preview, PreviewWish};
pub use queue::{Exact, Queue, QueuedItem};
pub use retention::{OnShelf, Removed, Retention, RetentionDays, RetentionPass, RetentionShelves};
pub use verification::{ReadRecord, Reads, Verification, VerifiedRun, VerifyWish};

/// `GET /healthz`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always true: a process that is not healthy does not answer.
    pub healthy: bool,
}

/// `GET /readyz`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether the host takes deliveries and works them off.
    pub ready: bool,
    /// Why it does not.
    pub reasons: Vec<String>,
    /// What an operator should know, although it does; told to those who send the admin token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Any answer that is an error.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// The state that stands in the way, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// A page of a listing, newest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// The rows.
    pub items: Vec<T>,
    /// `after` for the next page; null on the last.
    #[schema(required = true)]
    pub next: Option<String>,
}

/// `GET /api/v1/stats`: every state by name, those that none stands in as 0.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// WorkItems by state.
    pub work_items: WorkItemCounts,
    /// Messages by state.
    pub messages: MessageCounts,
    /// What was asked for with `exact=true`; the counts above are then of the rows themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<Exact>,
}

/// How many WorkItems stand in each state.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs, reason = "the fields are the states of `model::work_item::WorkState`, documented there")]
pub struct WorkItemCounts {
    pub ready: u64,
    pub delayed: u64,
    pub blocked: u64,
    pub processing: u64,
    pub done: u64,
    pub dead: u64,
}

/// How many messages stand in each state.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs, reason = "the fields are the states of `model::message::MessageState`, documented there")]
pub struct MessageCounts {
    pub scheduled: u64,
    pub publishing: u64,
    pub retry_wait: u64,
    pub uncertain: u64,
    pub published: u64,
    pub cancelled: u64,
    pub expired: u64,
    pub dead: u64,
    pub handed_off: u64,
}

/// An event in a listing.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs, reason = "the fields are those of `store::EventSummary`, documented there")]
pub struct EventSummary {
    pub id: String,
    pub namespace: String,
    pub pack: String,
    pub route: String,
    pub delivery_key: String,
    #[schema(required = true)]
    pub source_key: Option<String>,
    pub received_at: String,
    pub body_bytes: u64,
    #[schema(schema_with = work_state)]
    pub state: String,
    pub attempt: u32,
    #[schema(required = true)]
    pub replayed_at: Option<String>,
}

/// An event with what became of it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs, reason = "the fields are those of `model::event::Event`, documented there")]
pub struct EventDetail {
    pub id: String,
    pub receipt_id: String,
    pub namespace: String,
    pub pack: String,
    pub generation: u32,
    pub route: String,
    pub delivery_key: String,
    #[schema(required = true)]
    pub source_key: Option<String>,
    pub received_at: String,
    pub payload_sha256: String,
    pub content_type: String,
    pub headers: Vec<HeaderValue>,
    pub body: Body,
    pub work_items: Vec<WorkItem>,
    pub messages: Vec<MessageSummary>,
}

/// A WorkItem.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs, reason = "the fields are those of `store::WorkItemDetail`, documented there")]
pub struct WorkItem {
    pub id: String,
    pub event_id: String,
    pub work_type: String,
    pub namespace: String,
    pub pack: String,
    pub generation: u32,
    #[schema(required = true)]
    pub source_key: Option<String>,
    pub queue_class: String,
    /// `active`, `queued` or `ended`, of a generation of a source's projection.
    #[schema(required = true)]
    pub projection: Option<String>,
    #[schema(schema_with = work_state)]
    pub state: String,
    pub attempt: u32,
    pub failures: u32,
    pub run_after: String,
    #[schema(required = true)]
    pub lease_until: Option<String>,
    #[schema(required = true)]
    pub note: Option<String>,
    pub ignored: bool,
    #[schema(required = true)]
    pub failure: Option<Failure>,
    pub created_at: String,
    #[schema(required = true)]
    pub finished_at: Option<String>,
    #[schema(required = true)]
    pub replay_of: Option<String>,
    #[schema(required = true)]
    pub replayed_at: Option<String>,
    #[schema(required = true)]
    pub output_sha256: Option<String>,
    #[schema(required = true)]
    pub reads: Option<Reads>,
    #[schema(required = true)]
    pub action: Option<String>,
}

/// `POST /api/v1/work-items/{id}/replay`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Replay {
    /// Whether it was replayed before: `work_item` is the child that it got then.
    pub already: bool,
    /// The child.
    pub work_item: WorkItem,
}

/// Why an execution did not succeed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    /// What kind of failure it was.
    pub class: String,
    /// What the guest or the host had to say.
    pub message: String,
}

/// A message in a listing.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs, reason = "the fields are those of `model::message::MessageEntry`, documented there")]
pub struct MessageSummary {
    pub id: String,
    pub event_id: String,
    pub work_item_id: String,
    pub namespace: String,
    pub adapter: String,
    pub destination: String,
    #[schema(schema_with = message_state)]
    pub state: String,
    pub generation: u32,
    pub attempt: u32,
    pub due_at: String,
    pub eligible_at: String,
    #[schema(required = true)]
    pub expire_at: Option<String>,
    pub bytes: u32,
    pub created_at: String,
    #[schema(required = true)]
    pub finished_at: Option<String>,
}

/// A message.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct MessageDetail {
    /// What a listing shows.
    #[serde(flatten)]
    pub summary: MessageSummary,
    /// What the receiver tells duplicates by.
    pub idempotency_key: String,
    /// Its `content-type`.
    pub content_type: String,
    /// Further request headers.
    pub headers: Vec<HeaderValue>,
    /// Its body.
    pub body: Body,
    /// When the last attempt was admitted.
    #[schema(required = true)]
    pub admitted_at: Option<String>,
    /// The destination's last HTTP status.
    #[schema(required = true)]
    pub status: Option<u16>,
    /// What went wrong last.
    #[schema(required = true)]
    pub error: Option<String>,
    /// Attempts with an unknown outcome, over all reschedules: it may have arrived once more for each.
    pub uncertain_attempts: u32,
    /// What it is, if it goes to its pack's flow.
    #[schema(required = true)]
    pub action: Option<Action>,
}

/// Work of a pack's own.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Action {
    /// What to do, in the pack's own words.
    pub name: String,
    /// The pack.
    pub pack: String,
    /// The generation that applies it.
    pub generation: u32,
    /// What it was handed off as, once it was.
    #[schema(required = true)]
    pub work_item: Option<String>,
}

/// The body of `POST /api/v1/messages/{id}/reschedule`: one of the two.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reschedule {
    /// The new time, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    /// Milliseconds from now, by the host's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
}

/// The words that a text is one of.
pub(crate) fn words<T: Copy>(all: &[T], word_of: fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().map(|value| word_of(*value)).collect()
}

fn work_state() -> Object {
    one_of(words(&WorkState::ALL, WorkState::as_str))
}

fn message_state() -> Object {
    one_of(words(&MessageState::ALL, MessageState::as_str))
}

/// A text that is one of these.
fn one_of(words: Vec<&'static str>) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).build()
}

/// RFC 3339 in UTC, with milliseconds.
pub fn rfc3339(time: Timestamp) -> String {
    let in_range = time.as_millis().clamp(jiff::Timestamp::MIN.as_millisecond(), jiff::Timestamp::MAX.as_millisecond());
    let time = jiff::Timestamp::from_millisecond(in_range).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.3}")
}

impl<Row, Id: std::fmt::Display, T: From<Row>> From<Page<Row, Id>> for List<T> {
    fn from(page: Page<Row, Id>) -> Self {
        let items = page.items.into_iter().map(T::from).collect();
        Self { items, next: page.next.map(|id| id.to_string()) }
    }
}

impl From<store::Stats> for Stats {
    fn from(stats: store::Stats) -> Self {
        let work_items = |state| stats.work_items.get(&state).copied().unwrap_or(0);
        let messages = |state| stats.messages.get(&state).copied().unwrap_or(0);
        Self {
            exact: None,
            work_items: WorkItemCounts {
                ready: work_items(WorkState::Ready),
                delayed: work_items(WorkState::Delayed),
                blocked: work_items(WorkState::Blocked),
                processing: work_items(WorkState::Processing),
                done: work_items(WorkState::Done),
                dead: work_items(WorkState::Dead),
            },
            messages: MessageCounts {
                scheduled: messages(MessageState::Scheduled),
                publishing: messages(MessageState::Publishing),
                retry_wait: messages(MessageState::RetryWait),
                uncertain: messages(MessageState::Uncertain),
                published: messages(MessageState::Published),
                cancelled: messages(MessageState::Cancelled),
                expired: messages(MessageState::Expired),
                dead: messages(MessageState::Dead),
                handed_off: messages(MessageState::HandedOff),
            },
        }
    }
}

impl From<store::EventSummary> for EventSummary {
    fn from(event: store::EventSummary) -> Self {
        Self {
            id: event.id.to_string(),
            namespace: event.namespace.to_string(),
            pack: event.pack.to_string(),
            route: event.route.to_string(),
            delivery_key: event.delivery_key,
            source_key: event.source_key,
            received_at: rfc3339(event.received_at),
            body_bytes: event.body_bytes,
            state: event.state.as_str().to_owned(),
            attempt: event.attempt,
            replayed_at: event.replayed_at.map(rfc3339),
        }
    }
}

impl From<store::EventDetail> for EventDetail {
    fn from(detail: store::EventDetail) -> Self {
        let event = detail.event;
        Self {
            id: event.id.to_string(),
            receipt_id: event.receipt_id.to_string(),
            namespace: event.namespace.to_string(),
            pack: event.pack.to_string(),
            generation: event.generation.0,
            route: event.route.to_string(),
            delivery_key: event.delivery_key,
            source_key: event.source_key,
            received_at: rfc3339(event.received_at),
            payload_sha256: data_encoding::HEXLOWER.encode(&event.payload_digest),
            content_type: event.content_type,
            headers: event.headers.into_iter().map(HeaderValue::from).collect(),
            body: Body::of(&event.body),
            work_items: detail.work_items.into_iter().map(WorkItem::from).collect(),
            messages: detail.messages.into_iter().map(MessageSummary::from).collect(),
        }
    }
}

impl From<store::WorkItemDetail> for WorkItem {
    fn from(item: store::WorkItemDetail) -> Self {
        Self {
            id: item.id.to_string(),
            event_id: item.event_id.to_string(),
            work_type: item.work_type.as_str().to_owned(),
            namespace: item.namespace.to_string(),
            pack: item.pack.to_string(),
            generation: item.generation.0,
            source_key: item.source_key,
            queue_class: item.queue_class.as_str().to_owned(),
            projection: item.projection.map(|part| part.as_str().to_owned()),
            state: item.state.as_str().to_owned(),
            attempt: item.attempt,
            failures: item.failures,
            run_after: rfc3339(item.run_after),
            lease_until: item.lease_until.map(rfc3339),
            note: item.note,
            ignored: item.ignored,
            failure: item
                .failure
                .map(|failure| Failure { class: failure.class.as_str().to_owned(), message: failure.message }),
            created_at: rfc3339(item.created_at),
            finished_at: item.finished_at.map(rfc3339),
            replay_of: item.replay_of.map(|id| id.to_string()),
            replayed_at: item.replayed_at.map(rfc3339),
            output_sha256: item.output_digest.map(|digest| data_encoding::HEXLOWER.encode(&digest)),
            reads: Reads::of(&item.reads),
            action: item.action.map(|id| id.to_string()),
        }
    }
}

impl From<store::MessageSummary> for MessageSummary {
    fn from(summary: store::MessageSummary) -> Self {
        let entry = summary.entry;
        Self {
            id: entry.id.to_string(),
            event_id: entry.event_id.to_string(),
            work_item_id: entry.work_item_id.to_string(),
            namespace: entry.namespace.to_string(),
            adapter: if entry.destination.is_flow() { "flow" } else { "http" }.to_owned(),
            destination: entry.destination.to_string(),
            state: entry.state.as_str().to_owned(),
            generation: entry.generation,
            attempt: entry.attempt,
            due_at: rfc3339(entry.due_at),
            eligible_at: rfc3339(entry.eligible_at),
            expire_at: entry.expire_at.map(rfc3339),
            bytes: entry.bytes,
            created_at: rfc3339(summary.created_at),
            finished_at: summary.finished_at.map(rfc3339),
        }
    }
}

impl From<store::MessageDetail> for MessageDetail {
    fn from(detail: store::MessageDetail) -> Self {
        Self {
            summary: detail.summary.into(),
            idempotency_key: detail.payload.idempotency_key,
            content_type: detail.payload.content_type,
            headers: detail.payload.headers.into_iter().map(HeaderValue::from).collect(),
            body: Body::of(&detail.payload.body),
            admitted_at: detail.admitted_at.map(rfc3339),
            status: detail.status,
            error: detail.error,
            uncertain_attempts: detail.uncertain_attempts,
            action: detail.action.map(|action| Action {
                name: action.name,
                pack: action.pack.to_string(),
                generation: action.generation.0,
                work_item: action.work_item.map(|id| id.to_string()),
            }),
        }
    }
}
