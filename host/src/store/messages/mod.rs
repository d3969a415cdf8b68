//! Messages: the feed that a shard's owner reads, Publish Admission, Publish Outcome, cancel and reschedule.
//!
//! A message row carries the `seq` that its shard's head row handed out in the same transaction, so commit order is
//! sequence order. Cancel and reschedule take a new `seq`, and so appear in the feed again.

pub(super) mod actions;
pub(super) mod outbox;
pub(super) mod transitions;

use std::time::Duration;

use self::transitions::{Cancel, Owned, Redrive, Reschedule, RescheduleTo, Resolve};
use crate::model::event::Header;
use crate::model::ids::MessageId;
pub use crate::model::message::Resolution;
use crate::model::message::{AfterAttempt, MessageEntry, MessageState, TooLate};
use crate::model::time::Timestamp;
use crate::store::engine::codes::sql;
use crate::store::engine::connection::{Connection, Row};
use crate::store::engine::statement::{Statement, Text};
use crate::store::engine::values::{Values, values};
use crate::store::writer::Control;
use crate::store::{ShardId, ShardLease, Store, StoreError};
use bytes::Bytes;

/// A part of a shard's feed.
#[derive(Debug)]
pub struct FeedPage {
    /// Entries, in sequence order.
    pub entries: Vec<MessageEntry>,
    /// The last sequence number that the shard had handed out when the page was read: what came later is not in it.
    pub end: u64,
    /// Whether a message may be missing that was removed: it ended, and a reader that knew it before will not be told.
    pub has_gap: bool,
}

/// A wish to publish, decided by compare-and-swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// The message.
    pub id: MessageId,
    /// The generation that was claimed; a reschedule since then refuses the admission.
    pub generation: u32,
}

/// Whether a message was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is `publishing`; this is the number of the attempt, 1 for the first.
    Admitted {
        /// The attempt's number.
        attempt: u32,
    },
    /// It was cancelled, rescheduled, or had ended: nothing changed. The index must forget what it held.
    Moved,
    /// The shard is no longer the caller's: nothing changed.
    Fenced,
}

/// What an attempt came to.
#[derive(Debug, Clone)]
pub struct OutcomeRecord {
    /// The message.
    pub id: MessageId,
    /// The generation that was admitted; each counts its attempts from 1.
    pub generation: u32,
    /// The attempt that this is the outcome of.
    pub attempt: u32,
    /// What becomes of the message.
    pub after: AfterAttempt,
    /// Whether the outcome of the attempt is unknown.
    pub uncertain: bool,
    /// Whether the attempt spends none of the message's: its number is the next one's again.
    pub spared: bool,
    /// The destination's HTTP status, if it gave one.
    pub status: Option<u16>,
    /// What went wrong, if anything, at most [`crate::model::failure::FAILURE_TEXT_BYTES_MAX`] bytes. Never a payload.
    pub error: Option<String>,
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The message.
    pub id: MessageId,
    /// What the receiver tells duplicates by, the same on every attempt.
    pub idempotency_key: String,
    /// Its `content-type`.
    pub content_type: String,
    /// Further request headers.
    pub headers: Vec<Header>,
    /// Its body.
    pub body: Bytes,
}

/// What became of a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It will not be published.
    Cancelled,
    /// It was cancelled before.
    Already,
    /// Publish Admission came first, it had ended, or an attempt of it may have arrived.
    TooLate(TooLate),
    /// There is no such message.
    NotFound,
}

/// What became of a redrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redriven {
    /// It is due at once, in a new generation, with the idempotency key that it always had.
    Redriven {
        /// Its new generation.
        generation: u32,
    },
    /// It is not dead.
    NotDead(MessageState),
    /// It is dead, and of no more use since then.
    Expired(Timestamp),
    /// There is no such message.
    NotFound,
}

/// What became of a resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// It is settled.
    Resolved,
    /// It is not uncertain, and no attempt of it is.
    NotUncertain(MessageState),
    /// There is no such message.
    NotFound,
}

