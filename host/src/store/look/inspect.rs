//! Events, work items and messages as operators see them, one by one and page by page.
//!
//! `listing` reads the pages.

use crate::model::event::Event;
use crate::model::failure::{Failure, FailureClass};
use crate::model::ids::{EventId, MessageId, WorkItemId};
use crate::model::message::{MessageEntry, MessageState};
use crate::model::names::{DestinationName, Namespace, PackName, RouteName};
use crate::model::pack::GenerationNumber;
use crate::model::queue::QueueClass;
use crate::model::reading::RecordedReads;
use crate::model::time::Timestamp;
use crate::model::work_item::{WorkState, WorkType};
use crate::store::engine::codes::sql;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::statement::Text;
use crate::store::engine::values::{Values, values};
use crate::store::messages::entry_columns;
use crate::store::work::claim::EVENTS;
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
    /// The id that the page starts after.
    pub after: Option<Id>,
    /// The most rows, 1 to [`PAGE_ROWS_MAX`].
    pub limit: u32,
}

/// A page, and the start of the next one.
#[derive(Debug, Clone)]
pub struct Page<T, Id> {
    /// The rows.
    pub items: Vec<T>,
    /// `after` for the next page; `None` on the last.
    pub next: Option<Id>,
}

/// A filter of events.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// The namespace.
    pub namespace: Option<Namespace>,
    /// The pack.
    pub pack: Option<PackName>,
    /// The route.
    pub route: Option<RouteName>,
    /// The state of the WorkItem that the delivery brought. `Dead` finds events with a dead WorkItem, a replay or not,
    /// that was not replayed.
    pub state: Option<WorkState>,
}

/// An event in a listing.
#[derive(Debug, Clone)]
pub struct EventSummary {
    /// The id.
    pub id: EventId,
    /// The namespace.
    pub namespace: Namespace,
    /// The pack.
    pub pack: PackName,
    /// The route.
    pub route: RouteName,
    /// The delivery key.
    pub delivery_key: String,
    /// The source key.
    pub source_key: Option<String>,
    /// The time of admission.
    pub received_at: Timestamp,
    /// The length of the body.
    pub body_bytes: u64,
    /// The state of its WorkItem.
    pub state: WorkState,
    /// The claims of that WorkItem so far.
    pub attempt: u32,
    /// The time at which that WorkItem was replayed.
    pub replayed_at: Option<Timestamp>,
}

/// An event with its WorkItems and messages.
#[derive(Debug, Clone)]
pub struct EventDetail {
    /// The Event.
    pub event: Event,
    /// Its WorkItems, oldest first; of replays the last 1,000.
    pub work_items: Vec<WorkItemDetail>,
    /// The messages of its flows, oldest first; the first 1,000.
    pub messages: Vec<MessageSummary>,
}

/// A WorkItem.
#[derive(Debug, Clone)]
pub struct WorkItemDetail {
    /// The id.
    pub id: WorkItemId,
    /// The id of its Event.
    pub event_id: EventId,
    /// The work type.
    pub work_type: WorkType,
    /// The namespace.
    pub namespace: Namespace,
    /// The pack.
    pub pack: PackName,
    /// The generation that runs it.
    pub generation: GenerationNumber,
    /// The state.
    pub state: WorkState,
    /// The claims so far.
    pub attempt: u32,
    /// The failures so far.
    pub failures: u32,
    /// The earliest time of the next run.
    pub run_after: Timestamp,
    /// The end of its lease, while `processing`.
    pub lease_until: Option<Timestamp>,
    /// The flow's note.
    pub note: Option<String>,
    /// Whether `prepare` ignored the event.
    pub ignored: bool,
    /// The last failure.
    pub failure: Option<Failure>,
    /// The time of creation.
    pub created_at: Timestamp,
    /// The time of its end.
    pub finished_at: Option<Timestamp>,
    /// The source key of its lane.
    pub source_key: Option<String>,
    /// The queue class.
    pub queue_class: QueueClass,
    /// Its part in the projection of its source, if it has one.
    pub projection: Option<ProjectionPart>,
    /// The WorkItem that it replays.
    pub replay_of: Option<WorkItemId>,
    /// The time at which it was replayed itself.
    pub replayed_at: Option<Timestamp>,
    /// The action that it applies.
    pub action: Option<MessageId>,
    /// SHA-256 of its output; null for runs before digests were recorded.
    pub output_digest: Option<[u8; 32]>,
    /// The reads of its last run.
    pub reads: RecordedReads,
}

