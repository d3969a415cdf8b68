//! Messages: the feed that a shard's owner reads, Publish Admission, Publish Outcome, cancel and reschedule.
//!
//! A message row carries the `seq` that its shard's head row handed out in the same transaction, so commit order is
//! sequence order. Cancel and reschedule take a new `seq`, and so appear in the feed again.

pub(super) mod actions;
pub(super) mod outbox;
pub(super) mod transitions;

use std::time::Duration;

use bytes::Bytes;

use self::transitions::{Cancel, Owned, Redrive, Reschedule, RescheduleTo, Resolve};
use crate::model::event::Header;
use crate::model::ids::MessageId;
pub use crate::model::message::Resolution;
use crate::model::message::{AfterAttempt, MessageEntry, MessageState, TooLate};
use crate::model::time::Timestamp;
use crate::store::engine::codes::sql;
use crate::store::engine::connection::Connection;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::statement::{Statement, Text};
use crate::store::engine::values::{Values, values};
use crate::store::writer::Control;
use crate::store::{ShardId, ShardLease, Store, StoreError};

/// A part of a shard's feed.
#[derive(Debug)]
pub struct FeedPage {
    /// Entries, in sequence order.
    pub entries: Vec<MessageEntry>,
    /// The last sequence number of the shard when the page was read; later messages are not in the page.
    pub end: u64,
    /// Whether a message may be missing that was removed: it ended, and a reader that knew it before will not be told.
    pub has_gap: bool,
}

/// A request for Publish Admission, decided by compare-and-swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// The message.
    pub id: MessageId,
    /// The generation that was claimed; a reschedule since then refuses the admission.
    pub generation: u32,
}

/// The answer to an [`AdmissionRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The message is `publishing`.
    Admitted {
        /// The number of the attempt, from 1.
        attempt: u32,
    },
    /// The message was cancelled, rescheduled, or had ended: nothing changed. The index must forget it.
    Moved,
    /// The caller no longer owns the shard: nothing changed.
    Fenced,
}

/// The outcome of an attempt.
#[derive(Debug, Clone)]
pub struct OutcomeRecord {
    /// The message.
    pub id: MessageId,
    /// The generation that was admitted; each counts its attempts from 1.
    pub generation: u32,
    /// The number of the attempt.
    pub attempt: u32,
    /// The next state of the message.
    pub after: AfterAttempt,
    /// Whether the outcome of the attempt is unknown.
    pub uncertain: bool,
    /// Whether the attempt does not count: the next one has its number.
    pub spared: bool,
    /// The HTTP status of the destination, if it answered.
    pub status: Option<u16>,
    /// The error, at most [`crate::model::failure::FAILURE_TEXT_BYTES_MAX`] bytes. Never a payload.
    pub error: Option<String>,
}

/// The payload of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The message.
    pub id: MessageId,
    /// The idempotency key for the receiver, the same on every attempt.
    pub idempotency_key: String,
    /// Its `content-type`.
    pub content_type: String,
    /// Further request headers.
    pub headers: Vec<Header>,
    /// Its body.
    pub body: Bytes,
}

/// The answer to a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// The message will not be published.
    Cancelled,
    /// The message was cancelled before.
    Already,
    /// Publish Admission came first, the message had ended, or an attempt may have arrived.
    TooLate(TooLate),
    /// There is no such message.
    NotFound,
}

/// The answer to a redrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redriven {
    /// The message is due at once, in a new generation and with the same idempotency key.
    Redriven {
        /// The new generation.
        generation: u32,
    },
    /// The message is not dead, but in this state.
    NotDead(MessageState),
    /// The message expired at this time.
    Expired(Timestamp),
    /// There is no such message.
    NotFound,
}

/// The answer to a resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// The outcome is recorded.
    Resolved,
    /// The message is in this state, and no attempt is uncertain.
    NotUncertain(MessageState),
    /// There is no such message.
    NotFound,
}

/// The answer to a reschedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rescheduled {
    /// The message is due at the new time.
    Rescheduled {
        /// The new generation.
        generation: u32,
    },
    /// Publish Admission came first, the message had ended, or an attempt may have arrived.
    TooLate(TooLate),
    /// There is no such message.
    NotFound,
}

impl Store {
    /// A page of a shard's feed behind `after`. A rebuild reads it from 0 with `nonterminal_only`.
    ///
    /// The end is read first, and nothing behind it is taken: a server's snapshot may lack a transaction and hold one
    /// that waited for it (`ARCHITECTURE.md`, "What a snapshot shows"). A reader that went on behind the later one
    /// would never see the earlier. All transactions up to an end that was seen are over, and a later snapshot holds
    /// them.
    pub async fn feed(
        &self,
        shard: ShardId,
        after: u64,
        nonterminal_only: bool,
        rows_max: u32,
    ) -> Result<FeedPage, StoreError> {
        self.settled(async |connection| {
            let end = last_seq(connection, shard).await?;
            let engine = connection.engine();
            let open = engine.pick(&FEED_OPEN_SQLITE, &FEED_OPEN_MYSQL);
            let text = if nonterminal_only { open } else { &FEED };
            let entries = connection.read_all(text.of(engine), values![shard, after, end, rows_max]).await?;
            // Read after them: what was removed before they were read has left its mark by now.
            let has_gap = after < end && after < trimmed(connection, shard).await?;
            Ok(FeedPage { entries, end, has_gap })
        })
        .await
    }