/// What became of a reschedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rescheduled {
    /// It is due at the new time.
    Rescheduled {
        /// Its new generation.
        generation: u32,
    },
    /// Publish Admission came first, it had ended, or an attempt of it may have arrived.
    TooLate(TooLate),
    /// There is no such message.
    NotFound,
}

impl Store {
    /// A page of a shard's feed behind `after`. A rebuild reads it from 0 with `nonterminal_only`.
    ///
    /// The end is read first, and nothing behind it is taken: a server's snapshot may lack a transaction and hold one
    /// that waited for it (`ARCHITECTURE.md`, "What a snapshot shows"). Whoever went on behind the later one would
    /// never see the earlier. What an end that was seen stands behind has ended, and a snapshot taken afterwards holds
    /// it.
    pub async fn feed(
        &self,
        shard: ShardId,
        after: u64,
        nonterminal_only: bool,
        rows_max: u32,
    ) -> Result<FeedPage, StoreError> {
        let read = async {
            let mut reader = self.reader().await?.in_doubt();
            let mut connection = reader.connection();
            let end = last_seq(&mut connection, shard).await?;
            let engine = connection.engine();
            let open = engine.pick(&FEED_OPEN_SQLITE, &FEED_OPEN_MYSQL);
            let text = if nonterminal_only { open } else { &FEED };
            let [after, through] = [after, end].map(|seq| i64::try_from(seq).unwrap_or(i64::MAX));
            let values = values![u32::from(shard.0), after, through, rows_max];
            let entries = entries(&connection.fetch_all(text.of(engine), values).await?)?;
            // Read after them: what was removed before they were read has left its mark by now.
            let has_gap = after < through && after < trimmed(&mut connection, shard).await?;
            reader.is_answered();
            Ok(FeedPage { entries, end, has_gap })
        };
        let page = self.bounded(read).await?;
        self.settled(page).await
    }

    /// The last sequence number that a shard has handed out.
    pub async fn feed_end(&self, shard: ShardId) -> Result<u64, StoreError> {
        let read = async {
            let mut reader = self.reader().await?.in_doubt();
            let end = last_seq(&mut reader.connection(), shard).await?;
            reader.is_answered();
            Ok(end)
        };
        let end = self.bounded(read).await?;
        self.settled(end).await
    }

    /// The largest place in a shard's feed of a message that was removed; 0 if none was. An index that has applied less
    /// may hold messages that have ended.
    pub async fn feed_trimmed(&self, shard: ShardId) -> Result<u64, StoreError> {
        let read = async {
            let mut reader = self.reader().await?.in_doubt();
            let trimmed = trimmed(&mut reader.connection(), shard).await?;
            reader.is_answered();
            Ok(u64::try_from(trimmed).unwrap_or(0))
        };
        self.bounded(read).await
    }

    /// What was read, once it is durable. A shard's index is built on it: it would be ahead of the store if it held
    /// what the store loses with the machine.
    async fn settled<T>(&self, read: T) -> Result<T, StoreError> {
        self.writer.durable().await?;
        Ok(read)
    }

    /// The current entries of these messages; those that do not exist are left out.
    pub async fn message_entries(&self, ids: &[MessageId]) -> Result<Vec<MessageEntry>, StoreError> {
        let read = async {
            let mut reader = self.reader().await?.in_doubt();
            let entries = ENTRIES.fetch(&mut reader.connection(), ids.to_vec(), Values::only, entry).await?;
            reader.is_answered();
            Ok(entries)
        };
        let entries = self.bounded(read).await?;
        self.settled(entries).await
    }

    /// Entries that stand in `publishing` with no outcome, by id, behind `after`: what a dead owner left.
    pub async fn publishing_entries(
        &self,
        shard: ShardId,
        after: Option<MessageId>,
        rows_max: u32,
    ) -> Result<Vec<MessageEntry>, StoreError> {
        let read = async {
            let mut reader = self.reader().await?.in_doubt();
            let after = after.as_ref().map_or(&[][..], |id| id.as_bytes());
            let values = values![u32::from(shard.0), after, rows_max];
            let mut connection = reader.connection();
            let entries = entries(&connection.fetch_all(PUBLISHING.of(connection.engine()), values).await?)?;
            reader.is_answered();
            Ok(entries)
        };
        let entries = self.bounded(read).await?;
        self.settled(entries).await
    }

