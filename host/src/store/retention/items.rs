//! WorkItems as retention sees them, and their removal.

use crate::model::ids::WorkItemId;
use crate::model::retention::{EndedWorkItem, Limits};
use crate::model::work_item::WorkState;
use crate::store::engine::connection::Connection;
use crate::store::engine::row::Columns;
use crate::store::engine::statement::Statement;
use crate::store::engine::values::{Values, values};
use crate::store::writer::unit::{Scope, Unit, all_written};

/// The columns of an [`Item`], in the order in which [`item`] reads them.
macro_rules! item_columns {
    () => {
        "work_item.ordinal, work_item.id, work_item.pack, work_item.work_type, work_item.generation, work_item.state, \
         work_item.finished_at, work_item.replayed_at IS NOT NULL, \
         coalesce(work_item.source_lane_id, work_item.delivery_lane_id) IS NOT NULL, work_item.replay_event, \
         work_item.action"
    };
}
pub(super) use item_columns;

const LEAST: &str = "SELECT min(ordinal) FROM work_item";

static DELETE: Statement = Statement::delete("work_item", "ordinal");
static DELETE_READS: Statement = Statement::delete("work_item_read", "ordinal");

/// A WorkItem.
pub(super) struct Item {
    pub(super) ordinal: i64,
    pub(super) id: WorkItemId,
    /// What it is counted by, and how it ended; `None` if this program does not know its kind.
    known: Option<(Scope, EndedWorkItem)>,
    /// The ordinal of its Event, if it is a replay or an action's.
    pub(super) replay_event: Option<i64>,
    /// The ordinal of the message that it applies.
    pub(super) action: Option<i64>,
}

impl Item {
    /// Whether it may go, as far as it is concerned. `least` is the last replay's number, which is not given again.
    pub(super) fn may_go(&self, limits: &Limits, least: i64) -> bool {
        let has_ended = self.known.as_ref().is_some_and(|(_, ended)| limits.pass_work_item(*ended));
        has_ended && (self.ordinal > least || self.ordinal > 0)
    }
}

/// Reads a row of [`item_columns`].
pub(super) fn item(columns: &mut Columns<'_>) -> Result<Item, sqlx::Error> {
    Ok(Item {
        ordinal: columns.next()?,
        id: columns.next()?,
        known: known(columns)?,
        replay_event: columns.next()?,
        action: columns.next()?,
    })
}

fn known(columns: &mut Columns<'_>) -> Result<Option<(Scope, EndedWorkItem)>, sqlx::Error> {
    let (pack, work_type, generation, state) = (columns.next(), columns.next(), columns.next(), columns.next());
    let (finished_at, is_replayed, is_in_lane) = columns.next()?;
    // Another program's WorkItem is none of ours to judge.
    let (Ok(pack), Ok(work_type), Ok(generation), Ok(state)) = (pack, work_type, generation, state) else {
        return Ok(None);
    };
    let ended = EndedWorkItem { state, finished_at, is_replayed, is_in_lane };
    Ok(Some((Scope { pack, work_type, generation }, ended)))
}

/// The least ordinal of all: the last replay's, if it is below 0.
pub(super) async fn least(connection: &mut Connection<'_>) -> Result<i64, sqlx::Error> {
    Ok(connection.read_one::<Option<i64>>(LEAST, values![]).await?.unwrap_or(0))
}

/// Removes WorkItems that are held.
pub(super) async fn remove(unit: &mut Unit<'_>, mut items: Vec<Item>) -> Result<u64, sqlx::Error> {
    items.sort_unstable_by_key(|item| item.ordinal);
    for item in &items {
        let (scope, EndedWorkItem { state, .. }) = item.known.as_ref().expect("what goes was judged");
        assert!(matches!(state, WorkState::Done | WorkState::Dead), "what goes has ended");
        unit.uncount_work_item(scope, *state);
    }
    let ordinals: Vec<i64> = items.iter().map(|item| item.ordinal).collect();
    let expected = ordinals.len();
    DELETE_READS.write(&mut unit.connection, ordinals.clone(), Values::only).await?;
    let removed = DELETE.execute(&mut unit.connection, ordinals, Values::only).await?;
    all_written(removed, expected)?;
    Ok(removed)
}
