//! What is delivered, and what a delivery comes to. How it becomes durable is in `materialize`.

use bytes::Bytes;

use crate::model::event::Header;
use crate::model::ids::{EventId, ReceiptId, WorkItemId};
use crate::model::names::{Namespace, PackName, RouteName};
use crate::model::pack::{Coalescing, GenerationNumber, Ordering};
use crate::model::queue::QueueClass;
use crate::model::time::Timestamp;
use crate::store::{Store, StoreError};

/// One verified request.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Its receipt.
    pub receipt_id: ReceiptId,
    /// The tenant.
    pub namespace: Namespace,
    /// The pack whose route it came in by.
    pub pack: PackName,
    /// The generation whose rules were applied.
    pub generation: GenerationNumber,
    /// The route.
    pub route: RouteName,
    /// The request's `content-type`, empty if it had none.
    pub content_type: String,
    /// The headers that the route keeps.
    pub headers: Vec<Header>,
    /// When it was admitted.
    pub received_at: Timestamp,
    /// The order that its route keeps: by source, its events stand in the lanes of their sources; by delivery, in that
    /// of the route as well.
    pub ordering: Ordering,
    /// Whether later events of a source make earlier ones superfluous that still wait.
    pub coalescing: Coalescing,
    /// What it carries, in payload order; at least one.
    pub events: Vec<NewEvent>,
}

/// One event of a [`Delivery`], and the WorkItem that will work it off.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// The Event's identity, if it is new.
    pub id: EventId,
    /// The WorkItem's identity, if the Event is new.
    pub work_item_id: WorkItemId,
    /// What names the delivery; unique in namespace and route. It ends in no space, nor does `source_key`: some
    /// databases compare texts without them.
    pub delivery_key: String,
    /// The source whose lane it stands in, if its route orders by source, or by delivery and source.
    pub source_key: Option<String>,
    /// The class of its WorkItem.
    pub queue_class: QueueClass,
    /// SHA-256 of `body`.
    pub payload_digest: [u8; 32],
    /// Its bytes.
    pub body: Bytes,
}

/// What became of a [`Delivery`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// It is durable.
    Stored {
        /// Its Events, in payload order. One that an earlier delivery brought keeps that delivery's id.
        events: Vec<EventId>,
    },
    /// All of it was durable before; these are the first one's ids.
    Duplicate {
        /// The first one's receipt.
        receipt_id: ReceiptId,
        /// The first one's Events, in payload order.
        events: Vec<EventId>,
    },
    /// An event of the same key but with another payload is durable, or comes earlier in this very delivery. What is
    /// durable stays as it was, and nothing of this delivery is stored.
    Conflict {
        /// The Event that has the key.
        event_id: EventId,
    },
}

impl Store {
    /// Makes a delivery durable. Never waits for a place in the queue: a full one is [`StoreError::Busy`].
    pub async fn enqueue(&self, delivery: Delivery) -> Result<Enqueued, StoreError> {
        let largest = delivery.events.iter().map(|event| event.body.len()).max();
        self.fits(largest.unwrap_or(0))?;
        self.writer.enqueue(delivery).await
    }
}

impl Delivery {
    /// What it takes up while it waits for the writer.
    pub(in crate::store) fn bytes(&self) -> usize {
        self.events.iter().map(|event| event.body.len()).sum()
    }
}
