//! How retention stands: how much has been kept long enough, and what is the oldest.

use super::Shelf;
use crate::model::retention::Keep;
use crate::model::time::Timestamp;
use crate::store::engine::connection::{Connection, database_now};
use crate::store::engine::statement::Text;
use crate::store::engine::values::values;
use crate::store::{Store, StoreError};

/// The most that is counted of what is past its time on one shelf.
pub const SHELF_COUNTED_MAX: u32 = 100_000;

/// How the shelves stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// Messages, but for dead ones.
    pub messages: OnShelf,
    /// Dead messages.
    pub dead_messages: OnShelf,
    /// Events whose WorkItem is done, or was run again.
    pub events: OnShelf,
    /// Events whose WorkItem is dead.
    pub dead_events: OnShelf,
}

/// How a shelf stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OnShelf {
    /// What ended longer ago than it is kept, at most [`SHELF_COUNTED_MAX`]. Some of it may stay, because something
    /// refers to it.
    pub past: u64,
    /// When the oldest on it ended.
    pub oldest: Option<Timestamp>,
}

macro_rules! past {
    ($table:literal) => {
        Text::new(concat!(
            "SELECT count(*) FROM (SELECT ordinal FROM ",
            $table,
            " WHERE ended_key > ? AND ended_key < ? LIMIT ?) AS past"
        ))
    };
}

static PAST_EVENTS: Text = past!("work_item");
static PAST_MESSAGES: Text = past!("message");

/// The first key behind one; with the keys of what failed, which are below 0, the last one.
const FIRST_EVENT: &str = "SELECT min(ended_key) FROM work_item WHERE ended_key > 0";
const FIRST_MESSAGE: &str = "SELECT min(ended_key) FROM message WHERE ended_key > 0";
const FIRST_DEAD_EVENT: &str = "SELECT max(ended_key) FROM work_item WHERE ended_key < 0";
const FIRST_DEAD_MESSAGE: &str = "SELECT max(ended_key) FROM message WHERE ended_key < 0";

impl Store {
    /// How much stands on each shelf that has been kept long enough, and since when the oldest stands there.
    pub async fn retention_standing(&self, keep: &Keep, now: Timestamp) -> Result<Standing, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let now = database_now(&mut connection, self.lease_time).await?.map_or(now, |database| database.min(now));
        Ok(Standing {
            messages: on_shelf(&mut connection, Shelf::Messages, keep, now).await?,
            dead_messages: on_shelf(&mut connection, Shelf::DeadMessages, keep, now).await?,
            events: on_shelf(&mut connection, Shelf::Events, keep, now).await?,
            dead_events: on_shelf(&mut connection, Shelf::DeadEvents, keep, now).await?,
        })
    }

    /// Since when the oldest has stood on a shelf.
    pub async fn oldest_ended(&self, shelf: Shelf) -> Result<Option<Timestamp>, StoreError> {
        let mut reader = self.reader().await?;
        Ok(oldest(&mut reader.connection(), shelf).await?)
    }
}

async fn on_shelf(
    connection: &mut Connection<'_>,
    shelf: Shelf,
    keep: &Keep,
    now: Timestamp,
) -> Result<OnShelf, sqlx::Error> {
    let text = if shelf.is_of_messages() { &PAST_MESSAGES } else { &PAST_EVENTS };
    let past = match shelf.keys(&keep.limits(now)) {
        Some((low, high)) => {
            let values = values![low, high, SHELF_COUNTED_MAX];
            connection.read_one(text.of(connection.engine()), values).await?
        }
        None => 0,
    };
    Ok(OnShelf { past, oldest: oldest(connection, shelf).await? })
}

async fn oldest(connection: &mut Connection<'_>, shelf: Shelf) -> Result<Option<Timestamp>, sqlx::Error> {
    let text = match shelf {
        Shelf::Messages => FIRST_MESSAGE,
        Shelf::DeadMessages => FIRST_DEAD_MESSAGE,
        Shelf::Events => FIRST_EVENT,
        Shelf::DeadEvents => FIRST_DEAD_EVENT,
    };
    let key: Option<i64> = connection.read_one(text, values![]).await?;
    Ok(key.map(|key| Timestamp::from_millis(key.abs())))
}
