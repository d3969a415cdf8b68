//! Events on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Body, HeaderValue, MessageSummary, WorkItem, rfc3339, work_state};
use crate::store;

/// An event in a listing.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EventSummary {
    /// The event's id, `evt_…`.
    pub id: String,
    /// The namespace.
    pub namespace: String,
    /// The pack.
    pub pack: String,
    /// The route of the delivery.
    pub route: String,
    /// The delivery key: two deliveries with the same key are the same event.
    pub delivery_key: String,
    /// The source key; null where the route has none.
    #[schema(required = true)]
    pub source_key: Option<String>,
    /// Time of admission.
    pub received_at: String,
    /// Size of the body.
    pub body_bytes: u64,
    /// State of its last work item.
    #[schema(schema_with = work_state)]
    pub state: String,
    /// Claims of that work item so far.
    pub attempt: u32,
    /// Time at which that work item was replayed.
    #[schema(required = true)]
    pub replayed_at: Option<String>,
}

/// An event, with its work items and messages.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EventDetail {
    /// The event's id, `evt_…`.
    pub id: String,
    /// The receipt of its delivery.
    pub receipt_id: String,
    /// The namespace.
    pub namespace: String,
    /// The pack.
    pub pack: String,
    /// The pack's generation that admitted the event. The `generation` of an item in `messages` is another count.
    pub generation: u32,
    /// The route of the delivery.
    pub route: String,
    /// The delivery key: two deliveries with the same key are the same event.
    pub delivery_key: String,
    /// The source key; null where the route has none.
    #[schema(required = true)]
    pub source_key: Option<String>,
    /// Time of admission.
    pub received_at: String,
    /// SHA-256 of the body, in hexadecimal.
    pub payload_sha256: String,
    /// Content type of the body; empty if the request had none.
    pub content_type: String,
    /// The request headers that the route keeps.
    pub headers: Vec<HeaderValue>,
    /// The body.
    pub body: Body,
    /// Its work items, oldest first; at most 1,000.
    pub work_items: Vec<WorkItem>,
    /// The messages that its flows emitted, oldest first; at most 1,000.
    pub messages: Vec<MessageSummary>,
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
