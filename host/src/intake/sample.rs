//! A request that nobody sent: which events it would be, by the very rules that admit. Its signature alone is not asked
//! for.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use super::judge::Submission;
use super::routes::OpenRoute;
use crate::model::event::Event;
use crate::model::names::{Namespace, PackName};
use crate::model::pack::{GenerationNumber, Route};
use crate::model::time::Timestamp;

/// What would be sent, and to which route.
#[derive(Debug)]
pub struct Sample<'s> {
    /// The tenant.
    pub namespace: Namespace,
    /// The pack.
    pub pack: PackName,
    /// The generation that would admit it.
    pub generation: GenerationNumber,
    /// The route.
    pub route: &'s Route,
    /// The request's headers.
    pub headers: HeaderMap,
    /// The request's body.
    pub body: Bytes,
    /// When it would arrive.
    pub received_at: Timestamp,
}

impl Sample<'_> {
    /// The events, in payload order, under the same ids every time; or the status and the reason of a refusal.
    pub fn events(self) -> Result<Vec<Event>, String> {
        let submission = Submission {
            route: Arc::new(OpenRoute {
                namespace: self.namespace,
                pack: self.pack,
                generation: self.generation,
                route: Arc::new(self.route.clone()),
            }),
            uri: String::new(),
            headers: self.headers,
            body: self.body,
            secrets: Arc::new([]),
            now: self.received_at,
            entropy: [[0; 10]; 3],
        };
        let refused = |refusal: super::answer::Refusal| format!("{} {}", refusal.status().as_u16(), refusal.reason());
        let delivery = submission.divide().map_err(refused)?.delivery;
        let event = |new: &crate::store::NewEvent| Event {
            id: new.id,
            receipt_id: delivery.receipt_id,
            namespace: delivery.namespace.clone(),
            pack: delivery.pack.clone(),
            generation: delivery.generation,
            route: delivery.route.clone(),
            source_key: new.source_key.clone(),
            delivery_key: new.delivery_key.clone(),
            payload_digest: new.payload_digest,
            content_type: delivery.content_type.clone(),
            headers: delivery.headers.clone(),
            body: new.body.clone(),
            received_at: delivery.received_at,
        };
        Ok(delivery.events.iter().map(event).collect())
    }
}
