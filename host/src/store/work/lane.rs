//! The rows of WorkItem lanes. A lane's row hands out places and names the head, and both enqueue and completion go
//! through it, so that "the lane looks busy, wait" and "nobody waits, done" cannot pass each other. What becomes of a
//! lane is decided in [`crate::model::lane`]; here it is read, held and written.
//!
//! Invariants:
//! - Whoever changes a lane, or who stands in it, holds its row. Of lanes that are held together, those of routes come
//!   first, then those of sources. A transaction that holds some, and then others (`handoff`, `sweep`, `replay`), may
//!   meet another one that does the same the other way round: one of them is done again.
//! - An item whose head position changes in one lane may at the same time be promoted in its other one, by somebody who
//!   holds that: its own row is held while its blockers are counted down.
//! - An item that left its lanes (their ids are null) neither holds nor waits for anybody.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::model::lane::{self, Blockers, Lane, LaneKind, Miscounted, Successor};
use crate::model::names::{Namespace, PackName};
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;
use crate::model::work_item::WorkState;
use crate::store::engine::connection::Row;
use crate::store::engine::dialect::{Conflict, Engine, Lock};
use crate::store::engine::statement::{Answered, Asked, Reads, Statement};
use crate::store::engine::values::{Values, damaged, lane_kind_code, work_state_code};
use crate::store::writer::unit::{Scope, Unit};

/// What names a lane. Their order is the one in which they are held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::store) struct LaneKey {
    pub(in crate::store) kind: LaneKind,
    pub(in crate::store) namespace: Namespace,
    pub(in crate::store) pack: PackName,
    /// The source, or the route.
    pub(in crate::store) key: String,
}

/// The lanes that a WorkItem stands in, by their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::store) struct LaneIds {
    pub(in crate::store) delivery: Option<i64>,
    /// Of its source, or of the projection that it is a generation of.
    pub(in crate::store) source: Option<i64>,
}

/// A lane's row.
struct Stored {
    id: i64,
    lane: Lane,
    new: bool,
    changed: bool,
}

/// The lanes that a transaction appends to.
#[derive(Default)]
pub(in crate::store) struct Lanes {
    stored: HashMap<LaneKey, Stored>,
    /// Those that were read, stored or not.
    read: HashSet<LaneKey>,
}

/// Lanes that were asked for together with other things.
pub(in crate::store) struct AskedLanes {
    keys: Vec<LaneKey>,
    asked: Asked,
}

/// A WorkItem's place, the same in all of its lanes.
pub(in crate::store) struct Place {
    pub(in crate::store) lanes: LaneIds,
    pub(in crate::store) ordinal: i64,
    pub(in crate::store) blockers: Blockers,
}

const BY_KEY: &str = "\
    SELECT lane.kind, lane.namespace, lane.pack, lane.`key`, lane.id, lane.head, lane.last_ordinal \
    FROM wanted CROSS JOIN lane ON lane.namespace = wanted.namespace AND lane.pack = wanted.pack \
    AND lane.kind = wanted.kind AND lane.`key` = wanted.`key`";

static SEEN: Statement = Statement::select("(namespace, pack, kind, `key`)", 4, BY_KEY);

static LOAD: Statement = Statement::lock("(namespace, pack, kind, `key`)", 4, BY_KEY, Lock::Update);

static HELD: Statement = Statement::lock(
    "(id)",
    1,
    "SELECT lane.kind, lane.namespace, lane.pack, lane.`key`, lane.id, lane.head, lane.last_ordinal \
     FROM wanted CROSS JOIN lane ON lane.id = wanted.id",
    Lock::Update,
);

/// A lane that is there already stays as it is, and is held from here on.
static CREATE: Statement = Statement::insert(
    "lane (id, namespace, pack, kind, `key`, head, last_ordinal)",
    7,
    Conflict::Keep("namespace, pack, kind, `key`"),
);

static APPEND: Statement = Statement::update(
    "lane",
    "head = appended.column2, last_ordinal = appended.column3",
    "appended",
    3,
    "lane.id = appended.column1",
);

static HOLD: Statement =
    Statement::lock("(id)", 1, "SELECT lane.id FROM wanted CROSS JOIN lane ON lane.id = wanted.id", Lock::Update);

static HEADS: Statement = Statement::lock(
    "(id)",
    1,
    "SELECT lane.id, lane.head FROM wanted CROSS JOIN lane ON lane.id = wanted.id",
    Lock::Update,
);

