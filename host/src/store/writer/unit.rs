//! The unit of work: one transaction of the writer, its counts, and the hints that follow its commit.

use std::collections::BTreeMap;

use super::authority::Authority;
use crate::model::message::MessageState;
use crate::model::names::PackName;
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;
use crate::model::work_item::{WorkState, WorkType};
use crate::store::engine::connection::Connection;
use crate::store::engine::dialect::Conflict;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::sequences::Sequences;
use crate::store::engine::statement::Statement;
use crate::store::engine::values::Values;
use crate::store::error::StoreError;

/// The terms of every transaction of one writer.
#[derive(Debug, Clone)]
pub(in crate::store) struct Terms {
    /// The number of shards.
    pub(in crate::store) shard_count: u16,
    /// The stripe of the counters that this writer changes, so that several writers do not wait for one another.
    pub(in crate::store) stripe: i64,
    /// The database's time, where hosts share it; `None` where the host's own clock decides.
    pub(in crate::store) database_now: Option<Timestamp>,
}

/// One answer for each request of a kind, in order.
pub(in crate::store) type Answers<A> = Vec<Result<A, StoreError>>;

/// The key, next to the state, by which WorkItems are claimed and counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store) struct Scope {
    pub(in crate::store) pack: PackName,
    pub(in crate::store) work_type: WorkType,
    pub(in crate::store) generation: GenerationNumber,
}

impl Scope {
    /// The values of its columns: pack, work type, generation.
    pub(in crate::store) fn values(&self) -> Values {
        let mut values = Values::default();
        self.bind(&mut values);
        values
    }

    /// Adds the values of its columns.
    pub(in crate::store) fn bind(&self, values: &mut Values) {
        values.push(&self.pack).push(self.work_type).push(self.generation);
    }
}

impl FromColumns for Scope {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self { pack: columns.next()?, work_type: columns.next()?, generation: columns.next()? })
    }
}

/// One transaction.
pub(in crate::store) struct Unit<'c> {
    /// The writer's connection, inside the transaction.
    pub(in crate::store) connection: Connection<'c>,
    /// Numbers to hand out; they count only if the transaction commits.
    pub(in crate::store) sequences: Sequences,
    /// Authority rows that are known to exist; they count only if the transaction commits.
    pub(in crate::store) authority: Authority,
    /// The attempts at this transaction that ended in a conflict before.
    pub(in crate::store) attempt: u32,
    pub(in crate::store) terms: Terms,
    /// Whether claims may find more, or at another time than before.
    pub(in crate::store) work_changed: bool,
    /// Whether a shard's feed got longer.
    pub(in crate::store) feed_changed: bool,
    /// Whether a gate was set.
    pub(in crate::store) gates_changed: bool,
    /// Whether a destination was changed.
    pub(in crate::store) destinations_changed: bool,
    work_items: BTreeMap<(Scope, WorkState), i64>,
    messages: BTreeMap<MessageState, i64>,
}

pub(in crate::store) static COUNT_WORK_ITEMS: Statement = Statement::insert(
    "work_item_counter (pack, work_type, generation, state, stripe, count)",
    Conflict::Add("pack, work_type, generation, state, stripe", "count"),
);

pub(in crate::store) static COUNT_MESSAGES: Statement =
    Statement::insert("message_counter (state, stripe, count)", Conflict::Add("state, stripe", "count"));

impl<'c> Unit<'c> {
    pub(in crate::store) fn new(connection: Connection<'c>, sequences: Sequences, terms: Terms, attempt: u32) -> Self {
        Self {
            connection,
            sequences,
            authority: Authority::default(),
            attempt,
            terms,
            work_changed: false,
            feed_changed: false,
            gates_changed: false,
            destinations_changed: false,
            work_items: BTreeMap::new(),
            messages: BTreeMap::new(),
        }
    }

    /// The time that measures leases and turns: the database's where hosts share it, so that no host's clock steals a
    /// lease; else `now`, the caller's.
    pub(in crate::store) fn time(&self, now: Timestamp) -> Timestamp {
        self.terms.database_now.unwrap_or(now)
    }

    /// Counts `rows` WorkItems out of `from` (`None` for new ones) and into `to`.
    pub(in crate::store) fn count_work_items(
        &mut self,
        scope: &Scope,
        from: Option<WorkState>,
        to: WorkState,
        rows: i64,
    ) {
        if let Some(from) = from {
            *self.work_items.entry((scope.clone(), from)).or_default() -= rows;
        }
        *self.work_items.entry((scope.clone(), to)).or_default() += rows;
    }

    /// Counts a WorkItem out of `from` and of its scope.
    pub(in crate::store) fn uncount_work_item(&mut self, scope: &Scope, from: WorkState) {
        *self.work_items.entry((scope.clone(), from)).or_default() -= 1;
    }

    /// Counts a message out of `from` (`None` for a new one) and into `to`.
    pub(in crate::store) fn count_message(&mut self, from: Option<MessageState>, to: MessageState) {
        if let Some(from) = from {
            *self.messages.entry(from).or_default() -= 1;
        }
        *self.messages.entry(to).or_default() += 1;
    }

    /// A message that stood in `from` is removed.
    pub(in crate::store) fn uncount_message(&mut self, from: MessageState) {
        *self.messages.entry(from).or_default() -= 1;
    }

    /// Writes the counters, once for the whole transaction.
    pub(in crate::store) async fn write_counters(&mut self) -> Result<(), sqlx::Error> {
        let stripe = self.terms.stripe;
        let work_items = std::mem::take(&mut self.work_items).into_iter().filter(|(_, by)| *by != 0).collect();
        COUNT_WORK_ITEMS
            .write(&mut self.connection, work_items, |values, ((scope, state), by)| {
                scope.bind(values);
                values.push(state).push(stripe).push(by);
            })
            .await?;
        let messages = std::mem::take(&mut self.messages).into_iter().filter(|(_, by)| *by != 0).collect();
        COUNT_MESSAGES
            .write(&mut self.connection, messages, |values, (state, by)| {
                values.push(state).push(stripe).push(by);
            })
            .await?;
        Ok(())
    }
}

/// Rows that were read in a transaction were others when it wrote them.
#[derive(Debug, thiserror::Error)]
#[error("{written} of {expected} rows were as they had just been read")]
struct Overtaken {
    written: u64,
    expected: usize,
}

/// Checks that a statement changed every row that it should. The rows were read in the same transaction, so any other
/// number means a foreign write to the database: nothing of the request is committed then.
pub(in crate::store) fn all_written(written: u64, expected: usize) -> Result<(), sqlx::Error> {
    if usize::try_from(written) == Ok(expected) {
        return Ok(());
    }
    Err(sqlx::Error::AnyDriverError(Box::new(Overtaken { written, expected })))
}
