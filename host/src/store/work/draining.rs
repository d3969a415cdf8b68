//! Draining: work that refers to a generation moves to another one, or ends as dead.
//!
//! Invariants:
//! - Work that runs is left alone: it ends on the generation that runs it. A row whose lease has run out does not run
//!   any more, and is drained; its last owner finds its lease lost if the row ended, and is fenced by the next claim if
//!   it moved.
//! - A row that moves keeps its place in its lane, its attempts and its failures. The Event is not written.
//! - Every transaction takes a bounded number of rows; so does one call.
//!
//! Actions that wait on the timeline refer to their generation too: they move, or end as dead, like WorkItems.
//!
//! Rows are locked WorkItem first, then lane, then shard, then message.

use super::claim::lease_is_over;
use super::lane::{self, LaneIds};
use crate::model::failure::FailureClass;
use crate::model::ids::MessageId;
use crate::model::names::PackName;
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;
use crate::model::work_item::WorkState;
use crate::store::engine::codes::sql;
use crate::store::engine::dialect::Lock;
use crate::store::engine::row::{Columns, FromColumns, Sum};
use crate::store::engine::statement::Statement;
use crate::store::engine::values::{Values, values};
use crate::store::writer::Control;
use crate::store::writer::unit::{Answers, Scope, Unit, all_written};
use crate::store::{Store, StoreError};

/// The most rows of one call: a few seconds' work. The answer counts the rest, which is for the next call.
pub const DRAIN_ROWS_MAX: u64 = 20_000;

/// The most rows of one transaction.
const BATCH_ROWS: u32 = 256;

/// The target of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainTarget {
    /// The work runs on this generation of the same pack.
    Generation(GenerationNumber),
    /// The work ends as dead. It can be replayed, on the drained generation.
    DeadLetter,
}

/// The answer to a call to drain a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// The rows that moved or ended.
    pub rows: u64,
    /// The rows that still refer to the generation: they run, or [`DRAIN_ROWS_MAX`] was reached.
    pub left: u64,
}

/// One transaction's part of a drain.
#[derive(Debug, Clone)]
pub(in crate::store) struct Drain {
    pub(in crate::store) pack: PackName,
    pub(in crate::store) from: GenerationNumber,
    pub(in crate::store) target: DrainTarget,
    /// The ordinals of rows that referred to it when they were read.
    pub(in crate::store) rows: Vec<i64>,
    pub(in crate::store) now: Timestamp,
}

/// One transaction's part of a drain: actions that waited when they were read.
#[derive(Debug, Clone)]
pub(in crate::store) struct ActionDrain {
    pub(in crate::store) from: GenerationNumber,
    pub(in crate::store) target: DrainTarget,
    pub(in crate::store) ids: Vec<MessageId>,
    pub(in crate::store) now: Timestamp,
}

/// The rows that a transaction moved or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct DrainedRows(pub(in crate::store) u64);

impl Store {
    /// Moves the waiting work of generation `from` to `target`, or ends it as dead.
    pub async fn drain_generation(
        &self,
        pack: &PackName,
        from: GenerationNumber,
        target: DrainTarget,
        now: Timestamp,
    ) -> Result<Drained, StoreError> {
        let mut drained = Drained::default();
        let mut after = i64::MIN;
        while drained.rows < DRAIN_ROWS_MAX {
            let rows = self.waiting_after(pack, from, after).await?;
            let Some(last) = rows.last() else { break };
            after = *last;
            let drain = Drain { pack: pack.clone(), from, target, rows, now };
            drained.rows += self.writer.control(|reply| Control::Drain(drain, reply)).await?.0;
        }
        self.drain_actions(pack, from, target, now, &mut drained).await?;
        drained.left = self.unfinished(pack, from).await? + self.actions_left(pack, from).await?;
        Ok(drained)
    }

    async fn drain_actions(
        &self,
        pack: &PackName,
        from: GenerationNumber,
        target: DrainTarget,
        now: Timestamp,
        drained: &mut Drained,
    ) -> Result<(), StoreError> {
        let mut after = i64::MIN;
        while drained.rows < DRAIN_ROWS_MAX {
            let actions = self.actions_after(pack, from, after).await?;
            let Some((last, _)) = actions.last() else { break };
            after = *last;
            let ids = actions.into_iter().map(|(_, id)| id).collect();
            let drain = ActionDrain { from, target, ids, now };
            drained.rows += self.writer.control(|reply| Control::DrainActions(drain, reply)).await?.0;
        }
        Ok(())
    }

