//! Lanes of WorkItems. A lane's row hands out places and names the head, and both enqueue and completion go through it, so
//! that "the lane looks busy, wait" and "nobody waits, done" cannot pass each other.
//!
//! Invariants:
//! - In each lane exactly one item is the head if anybody is in it; every other one is `blocked`, behind the head.
//! - An item that left its lane (`lane_id` null) neither holds nor waits for anybody.

use std::collections::HashMap;

use super::statement::Statement;
use super::stored::Columns;
use super::unit::{Scope, Unit};
use crate::model::names::{Namespace, PackName};
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;
use crate::model::work_item::WorkState;

/// The kind of a lane that orders by source object.
const KIND_SOURCE: i64 = 1;

/// What names a source lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LaneKey {
    pub(super) namespace: Namespace,
    pub(super) pack: PackName,
    pub(super) source_key: String,
}

/// A lane's row.
struct Lane {
    id: i64,
    head: Option<i64>,
    last: i64,
    new: bool,
}

/// The lanes that a transaction appends to.
#[derive(Default)]
pub(super) struct Lanes(HashMap<LaneKey, Lane>);

/// A WorkItem's place.
pub(super) struct Place {
    pub(super) lane_id: Option<i64>,
    pub(super) ordinal: i64,
    pub(super) state: WorkState,
}

static LOAD: Statement = Statement::new(
    "WITH wanted (namespace, pack, kind, key) AS (",
    4,
    ") SELECT lane.namespace, lane.pack, lane.key, lane.id, lane.head_ordinal, lane.last_ordinal \
     FROM wanted CROSS JOIN lane ON lane.namespace = wanted.namespace AND lane.pack = wanted.pack \
     AND lane.kind = wanted.kind AND lane.key = wanted.key",
);

static INSERT: Statement = Statement::new(
    "INSERT INTO lane (id, namespace, pack, kind, key, head_ordinal, last_ordinal) SELECT * FROM (",
    7,
    ") WHERE column1 IS NOT NULL",
);

static APPEND: Statement = Statement::new(
    "UPDATE lane SET head_ordinal = appended.column2, last_ordinal = appended.column3 FROM (",
    3,
    ") AS appended WHERE lane.id = appended.column1",
);

static SUCCESSORS: Statement = Statement::new(
    "WITH wanted (lane_id) AS (",
    1,
    ") SELECT wanted.lane_id, work_item.ordinal, work_item.lane_ordinal, work_item.pack, work_item.work_type, \
     work_item.generation FROM wanted CROSS JOIN work_item ON work_item.ordinal = (SELECT waiting.ordinal \
     FROM work_item AS waiting WHERE waiting.lane_id = wanted.lane_id AND waiting.state = 0 \
     ORDER BY waiting.lane_ordinal LIMIT 1)",
);

static PROMOTE: Statement = Statement::new(
    "UPDATE work_item SET state = 1, turn = lane_ordinal FROM (",
    1,
    ") AS promoted WHERE work_item.ordinal = promoted.column1 AND work_item.state = 0",
);

static SET_HEAD: Statement = Statement::new(
    "UPDATE lane SET head_ordinal = moved.column2 FROM (",
    2,
    ") AS moved WHERE lane.id = moved.column1",
);

impl Lanes {
    /// Loads the lanes that exist already.
    pub(super) async fn load(unit: &mut Unit<'_>, keys: Vec<LaneKey>) -> Result<Self, sqlx::Error> {
        let found = LOAD
            .fetch(
                unit.connection,
                keys,
                |values, key| {
                    values.push(key.namespace.as_str()).push(key.pack.as_str()).push(KIND_SOURCE).push(key.source_key);
                },
                |row| {
                    let key = LaneKey { namespace: row.name(0)?, pack: row.name(1)?, source_key: row.value(2)? };
                    let lane = Lane { id: row.value(3)?, head: row.value(4)?, last: row.value(5)?, new: false };
                    Ok((key, lane))
                },
            )
            .await?;
        Ok(Self(found.into_iter().collect()))
    }

    /// Takes the next place in a lane; the first one in an empty lane is its head and `ready`.
    pub(super) fn append(&mut self, unit: &mut Unit<'_>, key: LaneKey, now: Timestamp) -> Place {
        let sequences = &mut unit.sequences;
        let lane = self.0.entry(key).or_insert_with(|| Lane { id: sequences.lane(), head: None, last: 0, new: true });
        lane.last = sequences.turn(lane.last, now);
        let state = match lane.head {
            None => {
                lane.head = Some(lane.last);
                WorkState::Ready
            }
            Some(_) => WorkState::Blocked,
        };
        Place { lane_id: Some(lane.id), ordinal: lane.last, state }
    }

    /// Writes the lanes back.
    pub(super) async fn save(self, unit: &mut Unit<'_>) -> Result<(), sqlx::Error> {
        let (new, old): (Vec<_>, Vec<_>) = self.0.into_iter().partition(|(_, lane)| lane.new);
        INSERT
            .execute(unit.connection, new, |values, (key, lane)| {
                values.push(lane.id).push(key.namespace.as_str()).push(key.pack.as_str()).push(KIND_SOURCE);
                values.push(key.source_key).push(lane.head).push(lane.last);
            })
            .await?;
        APPEND
            .execute(unit.connection, old, |values, (_, lane)| {
                values.push(lane.id).push(lane.head).push(lane.last);
            })
            .await?;
        Ok(())
    }
}

/// Who comes next in a lane.
struct Successor {
    lane_id: i64,
    ordinal: i64,
    lane_ordinal: i64,
    scope: Scope,
}

/// Lets lanes go on whose heads have just gone: the next in line becomes the head, or the lane is empty.
pub(super) async fn advance(unit: &mut Unit<'_>, lane_ids: Vec<i64>) -> Result<(), sqlx::Error> {
    if lane_ids.is_empty() {
        return Ok(());
    }
    let successors = SUCCESSORS
        .fetch(
            unit.connection,
            lane_ids.clone(),
            |values, lane_id| {
                values.push(lane_id);
            },
            |row| {
                Ok(Successor {
                    lane_id: row.value(0)?,
                    ordinal: row.value(1)?,
                    lane_ordinal: row.value(2)?,
                    scope: Scope {
                        pack: row.name(3)?,
                        work_type: row.work_type(4)?,
                        generation: GenerationNumber(row.unsigned_32(5)?),
                    },
                })
            },
        )
        .await?;
    for next in &successors {
        unit.count_work_items(&next.scope, Some(WorkState::Blocked), WorkState::Ready, 1);
        unit.work_changed = true;
    }
    let heads: HashMap<i64, i64> = successors.iter().map(|next| (next.lane_id, next.lane_ordinal)).collect();
    PROMOTE
        .execute(unit.connection, successors, |values, next| {
            values.push(next.ordinal);
        })
        .await?;
    SET_HEAD
        .execute(unit.connection, lane_ids, |values, lane_id| {
            values.push(lane_id).push(heads.get(&lane_id).copied());
        })
        .await?;
    Ok(())
}
