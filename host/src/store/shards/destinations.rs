//! Destinations that are set while hosts run, for every host over the database. A document is a text with a version
//! here; its meaning belongs to other modules.
//!
//! Invariants:
//! - Versions rise over all destinations, and none is given twice: a destination that was removed and set again never
//!   has an old version.
//! - A change with an expected version changes that version or nothing.
//! - Removing a destination removes none of its messages.

use crate::model::destination::DESTINATIONS_SET_MAX;
use crate::model::names::DestinationName;
use crate::model::time::Timestamp;
use crate::store::engine::codes::sql;
use crate::store::engine::connection::Connection;
use crate::store::engine::dialect::Lock;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::statement::{Statement, Text};
use crate::store::engine::values::{Values, values};
use crate::store::shards::ShardId;
use crate::store::writer::Control;
use crate::store::writer::unit::{Answers, Unit, all_written};
use crate::store::{Store, StoreError};

/// The most messages that are counted for one destination.
pub const PENDING_COUNTED_MAX: u64 = 100_000;

/// The rows of messages that one read looks at.
const SCANNED_PER_READ: u32 = 10_000;

/// The rows of messages that one count looks at.
const SCANNED_MAX: u64 = 2_000_000;

/// A destination that was set while hosts ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationRow {
    /// The name.
    pub name: DestinationName,
    /// The settings, as JSON.
    pub document: String,
    /// The number of its last change.
    pub version: u64,
    /// Whether it was removed while messages waited for it.
    pub removed: bool,
    /// The time of the first change.
    pub created_at: Timestamp,
    /// The time of the last change.
    pub changed_at: Timestamp,
}

/// The wanted state of a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DestinationWish {
    /// Set, with this document.
    Set(String),
    /// Removed: not called any more. Its messages keep waiting, in their order.
    Remove,
    /// Forgotten: not called any more, and without waiting messages.
    Forget,
}

/// A change of a destination.
#[derive(Debug, Clone)]
pub struct DestinationChange {
    /// The destination.
    pub name: DestinationName,
    /// The wanted state.
    pub wish: DestinationWish,
    /// The version before the change, 0 for a destination that is not set; `None` for any.
    pub expected: Option<u64>,
    /// Now.
    pub now: Timestamp,
}

/// The answer to a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DestinationChanged {
    /// The change is durable, as this version.
    Done(u64),
    /// The destination has this version and not the expected one; 0 if it is not set.
    Stale(u64),
    /// There is no such destination.
    NotFound,
    /// There are as many destinations as allowed.
    TooMany,
}

/// Messages that have not ended, to one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// The messages that were counted.
    pub messages: u64,
    /// Whether there may be more.
    pub more: bool,
}

impl Store {
    /// Changes a destination, durably and for every host. Others see the change within a second.
    pub async fn change_destination(&self, change: DestinationChange) -> Result<DestinationChanged, StoreError> {
        self.writer.control(|reply| Control::ChangeDestination(change, reply)).await
    }

    /// The version of the last change of any destination.
    pub async fn destinations_version(&self) -> Result<u64, StoreError> {
        self.bounded(async |connection| Ok(connection.read_one(VERSION, values![]).await?)).await
    }

    /// All destinations, and removed ones with waiting messages.
    pub async fn destinations(&self) -> Result<Vec<DestinationRow>, StoreError> {
        // Calls to a destination leave the store, so its settings have to be durable.
        self.settled(async |connection| Ok(all(connection).await?)).await
    }

    /// Counts the messages to a destination that have not ended. No index has them by destination: the count walks over
    /// all messages that have not ended, and stops at its bounds.
    pub async fn pending_of(&self, destination: &DestinationName) -> Result<Pending, StoreError> {
        let mut pending = Pending { messages: 0, more: false };
        let mut scanned = 0;
        for shard in (0..self.shard_count()).map(ShardId) {
            let mut after = 0;
            loop {
                let seen = self.scan_open(shard, after).await?;
                scanned += seen.len() as u64;
                pending.messages += seen.iter().filter(|(_, name)| name == destination.as_str()).count() as u64;
                pending.more = pending.messages > PENDING_COUNTED_MAX || scanned >= SCANNED_MAX;
                match seen.last() {
                    Some((seq, _)) if !pending.more && seen.len() == SCANNED_PER_READ as usize => after = *seq,
                    Some(_) | None => break,
                }
            }
            if pending.more {
                break;
            }
        }
        Ok(pending)
    }

