//! Handoff: whoever ends a WorkItem of a route that coalesces goes on with the latest one of the same source, claimed
//! in the transaction that ends the first; those between the two are superseded.
//!
//! Invariants:
//! - The end, the supersession and the claim stand or fall together: if the successor cannot be claimed, nothing is
//!   ended.
//! - Only WorkItems of the same route and generation are superseded, up to the first that is another: that is a
//!   different matter, and keeps its place.
//! - Who coalesces stands in the lane of its source only. Strict delivery order knows no latest.

use super::claiming::{self, Candidate, Grant};
use super::finish::Successor;
use super::lane::{self, HeldLanes, LaneIds};
use crate::model::ids::{EventId, WorkItemId};
use crate::model::lane::superseded;
use crate::model::pack::GenerationNumber;
use crate::model::queue::QueueClass;
use crate::model::time::Timestamp;
use crate::model::work_item::{ClaimedWorkItem, WorkState};
use crate::store::engine::statement::Statement;
use crate::store::engine::values::values;
use crate::store::writer::unit::{Scope, Unit, all_written};

/// A head that has ended, and who is to be claimed in its place.
pub(in crate::store) struct Handoff {
    /// Which of the finishes it goes with.
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

/// The first who wait in the lane of a source: no more are superseded at once (64). They are not locked: who coalesces
/// waits in this lane only, which is held, so nobody else changes such a row.
pub(in crate::store) const WAITING: &str = "\
    SELECT ordinal, id, event_id, namespace, pack, work_type, generation, queue_class, lane_ordinal, epoch, attempt, \
    failures, coalesces FROM work_item WHERE waiting_source = ? ORDER BY lane_ordinal LIMIT 64";

pub(in crate::store) static SUPERSEDE: Statement = Statement::update(
    "work_item",
    "state = 4, blockers = 0, ignored = 1, finished_at = superseded.column2, note = superseded.column3",
    "superseded",
    3,
    "work_item.ordinal = superseded.column1 AND work_item.state = 0 AND work_item.coalesces IS NOT NULL",
);

/// One who waits.
struct Waiting {
    candidate: Candidate,
    coalesces: Option<String>,
}

/// Supersedes all but the latest of those who wait behind these heads, and returns the latest ones. Their lanes have
/// yet to go on, and are held.
pub(in crate::store) async fn supersede(
    unit: &mut Unit<'_>,
    handoffs: Vec<Handoff>,
) -> Result<Vec<Latest>, sqlx::Error> {
    let lanes: HeldLanes = handoffs.iter().map(Handoff::lane).collect();
    lane::hold(unit, &lanes).await?;
    let mut latest = Vec::new();
    for handoff in handoffs {
        let mut waiting = waiting(unit, handoff.source_lane_id).await?;
        let alike = |waiting: &Waiting| {
            waiting.coalesces.as_ref() == Some(&handoff.route) && waiting.candidate.scope == handoff.scope
        };
        let count = superseded(waiting.iter().map(alike));
        if !waiting.get(count).is_some_and(alike) {
            continue;
        }
        let Waiting { candidate, .. } = waiting.remove(count);
        waiting.truncate(count);
        end(unit, &waiting, candidate.id, handoff.now).await?;
        // Classes are a hard filter of executors: one of another class is left to the scheduler.
        if candidate.class == handoff.queue_class {
            let Successor { lease, lease_duration } = handoff.successor;
            let grant = Grant { lease, lease_duration, now: handoff.now };
            latest.push(Latest { finish: handoff.finish, candidate, grant });
        }
    }
    Ok(latest)
}

impl Handoff {
    fn lane(&self) -> LaneIds {
        LaneIds { source: Some(self.source_lane_id), delivery: None }
    }
}

async fn end(
    unit: &mut Unit<'_>,
    superseded: &[Waiting],
    latest: WorkItemId,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    for row in superseded {
        unit.count_work_items(&row.candidate.scope, Some(WorkState::Blocked), WorkState::Done, 1);
    }
    let ended = SUPERSEDE
        .execute(&mut unit.connection, superseded.iter().collect(), |values, row: &Waiting| {
            values.push(row.candidate.ordinal).time(now).push(format!("superseded by {latest}"));
        })
        .await?;
    all_written(ended, superseded.len())
}

/// Claims them, now that they are the heads of their lanes. Each with the finish that it goes with.
pub(in crate::store) async fn claim(
    unit: &mut Unit<'_>,
    latest: Vec<Latest>,
) -> Result<Vec<(usize, ClaimedWorkItem)>, sqlx::Error> {
    let mut claimed = Vec::with_capacity(latest.len());
    for Latest { finish, candidate, grant } in latest {
        let won = claiming::take(unit, grant, vec![candidate]).await?;
        // Lost: with this error all that the transaction did is undone, the end of the item before it too.
        all_written(won.len() as u64, 1)?;
        claimed.extend(won.into_iter().map(|item| (finish, item)));
    }
    Ok(claimed)
}

async fn waiting(unit: &mut Unit<'_>, source_lane_id: i64) -> Result<Vec<Waiting>, sqlx::Error> {
    let rows = unit.connection.fetch_all(WAITING, values![source_lane_id]).await?;
    let waiting = rows.iter().map(|row| {
        let candidate = Candidate {
            ordinal: row.value(0)?,
            id: WorkItemId::from_bytes(row.bytes_16(1)?),
            event_id: EventId::from_bytes(row.bytes_16(2)?),
            namespace: row.name(3)?,
            scope: Scope {
                pack: row.name(4)?,
                work_type: row.work_type(5)?,
                generation: GenerationNumber(row.unsigned_32(6)?),
            },
            class: row.queue_class(7)?,
            state: WorkState::Ready,
            turn: row.value(8)?,
            epoch: row.unsigned_32(9)?,
            attempt: row.unsigned_32(10)?,
            failures: row.unsigned_32(11)?,
        };
        Ok(Waiting { candidate, coalesces: row.value(12)? })
    });
    waiting.collect()
}
