//! Previews and the results of flows on the wire. The fixtures of packs have the same form.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Body, HeaderValue, rfc3339};
use crate::guest::{self, Due};
use crate::supervise;

/// The body of `POST /api/v1/packs/{pack}/preview`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewWish {
    /// The generation to preview.
    pub generation: u32,
    /// Number of events, newest first.
    pub last: u32,
    /// The baseline: `active`, `recorded` or a generation's number.
    pub against: String,
}

/// The result of a preview.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Preview {
    /// The pack.
    pub pack: String,
    /// Events that both sides ran.
    pub events: u64,
    /// Events on which the two sides differ.
    pub changed: u64,
    /// Whether time ran out before all events were run.
    pub out_of_time: bool,
    /// Cost of the baseline.
    pub before: Cost,
    /// Cost of the previewed generation.
    pub after: Cost,
    /// The newest differences.
    pub differences: Vec<Difference>,
}

/// The cost of one side, over all events.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Cost {
    /// Units of fuel.
    pub fuel: u64,
    /// Wall time, in microseconds.
    pub time_us: u64,
    /// Flows that failed.
    pub failures: u64,
}

/// An event on which the two sides differ.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// The event.
    pub event_id: String,
    /// Its route.
    pub route: String,
    /// Result of the baseline.
    pub before: Outcome,
    /// Result of the previewed generation.
    pub after: Outcome,
}

/// The result of a flow: it has `ignored`, `failure` or neither.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// Why `prepare` ignored the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<String>,
    /// Why the flow failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The flow's note for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The messages that it emits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    /// The actions that it emits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
}

/// An action that a flow emits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EmittedAction)]
pub struct Action {
    /// The pack's name for it.
    pub name: String,
    /// `now`, `after 5000 ms`, or an RFC 3339 time.
    pub due: String,
    /// The key by which the host drops duplicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Its body, written like that of a message.
    pub body: serde_json::Value,
}

/// A message that a flow emits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EmittedMessage)]
pub struct Message {
    /// The destination.
    pub destination: String,
    /// `now`, `after 5000 ms`, or an RFC 3339 time.
    pub due: String,
    /// Time from which it is not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_at: Option<String>,
    /// Messages to one destination with the same key keep their order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
    /// The key by which the receiver recognizes duplicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Content type of the body.
    pub content_type: String,
    /// Further headers, each as `name: value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Its body: JSON if it is an object or a list, else text, else base64 with the prefix `base64:`.
    pub body: serde_json::Value,
}

impl From<supervise::Preview> for Preview {
    fn from(preview: supervise::Preview) -> Self {
        Self {
            pack: preview.pack.to_string(),
            events: preview.events,
            changed: preview.changed,
            out_of_time: preview.out_of_time,
            before: preview.before.into(),
            after: preview.after.into(),
            differences: preview.differences.into_iter().map(Difference::from).collect(),
        }
    }
}

impl From<supervise::Cost> for Cost {
    fn from(cost: supervise::Cost) -> Self {
        let time_us = u64::try_from(cost.time.as_micros()).unwrap_or(u64::MAX);
        Self { fuel: cost.fuel, time_us, failures: cost.failures }
    }
}

impl From<supervise::Difference> for Difference {
    fn from(difference: supervise::Difference) -> Self {
        Self {
            event_id: difference.event.to_string(),
            route: difference.route.to_string(),
            before: (&difference.before).into(),
            after: (&difference.after).into(),
        }
    }
}

impl From<&guest::Outcome> for Outcome {
    fn from(outcome: &guest::Outcome) -> Self {
        let nothing = Self { ignored: None, failure: None, note: None, messages: Vec::new(), actions: Vec::new() };
        match outcome {
            guest::Outcome::Ignored { reason } => Self { ignored: Some(reason.clone()), ..nothing },
            guest::Outcome::Failed(failure) => Self { failure: Some(failure.to_string()), ..nothing },
            guest::Outcome::Ran(output) => Self {
                note: output.note.clone(),
                messages: output.messages.iter().map(Message::from).collect(),
                actions: output.actions.iter().map(Action::from).collect(),
                ..nothing
            },
        }
    }
}

impl From<&guest::EmittedMessage> for Message {
    fn from(message: &guest::EmittedMessage) -> Self {
        let header = |header: &crate::model::event::Header| {
            let HeaderValue { name, value } = header.clone().into();
            format!("{name}: {}", value.unwrap_or_default())
        };
        Self {
            destination: message.destination.to_string(),
            due: shown_due(message.due),
            expire_at: message.expire_at.map(rfc3339),
            ordering_key: message.ordering_key.clone(),
            idempotency_key: message.idempotency_key.clone(),
            content_type: message.content_type.clone(),
            headers: message.headers.iter().map(header).collect(),
            body: shown_body(&message.body),
        }
    }
}

impl From<&guest::EmittedAction> for Action {
    fn from(action: &guest::EmittedAction) -> Self {
        Self {
            name: action.name.clone(),
            due: shown_due(action.due),
            idempotency_key: action.idempotency_key.clone(),
            body: shown_body(&action.body),
        }
    }
}

fn shown_due(due: Due) -> String {
    match due {
        Due::Now => "now".to_owned(),
        Due::After(delay) => format!("after {} ms", delay.as_millis()),
        Due::At(at) => rfc3339(at),
    }
}

fn shown_body(bytes: &bytes::Bytes) -> serde_json::Value {
    if bytes.len() <= super::BODY_SHOWN_BYTES_MAX
        && let Ok(value @ (serde_json::Value::Object(_) | serde_json::Value::Array(_))) = serde_json::from_slice(bytes)
    {
        return value;
    }
    let Body { encoding, data, truncated, .. } = Body::of(bytes);
    let prefix = match encoding {
        super::Encoding::Utf8 => "",
        super::Encoding::Base64 => "base64:",
    };
    format!("{prefix}{data}{}", if truncated { "…" } else { "" }).into()
}