    /// The sequence number and destination of messages that have not ended.
    async fn scan_open(&self, shard: ShardId, after: i64) -> Result<Vec<(i64, String)>, StoreError> {
        self.bounded(async |connection| {
            let engine = connection.engine();
            let text = engine.pick(&OPEN_SQLITE, &OPEN_MYSQL).of(engine);
            Ok(connection.read_all(text, values![shard, after, SCANNED_PER_READ]).await?)
        })
        .await
    }
}

/// The row that every change of a destination holds.
const HEAD: i64 = 1;

const VERSION: &str = "SELECT version FROM destination_head WHERE id = 1";

static LOCK_HEAD: Statement = Statement::lock(
    "(id)",
    "SELECT destination_head.version FROM wanted CROSS JOIN destination_head ON destination_head.id = wanted.id",
    Lock::Update,
);

const RAISE: &str = "UPDATE destination_head SET version = ? WHERE id = ?";

const ALL: &str = "SELECT name, document, version, removed, created_at, changed_at FROM destination ORDER BY name";

const INSERT: &str =
    "INSERT INTO destination (name, document, version, removed, created_at, changed_at) VALUES (?, ?, ?, 0, ?, ?)";

const UPDATE: &str =
    "UPDATE destination SET document = ?, version = ?, removed = ?, changed_at = ? WHERE name = ? AND version = ?";

const DELETE: &str = "DELETE FROM destination WHERE name = ? AND version = ?";

/// The predicate on `state` is that of the index `message_open`, as in the feed.
static OPEN_SQLITE: Text = Text::new(sql!(
    "SELECT seq, destination FROM message WHERE shard = ? AND seq > ? AND state < {message_published} ORDER BY seq LIMIT ?"
));

static OPEN_MYSQL: Text =
    Text::new("SELECT open_seq, destination FROM message WHERE shard = ? AND open_seq > ? ORDER BY open_seq LIMIT ?");

/// All destinations, removed ones too. Changes bound their number.
pub(in crate::store) async fn all(connection: &mut Connection<'_>) -> Result<Vec<DestinationRow>, sqlx::Error> {
    connection.read_all(ALL, values![]).await
}

impl FromColumns for DestinationRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            name: columns.next()?,
            document: columns.next()?,
            version: columns.next()?,
            removed: columns.next::<i64>()? != 0,
            created_at: columns.next()?,
            changed_at: columns.next()?,
        })
    }
}

/// Changes destinations, in order.
pub(in crate::store) async fn apply(
    unit: &mut Unit<'_>,
    changes: Vec<DestinationChange>,
) -> Result<Answers<DestinationChanged>, sqlx::Error> {
    let mut answers = Vec::with_capacity(changes.len());
    for change in changes {
        answers.push(Ok(apply_one(unit, change).await?));
    }
    Ok(answers)
}

async fn apply_one(unit: &mut Unit<'_>, change: DestinationChange) -> Result<DestinationChanged, sqlx::Error> {
    let head = LOCK_HEAD.fetch(&mut unit.connection, vec![HEAD], Values::only, u64::read).await?;
    let head = head.first().copied().unwrap_or(0);
    // Destinations stay as they are read now: every change holds the head.
    let rows = all(&mut unit.connection).await?;
    let row = rows.iter().find(|row| row.name == change.name);
    let stands = row.filter(|row| !row.removed).map_or(0, |row| row.version);
    if change.expected.is_some_and(|expected| expected != stands) {
        return Ok(DestinationChanged::Stale(stands));
    }
    let version = head + 1;
    let (new, old) = (version, row.map_or(0, |row| row.version));
    let (name, now) = (&change.name, change.now);
    let written = match (change.wish, row) {
        (DestinationWish::Set(_), None) if rows.len() >= DESTINATIONS_SET_MAX => {
            return Ok(DestinationChanged::TooMany);
        }
        (DestinationWish::Remove | DestinationWish::Forget, None) => return Ok(DestinationChanged::NotFound),
        (DestinationWish::Set(document), None) => {
            unit.connection.execute(INSERT, values![name, document, new, now, now]).await?
        }
        (DestinationWish::Set(document), Some(_)) => {
            unit.connection.execute(UPDATE, values![document, new, false, now, name, old]).await?
        }
        (DestinationWish::Remove, Some(row)) => {
            unit.connection.execute(UPDATE, values![row.document.as_str(), new, true, now, name, old]).await?
        }
        (DestinationWish::Forget, Some(_)) => unit.connection.execute(DELETE, values![name, old]).await?,
    };
    all_written(written, 1)?;
    all_written(unit.connection.execute(RAISE, values![new, HEAD]).await?, 1)?;
    unit.destinations_changed = true;
    Ok(DestinationChanged::Done(version))
}
