//! The sweep: finds lanes in which items wait and that nothing would advance, and repairs them.
//!
//! No transaction leaves such a lane behind; it comes from a mistake in this program, or from a change by hand. So each
//! repair is counted, and the count is expected to stay 0.
//!
//! A reader looks at a few lanes at a time, from the end of the last sweep, by index seeks: the cost of a sweep depends
//! neither on the number of lanes nor on their length. A lane that looks wrong is read again while it is held, and is
//! changed only if it is still wrong.

use super::lane::{self, LaneIds, LaneSet};
use crate::model::lane::{LaneKind, Line};
use crate::model::work_item::WorkState;
use crate::store::engine::codes::sql;
use crate::store::engine::connection::Connection;
use crate::store::engine::row::Columns;
use crate::store::engine::statement::Statement;
use crate::store::engine::values::{Values, values};
use crate::store::writer::Control;
use crate::store::writer::unit::{Answers, Scope, Unit};
use crate::store::{Store, StoreError};

/// The lanes of each kind that one sweep looks at.
const SWEEP_LANES_MAX: usize = 32;

/// The result of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sweep {
    /// The lanes that were looked at.
    pub lanes: u64,
    /// The lanes that were repaired.
    pub repaired: u64,
    /// The start of the next sweep.
    pub next: SweepCursor,
}

/// The last lane of each kind that was swept. The lines of projections are swept with the lanes of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepCursor {
    delivery: i64,
    source: i64,
}

impl Store {
    /// Checks the next few lanes in which items wait, and repairs those that nothing would advance. The first lane
    /// follows the last one.
    pub async fn sweep_lanes(&self, from: SweepCursor) -> Result<Sweep, StoreError> {
        let mut reader = self.reader().await?;
        let mut sweep = Sweep::default();
        let mut suspects = Vec::new();
        for kind in [LaneKind::Delivery, LaneKind::Source] {
            let lanes = waited_in(&mut reader.connection(), kind, from.of(kind)).await?;
            *sweep.next.of_mut(kind) =
                if lanes.len() < SWEEP_LANES_MAX { 0 } else { lanes.last().copied().unwrap_or(0) };
            sweep.lanes += lanes.len() as u64;
            let seen = look(&mut reader.connection(), kind, lanes).await?;
            suspects.extend(seen.into_iter().filter(|seen| seen.line.amiss().is_some()).map(|seen| seen.suspect));
        }
        drop(reader);
        if !suspects.is_empty() {
            sweep.repaired = self.writer.control(|reply| Control::Sweep(suspects, reply)).await?;
        }
        Ok(sweep)
    }
}

impl SweepCursor {
    fn of(self, kind: LaneKind) -> i64 {
        match kind {
            LaneKind::Delivery => self.delivery,
            LaneKind::Source | LaneKind::Projection => self.source,
        }
    }

    fn of_mut(&mut self, kind: LaneKind) -> &mut i64 {
        match kind {
            LaneKind::Delivery => &mut self.delivery,
            LaneKind::Source | LaneKind::Projection => &mut self.source,
        }
    }
}

/// A lane that looks wrong, and the first item that waits in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct Suspect {
    kind: LaneKind,
    lane_id: i64,
    first: i64,
    /// The lanes that the first one stands in.
    lanes: LaneIds,
}

/// A lane as the sweep reads it.
struct Seen {
    suspect: Suspect,
    line: Line,
    scope: Scope,
}

const NEXT_DELIVERY: &str = "SELECT min(waiting_delivery) FROM work_item WHERE waiting_delivery > ?";
const NEXT_SOURCE: &str = "SELECT min(waiting_source) FROM work_item WHERE waiting_source > ?";

/// The first item that waits in each lane; the head, if it still blocks the lane; and the head of that item's other
/// lane.
macro_rules! line {
    ($waiting:literal, $own:literal, $other:literal) => {
        sql!(concat!(
            ", line (lane_id, ordinal) AS (SELECT wanted.lane_id, (SELECT waiting.ordinal FROM work_item AS waiting \
             WHERE waiting.",
            $waiting,
            " = wanted.lane_id ORDER BY waiting.lane_ordinal LIMIT 1) FROM wanted) \
             SELECT line.lane_id, first.ordinal, first.blockers, head.ordinal, first.",
            $other,
            ", other.head, first.pack, first.work_type, first.generation FROM line \
             CROSS JOIN work_item AS first ON first.ordinal = line.ordinal CROSS JOIN lane ON lane.id = line.lane_id \
             LEFT JOIN work_item AS head ON head.ordinal = lane.head AND head.",
            $own,
            " = lane.id AND head.state <> {done} AND head.lane_ordinal <= first.lane_ordinal \
             LEFT JOIN lane AS other ON other.id = first.",
            $other
        ))
    };
}

