//! Retention: removes what ended long enough ago, a page at a time.
//!
//! ```text
//!   keeper ──page of a shelf──> look (a reader): what may go? ──if any──> one transaction: hold, judge again, remove
//! ```
//!
//! What goes together is a unit:
//! - a message that was sent, cancelled, or expired, with its payload
//! - an action that was handed off, with its WorkItem and that one's replays
//! - an Event with its WorkItem, that one's replays and what was read for them; and the receipt with its last Event
//!
//! Invariants:
//! - What goes is decided with its rows held; what was seen before only says where to look.
//! - An Event stays as long as any message of it does. So whatever refers to an Event finds it.
//! - A unit goes in one transaction, and the counters with it.
//! - The newest Event, message and replay stay: numbers are given from the largest one on, and none is given twice.
//! - Looking for what may go reads a range of an index, as long as the page.

mod events;
mod items;
mod messages;
mod standing;

pub use standing::{OnShelf, SHELF_COUNTED_MAX, Standing};

use std::collections::BTreeSet;

use crate::model::retention::{Keep, Limits};
use crate::model::time::Timestamp;
use crate::store::engine::connection::{Connection, database_now};
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::statement::{Statement, Text};
use crate::store::engine::values::values;
use crate::store::writer::Control;
use crate::store::writer::unit::{Answers, Unit};
use crate::store::{Store, StoreError};

/// Units that one page looks at, and that one transaction removes at most.
pub const PAGE_UNITS_MAX: u32 = 64;

/// Rows that a unit has, by estimate.
const UNIT_ROWS: usize = 4;

/// What has ended, in the order in which it did. An Event is found by the WorkItem that its delivery brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shelf {
    /// Messages, but for dead ones.
    Messages,
    /// Dead messages.
    DeadMessages,
    /// Events whose WorkItem is done, or was run again.
    Events,
    /// Events whose WorkItem is dead.
    DeadEvents,
}

/// A place on a shelf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    key: i64,
    ordinal: i64,
}

/// What was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removed {
    /// Events.
    pub events: u64,
    /// WorkItems.
    pub work_items: u64,
    /// Messages.
    pub messages: u64,
}

/// What a page came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retired {
    /// Units that were looked at: all of them ended longer ago than they are kept.
    pub looked: u64,
    /// What went.
    pub removed: Removed,
    /// Where the next page begins; `None` at the end of the shelf.
    pub next: Option<Place>,
}

/// One transaction's part.
#[derive(Debug, Clone)]
pub(in crate::store) struct Retire {
    units: Units,
    limits: Limits,
}

/// What seemed to be able to go.
#[derive(Debug, Clone)]
enum Units {
    /// Events, by their ordinals.
    Events(Vec<i64>),
    /// Messages, by their ordinals.
    Messages(messages::Wanted),
}

impl Shelf {
    /// Every shelf, in the order in which a pass clears them: messages first, for Events stay as long as they do.
    pub const ALL: [Shelf; 4] = [Shelf::Messages, Shelf::DeadMessages, Shelf::Events, Shelf::DeadEvents];

    /// Whether it has messages.
    pub const fn is_of_messages(self) -> bool {
        match self {
            Shelf::Messages | Shelf::DeadMessages => true,
            Shelf::Events | Shelf::DeadEvents => false,
        }
    }

    /// Between which keys stands what ended before its limit; `None` if nothing on this shelf ever goes.
    fn keys(self, limits: &Limits) -> Option<(i64, i64)> {
        let (limit, failed) = match self {
            Shelf::Messages => (Some(limits.messages), false),
            Shelf::Events => (Some(limits.events), false),
            Shelf::DeadMessages | Shelf::DeadEvents => (limits.failed, true),
        };
        let limit = limit?.as_millis();
        Some(if failed { (-limit, 0) } else { (0, limit) })
    }

    const fn statements(self) -> (&'static Text, &'static Text) {
        if self.is_of_messages() { (&MESSAGES_AT, &MESSAGES_BEHIND) } else { (&EVENTS_AT, &EVENTS_BEHIND) }
    }
}

macro_rules! page {
    ($table:literal, $where:literal, $order:literal) => {
        Text::new(concat!(
            "SELECT ended_key, ordinal FROM ",
            $table,
            " WHERE ",
            $where,
            " ORDER BY ",
            $order,
            " LIMIT ?"
        ))
    };
}

// Two statements for what stands behind a place: a server reads far more for one that says both.
pub(in crate::store) static EVENTS_AT: Text = page!("work_item", "ended_key = ? AND ordinal > ?", "ordinal");
pub(in crate::store) static EVENTS_BEHIND: Text =
    page!("work_item", "ended_key > ? AND ended_key < ?", "ended_key, ordinal");
