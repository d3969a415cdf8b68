//! The rows of WorkItem lanes. A lane's row hands out places and names the head, and both enqueue and completion go
//! through it, so that "the lane looks busy, wait" and "no item waits, done" cannot pass each other. What becomes of a
//! lane is decided in [`crate::model::lane`]; here it is read, held and written.
//!
//! Invariants:
//! - A change to a lane, or to which items stand in it, holds the lane's row. The finishes of a group hold all of their
//!   lanes at once: those of routes first, then those of sources, each by id. A group that also drains, replays or
//!   sweeps holds further lanes after these. Two such groups may deadlock; the server then redoes one of them.
//! - An item that is promoted in one lane may at the same time be promoted in its other one, by the transaction that
//!   holds that: its own row is held while its blockers are counted down.
//! - An item that left its lanes (their ids are null) neither holds up another one nor waits.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::model::lane::{self, Blockers, Lane, LaneKind, Miscounted, Successor};
use crate::model::names::{Namespace, PackName};
use crate::model::time::Timestamp;
use crate::model::work_item::WorkState;
use crate::store::engine::codes::sql;
use crate::store::engine::dialect::{Conflict, Engine, Lock};
use crate::store::engine::row::{Columns, FromColumns, damaged};
use crate::store::engine::statement::{Answered, Asked, Reads, Statement};
use crate::store::engine::values::Values;
use crate::store::writer::unit::{Scope, Unit};

/// The key of a lane. Lanes are held in the order of their keys.
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
    /// The lane of its source, or of its projection.
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
    /// The keys that were read, stored or not.
    read: HashSet<LaneKey>,
}

/// Lanes that are read together with other rows.
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

static SEEN: Statement = Statement::select("(namespace, pack, kind, `key`)", BY_KEY);

static LOAD: Statement = Statement::lock("(namespace, pack, kind, `key`)", BY_KEY, Lock::Update);

static HELD: Statement = Statement::lock(
    "(id)",
    "SELECT lane.kind, lane.namespace, lane.pack, lane.`key`, lane.id, lane.head, lane.last_ordinal \
     FROM wanted CROSS JOIN lane ON lane.id = wanted.id",
    Lock::Update,
);

/// A lane that is there already stays as it is, and is held from here on.
static CREATE: Statement = Statement::insert(
    "lane (id, namespace, pack, kind, `key`, head, last_ordinal)",
    Conflict::Keep("namespace, pack, kind, `key`"),
);

static APPEND: Statement = Statement::update(
    "lane",
    "head = appended.head, last_ordinal = appended.last_ordinal",
    "appended (id, head, last_ordinal)",
    "lane.id = appended.id",
);

/// Holds lanes, and reads their heads.
static HOLD: Statement = Statement::lock(
    "(id)",
    "SELECT lane.id, lane.head FROM wanted CROSS JOIN lane ON lane.id = wanted.id",
    Lock::Update,
);

/// The first item that waits in each lane. It cannot leave a held lane, but its row may be held by a transaction that
/// promotes it in its other lane: it is read after that.
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
    Statement::lock("(lane_id)", successors!("waiting_delivery"), Lock::Update);

pub(in crate::store) static IN_SOURCE_LANES: Statement =
    Statement::lock("(lane_id)", successors!("waiting_source"), Lock::Update);

/// A projection's item becomes the active one when it becomes ready.
pub(in crate::store) static SET_BLOCKERS: Statement = Statement::update(
    "work_item",
    sql!(
        "blockers = waiting.blockers, state = waiting.state, turn = lane_ordinal, \
         projection_active_key = CASE WHEN waiting.state = {ready} THEN projection_key END"
    ),
    "waiting (ordinal, blockers, state)",
    sql!("work_item.ordinal = waiting.ordinal AND work_item.state = {blocked}"),
);

pub(in crate::store) static SET_HEAD: Statement =
    Statement::update("lane", "head = moved.head", "moved (id, head)", "lane.id = moved.id");

impl Lanes {
    /// Asks for these lanes ahead, where no other writer can change them meanwhile.
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

    /// Takes the next place in all lanes of an item, at most one of each kind. An item that is alone in them is their
    /// head, and `ready`.
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

    /// Writes the lanes back that items were appended to.
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
        values.push(&key.namespace).push(&key.pack).push(key.kind).push(key.key);
    }
}

impl FromColumns for LaneIds {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self { delivery: columns.next()?, source: columns.next()? })
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

    /// Whether the item stands in no lane.
    pub(in crate::store) fn is_empty(self) -> bool {
        self.delivery.is_none() && self.source.is_none()
    }
}

fn stored(columns: &mut Columns<'_>) -> Result<(LaneKey, Stored), sqlx::Error> {
    let (kind, namespace, pack, key) = columns.next()?;
    let (id, head, last) = columns.next()?;
    let stored = Stored { id, lane: Lane { head, last }, new: false, changed: false };
    Ok((LaneKey { kind, namespace, pack, key }, stored))
}

/// Loads and holds lanes where others write too. A lane's id never changes, so it may be read without a lock; the row
/// is then held by its id, in the order of all transactions. A transaction that locked a lane by its key would hold the
/// key first and wait for the row, while another one with the row waits for the key.
async fn load_among_others(unit: &mut Unit<'_>, keys: &[LaneKey]) -> Result<Vec<(LaneKey, Stored)>, sqlx::Error> {
    let seen = SEEN.fetch(&mut unit.connection, keys.to_vec(), LaneKey::bind, stored).await?;
    let lanes: LaneSet = seen.iter().map(|(key, stored)| LaneIds::of(key.kind, stored.id)).collect();
    let mut loaded = HELD.fetch(&mut unit.connection, lanes.ids(), Values::only, stored).await?;
    let seen: HashSet<LaneKey> = seen.into_iter().map(|(key, _)| key).collect();
    let missing: Vec<LaneKey> = keys.iter().filter(|key| !seen.contains(key)).cloned().collect();
    create(unit, missing.clone()).await?;
    loaded.extend(LOAD.fetch(&mut unit.connection, missing, LaneKey::bind, stored).await?);
    Ok(loaded)
}

