//! Source projections: of all events that came about a source by one route, one WorkItem at a time stands for it. It is
//! the *active generation*; what comes meanwhile is its queued successor, and there is one at most, because each that
//! comes supersedes the one before it.
//!
//! ```text
//!   enqueue ──> nobody is active ──> active: ready, in work, delayed
//!      │                                 │ it ends: done, or dead and out of the way
//!      └──> somebody is ──> queued ──────┴──> active, in the transaction that ends the one before
//!                             └── another one comes ──> done, ignored: superseded
//! ```
//!
//! A projection's line is a lane of its own kind, so that enqueue and end meet over its row like those of any other
//! lane, the sweep finds a successor that nobody activated, and a queued one holds up nobody but what comes after it in
//! its own projection. What is said here is who is superseded; who is promoted is said in `lane`.
//!
//! Invariants:
//! - `projection_key` says that a row is a generation, and never changes. `projection_active_key` is set with the state
//!   in which it may be claimed, and cleared with the end that lets its successor go on; a claim's own statement asks
//!   for it.
//! - Only a queued generation is superseded, by a later one of the same line, in the transaction that stores that one.
//!   A replay stands in the line too, but somebody asked for it: it is no generation, and nothing supersedes it.

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

/// How a WorkItem stands in a projection's line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Projection {
    /// The route whose events about one source are one projection.
    pub(in crate::store) route: RouteName,
    /// What the WorkItem is in it.
    pub(in crate::store) part: Part,
}

/// What a WorkItem is in a projection's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Part {
    /// What a delivery brought: a later one supersedes it while it is queued.
    Generation,
    /// What an operator asked for.
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

/// The items that are queued in held lines, as they are now: an older snapshot may lack some.
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
