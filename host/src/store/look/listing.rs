//! Listings, newest first, page by page.
//!
//! A page walks down the ordinals from the end of the page before. It looks at [`SCAN_ROWS_MAX`] rows at most, whatever
//! the filter: if no index serves the filter and hardly a row fits, a page may be short or empty, and still have a next
//! one.

use super::inspect::{EventFilter, EventSummary, MessageFilter, MessageSummary, PAGE_ROWS_MAX, Page, PageRequest};
use crate::model::ids::{EventId, MessageId};
use crate::model::message::MessageState;
use crate::model::work_item::WorkState;
use crate::store::engine::codes::sql;
use crate::store::engine::connection::Connection;
use crate::store::engine::dialect::select;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::values::{Values, values};
use crate::store::messages::entry_columns;
use crate::store::{Store, StoreError};

/// The most rows of a listing that one page looks at.
pub const SCAN_ROWS_MAX: i64 = 20_000;

impl Store {
    /// Lists events, newest first. A page may be short, or empty, and still have a next one.
    pub async fn list_events(
        &self,
        filter: &EventFilter,
        page: PageRequest<EventId>,
    ) -> Result<Page<EventSummary, EventId>, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let Some(before) = before_event(&mut connection, page.after).await? else { return Ok(Page::empty()) };
        let limit = page.limit.clamp(1, PAGE_ROWS_MAX);
        let (query, floor) = event_query(filter, before, limit);
        let mut items: Vec<EventSummary> = query.run(&mut connection).await?;
        let next = if items.len() < limit as usize {
            at(&mut connection, EVENT_AT, floor).await?
        } else {
            items.last().map(|item| item.id)
        };
        // An event is one item, however many of its actions ended badly.
        items.dedup_by_key(|item| item.id);
        Ok(Page { items, next })
    }

    /// Lists messages, newest first. A page may be short, or empty, and still have a next one.
    pub async fn list_messages(
        &self,
        filter: &MessageFilter,
        page: PageRequest<MessageId>,
    ) -> Result<Page<MessageSummary, MessageId>, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let Some(before) = before_message(&mut connection, page.after).await? else { return Ok(Page::empty()) };
        let limit = page.limit.clamp(1, PAGE_ROWS_MAX);
        let (query, floor) = message_query(filter, before, limit);
        let items: Vec<MessageSummary> = query.run(&mut connection).await?;
        let next = if items.len() < limit as usize {
            at(&mut connection, MESSAGE_AT, floor).await?
        } else {
            items.last().map(|item| item.entry.id)
        };
        Ok(Page { items, next })
    }
}

impl FromColumns for EventSummary {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: columns.next()?,
            namespace: columns.next()?,
            pack: columns.next()?,
            route: columns.next()?,
            delivery_key: columns.next()?,
            source_key: columns.next()?,
            received_at: columns.next()?,
            body_bytes: columns.next()?,
            state: columns.next()?,
            attempt: columns.next()?,
            replayed_at: columns.next()?,
        })
    }
}

impl<T, Id> Page<T, Id> {
    fn empty() -> Self {
        Self { items: Vec::new(), next: None }
    }
}

const EVENTS_END: &str = "SELECT max(ordinal) + 1 FROM event";

const MESSAGES_END: &str = "SELECT max(ordinal) + 1 FROM message";

const EVENT_BENEATH: &str =
    "SELECT max(ordinal) + 1 FROM event WHERE ordinal < (SELECT ordinal FROM event WHERE id = ?)";

const MESSAGE_BENEATH: &str =
    "SELECT max(ordinal) + 1 FROM message WHERE ordinal < (SELECT ordinal FROM message WHERE id = ?)";

const EVENT_AT: &str = "SELECT id FROM event WHERE ordinal >= ? ORDER BY ordinal LIMIT 1";

const MESSAGE_AT: &str = "SELECT id FROM message WHERE ordinal >= ? ORDER BY ordinal LIMIT 1";

/// The ordinal that a page begins below: just above the next row, whatever gap lies before it, so that every page looks
/// at a row at least. `None` if there is no next row, or no row `after`.
async fn before_event(connection: &mut Connection<'_>, after: Option<EventId>) -> Result<Option<i64>, sqlx::Error> {
    match after {
        None => connection.read_one(EVENTS_END, values![]).await,
        Some(after) => connection.read_one(EVENT_BENEATH, values![after]).await,
    }
}

/// As [`before_event`], of messages.
async fn before_message(connection: &mut Connection<'_>, after: Option<MessageId>) -> Result<Option<i64>, sqlx::Error> {
    match after {
        None => connection.read_one(MESSAGES_END, values![]).await,
        Some(after) => connection.read_one(MESSAGE_BENEATH, values![after]).await,
    }
}

