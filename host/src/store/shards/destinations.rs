//! Destinations that are set while hosts run, for every runtime over the database. What a document means is for others
//! to say; here it is a text with a version.
//!
//! Invariants:
//! - Versions rise, and none is given twice, whatever the destination's name: one that was removed and set again is
//!   never taken for what it was.
//! - A change that says which version it is a change of changes that one or nothing.
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

/// Messages that are counted for one destination; more than these are "more".
pub const PENDING_COUNTED_MAX: u64 = 100_000;

/// Rows of messages that one read looks at.
const SCANNED_PER_READ: u32 = 10_000;

/// Rows of messages that one count looks at.
const SCANNED_MAX: u64 = 2_000_000;

/// A destination that was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationRow {
    /// Its name.
    pub name: DestinationName,
    /// What was set, as JSON.
    pub document: String,
    /// Which change this is.
    pub version: u64,
    /// It is to be called no more, and messages waited for it when that was said.
    pub removed: bool,
    /// When it was set first.
    pub created_at: Timestamp,
    /// When it was changed last.
    pub changed_at: Timestamp,
}

/// What is to become of a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DestinationWish {
    /// It is as this document says.
    Set(String),
    /// It is called no more. What waits for it goes on waiting, in the order in which it stands.
    Remove,
    /// It is called no more, and nothing waits for it.
    Forget,
}

/// A change of a destination.
#[derive(Debug, Clone)]
pub struct DestinationChange {
    /// Which one.
    pub name: DestinationName,
    /// What is to become of it.
    pub wish: DestinationWish,
    /// The version that this is a change of, 0 for a destination that is not set; `None`, whatever it is.
    pub expected: Option<u64>,
    /// When.
    pub now: Timestamp,
}

/// What came of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DestinationChanged {
    /// It was done, and made this version.
    Done(u64),
    /// The destination has another version than was expected; 0 if it is not set.
    Stale(u64),
    /// There is no such destination.
    NotFound,
    /// There are as many as there may be.
    TooMany,
}

/// How many messages wait for a destination, or are under way to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// So many were counted.
    pub messages: u64,
    /// Whether there may be more.
    pub more: bool,
}

impl Store {
    /// Changes a destination, durably and for every runtime. Others see it when they look next, within a second.
    pub async fn change_destination(&self, change: DestinationChange) -> Result<DestinationChanged, StoreError> {
        self.writer.control(|reply| Control::ChangeDestination(change, reply)).await
    }

    /// The version of the last change of any destination.
    pub async fn destinations_version(&self) -> Result<u64, StoreError> {
        let read = async {
            let mut reader = self.reader().await?.in_doubt();
            let version = reader.connection().read_one(VERSION, values![]).await?;
            reader.is_answered();
            Ok(version)
        };
        self.bounded(read).await
    }

    /// Every destination that was set, and those that were removed and are still waited for.
    pub async fn destinations(&self) -> Result<Vec<DestinationRow>, StoreError> {
        let read = async {
            let mut reader = self.reader().await?.in_doubt();
            let rows = all(&mut reader.connection()).await?;
            reader.is_answered();
            Ok(rows)
        };
        let rows = self.bounded(read).await?;
        // What is called by it leaves the store.
        self.writer.durable().await?;
        Ok(rows)
    }

    /// How many messages wait for a destination or are under way to it. No index has them by destination: this walks
    /// over all that have not ended, and ends where it has seen enough.
    pub async fn pending_of(&self, destination: &DestinationName) -> Result<Pending, StoreError> {
        let mut pending = Pending { messages: 0, more: false };
        let mut scanned = 0;
        for shard in (0..self.shard_count()).map(ShardId) {
            let mut after = 0;
            loop {
                let seen = self.bounded(self.scan_open(shard, after)).await?;
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

    /// Sequence number and destination of messages that have not ended.
    async fn scan_open(&self, shard: ShardId, after: i64) -> Result<Vec<(i64, String)>, StoreError> {
        let mut reader = self.reader().await?.in_doubt();
        let mut connection = reader.connection();
        let engine = connection.engine();
        let text = engine.pick(&OPEN_SQLITE, &OPEN_MYSQL).of(engine);
        let seen = connection.read_all(text, values![shard, after, SCANNED_PER_READ]).await?;
        reader.is_answered();
        Ok(seen)
    }
}

/// The row that whoever changes a destination holds.
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

/// `state < 4` is what the index `message_open` says, as in the feed.
static OPEN_SQLITE: Text = Text::new(sql!(
    "SELECT seq, destination FROM message WHERE shard = ? AND seq > ? AND state < {message_published} ORDER BY seq LIMIT ?"
));

static OPEN_MYSQL: Text =
    Text::new("SELECT open_seq, destination FROM message WHERE shard = ? AND open_seq > ? ORDER BY open_seq LIMIT ?");

/// Every destination, removed ones too. There are no more than a change makes.
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
    // What is read from here on is what is there now, and stays so: nobody changes a destination without the head.
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