    /// Actions of a generation that wait, with a larger ordinal, in order.
    async fn actions_after(
        &self,
        pack: &PackName,
        from: GenerationNumber,
        after: i64,
    ) -> Result<Vec<(i64, MessageId)>, StoreError> {
        let mut reader = self.reader().await?;
        let values = values![pack, from, after, BATCH_ROWS];
        Ok(reader.connection().read_all(WAITING_ACTIONS, values).await?)
    }

    async fn actions_left(&self, pack: &PackName, from: GenerationNumber) -> Result<u64, StoreError> {
        let mut reader = self.reader().await?;
        Ok(reader.connection().read_one(ACTIONS, values![pack, from]).await?)
    }

    /// Unfinished WorkItems that run on a generation.
    async fn unfinished(&self, pack: &PackName, number: GenerationNumber) -> Result<u64, StoreError> {
        let mut reader = self.reader().await?;
        Ok(reader.connection().read_one::<Sum>(UNFINISHED, values![pack, number]).await?.0)
    }

    /// Whether a generation has WorkItems that may be claimed now or later.
    async fn has_claimable(&self, pack: &PackName, number: GenerationNumber) -> Result<bool, StoreError> {
        let mut reader = self.reader().await?;
        Ok(reader.connection().read_one(HAS_CLAIMABLE, values![pack, number]).await?)
    }

    /// Rows of a generation with a larger ordinal, in order: one walk through the table serves the whole drain.
    async fn waiting_after(&self, pack: &PackName, from: GenerationNumber, after: i64) -> Result<Vec<i64>, StoreError> {
        // A row that may be claimed counts even if the counters lack it.
        if self.unfinished(pack, from).await? == 0 && !self.has_claimable(pack, from).await? {
            return Ok(Vec::new());
        }
        let mut reader = self.reader().await?;
        Ok(reader.connection().read_all(WAITING, values![after, pack, from, BATCH_ROWS]).await?)
    }
}

const UNFINISHED: &str = sql!(
    "SELECT CAST(coalesce(sum(count), 0) AS SIGNED) FROM work_item_counter WHERE pack = ? AND generation = ? AND state < {done}"
);

const HAS_CLAIMABLE: &str = sql!(
    "SELECT EXISTS (SELECT 1 FROM work_item WHERE pack = ? AND work_type IN ({any_work_type}) AND generation = ? AND state IN ({claimable}))"
);

/// Neither done nor dead.
const WAITING: &str = sql!(
    "SELECT ordinal FROM work_item WHERE ordinal > ? AND pack = ? AND generation = ? AND state < {done} ORDER BY ordinal LIMIT ?"
);

const ACTIONS: &str = "SELECT count(*) FROM message WHERE action_pack = ? AND open_action = ?";

const WAITING_ACTIONS: &str = "\
    SELECT ordinal, id FROM message WHERE action_pack = ? AND open_action = ? AND ordinal > ? ORDER BY ordinal LIMIT ?";

pub(in crate::store) static LOAD: Statement = Statement::lock(
    "(ordinal)",
    "SELECT work_item.ordinal, work_item.pack, work_item.work_type, work_item.generation, work_item.state, \
     work_item.turn, work_item.delivery_lane_id, work_item.source_lane_id, work_item.epoch FROM wanted \
     CROSS JOIN work_item ON work_item.ordinal = wanted.ordinal",
    Lock::Update,
);

pub(in crate::store) static MOVE: Statement = Statement::update(
    "work_item",
    "generation = moved.new_generation",
    "moved (ordinal, generation, state, epoch, new_generation)",
    "work_item.ordinal = moved.ordinal AND work_item.generation = moved.generation AND work_item.state = moved.state \
     AND work_item.epoch = moved.epoch",
);