/// The row at which a page that was not filled stopped looking. `None` if it looked at everything.
async fn at<Id: FromColumns>(
    connection: &mut Connection<'_>,
    text: &'static str,
    floor: i64,
) -> Result<Option<Id>, sqlx::Error> {
    if floor <= 0 {
        return Ok(None);
    }
    connection.read_optional(text, values![floor]).await
}

/// A statement in the making. Its text is made of constants; the filter's values are bound.
struct Listing {
    text: String,
    values: Values,
}

impl Listing {
    fn new(text: &'static str) -> Self {
        Self { text: text.to_owned(), values: Values::default() }
    }

    fn text(&mut self, text: &'static str) -> &mut Values {
        self.text.push_str(text);
        &mut self.values
    }

    async fn run<T: FromColumns>(self, connection: &mut Connection<'_>) -> Result<Vec<T>, sqlx::Error> {
        let text = select(connection.engine(), &self.text);
        connection.read_all(&text, self.values).await
    }
}

/// The lowest ordinal of a page: 0 where an index finds just the rows that fit.
fn floor(before: i64, indexed: bool) -> i64 {
    if indexed { 0 } else { (before - SCAN_ROWS_MAX).max(0) }
}

macro_rules! event_columns {
    () => {
        "SELECT event.id, event.namespace, receipt.pack, event.route, event.delivery_key, event.source_key, \
         receipt.received_at, length(event.body), coalesce(work_item.state, 0), coalesce(work_item.attempt, 0), \
         work_item.replayed_at FROM "
    };
}

/// By Event, each with its delivery's WorkItem. An Event without one is shown as blocked.
const EVENTS: &str = sql!(concat!(
    event_columns!(),
    "event CROSS JOIN receipt ON receipt.ordinal = event.receipt \
     LEFT JOIN work_item ON work_item.ordinal = {delivered_item} WHERE event.ordinal < ? AND event.ordinal >= ?"
));

/// By dead WorkItems that were not replayed; they are few.
const DEAD_EVENTS: &str = concat!(
    event_columns!(),
    "work_item CROSS JOIN event ON event.ordinal = work_item.dead_event \
     CROSS JOIN receipt ON receipt.ordinal = event.receipt \
     WHERE work_item.dead_event < ? AND work_item.dead_event >= ?"
);

fn event_query(filter: &EventFilter, before: i64, limit: u32) -> (Listing, i64) {
    let dead = filter.state == Some(WorkState::Dead);
    let indexed = match (&filter.namespace, &filter.pack, &filter.route, filter.state) {
        (_, None, None, None) | (None, None, None, Some(WorkState::Dead)) => true,
        (_, Some(_), _, _) | (_, _, Some(_), _) | (_, _, _, Some(_)) => false,
    };
    let floor = floor(before, indexed);
    let mut query = Listing::new(if dead { DEAD_EVENTS } else { EVENTS });
    query.values.push(before).push(floor);
    if let Some(namespace) = &filter.namespace {
        query.text(" AND event.namespace = ?").push(namespace);
    }
    if let Some(pack) = &filter.pack {
        query.text(" AND receipt.pack = ?").push(pack);
    }
    if let Some(route) = &filter.route {
        query.text(" AND event.route = ?").push(route);
    }
    if let Some(state) = filter.state.filter(|_| !dead) {
        query.text(" AND work_item.state = ?").push(state);
    }
    let order =
        if dead { " ORDER BY work_item.dead_event DESC LIMIT ?" } else { " ORDER BY event.ordinal DESC LIMIT ?" };
    query.text(order).push(limit);
    (query, floor)
}

const MESSAGES: &str = concat!(
    "SELECT ",
    entry_columns!(),
    ", message.created_at, message.finished_at FROM message WHERE message.ordinal < ? AND message.ordinal >= ?"
);

fn message_query(filter: &MessageFilter, before: i64, limit: u32) -> (Listing, i64) {
    // The index `message_trouble` holds these.
    let troubled = matches!(filter.state, Some(MessageState::Uncertain | MessageState::Dead));
    let plain = filter.namespace.is_none() && filter.destination.is_none();
    let floor = floor(before, filter.event_id.is_some() || plain && (troubled || filter.state.is_none()));
    let mut query = Listing::new(MESSAGES);
    query.values.push(before).push(floor);
    if let Some(event_id) = filter.event_id {
        query.text(" AND message.event_id = ?").push(event_id);
    }
    if let Some(namespace) = &filter.namespace {
        query.text(" AND message.namespace = ?").push(namespace);
    }
    if let Some(destination) = &filter.destination {
        query.text(" AND message.destination = ?").push(destination);
    }
    if let Some(state) = filter.state {
        if troubled {
            query.text(sql!(" AND message.state IN ({message_troubled})"));
        }
        query.text(" AND message.state = ?").push(state);
    }
    query.text(" ORDER BY message.ordinal DESC LIMIT ?").push(limit);
    (query, floor)
}
