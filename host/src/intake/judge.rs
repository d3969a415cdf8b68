//! The judgement of one request whose body has arrived: verified or not, and which delivery it is. Pure: no I/O, no
//! clock, no randomness but what it is given, so that a large body can be judged on a thread where it delays nobody.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method};
use sha2::{Digest, Sha256};

use super::answer::Refusal;
use super::handshake::{self, Reply};
use super::keys;
use super::routes::OpenRoute;
use super::split::split;
use super::verify::{Signed, verify};
use crate::model::event::{CONTENT_TYPE_BYTES_MAX, Header};
use crate::model::ids::{EventId, ReceiptId, WorkItemId};
use crate::model::pack::{KeyRule, Route};
use crate::model::time::Timestamp;
use crate::secrets::Secret;
use crate::store::{Delivery, NewEvent};

/// The random parts of a receipt's id, and of those of its first event and work item.
pub(super) type IdEntropy = [[u8; 10]; 3];

/// A request whose body has arrived.
pub(super) struct Submission {
    pub(super) route: Arc<OpenRoute>,
    /// The address that it was sent to, as its sender knows it; empty if its route's signature leaves it out.
    pub(super) uri: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) secrets: Arc<[Secret]>,
    pub(super) now: Timestamp,
    pub(super) entropy: IdEntropy,
}

/// What a verified request is.
pub(super) enum Judgement {
    /// A delivery.
    Delivery(Judged),
    /// A handshake, and the reply to it.
    Handshake(Reply),
}

/// A verified delivery.
pub(super) struct Judged {
    pub(super) delivery: Delivery,
    /// Events that stand in the lane of no source, because they lack the source key that their route orders by.
    pub(super) unordered: u64,
}

impl Submission {
    /// Verifies the request and names what it is.
    pub(super) fn judge(self) -> Result<Judgement, Refusal> {
        let signed = Signed { method: Method::POST.as_str(), uri: &self.uri, headers: &self.headers, body: &self.body };
        verify(&self.route.route.verification, signed, &self.secrets, self.now)?;
        if let Some(handshake) = &self.route.route.handshake {
            // During a rotation the provider has one of the secrets: that by which it signed.
            let theirs = |secret: &&Secret| {
                verify(&self.route.route.verification, signed, std::slice::from_ref(*secret), self.now).is_ok()
            };
            if let Some(reply) = handshake::reply_to_body(handshake, &self.body, || self.secrets.iter().find(theirs))? {
                return Ok(Judgement::Handshake(reply));
            }
            if !handshake::may_deliver(handshake, &self.body) {
                return Err(Refusal::SignatureWrong);
            }
        }
        self.divide().map(Judgement::Delivery)
    }

    /// Names what it is, as if it were verified.
    pub(super) fn divide(self) -> Result<Judged, Refusal> {
        let Self { route: open, uri: _, headers, body, secrets: _, now, entropy } = self;
        let route = &open.route;
        let receipt_id = ReceiptId::new(now, entropy[0]);
        let content_type = content_type(&headers)?;
        let bodies = match &route.event_list {
            None => vec![body],
            Some(list) => split(&body, list)?,
        };
        let mut events = Vec::with_capacity(bodies.len());
        for (position, body) in bodies.into_iter().enumerate() {
            let keys = keys::find(route, &headers, &body)?;
            let [event, work_item] = part_entropy(&entropy, position);
            events.push(NewEvent {
                id: EventId::new(now, event),
                work_item_id: WorkItemId::new(now, work_item),
                delivery_key: delivery_key(route, keys.delivery, receipt_id, position),
                source_key: keys.source,
                queue_class: keys.queue_class,
                payload_digest: Sha256::digest(&body).into(),
                body,
            });
        }
        let lacks_source = |event: &&NewEvent| route.source_key.is_some() && event.source_key.is_none();
        let unordered = events.iter().filter(lacks_source).count() as u64;
        let delivery = Delivery {
            receipt_id,
            namespace: open.namespace.clone(),
            pack: open.pack.clone(),
            generation: open.generation,
            route: route.path.clone(),
            content_type,
            headers: kept(route, &headers),
            received_at: now,
            ordering: route.ordering,
            coalescing: route.coalescing,
            events,
        };
        Ok(Judged { delivery, unordered })
    }
}

/// What names one of the events that a request carries. Without a rule, every request is a delivery of its own.
fn delivery_key(route: &Route, found: Option<String>, receipt_id: ReceiptId, position: usize) -> String {
    let of_request = found.unwrap_or_else(|| receipt_id.to_string());
    match (&route.event_list, &route.delivery_key) {
        (None, _) | (Some(_), Some(KeyRule::Pointer(_) | KeyRule::Pointers(_) | KeyRule::Body)) => of_request,
        (Some(_), Some(KeyRule::Header(_)) | None) => keys::of_part(&of_request, position),
    }
}

/// The random parts of the ids of one of the events: drawn for the first, and made of what was drawn for the others.
fn part_entropy(drawn: &IdEntropy, position: usize) -> [[u8; 10]; 2] {
    if position == 0 {
        return [drawn[1], drawn[2]];
    }
    let digest = Sha256::new().chain_update(drawn.as_flattened()).chain_update(position.to_be_bytes()).finalize();
    let mut entropy = [[0; 10]; 2];
    entropy.as_flattened_mut().copy_from_slice(&digest[..20]);
    entropy
}

/// The content-type, as text. Providers do not sign it: whoever has a signed body may send it with any.
fn content_type(headers: &HeaderMap) -> Result<String, Refusal> {
    let value = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let value = value.unwrap_or_default();
    if value.len() > CONTENT_TYPE_BYTES_MAX { Err(Refusal::ContentTypeTooLong) } else { Ok(value) }
}

/// The headers that the route keeps, in order of arrival.
fn kept(route: &Route, headers: &HeaderMap) -> Vec<Header> {
    headers
        .iter()
        .filter(|(name, _)| route.keep_headers.contains(name))
        .map(|(name, value)| Header { name: name.as_str().to_owned(), value: Bytes::copy_from_slice(value.as_bytes()) })
        .collect()
}