/// Stores empty lanes that were not seen. Waiting for a row to appear would keep others from storing lanes next to it,
/// so each lane is there before it is locked.
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

/// Holds lanes until the transaction ends. On SQLite the one writer holds them anyway.
pub(in crate::store) async fn hold(unit: &mut Unit<'_>, lanes: LaneSet) -> Result<HeldLanes, sqlx::Error> {
    if unit.connection.engine() != Engine::Sqlite {
        HOLD.execute(&mut unit.connection, lanes.ids(), Values::only).await?;
    }
    Ok(HeldLanes(lanes))
}

/// Lanes by kind, each once, in the order in which they are held.
#[derive(Default)]
pub(in crate::store) struct LaneSet {
    delivery: Vec<i64>,
    source: Vec<i64>,
}

impl LaneSet {
    fn ids(&self) -> Vec<i64> {
        self.delivery.iter().chain(&self.source).copied().collect()
    }
}

impl FromIterator<LaneIds> for LaneSet {
    fn from_iter<I: IntoIterator<Item = LaneIds>>(lanes: I) -> Self {
        let mut set = Self::default();
        for ids in lanes {
            set.delivery.extend(ids.delivery);
            set.source.extend(ids.source);
        }
        for ids in [&mut set.delivery, &mut set.source] {
            ids.sort_unstable();
            ids.dedup();
        }
        set
    }
}

/// Lanes that the transaction holds.
pub(in crate::store) struct HeldLanes(LaneSet);

impl HeldLanes {
    /// Whether all of these lanes are held.
    pub(in crate::store) fn cover(&self, lanes: LaneIds) -> bool {
        let held = |known: &[i64], id: Option<i64>| id.is_none_or(|id| known.binary_search(&id).is_ok());
        held(&self.0.delivery, lanes.delivery) && held(&self.0.source, lanes.source)
    }
}

/// The next item of a lane.
struct Next {
    lane_id: i64,
    successor: Successor,
    scope: Scope,
}

/// Advances held lanes whose heads have just left: the next item becomes the head, or the lane is empty.
pub(in crate::store) async fn advance(
    unit: &mut Unit<'_>,
    held: &HeldLanes,
    left: impl IntoIterator<Item = LaneIds>,
) -> Result<(), sqlx::Error> {
    let lanes: LaneSet = left.into_iter().inspect(|lanes| assert!(held.cover(*lanes), "{lanes:?} is held")).collect();
    let mut next =
        IN_DELIVERY_LANES.fetch(&mut unit.connection, lanes.delivery.clone(), Values::only, successor).await?;
    next.extend(IN_SOURCE_LANES.fetch(&mut unit.connection, lanes.source.clone(), Values::only, successor).await?);
    promote(unit, &next).await?;
    let heads: HashMap<i64, i64> = next.iter().map(|next| (next.lane_id, next.successor.item)).collect();
    set_heads(unit, lanes.ids().into_iter().map(|lane_id| (lane_id, heads.get(&lane_id).copied())).collect()).await
}

/// Advances the lanes of which these items were heads. Each item comes with its ordinal and all of its lanes; a lane
/// stays as it is if another item is its head.
pub(in crate::store) async fn leave(unit: &mut Unit<'_>, left: Vec<(i64, LaneIds)>) -> Result<(), sqlx::Error> {
    let lanes: LaneSet = left.iter().map(|(_, lanes)| *lanes).collect();
    let heads = HOLD
        .fetch(&mut unit.connection, lanes.ids(), Values::only, FromColumns::read)
        .await?
        .into_iter()
        .collect::<HashMap<i64, Option<i64>>>();
    let held = HeldLanes(lanes);
    let headed = |item, lane_id: Option<i64>| lane_id.filter(|id| heads.get(id) == Some(&Some(item)));
    let gone = left
        .into_iter()
        .map(|(item, lanes)| LaneIds { delivery: headed(item, lanes.delivery), source: headed(item, lanes.source) });
    advance(unit, &held, gone).await
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

/// Writes the heads of held lanes.
pub(in crate::store) async fn set_heads(
    unit: &mut Unit<'_>,
    heads: Vec<(i64, Option<i64>)>,
) -> Result<(), sqlx::Error> {
    let bind = |values: &mut Values, (lane_id, head): (i64, Option<i64>)| {
        values.push(lane_id).push(head);
    };
    SET_HEAD.write(&mut unit.connection, heads, bind).await
}

/// Writes the blockers of items, and the states that follow from them.
pub(in crate::store) async fn set_blockers(
    unit: &mut Unit<'_>,
    items: Vec<(i64, Blockers)>,
) -> Result<(), sqlx::Error> {
    let bind = |values: &mut Values, (item, blockers): (i64, Blockers)| {
        values.push(item).push(blockers).push(blockers.state());
    };
    SET_BLOCKERS.write(&mut unit.connection, items, bind).await
}

fn successor(columns: &mut Columns<'_>) -> Result<Next, sqlx::Error> {
    Ok(Next {
        lane_id: columns.next()?,
        successor: Successor { item: columns.next()?, blockers: columns.next()? },
        scope: columns.next()?,
    })
}
