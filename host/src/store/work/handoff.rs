//! Handoff: the caller that ends a WorkItem of a route that coalesces goes on with the latest one of that source, which
//! is claimed in the transaction that ends the first; those between the two are superseded.
//!
//! Invariants:
//! - The end, the supersession and the claim stand or fall together: if the successor cannot be claimed, nothing is
//!   ended.
//! - Only WorkItems of the same route and generation are superseded, up to the first that is another: that is a
//!   different matter, and keeps its place.
//! - An item that coalesces stands in the lane of its source only: strict delivery order has no latest.

use super::claiming::{self, Candidate, Grant};
use super::finish::Successor;
use super::lane::{HeldLanes, LaneIds};
use super::supersede::{self, Superseded};
use crate::model::lane::superseded;
use crate::model::queue::QueueClass;
use crate::model::time::Timestamp;
use crate::model::work_item::{ClaimedWorkItem, WorkState};
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::values::values;
use crate::store::writer::unit::{Scope, Unit, all_written};

/// A head that has ended, and the claim of its successor.
pub(in crate::store) struct Handoff {
    /// The number of its finish.
    pub(in crate::store) finish: usize,
    pub(in crate::store) source_lane_id: i64,
    pub(in crate::store) scope: Scope,
    /// The route whose WorkItems make one another superfluous.
    pub(in crate::store) route: String,
    pub(in crate::store) queue_class: QueueClass,
    pub(in crate::store) successor: Successor,
    pub(in crate::store) now: Timestamp,
}

/// A successor that is the head of its lane as soon as the lane goes on.
pub(in crate::store) struct Latest {
    finish: usize,
    candidate: Candidate,
    grant: Grant,
}

/// The first items that wait in the lane of a source; at most 64 are superseded at once. They are not locked: an item
/// that coalesces waits in this lane only, and holding the lane keeps others from its row.
pub(in crate::store) const WAITING: &str = "\
    SELECT ordinal, id, event_id, namespace, pack, work_type, generation, queue_class, lane_ordinal, epoch, attempt, \
    failures, coalesces FROM work_item WHERE waiting_source = ? ORDER BY lane_ordinal LIMIT 64";

/// An item that waits in a lane of a source.
struct Waiting {
    candidate: Candidate,
    coalesces: Option<String>,
}

/// Supersedes all but the latest of the items that wait behind these heads, and returns the latest ones. Their lanes
/// are held, and are advanced later.
pub(in crate::store) async fn supersede(
    unit: &mut Unit<'_>,
    held: &HeldLanes,
    handoffs: Vec<Handoff>,
) -> Result<Vec<Latest>, sqlx::Error> {
    let mut latest = Vec::new();
    for handoff in handoffs {
        assert!(held.cover(handoff.lane()), "the lane of a handoff is held");
        let mut waiting = waiting(unit, handoff.source_lane_id).await?;
        let alike = |waiting: &Waiting| {
            waiting.coalesces.as_ref() == Some(&handoff.route) && waiting.candidate.scope == handoff.scope
        };
        let count = superseded(waiting.iter().map(alike));
        if !waiting.get(count).is_some_and(alike) {
            continue;
        }
        let Waiting { candidate, .. } = waiting.remove(count);
        let superseded = waiting.drain(..count).map(|Waiting { candidate: older, .. }| Superseded {
            ordinal: older.ordinal,
            scope: older.scope,
            by: candidate.id,
            at: handoff.now,
        });
        supersede::end(unit, superseded.collect()).await?;
        // Workers serve their classes only: an item of another class is left to the scheduler.
        if candidate.class == handoff.queue_class {
            let Successor { lease, lease_duration } = handoff.successor;
            let grant = Grant { lease, lease_duration, now: handoff.now };
            latest.push(Latest { finish: handoff.finish, candidate, grant });
        }
    }
    Ok(latest)
}

impl Handoff {
    /// The lane whose next one is claimed.
    pub(in crate::store) fn lane(&self) -> LaneIds {
        LaneIds { source: Some(self.source_lane_id), delivery: None }
    }
}

/// Claims successors that are the heads of their lanes by now. Each is returned with its finish.
pub(in crate::store) async fn claim(
    unit: &mut Unit<'_>,
    latest: Vec<Latest>,
) -> Result<Vec<(usize, ClaimedWorkItem)>, sqlx::Error> {
    let mut claimed = Vec::with_capacity(latest.len());
    for Latest { finish, candidate, grant } in latest {
        let won = claiming::take(unit, grant, vec![candidate]).await?;
        // A lost claim: this error undoes the whole transaction, with the end of the item before.
        all_written(won.len() as u64, 1)?;
        claimed.extend(won.into_iter().map(|item| (finish, item)));
    }
    Ok(claimed)
}

async fn waiting(unit: &mut Unit<'_>, source_lane_id: i64) -> Result<Vec<Waiting>, sqlx::Error> {
    unit.connection.read_all(WAITING, values![source_lane_id]).await
}

impl FromColumns for Waiting {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        let candidate = Candidate {
            ordinal: columns.next()?,
            id: columns.next()?,
            event_id: columns.next()?,
            namespace: columns.next()?,
            scope: columns.next()?,
            class: columns.next()?,
            state: WorkState::Ready,
            turn: columns.next()?,
            epoch: columns.next()?,
            attempt: columns.next()?,
            failures: columns.next()?,
        };
        Ok(Self { candidate, coalesces: columns.next()? })
    }
}