    /// Publish Admission: durable, fenced by the shard's owner epoch. One answer a request, in order.
    pub async fn admit(
        &self,
        lease: ShardLease,
        requests: Vec<AdmissionRequest>,
        now: Timestamp,
    ) -> Result<Vec<Admission>, StoreError> {
        let request = Owned { lease, items: requests, now };
        self.writer.control(|reply| Control::Admit(request, reply)).await
    }

    /// Bodies of admitted messages; those that do not exist are left out.
    pub async fn payloads(&self, ids: &[MessageId]) -> Result<Vec<Payload>, StoreError> {
        let read = async {
            let mut reader = self.reader().await?.in_doubt();
            let payload = |row: &Row| payload(row, 0);
            let payloads = PAYLOADS.fetch(&mut reader.connection(), ids.to_vec(), Values::only, payload).await?;
            reader.is_answered();
            Ok(payloads)
        };
        self.bounded(read).await
    }

    /// Publish Outcome: durable, fenced by the shard's owner epoch and the attempt. `true` where it counted, in order.
    pub async fn record_outcomes(
        &self,
        lease: ShardLease,
        outcomes: Vec<OutcomeRecord>,
        now: Timestamp,
    ) -> Result<Vec<bool>, StoreError> {
        let request = Owned { lease, items: outcomes, now };
        self.writer.control(|reply| Control::Record(request, reply)).await
    }

    /// Ends messages whose time is over and that are not being published. `true` where it did, in order.
    pub async fn expire(
        &self,
        lease: ShardLease,
        requests: Vec<AdmissionRequest>,
        now: Timestamp,
    ) -> Result<Vec<bool>, StoreError> {
        let request = Owned { lease, items: requests, now };
        self.writer.control(|reply| Control::Expire(request, reply)).await
    }

    /// Cancels a message unless Publish Admission came first, or an attempt may have arrived.
    pub async fn cancel(&self, id: MessageId, now: Timestamp) -> Result<Cancelled, StoreError> {
        self.writer.control(|reply| Control::Cancel(Cancel { id, now }, reply)).await
    }

    /// Moves a message to another time unless Publish Admission came first, or an attempt may have arrived.
    pub async fn reschedule(&self, id: MessageId, due_at: Timestamp) -> Result<Rescheduled, StoreError> {
        let request = Reschedule { id, to: RescheduleTo::At(due_at) };
        self.writer.control(|reply| Control::Reschedule(request, reply)).await
    }

    /// As [`Store::reschedule`], to so long after it is moved: by the database's time where runtimes share it, else
    /// after `now`.
    pub async fn delay(&self, id: MessageId, delay: Duration, now: Timestamp) -> Result<Rescheduled, StoreError> {
        let request = Reschedule { id, to: RescheduleTo::After { delay, now } };
        self.writer.control(|reply| Control::Reschedule(request, reply)).await
    }

    /// Sends dead messages again. One answer a message, in order.
    pub async fn redrive(&self, ids: Vec<MessageId>, now: Timestamp) -> Result<Vec<Redriven>, StoreError> {
        self.writer.control(|reply| Control::Redrive(Redrive { ids, now }, reply)).await
    }

    /// Settles a message whose outcome is unknown.
    pub async fn resolve(&self, id: MessageId, resolution: Resolution, now: Timestamp) -> Result<Resolved, StoreError> {
        self.writer.control(|reply| Control::Resolve(Resolve { id, resolution, now }, reply)).await
    }
}

/// The columns of a [`MessageEntry`], in the order in which [`entry`] reads them.
macro_rules! entry_columns {
    () => {
        "message.id, message.seq, message.event_id, message.work_item_id, message.namespace, message.destination, \
         message.state, message.generation, message.attempt, message.due_at, message.eligible_at, message.expire_at, \
         message.bytes, message.ordering_key, coalesce(message.line_seq, message.seq)"
    };
}
pub(super) use entry_columns;

