//! The unit of work: one transaction of the writer, what it counts, and what it will have to tell when it is committed.

use std::collections::BTreeMap;

use super::authority::Authority;
use crate::model::message::MessageState;
use crate::model::names::PackName;
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;
use crate::model::work_item::{WorkState, WorkType};
use crate::store::engine::codes::{message_state_code, work_state_code, work_type_code};
use crate::store::engine::connection::{Connection, Row};
use crate::store::engine::dialect::Conflict;
use crate::store::engine::sequences::Sequences;
use crate::store::engine::statement::Statement;
use crate::store::engine::values::{Values, values};
use crate::store::error::StoreError;

/// What an engine gives to every transaction of one writer.
#[derive(Debug, Clone)]
pub(in crate::store) struct Terms {
    /// How many shards there are.
    pub(in crate::store) shard_count: u16,
    /// Which of the counters' rows are this writer's to change: several writers do not wait for one another over a
    /// count.
    pub(in crate::store) stripe: i64,
    /// What the database says the time is, where runtimes share it; alone, the runtime's own clock decides.
    pub(in crate::store) database_now: Option<Timestamp>,
}

/// One answer for each request of a kind, in order.
pub(in crate::store) type Answers<A> = Vec<Result<A, StoreError>>;

/// What WorkItems are claimed and counted by, besides their state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store) struct Scope {
    pub(in crate::store) pack: PackName,
    pub(in crate::store) work_type: WorkType,
    pub(in crate::store) generation: GenerationNumber,
}

impl Scope {
    /// Its columns, for statements that begin with them: pack, work type, generation.
    pub(in crate::store) fn values(&self) -> Values {
        values![self.pack.as_str(), work_type_code(self.work_type), self.generation.0]
    }
}

impl Row {
    /// A scope from three columns: pack, work type and generation.
    pub(in crate::store) fn scope(&self, first: usize) -> Result<Scope, sqlx::Error> {
        Ok(Scope {
            pack: self.name(first)?,
            work_type: self.work_type(first + 1)?,
            generation: self.generation(first + 2)?,
        })
    }
}

/// One transaction.
pub(in crate::store) struct Unit<'c> {
    /// The writer's connection, inside the transaction.
    pub(in crate::store) connection: Connection<'c>,
    /// Numbers to hand out; they count only if the transaction commits.
    pub(in crate::store) sequences: Sequences,
    /// What is known to exist; it counts only if the transaction commits.
    pub(in crate::store) authority: Authority,
    /// How often this transaction has been begun before, and ended in a conflict with another one.
    pub(in crate::store) attempt: u32,
    pub(in crate::store) terms: Terms,
    /// Whether something may be claimable now, or at another time than before.
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

    /// The time that leases and turns are measured by: the database's where runtimes share it, so that no clock of
    /// theirs steals a lease; else `now`, the caller's.
    pub(in crate::store) fn time(&self, now: Timestamp) -> Timestamp {
        self.terms.database_now.unwrap_or(now)
    }

    /// WorkItems, `rows` of them, leave `from` (`None`: they are new) and stand in `to`.
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

    /// A WorkItem leaves `from`, and its scope.
    pub(in crate::store) fn uncount_work_item(&mut self, scope: &Scope, from: WorkState) {
        *self.work_items.entry((scope.clone(), from)).or_default() -= 1;
    }

    /// A message leaves `from` (`None`: it is new) and stands in `to`.
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
                values.push(scope.pack.as_str()).push(work_type_code(scope.work_type));
                values.push(i64::from(scope.generation.0)).push(work_state_code(state)).push(stripe).push(by);
            })
            .await?;
        let messages = std::mem::take(&mut self.messages).into_iter().filter(|(_, by)| *by != 0).collect();
        COUNT_MESSAGES
            .write(&mut self.connection, messages, |values, (state, by)| {
                values.push(message_state_code(state)).push(stripe).push(by);
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

/// Makes sure that a statement changed every row that was to change. What decided that they would was read in the same
/// transaction, so anything else means that somebody else writes to the database: nothing of that request is committed
/// then.
pub(in crate::store) fn all_written(written: u64, expected: usize) -> Result<(), sqlx::Error> {
    if usize::try_from(written) == Ok(expected) {
        return Ok(());
    }
    Err(sqlx::Error::AnyDriverError(Box::new(Overtaken { written, expected })))
}