pub(in crate::store) static END: Statement = Statement::update(
    "work_item",
    sql!(
        "state = {dead}, turn = lane_ordinal, blockers = 0, delivery_lane_id = NULL, source_lane_id = NULL, \
         lease_token = NULL, projection_active_key = NULL, finished_at = ended.finished_at, \
         failure_class = ended.failure_class, failure_message = ended.failure_message"
    ),
    "ended (ordinal, generation, state, epoch, finished_at, failure_class, failure_message)",
    "work_item.ordinal = ended.ordinal AND work_item.generation = ended.generation AND work_item.state = ended.state \
     AND work_item.epoch = ended.epoch",
);

/// A row that waits for its generation.
struct DrainedItem {
    ordinal: i64,
    scope: Scope,
    state: WorkState,
    turn: i64,
    lanes: LaneIds,
    epoch: u32,
}

impl FromColumns for DrainedItem {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            ordinal: columns.next()?,
            scope: columns.next()?,
            state: columns.next()?,
            turn: columns.next()?,
            lanes: columns.next()?,
            epoch: columns.next()?,
        })
    }
}

/// Applies drains in order.
pub(in crate::store) async fn apply(
    unit: &mut Unit<'_>,
    drains: Vec<Drain>,
) -> Result<Answers<DrainedRows>, sqlx::Error> {
    let mut answers = Vec::with_capacity(drains.len());
    for drain in drains {
        let rows = load(unit, &drain).await?;
        let count = rows.len() as u64;
        match drain.target {
            DrainTarget::Generation(to) => move_to(unit, rows, to).await?,
            DrainTarget::DeadLetter => end(unit, rows, drain.now).await?,
        }
        answers.push(Ok(DrainedRows(count)));
    }
    Ok(answers)
}

/// The rows that are as the drain wants them, held.
async fn load(unit: &mut Unit<'_>, drain: &Drain) -> Result<Vec<DrainedItem>, sqlx::Error> {
    let now = unit.time(drain.now).as_millis();
    let mut rows = LOAD.fetch(&mut unit.connection, drain.rows.clone(), Values::only, DrainedItem::read).await?;
    rows.retain(|row| {
        row.scope.pack == drain.pack && row.scope.generation == drain.from && row.state.waits(row.turn, now)
    });
    rows.sort_unstable_by_key(|row| row.ordinal);
    Ok(rows)
}

impl WorkState {
    /// Whether no lease holds a row in this state, with this turn, at `now`.
    fn waits(self, turn: i64, now: i64) -> bool {
        match self {
            WorkState::Blocked | WorkState::Ready | WorkState::Delayed => true,
            // The turn of a processing row is the end of its lease.
            WorkState::Processing => lease_is_over(turn, now),
            WorkState::Done | WorkState::Dead => false,
        }
    }
}

impl DrainedItem {
    /// The columns by which a statement finds the row as it was read.
    fn bind(&self, values: &mut Values) {
        values.push(self.ordinal).push(self.scope.generation).push(self.state).push(self.epoch);
    }
}

async fn move_to(unit: &mut Unit<'_>, rows: Vec<DrainedItem>, to: GenerationNumber) -> Result<(), sqlx::Error> {
    for row in &rows {
        unit.uncount_work_item(&row.scope, row.state);
        unit.count_work_items(&Scope { generation: to, ..row.scope.clone() }, None, row.state, 1);
    }
    unit.work_changed |= !rows.is_empty();
    let expected = rows.len();
    let moved = MOVE
        .execute(&mut unit.connection, rows, |values, row| {
            row.bind(values);
            values.push(to);
        })
        .await?;
    all_written(moved, expected)
}

async fn end(unit: &mut Unit<'_>, rows: Vec<DrainedItem>, now: Timestamp) -> Result<(), sqlx::Error> {
    for row in &rows {
        unit.count_work_items(&row.scope, Some(row.state), WorkState::Dead, 1);
    }
    let left = rows.iter().map(|row| (row.ordinal, row.lanes)).collect();
    let expected = rows.len();
    let ended = END
        .execute(&mut unit.connection, rows, |values, row| {
            row.bind(values);
            let message = format!("an operator drained generation {} and had its work end", row.scope.generation);
            values.push(now).push(FailureClass::Host).push(message);
        })
        .await?;
    all_written(ended, expected)?;
    lane::leave(unit, left).await
}
