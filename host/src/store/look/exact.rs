//! Exact statistics: the rows themselves, judged as a claim judges them: by due time, lease, the heads of lanes and the
//! activation of projections. Their cost grows with the tables.
//!
//! Only the WorkItem that its delivery brought counts for an Event; an Event without it is counted by itself. A replay
//! is a WorkItem of its own.

use std::collections::BTreeMap;

use super::stats::Stats;
use crate::model::time::Timestamp;
use crate::model::work_item::WorkState;
use crate::store::engine::codes::sql;
use crate::store::engine::connection::database_now;
use crate::store::engine::row::{Column, Columns, Sum, damaged};
use crate::store::engine::values::values;
use crate::store::{Store, StoreError};

/// Rows and counters at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExactStats {
    /// The rows in each state, counted.
    pub rows: Stats,
    /// The counters. A difference from `rows` is a bug, or the database was changed by hand.
    pub counters: Stats,
    /// The rows that a claim could take.
    pub claimable: Claimable,
    /// The blocked rows that wait behind the active item of their projection.
    pub queued: u64,
    /// The Events without a WorkItem, which no claim finds.
    pub uncovered: u64,
}

/// Heads that a claim with enough room would take, by the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Claimable {
    /// Ready rows.
    pub ready: u64,
    /// Delayed rows whose time has come.
    pub due: u64,
    /// Processing rows whose lease ran out.
    pub stale: u64,
}

/// The parts of the statement below, by the number in front of each row.
const WORK_ITEMS: i64 = 0;
const MESSAGES: i64 = 1;
const WORK_ITEM_COUNTERS: i64 = 2;
const MESSAGE_COUNTERS: i64 = 3;
const QUEUED: i64 = 4;
const UNCOVERED: i64 = 5;

/// One statement, so that all counts are of one moment. A lease holds to its last millisecond.
const EXACT: &str = sql!(
    "SELECT 0, state, claimable, count(*) FROM (\
    SELECT state, CASE WHEN state IN ({blocked}, {done}, {dead}) THEN 0 WHEN state = {delayed} AND turn > ? THEN 0 WHEN state = {processing} AND turn >= ? THEN 0 \
    WHEN projection_key IS NOT NULL AND projection_active_key IS NULL THEN 0 \
    WHEN EXISTS (SELECT 1 FROM lane WHERE lane.id IN (work_item.source_lane_id, work_item.delivery_lane_id) \
    AND lane.head <> work_item.ordinal) THEN 0 ELSE 1 END AS claimable FROM work_item WHERE work_type IN ({any_work_type})) AS judged GROUP BY state, claimable \
    UNION ALL SELECT 1, state, 0, count(*) FROM message GROUP BY state \
    UNION ALL SELECT 2, state, 0, CAST(sum(count) AS SIGNED) FROM work_item_counter WHERE work_type IN ({any_work_type}) \
    GROUP BY state \
    UNION ALL SELECT 3, state, 0, CAST(sum(count) AS SIGNED) FROM message_counter GROUP BY state \
    UNION ALL SELECT 4, {blocked}, 0, count(*) FROM work_item WHERE work_type IN ({any_work_type}) AND state = {blocked} \
    AND projection_key IS NOT NULL AND projection_active_key IS NULL \
    UNION ALL SELECT 5, 0, 0, count(*) FROM event LEFT JOIN work_item ON work_item.ordinal = {delivered_item} \
    WHERE work_item.ordinal IS NULL"
);

impl Store {
    /// Counts rows and judges them as of `now`; where the database's clock measures leases, as of its now.
    pub async fn exact_stats(&self, now: Timestamp) -> Result<ExactStats, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let now = database_now(&mut connection, self.lease_time).await?.unwrap_or(now);
        let mut exact = ExactStats {
            rows: Stats::zero(),
            counters: Stats::zero(),
            claimable: Claimable::default(),
            queued: 0,
            uncovered: 0,
        };
        for row in connection.fetch_all(EXACT, values![now, now]).await? {
            row.decode(|columns| exact.add(columns))?;
        }
        Ok(exact)
    }
}

impl ExactStats {
    /// Adds a row of [`EXACT`]: its kind, a state, whether it is claimable, and the rows of which that is true.
    fn add(&mut self, columns: &mut Columns<'_>) -> Result<(), sqlx::Error> {
        match columns.next()? {
            WORK_ITEMS => {
                let (state, claimable, Sum(count)): (WorkState, i64, Sum) = columns.next()?;
                *self.rows.work_items.entry(state).or_default() += count;
                if claimable == 1 {
                    self.claimable.add(state, count);
                }
            }
            MESSAGES => add(&mut self.rows.messages, columns)?,
            WORK_ITEM_COUNTERS => add(&mut self.counters.work_items, columns)?,
            MESSAGE_COUNTERS => add(&mut self.counters.messages, columns)?,
            QUEUED => self.queued = count(columns)?,
            UNCOVERED => self.uncovered = count(columns)?,
            kind => return Err(damaged("kind of count", kind)),
        }
        Ok(())
    }
}

/// Adds a state and the rows in it.
fn add<S: Column + Ord>(counts: &mut BTreeMap<S, u64>, columns: &mut Columns<'_>) -> Result<(), sqlx::Error> {
    let state = columns.next()?;
    columns.skip(1);
    counts.insert(state, columns.next::<Sum>()?.0);
    Ok(())
}

fn count(columns: &mut Columns<'_>) -> Result<u64, sqlx::Error> {
    columns.skip(2);
    Ok(columns.next::<Sum>()?.0)
}

impl Claimable {
    /// All of them.
    pub const fn total(self) -> u64 {
        self.ready + self.due + self.stale
    }

    fn add(&mut self, state: WorkState, count: u64) {
        match state {
            WorkState::Ready => self.ready += count,
            WorkState::Delayed => self.due += count,
            WorkState::Processing => self.stale += count,
            WorkState::Blocked | WorkState::Done | WorkState::Dead => {}
        }
    }
}