pub(in crate::store) static MESSAGES_AT: Text = page!("message", "ended_key = ? AND ordinal > ?", "ordinal");
pub(in crate::store) static MESSAGES_BEHIND: Text =
    page!("message", "ended_key > ? AND ended_key < ?", "ended_key, ordinal");

impl Store {
    /// Looks at the next units of a shelf that ended longer ago than they are kept, and removes those of them that
    /// nothing refers to, in one transaction. Where runtimes share a database, whichever clock is behind decides.
    pub async fn retire(
        &self,
        shelf: Shelf,
        keep: &Keep,
        from: Option<Place>,
        now: Timestamp,
    ) -> Result<Retired, StoreError> {
        let mut reader = self.reader().await?;
        let (page, request) = async {
            let mut connection = reader.connection();
            let database_now = database_now(&mut connection, self.lease_time).await?;
            let limits = keep.limits(database_now.map_or(now, |database| database.min(now)));
            look(&mut connection, shelf, limits, from).await
        }
        .await?;
        drop(reader);
        let removed = match request {
            Some(request) => self.writer.control(|reply| Control::Retire(request, reply)).await?,
            None => Removed::default(),
        };
        let is_full = page.len() >= PAGE_UNITS_MAX as usize;
        Ok(Retired { looked: page.len() as u64, removed, next: page.last().copied().filter(|_| is_full) })
    }
}

impl Retire {
    /// How many rows it is about.
    pub(in crate::store) fn rows(&self) -> usize {
        let units = match &self.units {
            Units::Events(ordinals) => ordinals.len(),
            Units::Messages(wanted) => wanted.len(),
        };
        units * UNIT_ROWS
    }
}

impl std::ops::AddAssign for Removed {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.work_items += other.work_items;
        self.messages += other.messages;
    }
}

/// The next page of a shelf, and what of it may go.
pub(in crate::store) async fn look(
    connection: &mut Connection<'_>,
    shelf: Shelf,
    limits: Limits,
    from: Option<Place>,
) -> Result<(Vec<Place>, Option<Retire>), sqlx::Error> {
    let page = page(connection, shelf, &limits, from).await?;
    let ordinals = page.iter().map(|place| place.ordinal).collect();
    let units = if shelf.is_of_messages() {
        messages::look(connection, ordinals, &limits).await?.map(Units::Messages)
    } else {
        events::look(connection, ordinals, &limits).await?.map(Units::Events)
    };
    Ok((page, units.map(|units| Retire { units, limits })))
}

/// The next places on a shelf, as far as its limit.
async fn page(
    connection: &mut Connection<'_>,
    shelf: Shelf,
    limits: &Limits,
    from: Option<Place>,
) -> Result<Vec<Place>, sqlx::Error> {
    let Some((low, high)) = shelf.keys(limits) else { return Ok(Vec::new()) };
    let (at, behind) = shelf.statements();
    let engine = connection.engine();
    let mut page = Vec::new();
    if let Some(Place { key, ordinal }) = from {
        page = connection.read_all(at.of(engine), values![key, ordinal, PAGE_UNITS_MAX]).await?;
    }
    let room = PAGE_UNITS_MAX.saturating_sub(u32::try_from(page.len()).unwrap_or(u32::MAX));
    if room > 0 {
        let low = from.map_or(low, |place| place.key.max(low));
        page.extend(connection.read_all::<Place>(behind.of(engine), values![low, high, room]).await?);
    }
    Ok(page)
}

impl FromColumns for Place {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self { key: columns.next()?, ordinal: columns.next()? })
    }
}

/// Whether rows are read as they are, or held until the transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Look,
    Lock,
}

impl Hold {
    /// One of two statements that read the same.
    const fn pick(self, look: &'static Statement, lock: &'static Statement) -> &'static Statement {
        match self {
            Hold::Look => look,
            Hold::Lock => lock,
        }
    }
}

/// Removes, request by request, what may go now.
pub(in crate::store) async fn apply(
    unit: &mut Unit<'_>,
    requests: Vec<Retire>,
) -> Result<Answers<Removed>, sqlx::Error> {
    let mut answers = Vec::with_capacity(requests.len());
    for Retire { units, limits } in requests {
        answers.push(Ok(match units {
            Units::Events(ordinals) => events::remove(unit, ordinals, &limits).await?,
            Units::Messages(wanted) => messages::remove(unit, wanted, &limits).await?,
        }));
    }
    Ok(answers)
}

/// What was found, in the order of keys and each once: rows are locked and removed in it.
fn in_order(keys: impl IntoIterator<Item = i64>) -> Vec<i64> {
    keys.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}
