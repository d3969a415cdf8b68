//! Messages that go: each with its payload, and an action with the WorkItems that applied it.
//!
//! A shard's feed is its message rows. The largest place in it of a message that went is kept (`shard_trim`): an index
//! that has applied less may not know that this message ended, and is built again.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::items::{self, Item, item, item_columns};
use super::{Hold, Removed, in_order};
use crate::model::ids::WorkItemId;
use crate::model::message::MessageState;
use crate::model::retention::{EndedMessage, Limits};
use crate::store::engine::connection::Connection;
use crate::store::engine::dialect::{Conflict, Lock};
use crate::store::engine::row::Columns;
use crate::store::engine::statement::Statement;
use crate::store::engine::values::{Values, values};
use crate::store::writer::unit::{Unit, all_written};

/// Replays, one of the other, that an action's WorkItem may have had and still go.
const REPLAYS_MAX: usize = 64;

const MESSAGES: &str = "SELECT message.ordinal, message.shard, message.seq, message.state, message.finished_at \
     FROM wanted CROSS JOIN message ON message.ordinal = wanted.ordinal";
static LOOK_MESSAGES: Statement = Statement::select("(ordinal)", MESSAGES);
static LOCK_MESSAGES: Statement = Statement::lock("(ordinal)", MESSAGES, Lock::Update);

const HANDED: &str = concat!(
    "SELECT ",
    item_columns!(),
    " FROM wanted CROSS JOIN work_item ON work_item.handed_action = wanted.ordinal"
);
pub(in crate::store) static LOOK_HANDED: Statement = Statement::select("(ordinal)", HANDED);
static LOCK_HANDED: Statement = Statement::lock("(ordinal)", HANDED, Lock::Update);

const CHILDREN: &str =
    concat!("SELECT ", item_columns!(), " FROM wanted CROSS JOIN work_item ON work_item.replay_of = wanted.id");
static LOOK_CHILDREN: Statement = Statement::select("(id)", CHILDREN);
static LOCK_CHILDREN: Statement = Statement::lock("(id)", CHILDREN, Lock::Update);

const NEWEST: &str = "SELECT max(ordinal) FROM message";

static DELETE: Statement = Statement::delete("message", "ordinal");
static DELETE_PAYLOADS: Statement = Statement::delete("message_payload", "ordinal");
static TRIM: Statement = Statement::insert("shard_trim (shard, seq)", Conflict::Raise("shard", "seq"));

/// Messages that seemed to be able to go, by their ordinals.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    /// Those that were sent, cancelled or expired, or are dead.
    ended: Vec<i64>,
    /// Those that were handed off.
    actions: Vec<i64>,
}

impl Wanted {
    pub(super) fn len(&self) -> usize {
        self.ended.len() + self.actions.len()
    }
}

/// A message, and the WorkItems that applied it.
struct MessageUnit {
    ordinal: i64,
    shard: i64,
    seq: i64,
    ended: EndedMessage,
    items: Vec<Item>,
}

impl MessageUnit {
    fn is_handed_off(&self) -> bool {
        self.ended.state == MessageState::HandedOff
    }
}

/// Those of these messages that may go; `None` for none.
pub(super) async fn look(
    connection: &mut Connection<'_>,
    ordinals: Vec<i64>,
    limits: &Limits,
) -> Result<Option<Wanted>, sqlx::Error> {
    let mut units = ended(connection, ordinals, limits, Hold::Look).await?;
    let actions = units.iter().filter(|unit| unit.is_handed_off()).map(|unit| unit.ordinal).collect();
    let mut chains = Chains::of(connection, actions, Hold::Look).await?;
    let least = items::least(connection).await?;
    units.retain_mut(|unit| chains.join(unit, limits, least));
    let mut wanted = Wanted::default();
    for unit in &units {
        if unit.is_handed_off() { wanted.actions.push(unit.ordinal) } else { wanted.ended.push(unit.ordinal) }
    }
    Ok((wanted.len() > 0).then_some(wanted))
}

