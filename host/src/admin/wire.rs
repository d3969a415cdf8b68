//! The JSON forms of the API, for the listener that writes them and the commands that read them.
//!
//! Times are RFC 3339 in UTC with milliseconds; ids, states and names are their texts; bytes are UTF-8 text or base64.
//! A list is called `items`. The doc comments are the descriptions in `docs/openapi.json`.

mod body;
mod destinations;
mod events;
mod lanes;
mod messages;
mod packs;
mod preview;
mod queue;
mod retention;
mod shards;
mod stats;
mod verification;
mod work_items;

pub use body::{BODY_SHOWN_BYTES_MAX, Body, Encoding, HeaderValue};
pub use destinations::*;
pub use events::*;
pub use lanes::*;
pub use messages::*;
pub use packs::*;
pub use preview::{Cost, Difference, Message, Outcome, Preview, PreviewWish};
pub use queue::*;
pub use retention::*;
pub use shards::*;
pub use stats::*;
pub use verification::*;
pub use work_items::*;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};

use crate::model::message::MessageState;
use crate::model::time::Timestamp;
use crate::model::work_item::WorkState;
use crate::store::Page;

/// `GET /healthz`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always true: an unhealthy process does not answer.
    pub healthy: bool,
}

/// `GET /readyz`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether the host takes deliveries and works them off.
    pub ready: bool,
    /// The reasons if it is not ready.
    pub reasons: Vec<String>,
    /// Remarks for operators that do not affect readiness; left out without the admin token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The body of every error.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// An error.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// The word for programs.
    pub code: String,
    /// The sentence for people.
    pub message: String,
    /// The present state, if the request conflicts with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// A page of a listing, newest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// The rows.
    pub items: Vec<T>,
    /// The `after` of the next page; null on the last page.
    #[schema(required = true)]
    pub next: Option<String>,
}

/// The words of a closed set.
pub(crate) fn words<T: Copy>(all: &[T], word_of: fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().map(|value| word_of(*value)).collect()
}

fn work_state() -> Object {
    one_of(words(&WorkState::ALL, WorkState::as_str))
}

fn message_state() -> Object {
    one_of(words(&MessageState::ALL, MessageState::as_str))
}

/// The schema of a text that is one of `words`.
fn one_of(words: Vec<&'static str>) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).build()
}

/// A time as RFC 3339 in UTC, with milliseconds.
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
