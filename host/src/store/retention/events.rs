//! Events that go: each with its WorkItem, that one's replays, and what was read for them.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::items::{self, Item, item, item_columns};
use super::{Hold, Removed, in_order};
use crate::model::ids::EventId;
use crate::model::retention::Limits;
use crate::store::engine::connection::Connection;
use crate::store::engine::dialect::Lock;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::statement::Statement;
use crate::store::engine::values::{Values, values};
use crate::store::work::materialize::{WORK_TYPE, WORK_TYPES_PER_EVENT, ordinal_of};
use crate::store::writer::unit::{Unit, all_written};

const EVENTS: &str =
    "SELECT event.ordinal, event.id, event.receipt FROM wanted CROSS JOIN event ON event.ordinal = wanted.ordinal";
static LOOK_EVENTS: Statement = Statement::select("(ordinal)", EVENTS);
static LOCK_EVENTS: Statement = Statement::lock("(ordinal)", EVENTS, Lock::Update);

const ITEMS: &str =
    concat!("SELECT ", item_columns!(), " FROM wanted CROSS JOIN work_item ON work_item.ordinal = wanted.ordinal");
static LOOK_ITEMS: Statement = Statement::select("(ordinal)", ITEMS);
static LOCK_ITEMS: Statement = Statement::lock("(ordinal)", ITEMS, Lock::Update);

const REPLAYS: &str =
    concat!("SELECT ", item_columns!(), " FROM wanted CROSS JOIN work_item ON work_item.replay_event = wanted.ordinal");
pub(in crate::store) static LOOK_REPLAYS: Statement = Statement::select("(ordinal)", REPLAYS);
static LOCK_REPLAYS: Statement = Statement::lock("(ordinal)", REPLAYS, Lock::Update);

/// Of an Event with many messages it reads one.
pub(in crate::store) static HAVE_MESSAGES: Statement = Statement::select(
    "(id)",
    "SELECT wanted.id FROM wanted WHERE EXISTS (SELECT 1 FROM message WHERE message.event_id = wanted.id)",
);

/// The same, of what is there now: hardly ever anything, for it was looked at just before.
static LOCK_MESSAGES: Statement = Statement::lock(
    "(id)",
    "SELECT message.event_id FROM wanted CROSS JOIN message ON message.event_id = wanted.id",
    Lock::Share,
);

const NEWEST: &str = "SELECT max(ordinal) FROM event";

/// Receipts that still have an Event.
static IN_USE: Statement = Statement::lock(
    "(receipt)",
    "SELECT event.receipt FROM wanted CROSS JOIN event ON event.receipt = wanted.receipt",
    Lock::Share,
);

static DELETE: Statement = Statement::delete("event", "ordinal");
static DELETE_RECEIPTS: Statement = Statement::delete("receipt", "ordinal");

/// An Event, and its WorkItems.
struct EventUnit {
    ordinal: i64,
    id: EventId,
    receipt: i64,
    items: Vec<Item>,
}

/// Those Events that may go, by the WorkItems on a page; `None` for none.
pub(super) async fn look(
    connection: &mut Connection<'_>,
    first_items: Vec<i64>,
    limits: &Limits,
) -> Result<Option<Vec<i64>>, sqlx::Error> {
    let ordinals = in_order(first_items.into_iter().map(|ordinal| ordinal.div_euclid(WORK_TYPES_PER_EVENT)));
    // Another program's WorkItem of an Event keeps it.
    let others = ordinals.iter().flat_map(|ordinal| {
        let own = ordinal * WORK_TYPES_PER_EVENT;
        (own..own + WORK_TYPES_PER_EVENT).filter(|other| *other != first_item(*ordinal))
    });
    let others = LOOK_ITEMS.fetch(connection, others.collect(), Values::only, item).await?;
    let others: HashSet<i64> = others.into_iter().map(|item| item.ordinal.div_euclid(WORK_TYPES_PER_EVENT)).collect();
    let ordinals = ordinals.into_iter().filter(|ordinal| !others.contains(ordinal)).collect();
    let units = removable(connection, ordinals, limits, Hold::Look).await?;
    Ok((!units.is_empty()).then(|| units.into_iter().map(|unit| unit.ordinal).collect()))
}