/// The part of a WorkItem in the projection of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectionPart {
    /// It runs, or will.
    Active,
    /// It follows when the active item ends, unless a later item supersedes it.
    Queued,
    /// It has ended, or was superseded.
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

/// A filter of messages.
#[derive(Debug, Clone, Default)]
pub struct MessageFilter {
    /// The namespace.
    pub namespace: Option<Namespace>,
    /// The destination.
    pub destination: Option<DestinationName>,
    /// The state.
    pub state: Option<MessageState>,
    /// The event whose flows emitted them.
    pub event_id: Option<EventId>,
}

/// A message in a listing.
#[derive(Debug, Clone)]
pub struct MessageSummary {
    /// The message without its body.
    pub entry: MessageEntry,
    /// The time at which it was emitted.
    pub created_at: Timestamp,
    /// The time of its end.
    pub finished_at: Option<Timestamp>,
}

/// A message.
#[derive(Debug, Clone)]
pub struct MessageDetail {
    /// The message as a listing shows it.
    pub summary: MessageSummary,
    /// The admission of the last attempt.
    pub admitted_at: Option<Timestamp>,
    /// The destination's last HTTP status.
    pub status: Option<u16>,
    /// The error of the last attempt.
    pub error: Option<String>,
    /// The uncertain attempts, of all generations.
    pub uncertain_attempts: u32,
    /// The payload.
    pub payload: crate::store::Payload,
    /// The action, if it goes to its own pack.
    pub action: Option<ActionDetail>,
}

/// A message to its own pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionDetail {
    /// The name that the pack gave it.
    pub name: String,
    /// The pack.
    pub pack: PackName,
    /// The generation that applies it.
    pub generation: GenerationNumber,
    /// The WorkItem that it was handed off as.
    pub work_item: Option<WorkItemId>,
}

impl Store {
    /// One event.
    pub async fn event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let Some(event) = EVENTS.fetch(&mut connection, vec![id], Values::only, FromColumns::read).await?.pop() else {
            return Ok(None);
        };
        // Messages are stored together with the end of their execution: read after it, they are complete.
        let engine = connection.engine();
        let mut work_items: Vec<WorkItemDetail> =
            connection.read_all(WORK_ITEMS_OF_EVENT.of(engine), values![id]).await?;
        let replays = values![id, EVENT_REPLAYS_MAX];
        work_items.extend(connection.read_all::<WorkItemDetail>(REPLAYS_OF_EVENT.of(engine), replays).await?);
        let messages = values![id, EVENT_MESSAGES_MAX];
        let messages = connection.read_all(MESSAGES_OF_EVENT.of(engine), messages).await?;
        work_items.sort_by_key(|item| (item.created_at, item.replay_of.is_some(), item.id));
        Ok(Some(EventDetail { event, work_items, messages }))
    }

    /// One WorkItem.
    pub async fn work_item(&self, id: WorkItemId) -> Result<Option<WorkItemDetail>, StoreError> {
        self.find(&WORK_ITEM, values![id]).await
    }

    /// One message.
    pub async fn message(&self, id: MessageId) -> Result<Option<MessageDetail>, StoreError> {
        self.find(&MESSAGE, values![id]).await
    }

    async fn find<T: FromColumns>(&self, text: &'static Text, id: Values) -> Result<Option<T>, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let text = text.of(connection.engine());
        Ok(connection.read_optional(text, id).await?)
    }
}

