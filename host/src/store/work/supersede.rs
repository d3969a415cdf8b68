//! Supersession: a waiting item ends, ignored, because a later one replaces it. `handoff` (for routes that coalesce)
//! and `projection` decide which items these are.
//!
//! Invariant: only an item that coalesces, or that is queued in a projection's line, is ever superseded.

use crate::model::ids::WorkItemId;
use crate::model::time::Timestamp;
use crate::model::work_item::WorkState;
use crate::store::engine::codes::sql;
use crate::store::engine::statement::Statement;
use crate::store::writer::unit::{Scope, Unit, all_written};

pub(in crate::store) static SUPERSEDE: Statement = Statement::update(
    "work_item",
    sql!("state = {done}, blockers = 0, ignored = 1, finished_at = superseded.finished_at, note = superseded.note"),
    "superseded (ordinal, finished_at, note)",
    sql!(
        "work_item.ordinal = superseded.ordinal AND work_item.state = {blocked} \
         AND (work_item.coalesces IS NOT NULL OR work_item.projection_key IS NOT NULL \
         AND work_item.projection_active_key IS NULL)"
    ),
);

/// An item that waits in a held lane, and the item that supersedes it.
pub(in crate::store) struct Superseded {
    pub(in crate::store) ordinal: i64,
    pub(in crate::store) scope: Scope,
    pub(in crate::store) by: WorkItemId,
    pub(in crate::store) at: Timestamp,
}

/// Ends these items.
pub(in crate::store) async fn end(unit: &mut Unit<'_>, superseded: Vec<Superseded>) -> Result<(), sqlx::Error> {
    for item in &superseded {
        unit.count_work_items(&item.scope, Some(WorkState::Blocked), WorkState::Done, 1);
    }
    let expected = superseded.len();
    let ended = SUPERSEDE
        .execute(&mut unit.connection, superseded, |values, item| {
            values.push(item.ordinal).push(item.at).push(format!("superseded by {}", item.by));
        })
        .await?;
    all_written(ended, expected)
}
