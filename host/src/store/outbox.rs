//! The outbox: messages that flows emit, stored with the finish of the execution that emitted them.
//!
//! A message's sequence number comes from its shard's row in the same transaction, so commit order is sequence order.
//! Ids are derived from the event: an execution that runs again emits the same ones, and each is stored once.

use std::collections::{BTreeMap, HashSet};

use super::shards::shard_of;
use super::statement::Statement;
use super::stored::Columns;
use super::unit::Unit;
use crate::model::ids::{EventId, MessageId, WorkItemId};
use crate::model::message::{MessageState, NewMessage};
use crate::model::names::Namespace;
use crate::model::time::Timestamp;

/// A message, and where it comes from.
pub(super) struct Emitted {
    pub(super) event_id: EventId,
    pub(super) work_item_id: WorkItemId,
    pub(super) namespace: Namespace,
    pub(super) message: NewMessage,
    pub(super) now: Timestamp,
}

/// A message with its place.
struct Placed {
    ordinal: i64,
    shard: u16,
    seq: i64,
    emitted: Emitted,
}

static KNOWN: Statement = Statement::new(
    "WITH wanted (id) AS (",
    1,
    ") SELECT message.id FROM wanted CROSS JOIN message ON message.id = wanted.id",
);

static INSERT: Statement = Statement::new(
    "INSERT INTO message (ordinal, id, shard, seq, event_id, work_item_id, namespace, destination, ordering_key, \
     due_at, eligible_at, expire_at, bytes, created_at, state, generation, attempt) \
     SELECT column1, column2, column3, column4, column5, column6, column7, column8, column9, column10, column10, \
     column11, column12, column13, 0, 1, 0 FROM (",
    13,
    ") WHERE column1 IS NOT NULL",
);

static INSERT_PAYLOADS: Statement = Statement::new(
    "INSERT INTO message_payload (ordinal, idempotency_key, content_type, headers, body) SELECT * FROM (",
    5,
    ") WHERE column1 IS NOT NULL",
);

/// Stores messages. One whose id is already known stays as it is.
pub(super) async fn emit(unit: &mut Unit<'_>, emitted: Vec<Emitted>) -> Result<(), sqlx::Error> {
    if emitted.is_empty() {
        return Ok(());
    }
    let ids = emitted.iter().map(|emitted| emitted.message.id).collect();
    let mut known: HashSet<MessageId> = KNOWN
        .fetch(
            unit.connection,
            ids,
            |values, id: MessageId| {
                values.id(id.as_bytes());
            },
            |row| Ok(MessageId::from_bytes(row.bytes_16(0)?)),
        )
        .await?
        .into_iter()
        .collect();
    let fresh: Vec<Emitted> = emitted.into_iter().filter(|emitted| known.insert(emitted.message.id)).collect();
    let mut feeds = Feeds::load(unit).await?;
    let mut placed = Vec::with_capacity(fresh.len());
    for emitted in fresh {
        let shard = shard_of(&emitted.namespace, &emitted.message.destination, feeds.shard_count());
        unit.count_message(None, MessageState::Scheduled);
        placed.push(Placed { ordinal: unit.sequences.message(), shard, seq: feeds.next(shard), emitted });
    }
    feeds.save(unit).await?;
    insert(unit, placed).await
}

async fn insert(unit: &mut Unit<'_>, placed: Vec<Placed>) -> Result<(), sqlx::Error> {
    let mut payloads = Vec::with_capacity(placed.len());
    let mut rows = Vec::with_capacity(placed.len());
    for mut placed in placed {
        let message = &mut placed.emitted.message;
        let key = message.idempotency_key.take().unwrap_or_else(|| message.id.to_string());
        let content_type = std::mem::take(&mut message.content_type);
        let headers = std::mem::take(&mut message.headers);
        let body = std::mem::take(&mut message.body);
        let header_bytes: usize = headers.iter().map(|header| header.name.len() + header.value.len()).sum();
        let bytes = u32::try_from(body.len() + header_bytes).unwrap_or(u32::MAX);
        payloads.push((placed.ordinal, key, content_type, headers, body));
        rows.push((placed, bytes));
    }
    INSERT
        .execute(unit.connection, rows, |values, (placed, bytes)| {
            let Emitted { event_id, work_item_id, namespace, message, now } = placed.emitted;
            values.push(placed.ordinal).id(message.id.as_bytes()).push(i64::from(placed.shard)).push(placed.seq);
            values.id(event_id.as_bytes()).id(work_item_id.as_bytes());
            values.push(namespace.as_str()).push(message.destination.as_str()).push(message.ordering_key);
            values.time(message.due_at).optional_time(message.expire_at).push(i64::from(bytes)).time(now);
        })
        .await?;
    INSERT_PAYLOADS
        .execute(unit.connection, payloads, |values, (ordinal, key, content_type, headers, body)| {
            values.push(ordinal).push(key).push(content_type).headers(&headers).bytes(body);
        })
        .await?;
    Ok(())
}

static APPEND: Statement = Statement::new(
    "UPDATE shard SET last_seq = appended.column2 FROM (",
    2,
    ") AS appended WHERE shard.id = appended.column1",
);

/// The ends of the shards' feeds.
pub(super) struct Feeds {
    last: BTreeMap<u16, i64>,
    appended: BTreeMap<u16, i64>,
}

impl Feeds {
    pub(super) async fn load(unit: &mut Unit<'_>) -> Result<Self, sqlx::Error> {
        let rows = sqlx::query("SELECT id, last_seq FROM shard").fetch_all(&mut *unit.connection).await?;
        let last = rows.iter().map(|row| Ok((row.value(0)?, row.value(1)?))).collect::<Result<_, sqlx::Error>>()?;
        Ok(Self { last, appended: BTreeMap::new() })
    }

    fn shard_count(&self) -> u16 {
        u16::try_from(self.last.len()).expect("shards are numbered by u16")
    }

    /// Hands out the next sequence number of a shard.
    pub(super) fn next(&mut self, shard: u16) -> i64 {
        let last = self.last.entry(shard).or_default();
        *last += 1;
        self.appended.insert(shard, *last);
        *last
    }

    /// Writes the new ends back.
    pub(super) async fn save(self, unit: &mut Unit<'_>) -> Result<(), sqlx::Error> {
        unit.feed_changed |= !self.appended.is_empty();
        APPEND
            .execute(unit.connection, self.appended.into_iter().collect(), |values, (shard, last)| {
                values.push(i64::from(shard)).push(last);
            })
            .await?;
        Ok(())
    }
}
