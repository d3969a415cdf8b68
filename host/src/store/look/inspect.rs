//! What operators look at: events, work items and messages, one by one and page by page.
//!
//! How pages are read is in `listing`.

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
    /// When the last attempt was admitted.
    pub admitted_at: Option<Timestamp>,
    /// The destination's last HTTP status.
    pub status: Option<u16>,
    /// What went wrong last.
    pub error: Option<String>,
    /// Its attempts, of all generations, whose outcome is unknown.
    pub uncertain_attempts: u32,
    /// What is sent.
    pub payload: crate::store::Payload,
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
