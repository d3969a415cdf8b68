//! The Event: what a provider delivered, as it arrived. Written once, never changed.

use bytes::Bytes;

use super::ids::{EventId, ReceiptId};
use super::names::{Namespace, PackName, RouteName};
use super::pack::GenerationNumber;
use super::time::Timestamp;

/// The longest content-type, of an event and of a message: many times what any provider sends.
pub const CONTENT_TYPE_BYTES_MAX: usize = 1_024;

/// One delivered event, as a guest gets to see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its identity.
    pub id: EventId,
    /// The request that brought it.
    pub receipt_id: ReceiptId,
    /// The tenant it belongs to.
    pub namespace: Namespace,
    /// The pack that its route belongs to.
    pub pack: PackName,
    /// The generation that admitted it, and that works it off.
    pub generation: GenerationNumber,
    /// The route it came in by.
    pub route: RouteName,
    /// What names the object it is about, if the route orders by source.
    pub source_key: Option<String>,
    /// What names the delivery: two deliveries with one key are the same Event.
    pub delivery_key: String,
    /// SHA-256 of the raw body.
    pub payload_digest: [u8; 32],
    /// The request's `content-type`, empty if it had none.
    pub content_type: String,
    /// The request's headers that the route keeps, in order of arrival, names in lower case.
    pub headers: Vec<Header>,
    /// The body, byte for byte.
    pub body: Bytes,
    /// When it was admitted.
    pub received_at: Timestamp,
}

/// A header: its name in lower case, and its value, which need not be text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The name, in lower case.
    pub name: String,
    /// The value, byte for byte.
    pub value: Bytes,
}
