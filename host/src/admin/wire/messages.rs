//! Messages on the wire: what they are, commands about them, and why one waits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;

use super::{Body, HeaderValue, message_state, one_of, rfc3339, words};
use crate::store::{self, Resolution};

/// A message in a listing.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct MessageSummary {
    /// The message's id, `msg_…`.
    pub id: String,
    /// The event of the flow that emitted it.
    pub event_id: String,
    /// The work item of that flow.
    pub work_item_id: String,
    /// The namespace.
    pub namespace: String,
    /// How it is delivered: `http` to a destination, `flow` to its own pack.
    pub adapter: String,
    /// The destination, or `flow:PACK` for an action.
    pub destination: String,
    /// Its state.
    #[schema(schema_with = message_state)]
    pub state: String,
    /// 1, and 1 more for each reschedule or redrive. This is not a generation of a pack: see `action.generation`.
    pub generation: u32,
    /// Attempts of this `generation`.
    pub attempt: u32,
    /// Time at which it is due.
    pub due_at: String,
    /// Earliest time of the next attempt: `due_at`, or later in `retry_wait`.
    pub eligible_at: String,
    /// Time from which it is not sent any more.
    #[schema(required = true)]
    pub expire_at: Option<String>,
    /// Size of body and headers.
    pub bytes: u32,
    /// Time of creation.
    pub created_at: String,
    /// Time of its end.
    #[schema(required = true)]
    pub finished_at: Option<String>,
}

/// A message.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct MessageDetail {
    /// The fields of a listing.
    #[serde(flatten)]
    pub summary: MessageSummary,
    /// The key by which the receiver recognizes duplicates.
    pub idempotency_key: String,
    /// Content type of the body.
    pub content_type: String,
    /// Further request headers.
    pub headers: Vec<HeaderValue>,
    /// The body.
    pub body: Body,
    /// Time at which the last attempt was admitted.
    #[schema(required = true)]
    pub admitted_at: Option<String>,
    /// The destination's last HTTP status.
    #[schema(required = true)]
    pub status: Option<u16>,
    /// The last error.
    #[schema(required = true)]
    pub error: Option<String>,
    /// Attempts with an unknown outcome, over all reschedules. Each of them may have arrived.
    pub uncertain_attempts: u32,
    /// The action, if the message is one; null for a message to a destination.
    #[schema(required = true)]
    pub action: Option<Action>,
}

/// An action: work that a pack does later.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Action {
    /// The pack's name for it.
    pub name: String,
    /// The pack.
    pub pack: String,
    /// The pack's generation that applies it. The message's own `generation` is another count.
    pub generation: u32,
    /// The work item that applies it; null until the message is handed off.
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

/// The body of `POST /api/v1/messages/{id}/resolve`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolve {
    /// `retry`, `published` or `dead`.
    #[schema(schema_with = resolution)]
    #[serde(rename = "as")]
    pub resolution: String,
}

/// `GET /api/v1/messages/{id}/why`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// The message.
    pub message: String,
    /// Its lane, without the ordering domain.
    pub lane: String,
    /// Its shard.
    pub shard: u16,
    /// Its state.
    pub state: String,
    /// The first reason that holds, of a closed set; null if the message is not due, is being sent, or has ended.
    #[schema(required = true)]
    pub reason: Option<String>,
    /// The reason in a sentence.
    pub explanation: String,
    /// What to do; null if there is nothing to do.
    #[schema(required = true)]
    pub advice: Option<String>,
}

fn resolution() -> Object {
    one_of(words(&Resolution::ALL, Resolution::as_str))
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
