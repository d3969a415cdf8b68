//! The outbox: messages that flows emit, stored with the finish of the execution that emitted them.
//!
//! A message's sequence number comes from its shard's row in the same transaction, so commit order is sequence order.
//! Ids are derived from the event: an execution that runs again emits the same ones, and each is stored once.

use std::collections::HashSet;

use crate::model::ids::{EventId, MessageId, WorkItemId};
use crate::model::message::{MessageState, NewMessage};
use crate::model::names::Namespace;
use crate::model::queue::QueueClass;
use crate::model::time::Timestamp;
use crate::store::engine::dialect::Conflict;
use crate::store::engine::row::FromColumns;
use crate::store::engine::statement::Statement;
use crate::store::engine::values::Values;
use crate::store::shards::{ShardId, Shards, shard_of};
use crate::store::writer::unit::Unit;

/// A message and its origin.
pub(in crate::store) struct Emitted {
    pub(in crate::store) event_id: EventId,
    pub(in crate::store) work_item_id: WorkItemId,
    pub(in crate::store) namespace: Namespace,
    /// The class of the WorkItem that emitted it: an action's own is in it.
    pub(in crate::store) queue_class: QueueClass,
    pub(in crate::store) message: NewMessage,
    pub(in crate::store) now: Timestamp,
}

impl Emitted {
    /// The shard of the message.
    pub(in crate::store) fn shard(&self, shard_count: u16) -> ShardId {
        ShardId(shard_of(&self.namespace, &self.message.destination, shard_count))
    }
}

/// A message with its place.
struct Placed {
    ordinal: i64,
    shard: ShardId,
    seq: i64,
    emitted: Emitted,
}

static KNOWN: Statement =
    Statement::select("(id)", "SELECT message.id FROM wanted CROSS JOIN message ON message.id = wanted.id");

static INSERT: Statement = Statement::insert(
    "message (ordinal, id, shard, seq, event_id, work_item_id, namespace, destination, ordering_key, due_at, eligible_at, \
     expire_at, bytes, created_at, state, generation, attempt, action, action_pack, action_generation, queue_class)",
    Conflict::Fail,
);

static INSERT_PAYLOADS: Statement =
    Statement::insert("message_payload (ordinal, idempotency_key, content_type, headers, body)", Conflict::Fail);

/// Stores messages. A stored message with the same id stays as it is.
pub(in crate::store) async fn emit(
    unit: &mut Unit<'_>,
    shards: &mut Shards,
    emitted: Vec<Emitted>,
) -> Result<(), sqlx::Error> {
    if emitted.is_empty() {
        return Ok(());
    }
    let ids = emitted.iter().map(|emitted| emitted.message.id).collect();
    let mut known: HashSet<MessageId> =
        KNOWN.fetch(&mut unit.connection, ids, Values::only, FromColumns::read).await?.into_iter().collect();
    let fresh: Vec<Emitted> = emitted.into_iter().filter(|emitted| known.insert(emitted.message.id)).collect();
    let mut placed = Vec::with_capacity(fresh.len());
    for emitted in fresh {
        let shard = emitted.shard(unit.terms.shard_count);
        unit.count_message(None, MessageState::Scheduled);
        unit.feed_changed = true;
        // With a clock that is an hour behind, it must not be published an hour early.
        let mut emitted = emitted;
        if let Some(delay) = emitted.message.due_after {
            emitted.message.due_at = unit.time(emitted.now) + delay;
        }
        placed.push(Placed { ordinal: unit.sequences.message(), shard, seq: shards.next_seq(shard), emitted });
    }
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
        .write(&mut unit.connection, rows, |values, (placed, bytes)| {
            let Emitted { event_id, work_item_id, namespace, queue_class, message, now } = placed.emitted;
            values.push(placed.ordinal).push(message.id).push(placed.shard).push(placed.seq);
            values.push(event_id).push(work_item_id);
            values.push(&namespace).push(&message.destination).push(message.ordering_key);
            values.push(message.due_at).push(message.due_at).push(message.expire_at);
            values.push(bytes).push(now).push(MessageState::Scheduled).push(1_u32).push(0_u32);
            match message.action {
                Some(action) => values.push(action.name).push(&action.pack).push(action.generation).push(queue_class),
                None => values.push(None::<String>).push(None::<String>).push(None::<u32>).push(None::<i64>),
            };
        })
        .await?;
    INSERT_PAYLOADS
        .write(&mut unit.connection, payloads, |values, (ordinal, key, content_type, headers, body)| {
            values.push(ordinal).push(key).push(content_type).push(headers.as_slice()).push(body);
        })
        .await?;
    Ok(())
}
