//! What operators look at: events, work items and messages, one by one and page by page.
//!
//! How pages are read is in `listing`.

use crate::model::event::Event;
use crate::model::failure::Failure;
use crate::model::ids::{EventId, MessageId, WorkItemId};
use crate::model::message::{MessageEntry, MessageState};
use crate::model::names::{DestinationName, Namespace, PackName, RouteName};
use crate::model::pack::GenerationNumber;
use crate::model::queue::QueueClass;
use crate::model::reading::RecordedReads;
use crate::model::time::Timestamp;
use crate::model::work_item::{WorkState, WorkType};
use crate::store::engine::connection::Row;
use crate::store::engine::statement::Text;
use crate::store::engine::values::{Values, values};
use crate::store::messages::{ENTRY_COLUMNS, entry, entry_columns, payload};
use crate::store::work::claim::{EVENTS, event};
use crate::store::work::records;
use crate::store::{Store, StoreError};

/// The most rows of a page.
pub const PAGE_ROWS_MAX: u32 = 1_000;

/// The messages of one event that its detail shows; `list_messages` has them all.
const EVENT_MESSAGES_MAX: u32 = PAGE_ROWS_MAX;

/// The replays of one event that its detail shows.
const EVENT_REPLAYS_MAX: u32 = PAGE_ROWS_MAX;

/// One page of a listing, newest first.
#[derive(Debug, Clone)]
pub struct PageRequest<Id> {
    /// Only what comes after this one in the listing.
    pub after: Option<Id>,
    /// The most rows, 1 to [`PAGE_ROWS_MAX`].
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
    /// Whose WorkItem, the one that its delivery brought, stands in this state. `Dead` is about the last replay
    /// instead: an event is found as long as nobody ran again what died.
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
    /// When that WorkItem was replayed.
    pub replayed_at: Option<Timestamp>,
}

/// An event with what became of it.
#[derive(Debug, Clone)]
pub struct EventDetail {
    /// The Event.
    pub event: Event,
    /// Its WorkItems, in the order in which they were made; of replays the first 1,000.
    pub work_items: Vec<WorkItemDetail>,
    /// What its flows emitted, in order; the first 1,000.
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
    pub generation: GenerationNumber,
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
    /// Its class.
    pub queue_class: QueueClass,
    /// How it stands in the projection of its source, if it is a generation of one.
    pub projection: Option<ProjectionPart>,
    /// The WorkItem that it replays.
    pub replay_of: Option<WorkItemId>,
    /// When it was replayed itself.
    pub replayed_at: Option<Timestamp>,
    /// The action that it applies.
    pub action: Option<MessageId>,
    /// What its output hashes to, if it is done and was executed since that is recorded.
    pub output_digest: Option<[u8; 32]>,
    /// What was read for it.
    pub reads: RecordedReads,
}

/// How a generation stands in the projection of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectionPart {
    /// It stands for its source: it runs, or will.
    Active,
    /// It follows when the active one ends, unless a later one takes its place.
    Queued,
    /// It has ended, or was superseded while it was queued.
    Ended,
}

impl ProjectionPart {
    /// The word for it in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            ProjectionPart::Active => "active",
            ProjectionPart::Queued => "queued",
            ProjectionPart::Ended => "ended",
        }
    }

    fn of(state: WorkState, active: bool) -> Self {
        match (active, state.is_terminal()) {
            (true, _) => ProjectionPart::Active,
            (false, false) => ProjectionPart::Queued,
            (false, true) => ProjectionPart::Ended,
        }
    }
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
    pub payload: crate::store::Payload,
    /// When the last attempt was admitted.
    pub admitted_at: Option<Timestamp>,
    /// The destination's last HTTP status.
    pub status: Option<u16>,
    /// What went wrong last.
    pub error: Option<String>,
    /// Its attempts, of all generations, whose outcome is unknown.
    pub uncertain_attempts: u32,
    /// What it is, if it goes to its pack's flow.
    pub action: Option<ActionDetail>,
}

