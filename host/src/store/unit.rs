//! The unit of work: one transaction of the writer, what it counts, and what it will have to tell when it is committed.

use std::collections::BTreeMap;

use sqlx::sqlite::SqliteConnection;
use sqlx::{Row, query};

use super::statement::Statement;
use super::stored::{message_state_code, work_state_code, work_type_code};
use crate::model::message::MessageState;
use crate::model::names::PackName;
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;
use crate::model::work_item::{WorkState, WorkType};

/// Numbers that the writer hands out. They are the writer's alone: it reads them once when it connects.
#[derive(Debug, Clone, Default)]
pub(super) struct Sequences {
    receipt: i64,
    event: i64,
    lane: i64,
    message: i64,
    turn: i64,
}

impl Sequences {
    pub(super) async fn load(connection: &mut SqliteConnection) -> Result<Self, sqlx::Error> {
        let row = query(
            "SELECT (SELECT max(ordinal) FROM receipt), (SELECT max(ordinal) FROM event), (SELECT max(id) FROM lane), \
             (SELECT max(ordinal) FROM message)",
        )
        .fetch_one(connection)
        .await?;
        let last = |index| row.try_get::<Option<i64>, _>(index).map(|last| last.unwrap_or(0));
        Ok(Self { receipt: last(0)?, event: last(1)?, lane: last(2)?, message: last(3)?, turn: 0 })
    }

    pub(super) fn receipt(&mut self) -> i64 {
        self.receipt += 1;
        self.receipt
    }

    pub(super) fn event(&mut self) -> i64 {
        self.event += 1;
        self.event
    }

    pub(super) fn lane(&mut self) -> i64 {
        self.lane += 1;
        self.lane
    }

    pub(super) fn message(&mut self) -> i64 {
        self.message += 1;
        self.message
    }

    /// A place in the line of claims, behind `last`: the time in microseconds, and in any case behind every place that
    /// this writer handed out. So lanes are served first come, first served, and a lane's own order holds even when the
    /// clock is set back.
    pub(super) fn turn(&mut self, last: i64, now: Timestamp) -> i64 {
        self.turn = now.as_millis().saturating_mul(1_000).max(self.turn + 1).max(last.saturating_add(1));
        self.turn
    }
}

/// What WorkItems are claimed and counted by, beside their state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scope {
    pub(super) pack: PackName,
    pub(super) work_type: WorkType,
    pub(super) generation: GenerationNumber,
}

/// One transaction.
pub(super) struct Unit<'c> {
    /// The writer's connection, inside the transaction.
    pub(super) connection: &'c mut SqliteConnection,
    /// Numbers to hand out; they count only if the transaction commits.
    pub(super) sequences: Sequences,
    /// Whether something may be claimable now, or at another time than before.
    pub(super) work_changed: bool,
    /// Whether a shard's feed got longer.
    pub(super) feed_changed: bool,
    work_items: BTreeMap<(Scope, WorkState), i64>,
    messages: BTreeMap<MessageState, i64>,
}

static COUNT_WORK_ITEMS: Statement = Statement::new(
    "INSERT INTO work_item_counter (pack, work_type, generation, state, count) SELECT * FROM (",
    5,
    ") WHERE column1 IS NOT NULL \
     ON CONFLICT (pack, work_type, generation, state) DO UPDATE SET count = count + excluded.count",
);

static COUNT_MESSAGES: Statement = Statement::new(
    "INSERT INTO message_counter (state, count) SELECT * FROM (",
    2,
    ") WHERE column1 IS NOT NULL ON CONFLICT (state) DO UPDATE SET count = count + excluded.count",
);

impl<'c> Unit<'c> {
    pub(super) fn new(connection: &'c mut SqliteConnection, sequences: Sequences) -> Self {
        Self {
            connection,
            sequences,
            work_changed: false,
            feed_changed: false,
            work_items: BTreeMap::new(),
            messages: BTreeMap::new(),
        }
    }

    /// WorkItems, `rows` of them, leave `from` (`None`: they are new) and stand in `to`.
    pub(super) fn count_work_items(&mut self, scope: &Scope, from: Option<WorkState>, to: WorkState, rows: i64) {
        if let Some(from) = from {
            *self.work_items.entry((scope.clone(), from)).or_default() -= rows;
        }
        *self.work_items.entry((scope.clone(), to)).or_default() += rows;
    }

    /// A message leaves `from` (`None`: it is new) and stands in `to`.
    pub(super) fn count_message(&mut self, from: Option<MessageState>, to: MessageState) {
        if let Some(from) = from {
            *self.messages.entry(from).or_default() -= 1;
        }
        *self.messages.entry(to).or_default() += 1;
    }

    /// Writes the counters, once for the whole transaction.
    pub(super) async fn write_counters(&mut self) -> Result<(), sqlx::Error> {
        let work_items = std::mem::take(&mut self.work_items).into_iter().filter(|(_, by)| *by != 0).collect();
        COUNT_WORK_ITEMS
            .execute(self.connection, work_items, |values, ((scope, state), by)| {
                values.push(scope.pack.as_str()).push(work_type_code(scope.work_type));
                values.push(i64::from(scope.generation.0)).push(work_state_code(state)).push(by);
            })
            .await?;
        let messages = std::mem::take(&mut self.messages).into_iter().filter(|(_, by)| *by != 0).collect();
        COUNT_MESSAGES
            .execute(self.connection, messages, |values, (state, by)| {
                values.push(message_state_code(state)).push(by);
            })
            .await?;
        Ok(())
    }
}

/// Makes sure that a statement changed every row that was to change. What decided that they would was read in the same
/// transaction, so anything else means that somebody else writes to the database: nothing is committed then.
pub(super) fn all_written(written: u64, expected: usize) -> Result<(), sqlx::Error> {
    if usize::try_from(written) == Ok(expected) {
        return Ok(());
    }
    Err(sqlx::Error::Protocol(format!("{written} of {expected} rows were as they had just been read")))
}