    /// The last sequence number that a shard has handed out.
    pub async fn feed_end(&self, shard: ShardId) -> Result<u64, StoreError> {
        self.settled(async |connection| last_seq(connection, shard).await).await
    }

    /// The largest place in a shard's feed of a message that was removed; 0 if none was. An index that has applied less
    /// may hold messages that have ended.
    pub async fn feed_trimmed(&self, shard: ShardId) -> Result<u64, StoreError> {
        self.bounded(async |connection| trimmed(connection, shard).await).await
    }

    /// The current entries of these messages; those that do not exist are left out.
    pub async fn message_entries(&self, ids: &[MessageId]) -> Result<Vec<MessageEntry>, StoreError> {
        self.settled(async |connection| {
            Ok(ENTRIES.fetch(connection, ids.to_vec(), Values::only, FromColumns::read).await?)
        })
        .await
    }

    /// The entries in `publishing`, by id, behind `after`: those that a dead owner left without an outcome.
    pub async fn publishing_entries(
        &self,
        shard: ShardId,
        after: Option<MessageId>,
        rows_max: u32,
    ) -> Result<Vec<MessageEntry>, StoreError> {
        let after = after.as_ref().map_or(&[][..], |id| id.as_bytes());
        self.settled(async |connection| {
            let text = PUBLISHING.of(connection.engine());
            Ok(connection.read_all(text, values![shard, after, rows_max]).await?)
        })
        .await
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

    /// The payloads of these messages; those that do not exist are left out.
    pub async fn payloads(&self, ids: &[MessageId]) -> Result<Vec<Payload>, StoreError> {
        self.bounded(async |connection| {
            Ok(PAYLOADS.fetch(connection, ids.to_vec(), Values::only, FromColumns::read).await?)
        })
        .await
    }

    /// Publish Outcome: durable, fenced by the shard's owner epoch and the attempt. `true` for each that counted, in
    /// order.
    pub async fn record_outcomes(
        &self,
        lease: ShardLease,
        outcomes: Vec<OutcomeRecord>,
        now: Timestamp,
    ) -> Result<Vec<bool>, StoreError> {
        let request = Owned { lease, items: outcomes, now };
        self.writer.control(|reply| Control::Record(request, reply)).await
    }

    /// Ends expired messages that are not being published. `true` for a message that ended, in order.
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

    /// As [`Store::reschedule`], to `delay` after the move: by the database's time where hosts share it, else after
    /// `now`.
    pub async fn delay(&self, id: MessageId, delay: Duration, now: Timestamp) -> Result<Rescheduled, StoreError> {
        let request = Reschedule { id, to: RescheduleTo::After { delay, now } };
        self.writer.control(|reply| Control::Reschedule(request, reply)).await
    }

    /// Makes dead messages due again. One answer a message, in order.
    pub async fn redrive(&self, ids: Vec<MessageId>, now: Timestamp) -> Result<Vec<Redriven>, StoreError> {
        self.writer.control(|reply| Control::Redrive(Redrive { ids, now }, reply)).await
    }

    /// Records the outcome of an uncertain message.
    pub async fn resolve(&self, id: MessageId, resolution: Resolution, now: Timestamp) -> Result<Resolved, StoreError> {
        self.writer.control(|reply| Control::Resolve(Resolve { id, resolution, now }, reply)).await
    }
}

/// The columns of a [`MessageEntry`].
macro_rules! entry_columns {
    () => {
        "message.id, message.seq, message.event_id, message.work_item_id, message.namespace, message.destination, \
         message.state, message.generation, message.attempt, message.due_at, message.eligible_at, message.expire_at, \
         message.bytes, message.ordering_key, coalesce(message.line_seq, message.seq)"
    };
}
pub(super) use entry_columns;

static FEED: Text = Text::new(concat!(
    "SELECT ",
    entry_columns!(),
    " FROM message WHERE shard = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
));

/// `state < {message_published}` is the predicate of the index `message_open`.
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
    let last = connection.read_optional("SELECT last_seq FROM shard WHERE id = ?", values![shard]).await?;
    last.ok_or_else(|| StoreError::Refused(format!("there is no shard {}", shard.0)))
}

async fn trimmed(connection: &mut Connection<'_>, shard: ShardId) -> Result<u64, StoreError> {
    let seq = connection.read_optional("SELECT seq FROM shard_trim WHERE shard = ?", values![shard]).await?;
    Ok(seq.unwrap_or(0))
}

impl FromColumns for MessageEntry {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: columns.next()?,
            seq: columns.next()?,
            event_id: columns.next()?,
            work_item_id: columns.next()?,
            namespace: columns.next()?,
            destination: columns.next()?,
            state: columns.next()?,
            generation: columns.next()?,
            attempt: columns.next()?,
            due_at: columns.next()?,
            eligible_at: columns.next()?,
            expire_at: columns.next()?,
            bytes: columns.next()?,
            ordering_key: columns.next()?,
            place: columns.next()?,
        })
    }
}

impl FromColumns for Payload {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: columns.next()?,
            idempotency_key: columns.next()?,
            content_type: columns.next()?,
            headers: columns.next()?,
            body: columns.next()?,
        })
    }
}