static DELIVERY_LINES: Statement =
    Statement::select("(lane_id)", line!("waiting_delivery", "delivery_lane_id", "source_lane_id"));

static SOURCE_LINES: Statement =
    Statement::select("(lane_id)", line!("waiting_source", "source_lane_id", "delivery_lane_id"));

/// The next lanes of a kind in which items wait.
async fn waited_in(connection: &mut Connection<'_>, kind: LaneKind, after: i64) -> Result<Vec<i64>, sqlx::Error> {
    let text = match kind {
        LaneKind::Delivery => NEXT_DELIVERY,
        LaneKind::Source | LaneKind::Projection => NEXT_SOURCE,
    };
    let mut lanes: Vec<i64> = Vec::new();
    while lanes.len() < SWEEP_LANES_MAX {
        let after = lanes.last().copied().unwrap_or(after);
        let Some(lane_id) = connection.read_one(text, values![after]).await? else { break };
        lanes.push(lane_id);
    }
    Ok(lanes)
}

async fn look(connection: &mut Connection<'_>, kind: LaneKind, lanes: Vec<i64>) -> Result<Vec<Seen>, sqlx::Error> {
    let lines = match kind {
        LaneKind::Delivery => &DELIVERY_LINES,
        LaneKind::Source | LaneKind::Projection => &SOURCE_LINES,
    };
    lines.fetch(connection, lanes, Values::only, |columns| seen(kind, columns)).await
}

fn seen(kind: LaneKind, columns: &mut Columns<'_>) -> Result<Seen, sqlx::Error> {
    let (lane_id, first, blockers) = columns.next()?;
    let (head, other, other_head): (Option<i64>, Option<i64>, Option<i64>) = columns.next()?;
    let lanes = match kind {
        LaneKind::Delivery => LaneIds { delivery: Some(lane_id), source: other },
        LaneKind::Source | LaneKind::Projection => LaneIds { delivery: other, source: Some(lane_id) },
    };
    Ok(Seen {
        suspect: Suspect { kind, lane_id, first, lanes },
        line: Line { head, first, blockers, other_head: other.is_some().then_some(other_head) },
        scope: columns.next()?,
    })
}

/// Repairs suspects that are still wrong, and answers each sweep with the number of its repairs.
pub(in crate::store) async fn apply(
    unit: &mut Unit<'_>,
    sweeps: Vec<Vec<Suspect>>,
) -> Result<Answers<u64>, sqlx::Error> {
    let mut answers = Vec::with_capacity(sweeps.len());
    for suspects in sweeps {
        let mut repaired = 0;
        // One after the other: a repair may change what is right for the next lane.
        for suspect in suspects {
            repaired += u64::from(repair(unit, suspect).await?);
        }
        answers.push(Ok(repaired));
    }
    Ok(answers)
}

async fn repair(unit: &mut Unit<'_>, suspect: Suspect) -> Result<bool, sqlx::Error> {
    lane::hold(unit, LaneSet::from_iter([suspect.lanes])).await?;
    let seen = look(&mut unit.connection, suspect.kind, vec![suspect.lane_id]).await?.pop();
    // If another item is the first by now, its other lane is not held: the next sweep repairs it.
    let Some(Seen { line, scope, .. }) = seen.filter(|seen| seen.suspect == suspect) else { return Ok(false) };
    let Some((head, blockers)) = line.amiss() else { return Ok(false) };
    if blockers.state() == WorkState::Ready {
        unit.count_work_items(&scope, Some(WorkState::Blocked), WorkState::Ready, 1);
        unit.work_changed = true;
    }
    lane::set_heads(unit, vec![(suspect.lane_id, Some(head))]).await?;
    lane::set_blockers(unit, vec![(suspect.first, blockers)]).await?;
    Ok(true)
}
