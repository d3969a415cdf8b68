//! What operators look at: events, work items and messages, one by one and page by page.

use super::{Store, StoreError};
use crate::model::event::Event;
use crate::model::failure::Failure;
use crate::model::ids::{EventId, MessageId, WorkItemId};
use crate::model::message::{MessageEntry, MessageState};
use crate::model::names::{DestinationName, Namespace, PackName, RouteName};
use crate::model::time::Timestamp;
use crate::model::work_item::{WorkState, WorkType};

/// One page of a listing, newest first.
#[derive(Debug, Clone)]
pub struct PageRequest<Id> {
    /// Only what comes after this one in the listing.
    pub after: Option<Id>,
    /// At most so many, 1 to 1,000.
    pub limit: u32,
}

/// A page, and where the next one begins.
#[derive(Debug, Clone)]
pub struct Page<T, Id> {
    /// The rows.
    pub items: Vec<T>,
    /// `after` for the next page; `None` on the last.
    pub next: Option<Id>,
}

/// Which events to list.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// Of this tenant.
    pub namespace: Option<Namespace>,
    /// Of this pack.
    pub pack: Option<PackName>,
    /// Of this route.
    pub route: Option<RouteName>,
    /// Whose WorkItem stands in this state.
    pub state: Option<WorkState>,
}

/// An event in a listing.
#[derive(Debug, Clone)]
pub struct EventSummary {
    /// Its identity.
    pub id: EventId,
    /// The tenant.
    pub namespace: Namespace,
    /// The pack.
    pub pack: PackName,
    /// The route.
    pub route: RouteName,
    /// Its delivery key.
    pub delivery_key: String,
    /// Its source key.
    pub source_key: Option<String>,
    /// When it was admitted.
    pub received_at: Timestamp,
    /// Body length.
    pub body_bytes: u64,
    /// Where its WorkItem stands.
    pub state: WorkState,
    /// How often it was claimed.
    pub attempt: u32,
}

/// An event with what became of it.
#[derive(Debug, Clone)]
pub struct EventDetail {
    /// The Event.
    pub event: Event,
    /// Its WorkItems.
    pub work_items: Vec<WorkItemDetail>,
    /// What its flows emitted.
    pub messages: Vec<MessageSummary>,
}

/// A WorkItem.
#[derive(Debug, Clone)]
pub struct WorkItemDetail {
    /// Its identity.
    pub id: WorkItemId,
    /// Its Event.
    pub event_id: EventId,
    /// What is executed.
    pub work_type: WorkType,
    /// The tenant.
    pub namespace: Namespace,
    /// The pack.
    pub pack: PackName,
    /// The generation it runs on.
    pub generation: crate::model::pack::GenerationNumber,
    /// Its state.
    pub state: WorkState,
    /// How often it was claimed.
    pub attempt: u32,
    /// How much of its failure budget is spent.
    pub failures: u32,
    /// Not before.
    pub run_after: Timestamp,
    /// Until when it is leased, while `processing`.
    pub lease_until: Option<Timestamp>,
    /// The flow's note.
    pub note: Option<String>,
    /// Whether `prepare` ignored the event.
    pub ignored: bool,
    /// The last failure.
    pub failure: Option<Failure>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// The source key of its lane.
    pub source_key: Option<String>,
}

/// Which messages to list.
#[derive(Debug, Clone, Default)]
pub struct MessageFilter {
    /// Of this tenant.
    pub namespace: Option<Namespace>,
    /// To this destination.
    pub destination: Option<DestinationName>,
    /// In this state.
    pub state: Option<MessageState>,
    /// That this event's flows emitted.
    pub event_id: Option<EventId>,
}

/// A message in a listing.
#[derive(Debug, Clone)]
pub struct MessageSummary {
    /// All but the body.
    pub entry: MessageEntry,
    /// When it was emitted.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// A message.
#[derive(Debug, Clone)]
pub struct MessageDetail {
    /// What a listing shows.
    pub summary: MessageSummary,
    /// What is sent.
    pub payload: super::Payload,
    /// When the last attempt was admitted.
    pub admitted_at: Option<Timestamp>,
    /// The destination's last HTTP status.
    pub status: Option<u16>,
    /// What went wrong last.
    pub error: Option<String>,
}

impl Store {
    /// Lists events, newest first.
    pub async fn list_events(
        &self,
        filter: &EventFilter,
        page: PageRequest<EventId>,
    ) -> Result<Page<EventSummary, EventId>, StoreError> {
        let _ = (filter, page);
        todo!()
    }

    /// One event.
    pub async fn event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError> {
        let _ = id;
        todo!()
    }

    /// One WorkItem.
    pub async fn work_item(&self, id: WorkItemId) -> Result<Option<WorkItemDetail>, StoreError> {
        let _ = id;
        todo!()
    }

    /// Lists messages, newest first.
    pub async fn list_messages(
        &self,
        filter: &MessageFilter,
        page: PageRequest<MessageId>,
    ) -> Result<Page<MessageSummary, MessageId>, StoreError> {
        let _ = (filter, page);
        todo!()
    }

    /// One message.
    pub async fn message(&self, id: MessageId) -> Result<Option<MessageDetail>, StoreError> {
        let _ = id;
        todo!()
    }
}