/// Removes those of these Events that may go now.
pub(super) async fn remove(unit: &mut Unit<'_>, ordinals: Vec<i64>, limits: &Limits) -> Result<Removed, sqlx::Error> {
    let units = removable(&mut unit.connection, ordinals, limits, Hold::Lock).await?;
    let ordinals: Vec<i64> = units.iter().map(|event| event.ordinal).collect();
    let receipts: BTreeSet<i64> = units.iter().map(|event| event.receipt).collect();
    let work_items = items::remove(unit, units.into_iter().flat_map(|event| event.items).collect()).await?;
    let expected = ordinals.len();
    let events = DELETE.execute(&mut unit.connection, ordinals, Values::only).await?;
    all_written(events, expected)?;
    remove_receipts(unit, receipts).await?;
    Ok(Removed { events, work_items, messages: 0 })
}

/// Removes receipts of which no Event is left. Another runtime that removes the last Event but this one is waited for,
/// or waits.
async fn remove_receipts(unit: &mut Unit<'_>, mut receipts: BTreeSet<i64>) -> Result<(), sqlx::Error> {
    let wanted = receipts.iter().copied().collect();
    let in_use = IN_USE.fetch(&mut unit.connection, wanted, Values::only, i64::read).await?;
    in_use.iter().for_each(|receipt| _ = receipts.remove(receipt));
    DELETE_RECEIPTS.write(&mut unit.connection, receipts.into_iter().collect(), Values::only).await
}

/// Those of these Events that may go. Rows are held Event first, then WorkItem, as a replay does.
async fn removable(
    connection: &mut Connection<'_>,
    ordinals: Vec<i64>,
    limits: &Limits,
    hold: Hold,
) -> Result<Vec<EventUnit>, sqlx::Error> {
    let newest = connection.read_one::<Option<i64>>(NEWEST, values![]).await?.unwrap_or(i64::MAX);
    let least = items::least(connection).await?;
    let ordinals = in_order(ordinals.into_iter().filter(|ordinal| *ordinal < newest));
    let events = hold.pick(&LOOK_EVENTS, &LOCK_EVENTS);
    let mut units = events.fetch(connection, ordinals, Values::only, event).await?;
    units.sort_unstable_by_key(|unit| unit.ordinal);
    let have_messages = hold.pick(&HAVE_MESSAGES, &LOCK_MESSAGES);
    if hold == Hold::Look {
        let kept = keeping(connection, have_messages, &units).await?;
        units.retain(|unit| !kept.contains(&unit.id));
    }
    let mut items = items_of(connection, &units, hold).await?;
    units.retain_mut(|unit| {
        unit.items = items.remove(&unit.ordinal).unwrap_or_default();
        unit.items.iter().any(|item| item.ordinal == first_item(unit.ordinal))
            && unit.items.iter().all(|item| item.may_go(limits, least))
    });
    if hold == Hold::Lock {
        // Messages come last, as everywhere.
        let kept = keeping(connection, have_messages, &units).await?;
        units.retain(|unit| !kept.contains(&unit.id));
    }
    Ok(units)
}

/// The Events among these that a message keeps.
async fn keeping(
    connection: &mut Connection<'_>,
    have_messages: &'static Statement,
    units: &[EventUnit],
) -> Result<HashSet<EventId>, sqlx::Error> {
    let mut ids: Vec<EventId> = units.iter().map(|unit| unit.id).collect();
    ids.sort_unstable();
    let kept = have_messages.fetch(connection, ids, Values::only, EventId::read).await?;
    Ok(kept.into_iter().collect())
}

/// The WorkItems of these Events, by the Event's ordinal.
async fn items_of(
    connection: &mut Connection<'_>,
    units: &[EventUnit],
    hold: Hold,
) -> Result<HashMap<i64, Vec<Item>>, sqlx::Error> {
    let ordinals: Vec<i64> = units.iter().map(|unit| unit.ordinal).collect();
    let first = ordinals.iter().map(|ordinal| first_item(*ordinal)).collect();
    let mut items = hold.pick(&LOOK_ITEMS, &LOCK_ITEMS).fetch(connection, first, Values::only, item).await?;
    let replays = hold.pick(&LOOK_REPLAYS, &LOCK_REPLAYS);
    items.extend(replays.fetch(connection, ordinals, Values::only, item).await?);
    let mut by_event: HashMap<i64, Vec<Item>> = HashMap::new();
    for item in items {
        let event = item.replay_event.unwrap_or_else(|| item.ordinal.div_euclid(WORK_TYPES_PER_EVENT));
        by_event.entry(event).or_default().push(item);
    }
    Ok(by_event)
}

/// The ordinal of the WorkItem that an Event's delivery brought.
fn first_item(event: i64) -> i64 {
    ordinal_of(event, WORK_TYPE)
}

fn event(columns: &mut Columns<'_>) -> Result<EventUnit, sqlx::Error> {
    Ok(EventUnit { ordinal: columns.next()?, id: columns.next()?, receipt: columns.next()?, items: Vec::new() })
}