/// The first of those who wait in each lane. Whoever waits in a lane that is held goes on waiting; but its row may be
/// held by somebody who promotes it in its other lane, and what it says counts after that.
macro_rules! successors {
    ($waiting:literal) => {
        concat!(
            ", successor (lane_id, ordinal) AS (SELECT wanted.lane_id, (SELECT waiting.ordinal FROM work_item AS waiting \
             WHERE waiting.",
            $waiting,
            " = wanted.lane_id ORDER BY waiting.lane_ordinal LIMIT 1) FROM wanted) \
             SELECT successor.lane_id, work_item.ordinal, work_item.blockers, work_item.pack, work_item.work_type, \
             work_item.generation FROM successor CROSS JOIN work_item ON work_item.ordinal = successor.ordinal"
        )
    };
}

pub(in crate::store) static IN_DELIVERY_LANES: Statement =
    Statement::lock("(lane_id)", 1, successors!("waiting_delivery"), Lock::Update);

pub(in crate::store) static IN_SOURCE_LANES: Statement =
    Statement::lock("(lane_id)", 1, successors!("waiting_source"), Lock::Update);

/// Who becomes ready and is a projection's generation is its active one from here on.
pub(in crate::store) static SET_BLOCKERS: Statement = Statement::update(
    "work_item",
    "blockers = waiting.column2, state = waiting.column3, turn = lane_ordinal, \
     projection_active_key = CASE WHEN waiting.column3 = 1 THEN projection_key END",
    "waiting",
    3,
    "work_item.ordinal = waiting.column1 AND work_item.state = 0",
);

pub(in crate::store) static SET_HEAD: Statement =
    Statement::update("lane", "head = moved.column2", "moved", 2, "lane.id = moved.column1");

impl Lanes {
    /// Asks for these lanes ahead, where nobody else can change them meanwhile.
    pub(in crate::store) fn ask(reads: &mut Reads, keys: Vec<LaneKey>) -> AskedLanes {
        let asked = reads.ask(&LOAD, keys.clone(), LaneKey::bind);
        AskedLanes { keys, asked }
    }

    pub(in crate::store) fn answered(
        answered: &Answered,
        AskedLanes { keys, asked }: AskedLanes,
    ) -> Result<Self, sqlx::Error> {
        let stored = answered.decode(asked, stored)?.into_iter().collect();
        Ok(Self { stored, read: keys.into_iter().collect() })
    }

    /// Loads those of these lanes that have not been read, and holds them, in order, until the transaction ends.
    pub(in crate::store) async fn load(
        &mut self,
        unit: &mut Unit<'_>,
        mut keys: Vec<LaneKey>,
    ) -> Result<(), sqlx::Error> {
        keys.retain(|key| !self.read.contains(key));
        keys.sort_unstable();
        keys.dedup();
        let loaded = match unit.connection.engine() {
            Engine::Sqlite => LOAD.fetch(&mut unit.connection, keys.clone(), LaneKey::bind, stored).await?,
            Engine::MySql { .. } => load_among_others(unit, &keys).await?,
        };
        self.stored.extend(loaded);
        self.read.extend(keys);
        Ok(())
    }

    /// Takes the next place in all of an item's lanes, at most one of each kind. Who is alone in them is their head,
    /// and `ready`.
    pub(in crate::store) fn append(
        &mut self,
        unit: &mut Unit<'_>,
        keys: Vec<LaneKey>,
        item: i64,
        now: Timestamp,
    ) -> Place {
        let known = keys.iter().filter_map(|key| self.stored.get(key));
        let last = known.map(|stored| stored.lane.last).max().unwrap_or(0);
        let ordinal = unit.sequences.turn(last, now);
        let mut place = Place { lanes: LaneIds::default(), ordinal, blockers: Blockers::NONE };
        for key in keys {
            let kind = key.kind;
            let sequences = &mut unit.sequences;
            let stored = self.stored.entry(key).or_insert_with(|| Stored {
                id: sequences.lane(),
                lane: Lane::default(),
                new: true,
                changed: true,
            });
            stored.changed = true;
            place.blockers += stored.lane.append(item, ordinal);
            *place.lanes.of_mut(kind) = Some(stored.id);
        }
        place
    }