/// The columns of a [`WorkItemDetail`], first those that others depend on.
macro_rules! work_item_query {
    ($predicate:literal) => {
        concat!(
            "SELECT work_item.state, (SELECT message.id FROM message WHERE message.ordinal = work_item.action), \
             work_item.id, work_item.event_id, work_item.work_type, work_item.namespace, work_item.pack, \
             work_item.generation, work_item.attempt, work_item.failures, work_item.run_after, work_item.turn, \
             work_item.note, work_item.ignored, work_item.failure_class, work_item.failure_message, \
             work_item.created_at, work_item.finished_at, event.source_key, work_item.queue_class, \
             work_item.projection_key IS NOT NULL, work_item.projection_active_key IS NOT NULL, work_item.replay_of, \
             work_item.replayed_at, work_item.output_digest, work_item_read.total, work_item_read.bytes, \
             work_item_read.records FROM ",
            $predicate
        )
    };
}

/// The WorkItems that an Event's delivery brought are a range of ordinals.
static WORK_ITEMS_OF_EVENT: Text = Text::new(sql!(work_item_query!(
    "event CROSS JOIN work_item ON work_item.ordinal BETWEEN {items_of_event} \
     LEFT JOIN work_item_read ON work_item_read.ordinal = work_item.ordinal WHERE event.id = ?"
)));

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

impl FromColumns for WorkItemDetail {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        let (state, action): (WorkState, Option<MessageId>) = columns.next()?;
        Ok(Self {
            id: columns.next()?,
            event_id: columns.next()?,
            work_type: columns.next()?,
            namespace: columns.next()?,
            pack: columns.next()?,
            generation: columns.next()?,
            state,
            attempt: columns.next()?,
            failures: columns.next()?,
            run_after: columns.next()?,
            lease_until: columns.next::<Option<_>>()?.filter(|_| state == WorkState::Processing),
            note: columns.next()?,
            ignored: columns.next()?,
            failure: failure(columns)?,
            created_at: columns.next()?,
            finished_at: columns.next()?,
            // Actions stand in no lane.
            source_key: columns.next::<Option<_>>()?.filter(|_| action.is_none()),
            queue_class: columns.next()?,
            projection: projection(columns, state)?,
            replay_of: columns.next()?,
            replayed_at: columns.next()?,
            action,
            output_digest: columns.next()?,
            reads: columns.next()?,
        })
    }
}

/// The delay that a guest asked for is not stored: `run_after` has it.
fn failure(columns: &mut Columns<'_>) -> Result<Option<Failure>, sqlx::Error> {
    let (class, message): (Option<FailureClass>, Option<String>) = columns.next()?;
    Ok(class.map(|class| Failure { class, message: message.unwrap_or_default() }))
}

fn projection(columns: &mut Columns<'_>, state: WorkState) -> Result<Option<ProjectionPart>, sqlx::Error> {
    let (is_generation, is_active): (bool, bool) = columns.next()?;
    Ok(is_generation.then_some(ProjectionPart::of(state, is_active)))
}

impl FromColumns for MessageSummary {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self { entry: columns.next()?, created_at: columns.next()?, finished_at: columns.next()? })
    }
}

impl FromColumns for MessageDetail {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            summary: columns.next()?,
            admitted_at: columns.next()?,
            status: columns.next()?,
            error: columns.next()?,
            uncertain_attempts: columns.next()?,
            payload: columns.next()?,
            action: action(columns)?,
        })
    }
}

fn action(columns: &mut Columns<'_>) -> Result<Option<ActionDetail>, sqlx::Error> {
    let Some(name) = columns.next()? else {
        columns.skip(3);
        return Ok(None);
    };
    let (pack, generation, work_item) = columns.next()?;
    Ok(Some(ActionDetail { name, pack, generation, work_item }))
}