/// Removes those of these messages that may go now. WorkItems are held before messages, as everywhere.
pub(super) async fn remove(unit: &mut Unit<'_>, wanted: Wanted, limits: &Limits) -> Result<Removed, sqlx::Error> {
    let least = items::least(&mut unit.connection).await?;
    let mut chains = Chains::of(&mut unit.connection, wanted.actions.clone(), Hold::Lock).await?;
    let ordinals = wanted.ended.into_iter().chain(wanted.actions).collect();
    let mut units = ended(&mut unit.connection, ordinals, limits, Hold::Lock).await?;
    units.retain_mut(|message| chains.join(message, limits, least));
    let mut trimmed: BTreeMap<i64, i64> = BTreeMap::new();
    for message in &units {
        unit.uncount_message(message.ended.state);
        let seq = trimmed.entry(message.shard).or_default();
        *seq = message.seq.max(*seq);
    }
    let ordinals: Vec<i64> = units.iter().map(|message| message.ordinal).collect();
    let work_items = items::remove(unit, units.into_iter().flat_map(|message| message.items).collect()).await?;
    let expected = ordinals.len();
    DELETE_PAYLOADS.write(&mut unit.connection, ordinals.clone(), Values::only).await?;
    let messages = DELETE.execute(&mut unit.connection, ordinals, Values::only).await?;
    all_written(messages, expected)?;
    TRIM.write(&mut unit.connection, trimmed.into_iter().collect(), |values, (shard, seq)| {
        values.push(shard).push(seq);
    })
    .await?;
    Ok(Removed { events: 0, work_items, messages })
}

/// Those of these messages that may go, as far as they themselves are concerned.
async fn ended(
    connection: &mut Connection<'_>,
    ordinals: Vec<i64>,
    limits: &Limits,
    hold: Hold,
) -> Result<Vec<MessageUnit>, sqlx::Error> {
    let newest = connection.read_one::<Option<i64>>(NEWEST, values![]).await?.unwrap_or(i64::MAX);
    let ordinals = in_order(ordinals.into_iter().filter(|ordinal| *ordinal < newest));
    let messages = hold.pick(&LOOK_MESSAGES, &LOCK_MESSAGES);
    let mut units = messages.fetch(connection, ordinals, Values::only, message).await?;
    units.sort_unstable_by_key(|unit| unit.ordinal);
    units.retain(|unit| limits.pass_message(unit.ended));
    Ok(units)
}

fn message(columns: &mut Columns<'_>) -> Result<MessageUnit, sqlx::Error> {
    let (ordinal, shard, seq) = columns.next()?;
    let ended = EndedMessage { state: columns.next()?, finished_at: columns.next()? };
    Ok(MessageUnit { ordinal, shard, seq, ended, items: Vec::new() })
}

/// The WorkItems of actions, by the ordinal of the message: the one that was handed off, and its replays.
#[derive(Default)]
struct Chains {
    items: HashMap<i64, Vec<Item>>,
    /// Actions that were replayed more often than is followed.
    too_long: HashSet<i64>,
}

impl Chains {
    async fn of(connection: &mut Connection<'_>, actions: Vec<i64>, hold: Hold) -> Result<Self, sqlx::Error> {
        let mut chains = Self::default();
        if actions.is_empty() {
            return Ok(chains);
        }
        let handed = hold.pick(&LOOK_HANDED, &LOCK_HANDED);
        let mut found = handed.fetch(connection, in_order(actions), Values::only, item).await?;
        for _ in 0..REPLAYS_MAX {
            if found.is_empty() {
                return Ok(chains);
            }
            let mut parents: Vec<WorkItemId> = found.iter().map(|item| item.id).collect();
            parents.sort_unstable();
            chains.add(found);
            let children = hold.pick(&LOOK_CHILDREN, &LOCK_CHILDREN);
            found = children.fetch(connection, parents, Values::only, item).await?;
        }
        chains.too_long = found.iter().filter_map(|item| item.action).collect();
        Ok(chains)
    }

    fn add(&mut self, found: Vec<Item>) {
        for item in found {
            if let Some(action) = item.action {
                self.items.entry(action).or_default().push(item);
            }
        }
    }

    /// Gives a message its WorkItems. Says whether they may go with it: an action has one, at least.
    fn join(&mut self, unit: &mut MessageUnit, limits: &Limits, least: i64) -> bool {
        if !unit.is_handed_off() {
            return true;
        }
        unit.items = self.items.remove(&unit.ordinal).unwrap_or_default();
        let is_whole = !unit.items.is_empty() && !self.too_long.contains(&unit.ordinal);
        is_whole && unit.items.iter().all(|item| item.may_go(limits, least))
    }
}