/// What tells a message to a pack's flow from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionDetail {
    /// What to do, in the pack's own words.
    pub name: String,
    /// The pack.
    pub pack: PackName,
    /// The generation that applies it.
    pub generation: GenerationNumber,
    /// What it was handed off as, once it was.
    pub work_item: Option<WorkItemId>,
}

impl Store {
    /// One event.
    pub async fn event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let Some(event) = EVENTS.fetch(&mut connection, vec![id], Values::only, event).await?.pop() else {
            return Ok(None);
        };
        // Messages are stored together with the end of their execution: read after it, they are complete.
        let id = id.as_bytes().as_slice();
        let engine = connection.engine();
        let mut work_items = connection.fetch_all(WORK_ITEMS_OF_EVENT.of(engine), values![id]).await?;
        let replays = values![id, EVENT_REPLAYS_MAX];
        work_items.extend(connection.fetch_all(REPLAYS_OF_EVENT.of(engine), replays).await?);
        let messages = values![id, EVENT_MESSAGES_MAX];
        let messages = connection.fetch_all(MESSAGES_OF_EVENT.of(engine), messages).await?;
        let mut work_items = work_items.iter().map(work_item).collect::<Result<Vec<_>, _>>()?;
        work_items.sort_by_key(|item| (item.created_at, item.replay_of.is_some(), item.id));
        let messages = messages.iter().map(summary).collect::<Result<_, _>>()?;
        Ok(Some(EventDetail { event, work_items, messages }))
    }

    /// One WorkItem.
    pub async fn work_item(&self, id: WorkItemId) -> Result<Option<WorkItemDetail>, StoreError> {
        let row = self.find(&WORK_ITEM, id.as_bytes()).await?;
        Ok(row.as_ref().map(work_item).transpose()?)
    }

    /// One message.
    pub async fn message(&self, id: MessageId) -> Result<Option<MessageDetail>, StoreError> {
        let row = self.find(&MESSAGE, id.as_bytes()).await?;
        Ok(row.as_ref().map(message).transpose()?)
    }

    async fn find(&self, text: &'static Text, id: &[u8; 16]) -> Result<Option<Row>, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let text = text.of(connection.engine());
        Ok(connection.fetch_optional(text, values![id.as_slice()]).await?)
    }
}

macro_rules! work_item_query {
    ($predicate:literal) => {
        concat!(
            "SELECT work_item.id, work_item.event_id, work_item.work_type, work_item.namespace, work_item.pack, \
             work_item.generation, work_item.state, work_item.attempt, work_item.failures, work_item.run_after, \
             work_item.turn, work_item.note, work_item.ignored, work_item.failure_class, work_item.failure_message, \
             work_item.created_at, work_item.finished_at, event.source_key, work_item.replay_of, work_item.replayed_at, \
             (SELECT message.id FROM message WHERE message.ordinal = work_item.action), work_item.queue_class, \
             work_item.projection_key IS NOT NULL, work_item.projection_active_key IS NOT NULL, \
             work_item.output_digest, work_item_read.total, work_item_read.bytes, work_item_read.records FROM ",
            $predicate
        )
    };
}

/// The WorkItems that an Event's delivery brought are a range of ordinals.
static WORK_ITEMS_OF_EVENT: Text = Text::new(work_item_query!(
    "event CROSS JOIN work_item ON work_item.ordinal BETWEEN event.ordinal * 16 AND event.ordinal * 16 + 15 \
     LEFT JOIN work_item_read ON work_item_read.ordinal = work_item.ordinal WHERE event.id = ?"
));

static REPLAYS_OF_EVENT: Text = Text::new(work_item_query!(
    "event CROSS JOIN work_item ON work_item.replay_event = event.ordinal \
     LEFT JOIN work_item_read ON work_item_read.ordinal = work_item.ordinal WHERE event.id = ? \
     ORDER BY work_item.ordinal DESC LIMIT ?"
));