    /// Writes the lanes back that somebody was appended to.
    pub(in crate::store) async fn save(self, unit: &mut Unit<'_>) -> Result<(), sqlx::Error> {
        let changed = self.stored.into_iter().filter(|(_, stored)| stored.changed);
        let (new, old): (Vec<_>, Vec<_>) = changed.partition(|(_, stored)| stored.new);
        CREATE
            .write(&mut unit.connection, new, |values, (key, stored)| {
                values.push(stored.id);
                LaneKey::bind(values, key);
                values.push(stored.lane.head).push(stored.lane.last);
            })
            .await?;
        APPEND
            .write(&mut unit.connection, old, |values, (_, stored)| {
                values.push(stored.id).push(stored.lane.head).push(stored.lane.last);
            })
            .await?;
        Ok(())
    }
}

impl LaneKey {
    fn bind(values: &mut Values, key: Self) {
        values.push(key.namespace.as_str()).push(key.pack.as_str()).push(lane_kind_code(key.kind)).push(key.key);
    }
}

impl LaneIds {
    fn of(kind: LaneKind, id: i64) -> Self {
        let mut ids = Self::default();
        *ids.of_mut(kind) = Some(id);
        ids
    }

    fn of_mut(&mut self, kind: LaneKind) -> &mut Option<i64> {
        match kind {
            LaneKind::Delivery => &mut self.delivery,
            LaneKind::Source | LaneKind::Projection => &mut self.source,
        }
    }

    /// Whether there is none.
    pub(in crate::store) fn is_empty(self) -> bool {
        self.delivery.is_none() && self.source.is_none()
    }
}

fn stored(row: &Row) -> Result<(LaneKey, Stored), sqlx::Error> {
    let key = LaneKey { kind: row.lane_kind(0)?, namespace: row.name(1)?, pack: row.name(2)?, key: row.value(3)? };
    let lane = Lane { head: row.value(5)?, last: row.value(6)? };
    Ok((key, Stored { id: row.value(4)?, lane, new: false, changed: false }))
}

/// Loads and holds lanes where others write too. A lane's id never changes, so it may be read without a lock; the row
/// is then held by its id, in the order in which everybody holds lanes. Whoever held one by its key would hold the key
/// first and wait for the row, while somebody who has the row waits for the key.
async fn load_among_others(unit: &mut Unit<'_>, keys: &[LaneKey]) -> Result<Vec<(LaneKey, Stored)>, sqlx::Error> {
    let seen = SEEN.fetch(&mut unit.connection, keys.to_vec(), LaneKey::bind, stored).await?;
    let lanes: HeldLanes = seen.iter().map(|(key, stored)| LaneIds::of(key.kind, stored.id)).collect();
    let ids = lanes.delivery.into_iter().chain(lanes.source).collect();
    let mut loaded = HELD.fetch(&mut unit.connection, ids, bind_lane_id, stored).await?;
    let seen: HashSet<LaneKey> = seen.into_iter().map(|(key, _)| key).collect();
    let missing: Vec<LaneKey> = keys.iter().filter(|key| !seen.contains(key)).cloned().collect();
    create(unit, missing.clone()).await?;
    loaded.extend(LOAD.fetch(&mut unit.connection, missing, LaneKey::bind, stored).await?);
    Ok(loaded)
}

