//! The judgement of one request whose body has arrived: verified or not, and which delivery it is. Pure: no I/O, no clock,
//! no randomness but what it is given, so that a large body can be judged on a thread where it delays nobody.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use sha2::{Digest, Sha256};

use super::answer::Refusal;
use super::keys;
use super::routes::OpenRoute;
use super::verify::{Signed, verify};
use crate::model::event::Header;
use crate::model::ids::{EventId, ReceiptId, WorkItemId};
use crate::model::pack::Route;
use crate::model::time::Timestamp;
use crate::secrets::Secret;
use crate::store::{Delivery, NewEvent};

/// The random parts of the three ids that a delivery is given.
pub(super) type IdEntropy = [[u8; 10]; 3];

/// A request whose body has arrived.
pub(super) struct Submission {
    pub(super) route: Arc<OpenRoute>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) secrets: Arc<[Secret]>,
    pub(super) now: Timestamp,
    pub(super) entropy: IdEntropy,
}

/// A verified request.
pub(super) struct Judged {
    pub(super) delivery: Delivery,
    pub(super) lane: Lane,
}

/// Whether a delivery stands where its route says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// In the lane of its source, or its route has no lanes.
    AsDeclared,
    /// In the lane of no source, because the request lacks the source key that its route orders by.
    Unordered,
}

impl Submission {
    /// Verifies the request and names what it is.
    pub(super) fn judge(self) -> Result<Judged, Refusal> {
        let Self { route: open, headers, body, secrets, now, entropy: [receipt, event, work_item] } = self;
        let route = &open.route;
        verify(&route.verification, Signed { headers: &headers, body: &body }, &secrets, now)?;
        let keys = keys::find(route, &headers, &body)?;

        let receipt_id = ReceiptId::new(now, receipt);
        let lane = match (&route.source_key, &keys.source) {
            (Some(_), None) => Lane::Unordered,
            (Some(_), Some(_)) | (None, _) => Lane::AsDeclared,
        };
        let event = NewEvent {
            id: EventId::new(now, event),
            work_item_id: WorkItemId::new(now, work_item),
            // Without a rule, every request is a delivery of its own.
            delivery_key: keys.delivery.unwrap_or_else(|| receipt_id.to_string()),
            source_key: keys.source,
            queue_class: keys.queue_class,
            payload_digest: Sha256::digest(&body).into(),
            body,
        };
        let delivery = Delivery {
            receipt_id,
            namespace: open.namespace.clone(),
            pack: open.pack.clone(),
            generation: open.generation,
            route: route.path.clone(),
            content_type: content_type(&headers),
            headers: kept(route, &headers),
            received_at: now,
            ordering: route.ordering,
            events: vec![event],
        };
        Ok(Judged { delivery, lane })
    }
}

fn content_type(headers: &HeaderMap) -> String {
    headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

/// The headers that the route keeps, in order of arrival.
fn kept(route: &Route, headers: &HeaderMap) -> Vec<Header> {
    headers
        .iter()
        .filter(|(name, _)| route.keep_headers.contains(name))
        .map(|(name, value)| Header { name: name.as_str().to_owned(), value: Bytes::copy_from_slice(value.as_bytes()) })
        .collect()
}