static WORK_ITEM: Text = Text::new(work_item_query!(
    "work_item CROSS JOIN event ON event.id = work_item.event_id \
         LEFT JOIN work_item_read ON work_item_read.ordinal = work_item.ordinal WHERE work_item.id = ?"
));

static MESSAGES_OF_EVENT: Text = Text::new(concat!(
    "SELECT ",
    entry_columns!(),
    ", message.created_at, message.finished_at FROM message WHERE event_id = ? ORDER BY ordinal LIMIT ?"
));

static MESSAGE: Text = Text::new(concat!(
    "SELECT ",
    entry_columns!(),
    ", message.created_at, message.finished_at, message.admitted_at, message.status, message.error, \
     message.uncertain_attempts, message.id, payload.idempotency_key, payload.content_type, payload.headers, payload.body, \
     message.action, message.action_pack, message.action_generation, \
     (SELECT work_item.id FROM work_item WHERE work_item.handed_action = message.ordinal) FROM message \
     CROSS JOIN message_payload AS payload ON payload.ordinal = message.ordinal WHERE message.id = ?"
));

fn work_item(row: &Row) -> Result<WorkItemDetail, sqlx::Error> {
    let state = row.work_state(6)?;
    let action = row.optional_bytes_16(20)?.map(MessageId::from_bytes);
    // Actions stand in no lane.
    let source_key = if action.is_none() { row.value(17)? } else { None };
    Ok(WorkItemDetail {
        id: row.work_item_id(0)?,
        event_id: row.event_id(1)?,
        work_type: row.work_type(2)?,
        namespace: row.name(3)?,
        pack: row.name(4)?,
        generation: row.generation(5)?,
        state,
        attempt: row.unsigned_32(7)?,
        failures: row.unsigned_32(8)?,
        run_after: row.time(9)?,
        lease_until: (state == WorkState::Processing).then(|| row.time(10)).transpose()?,
        note: row.value(11)?,
        ignored: row.value(12)?,
        failure: row.optional_failure(13, 14)?,
        created_at: row.time(15)?,
        finished_at: row.optional_time(16)?,
        source_key,
        queue_class: row.queue_class(21)?,
        projection: row.value::<bool>(22)?.then_some(ProjectionPart::of(state, row.value(23)?)),
        replay_of: row.optional_bytes_16(18)?.map(WorkItemId::from_bytes),
        replayed_at: row.optional_time(19)?,
        action,
        output_digest: row.optional_bytes_32(24)?,
        reads: records::read(row, 25)?,
    })
}

/// Reads a row that begins with the columns of an entry, its creation and its end.
pub(in crate::store) fn summary(row: &Row) -> Result<MessageSummary, sqlx::Error> {
    Ok(MessageSummary {
        entry: entry(row)?,
        created_at: row.time(ENTRY_COLUMNS)?,
        finished_at: row.optional_time(ENTRY_COLUMNS + 1)?,
    })
}

fn message(row: &Row) -> Result<MessageDetail, sqlx::Error> {
    Ok(MessageDetail {
        summary: summary(row)?,
        admitted_at: row.optional_time(ENTRY_COLUMNS + 2)?,
        status: row.optional_unsigned_16(ENTRY_COLUMNS + 3)?,
        error: row.value(ENTRY_COLUMNS + 4)?,
        uncertain_attempts: row.unsigned_32(ENTRY_COLUMNS + 5)?,
        payload: payload(row, ENTRY_COLUMNS + 6)?,
        action: action(row, ENTRY_COLUMNS + 11)?,
    })
}

fn action(row: &Row, first: usize) -> Result<Option<ActionDetail>, sqlx::Error> {
    let Some(name) = row.value::<Option<String>>(first)? else { return Ok(None) };
    Ok(Some(ActionDetail {
        name,
        pack: row.name(first + 1)?,
        generation: row.generation(first + 2)?,
        work_item: row.optional_bytes_16(first + 3)?.map(WorkItemId::from_bytes),
    }))
}