/// Stores lanes, empty, that nobody was seen to have stored. Waiting for a row to come into being would keep others
/// from storing lanes beside it; so each is there before it is locked.
async fn create(unit: &mut Unit<'_>, missing: Vec<LaneKey>) -> Result<(), sqlx::Error> {
    let missing = missing.into_iter().map(|key| (unit.sequences.lane(), key)).collect();
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

/// Holds lanes: from here on nobody comes to stand in them, or leaves them, unseen.
pub(in crate::store) async fn hold(unit: &mut Unit<'_>, lanes: &HeldLanes) -> Result<(), sqlx::Error> {
    if unit.connection.engine() == Engine::Sqlite {
        return Ok(());
    }
    let ids = lanes.delivery.iter().chain(&lanes.source).copied().collect();
    HOLD.execute(&mut unit.connection, ids, bind_lane_id).await.map(|_| ())
}

/// Lanes by kind, each once and in order.
#[derive(Default)]
pub(in crate::store) struct HeldLanes {
    delivery: Vec<i64>,
    source: Vec<i64>,
}

impl FromIterator<LaneIds> for HeldLanes {
    fn from_iter<I: IntoIterator<Item = LaneIds>>(lanes: I) -> Self {
        let mut held = Self::default();
        for ids in lanes {
            held.delivery.extend(ids.delivery);
            held.source.extend(ids.source);
        }
        for ids in [&mut held.delivery, &mut held.source] {
            ids.sort_unstable();
            ids.dedup();
        }
        held
    }
}

/// Who comes next in a lane.
struct Next {
    lane_id: i64,
    successor: Successor,
    scope: Scope,
}

/// Lets lanes go on whose heads have just gone: the next in line becomes the head, or the lane is empty.
pub(in crate::store) async fn advance(
    unit: &mut Unit<'_>,
    left: impl IntoIterator<Item = LaneIds>,
) -> Result<(), sqlx::Error> {
    let lanes: HeldLanes = left.into_iter().collect();
    hold(unit, &lanes).await?;
    let mut next =
        IN_DELIVERY_LANES.fetch(&mut unit.connection, lanes.delivery.clone(), bind_lane_id, successor).await?;
    next.extend(IN_SOURCE_LANES.fetch(&mut unit.connection, lanes.source.clone(), bind_lane_id, successor).await?);
    promote(unit, &next).await?;
    let heads: HashMap<i64, i64> = next.iter().map(|next| (next.lane_id, next.successor.item)).collect();
    let lanes = lanes.delivery.into_iter().chain(lanes.source);
    set_heads(unit, lanes.map(|lane_id| (lane_id, heads.get(&lane_id).copied())).collect()).await
}

/// Lets lanes go on that these items stood in, each with its ordinal, wherever they stood: only a head's going moves a
/// lane.
pub(in crate::store) async fn leave(unit: &mut Unit<'_>, left: Vec<(i64, LaneIds)>) -> Result<(), sqlx::Error> {
    let lanes: HeldLanes = left.iter().map(|(_, lanes)| *lanes).collect();
    let ids = lanes.delivery.into_iter().chain(lanes.source).collect();
    let heads = HEADS
        .fetch(&mut unit.connection, ids, bind_lane_id, |row| Ok((row.value(0)?, row.value(1)?)))
        .await?
        .into_iter()
        .collect::<HashMap<i64, Option<i64>>>();
    let headed = |item, lane_id: Option<i64>| lane_id.filter(|id| heads.get(id) == Some(&Some(item)));
    let gone = left
        .into_iter()
        .map(|(item, lanes)| LaneIds { delivery: headed(item, lanes.delivery), source: headed(item, lanes.source) });
    advance(unit, gone.filter(|lanes| !lanes.is_empty())).await
}

async fn promote(unit: &mut Unit<'_>, next: &[Next]) -> Result<(), sqlx::Error> {
    let scopes: BTreeMap<i64, &Scope> = next.iter().map(|next| (next.successor.item, &next.scope)).collect();
    let promoted = lane::promote(next.iter().map(|next| next.successor)).map_err(|Miscounted(item)| {
        damaged("count of lanes that a work item waits in", format_args!("that of {item}"))
    })?;
    for (item, blockers) in &promoted {
        if blockers.state() == WorkState::Ready {
            unit.count_work_items(scopes[item], Some(WorkState::Blocked), WorkState::Ready, 1);
            unit.work_changed = true;
        }
    }
    set_blockers(unit, promoted.into_iter().collect()).await
}

/// Writes who is the head of lanes that are held.
pub(in crate::store) async fn set_heads(
    unit: &mut Unit<'_>,
    heads: Vec<(i64, Option<i64>)>,
) -> Result<(), sqlx::Error> {
    let bind = |values: &mut Values, (lane_id, head): (i64, Option<i64>)| {
        values.push(lane_id).push(head);
    };
    SET_HEAD.write(&mut unit.connection, heads, bind).await
}

/// Writes how many lanes those who wait still wait in, and whether that leaves them ready.
pub(in crate::store) async fn set_blockers(
    unit: &mut Unit<'_>,
    items: Vec<(i64, Blockers)>,
) -> Result<(), sqlx::Error> {
    let bind = |values: &mut Values, (item, blockers): (i64, Blockers)| {
        values.push(item).push(blockers.0).push(work_state_code(blockers.state()));
    };
    SET_BLOCKERS.write(&mut unit.connection, items, bind).await
}

fn successor(row: &Row) -> Result<Next, sqlx::Error> {
    Ok(Next {
        lane_id: row.value(0)?,
        successor: Successor { item: row.value(1)?, blockers: Blockers(row.unsigned_32(2)?) },
        scope: Scope {
            pack: row.name(3)?,
            work_type: row.work_type(4)?,
            generation: GenerationNumber(row.unsigned_32(5)?),
        },
    })
}
