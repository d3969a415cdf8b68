//! Source projections: of all events that came about a source by one route, one WorkItem at a time stands for it. It is
//! the *active generation*; what comes meanwhile is its queued successor, and there is one at most, because each that
//! comes supersedes the one before it.
//!
//! ```text
//!   enqueue ──> none is active ──> active: ready, processing, delayed
//!      │                               │ the active item ends: done, or dead and out of its lane
//!      └──> one is active ──> queued ──┴──> active, in the transaction that ends the item before
//!                               └── a later item comes ──> done, ignored: superseded
//! ```
//!
//! A projection's line is a lane of its own kind: enqueue and end meet over its row as in any other lane, the sweep
//! finds a successor that was not activated, and a queued item blocks only later ones of its own projection. This
//! module decides supersession; `lane` decides promotion.
//!
//! Invariants:
//! - `projection_key` says that a row is a generation, and never changes. `projection_active_key` is set with the state
//!   in which it may be claimed, and cleared with the end that lets its successor go on; a claim's own statement asks
//!   for it.
//! - Only a queued generation is superseded, by a later one of the same line, in the transaction that stores that one.
//!   A replay stands in the line too, but an operator asked for it: it is no generation, and nothing supersedes it.

use std::collections::BTreeMap;

use super::lane::LaneKey;
use super::supersede::{self, Superseded};
use crate::model::ids::WorkItemId;
use crate::model::lane::LaneKind;
use crate::model::names::{Namespace, PackName, RouteName};
use crate::model::time::Timestamp;
use crate::store::engine::dialect::Lock;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::statement::Statement;
use crate::store::engine::values::Values;
use crate::store::writer::unit::{Scope, Unit};

/// The place of a WorkItem in a projection's line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Projection {
    /// The route whose events about one source are one projection.
    pub(in crate::store) route: RouteName,
    /// The part of the WorkItem in it.
    pub(in crate::store) part: Part,
}

/// The part of a WorkItem in a projection's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Part {
    /// An item that a delivery brought: a later one supersedes it while it is queued.
    Generation,
    /// A replay, which an operator asked for.
    Replay,
}

/// The line of a projection. Names have no colon, so that no two routes and sources have the same.
pub(in crate::store) fn line(namespace: &Namespace, pack: &PackName, route: &RouteName, source: &str) -> LaneKey {
    LaneKey {
        kind: LaneKind::Projection,
        namespace: namespace.clone(),
        pack: pack.clone(),
        key: format!("{route}:{source}"),
    }
}

/// The current items that are queued in held lines; an older snapshot may lack some.
pub(in crate::store) static QUEUED: Statement = Statement::lock(
    "(lane_id)",
    "SELECT work_item.waiting_source, work_item.lane_ordinal, work_item.ordinal, work_item.id, work_item.pack, \
     work_item.work_type, work_item.generation FROM wanted CROSS JOIN work_item \
     ON work_item.waiting_source = wanted.lane_id AND work_item.projection_key IS NOT NULL",
    Lock::Update,
);

/// An item that is queued in a projection's line.
struct Queued {
    lane_id: i64,
    place: i64,
    ordinal: i64,
    id: WorkItemId,
    scope: Scope,
}

/// Ends all but the last of the items that are queued in these held lines. Each line comes with the time of its last
/// item.
pub(in crate::store) async fn supersede(
    unit: &mut Unit<'_>,
    lines: BTreeMap<i64, Timestamp>,
) -> Result<(), sqlx::Error> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut queued =
        QUEUED.fetch(&mut unit.connection, lines.keys().copied().collect(), Values::only, Queued::read).await?;
    queued.sort_unstable_by_key(|queued| (queued.lane_id, queued.place));
    let last: BTreeMap<i64, WorkItemId> = queued.iter().map(|queued| (queued.lane_id, queued.id)).collect();
    queued.retain(|queued| last[&queued.lane_id] != queued.id);
    let superseded = queued.into_iter().map(|queued| Superseded {
        ordinal: queued.ordinal,
        scope: queued.scope,
        by: last[&queued.lane_id],
        at: lines[&queued.lane_id],
    });
    supersede::end(unit, superseded.collect()).await
}

impl FromColumns for Queued {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            lane_id: columns.next()?,
            place: columns.next()?,
            ordinal: columns.next()?,
            id: columns.next()?,
            scope: columns.next()?,
        })
    }
}
