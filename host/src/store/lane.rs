//! Lanes of WorkItems. A lane's row hands out places and names the head, and both enqueue and completion go through it, so
//! that "the lane looks busy, wait" and "nobody waits, done" cannot pass each other.
//!
//! Invariants:
//! - In each lane exactly one item is the head if anybody is in it; every other one is `blocked`, behind the head.
//! - An item that left its lane (`lane_id` null) neither holds nor waits for anybody.

use std::collections::{HashMap, HashSet};

use super::connection::Row;
use super::dialect::{Conflict, Engine, Lock};
use super::statement::Statement;
use super::stored::Values;
use super::unit::{Scope, Unit};
use crate::model::names::{Namespace, PackName};
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;
use crate::model::work_item::WorkState;

/// The kind of a lane that orders by source object.
const KIND_SOURCE: i64 = 1;

/// What names a source lane.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

const BY_KEY: &str = "\
    SELECT lane.namespace, lane.pack, lane.`key`, lane.id, lane.head_ordinal, lane.last_ordinal \
    FROM wanted CROSS JOIN lane ON lane.namespace = wanted.namespace AND lane.pack = wanted.pack \
    AND lane.kind = wanted.kind AND lane.`key` = wanted.`key`";

static SEEN: Statement = Statement::select("(namespace, pack, kind, `key`)", 4, BY_KEY);

static LOAD: Statement = Statement::lock("(namespace, pack, kind, `key`)", 4, BY_KEY, Lock::Update);

/// A lane that is there already stays as it is, and is held from here on.
static CREATE: Statement = Statement::insert(
    "lane (id, namespace, pack, kind, `key`, head_ordinal, last_ordinal)",
    7,
    Conflict::Keep("namespace, pack, kind, `key`"),
);

static APPEND: Statement = Statement::update(
    "lane",
    "head_ordinal = appended.column2, last_ordinal = appended.column3",
    "appended",
    3,
    "lane.id = appended.column1",
);

static HOLD: Statement =
    Statement::lock("(id)", 1, "SELECT lane.id FROM wanted CROSS JOIN lane ON lane.id = wanted.id", Lock::Update);

static SUCCESSORS: Statement = Statement::select(
    "(lane_id)",
    1,
    ", successor (lane_id, ordinal) AS (SELECT wanted.lane_id, (SELECT waiting.ordinal FROM work_item AS waiting \
     WHERE waiting.lane_id = wanted.lane_id AND waiting.state = 0 ORDER BY waiting.lane_ordinal LIMIT 1) FROM wanted) \
     SELECT successor.lane_id, work_item.ordinal, work_item.lane_ordinal, work_item.pack, work_item.work_type, \
     work_item.generation FROM successor CROSS JOIN work_item ON work_item.ordinal = successor.ordinal",
);

static PROMOTE: Statement = Statement::update(
    "work_item",
    "state = 1, turn = lane_ordinal",
    "promoted",
    1,
    "work_item.ordinal = promoted.column1 AND work_item.state = 0",
);

static SET_HEAD: Statement =
    Statement::update("lane", "head_ordinal = moved.column2", "moved", 2, "lane.id = moved.column1");

impl Lanes {
    /// Loads these lanes and holds them, in order, until the transaction ends.
    pub(super) async fn load(unit: &mut Unit<'_>, mut keys: Vec<LaneKey>) -> Result<Self, sqlx::Error> {
        keys.sort_unstable();
        if unit.connection.engine() != Engine::Sqlite {
            create_missing(unit, &keys).await?;
        }
        let found = LOAD.fetch(&mut unit.connection, keys, LaneKey::bind, lane).await?;
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
        CREATE
            .write(&mut unit.connection, new, |values, (key, lane)| {
                values.push(lane.id);
                LaneKey::bind(values, key);
                values.push(lane.head).push(lane.last);
            })
            .await?;
        APPEND
            .write(&mut unit.connection, old, |values, (_, lane)| {
                values.push(lane.id).push(lane.head).push(lane.last);
            })
            .await?;
        Ok(())
    }
}

impl LaneKey {
    fn bind(values: &mut Values, key: Self) {
        values.push(key.namespace.as_str()).push(key.pack.as_str()).push(KIND_SOURCE).push(key.source_key);
    }
}

fn lane(row: &Row) -> Result<(LaneKey, Lane), sqlx::Error> {
    let key = LaneKey { namespace: row.name(0)?, pack: row.name(1)?, source_key: row.value(2)? };
    let lane = Lane { id: row.value(3)?, head: row.value(4)?, last: row.value(5)?, new: false };
    Ok((key, lane))
}

/// Stores lanes, empty, that nobody has stored. Waiting for a row to come into being would keep others from storing lanes
/// beside it; so each is there before it is locked.
async fn create_missing(unit: &mut Unit<'_>, keys: &[LaneKey]) -> Result<(), sqlx::Error> {
    let known = SEEN.fetch(&mut unit.connection, keys.to_vec(), LaneKey::bind, lane).await?;
    let known: HashSet<LaneKey> = known.into_iter().map(|(key, _)| key).collect();
    let missing = keys.iter().filter(|key| !known.contains(key));
    let missing = missing.map(|key| (unit.sequences.lane(), key.clone())).collect();
    CREATE
        .write(&mut unit.connection, missing, |values, (id, key)| {
            values.push(id);
            LaneKey::bind(values, key);
            values.push(None::<i64>).push(0_u32);
        })
        .await?;
    Ok(())
}

fn bind_lane_id(values: &mut Values, lane_id: i64) {
    values.push(lane_id);
}

/// Who comes next in a lane.
struct Successor {
    lane_id: i64,
    ordinal: i64,
    lane_ordinal: i64,
    scope: Scope,
}

/// Lets lanes go on whose heads have just gone: the next in line becomes the head, or the lane is empty.
pub(super) async fn advance(unit: &mut Unit<'_>, mut lane_ids: Vec<i64>) -> Result<(), sqlx::Error> {
    if lane_ids.is_empty() {
        return Ok(());
    }
    lane_ids.sort_unstable();
    lane_ids.dedup();
    if unit.connection.engine() != Engine::Sqlite {
        // Whoever appends holds the lane too: from here on nobody comes to wait in it unseen.
        HOLD.execute(&mut unit.connection, lane_ids.clone(), bind_lane_id).await?;
    }
    let successors = SUCCESSORS
        .fetch(&mut unit.connection, lane_ids.clone(), bind_lane_id, |row| {
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
        })
        .await?;
    for next in &successors {
        unit.count_work_items(&next.scope, Some(WorkState::Blocked), WorkState::Ready, 1);
        unit.work_changed = true;
    }
    let heads: HashMap<i64, i64> = successors.iter().map(|next| (next.lane_id, next.lane_ordinal)).collect();
    PROMOTE
        .write(&mut unit.connection, successors, |values, next| {
            values.push(next.ordinal);
        })
        .await?;
    SET_HEAD
        .write(&mut unit.connection, lane_ids, |values, lane_id| {
            values.push(lane_id).push(heads.get(&lane_id).copied());
        })
        .await?;
    Ok(())
}