/// How many columns that are.
pub(super) const ENTRY_COLUMNS: usize = 15;

static FEED: Text = Text::new(concat!(
    "SELECT ",
    entry_columns!(),
    " FROM message WHERE shard = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
));

/// `state < {message_published}` is what the index `message_open` says: neither published, cancelled, expired nor dead.
static FEED_OPEN_SQLITE: Text = Text::new(sql!(concat!(
    "SELECT ",
    entry_columns!(),
    " FROM message WHERE shard = ? AND seq > ? AND seq <= ? AND state < {message_published} ORDER BY seq LIMIT ?"
)));

/// Without partial indexes, a generated column is null where such an index has no entry.
static FEED_OPEN_MYSQL: Text = Text::new(concat!(
    "SELECT ",
    entry_columns!(),
    " FROM message WHERE shard = ? AND open_seq > ? AND open_seq <= ? ORDER BY open_seq LIMIT ?"
));

static PUBLISHING: Text = Text::new(sql!(concat!(
    "SELECT ",
    entry_columns!(),
    " FROM message WHERE shard = ? AND state = {message_publishing} AND id > ? ORDER BY id LIMIT ?"
)));

static ENTRIES: Statement = Statement::select(
    "(id)",
    concat!("SELECT ", entry_columns!(), " FROM wanted CROSS JOIN message ON message.id = wanted.id"),
);

static PAYLOADS: Statement = Statement::select(
    "(id)",
    "SELECT message.id, payload.idempotency_key, payload.content_type, payload.headers, payload.body \
     FROM wanted CROSS JOIN message ON message.id = wanted.id \
     CROSS JOIN message_payload AS payload ON payload.ordinal = message.ordinal",
);

async fn last_seq(connection: &mut Connection<'_>, shard: ShardId) -> Result<u64, StoreError> {
    let values = values![u32::from(shard.0)];
    let row = connection.fetch_optional("SELECT last_seq FROM shard WHERE id = ?", values).await?;
    let row = row.ok_or_else(|| StoreError::Refused(format!("there is no shard {}", shard.0)))?;
    Ok(row.unsigned(0)?)
}

async fn trimmed(connection: &mut Connection<'_>, shard: ShardId) -> Result<i64, StoreError> {
    let row =
        connection.fetch_optional("SELECT seq FROM shard_trim WHERE shard = ?", values![u32::from(shard.0)]).await?;
    Ok(row.map(|row| row.value(0)).transpose()?.unwrap_or(0))
}

fn entries(rows: &[Row]) -> Result<Vec<MessageEntry>, StoreError> {
    Ok(rows.iter().map(entry).collect::<Result<_, sqlx::Error>>()?)
}

/// Reads a row that begins with [`entry_columns`].
pub(super) fn entry(row: &Row) -> Result<MessageEntry, sqlx::Error> {
    Ok(MessageEntry {
        id: row.message_id(0)?,
        seq: row.unsigned(1)?,
        event_id: row.event_id(2)?,
        work_item_id: row.work_item_id(3)?,
        namespace: row.name(4)?,
        destination: row.name(5)?,
        state: row.message_state(6)?,
        generation: row.unsigned_32(7)?,
        attempt: row.unsigned_32(8)?,
        due_at: row.time(9)?,
        eligible_at: row.time(10)?,
        expire_at: row.optional_time(11)?,
        bytes: row.unsigned_32(12)?,
        ordering_key: row.value(13)?,
        place: row.unsigned(14)?,
    })
}

/// Reads id, idempotency key, content type, headers and body from column `first` on.
pub(super) fn payload(row: &Row, first: usize) -> Result<Payload, sqlx::Error> {
    Ok(Payload {
        id: row.message_id(first)?,
        idempotency_key: row.value(first + 1)?,
        content_type: row.value(first + 2)?,
        headers: row.headers(first + 3)?,
        body: row.blob(first + 4)?,
    })
}
