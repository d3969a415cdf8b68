//! Finalization: the ends of executions, the promotion in their lanes and the messages they emitted, in one
//! transaction.
//!
//! Invariant: a row changes only for the caller that holds it. State, token and epoch are compared in memory, where
//! they decide, and repeated in the statement that writes.

use std::collections::{HashMap, HashSet};

use super::claim::Renewal;
use super::finish::{Disposition, Finish, Finished};
use super::handoff::{self, Handoff};
use super::lane::{self, LaneIds};
use super::records;
use crate::model::failure::Failure;
use crate::model::ids::{EventId, LeaseToken, WorkItemId};
use crate::model::lane::lets_go_on;
use crate::model::message::NewMessage;
use crate::model::names::Namespace;
use crate::model::queue::QueueClass;
use crate::model::reading::{RecordedReads, RunRecord};
use crate::model::time::Timestamp;
use crate::model::work_item::{ClaimedWorkItem, WorkState};
use crate::store::engine::codes::sql;
use crate::store::engine::dialect::Lock;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::statement::Statement;
use crate::store::engine::values::Values;
use crate::store::messages::outbox::Emitted;
use crate::store::writer::unit::{Answers, Scope, Unit, all_written};

pub(in crate::store) static LOAD: Statement = Statement::lock(
    "(id)",
    sql!(
        "SELECT work_item.ordinal, work_item.id, work_item.event_id, work_item.namespace, work_item.pack, \
     work_item.work_type, work_item.generation, work_item.state, work_item.delivery_lane_id, work_item.source_lane_id, work_item.lane_ordinal, \
     work_item.run_after, work_item.lease_token, work_item.epoch, work_item.attempt, work_item.failures, \
     work_item.queue_class, work_item.coalesces, \
     coalesce((SELECT lane.kind FROM lane WHERE lane.id = work_item.source_lane_id) = {projection_lane}, 0) \
     FROM wanted CROSS JOIN work_item ON work_item.id = wanted.id"
    ),
    Lock::Update,
);

pub(in crate::store) static END: Statement = Statement::update(
    "work_item",
    sql!(
        "state = ended.state, turn = ended.turn, source_lane_id = ended.source_lane_id, \
         delivery_lane_id = ended.delivery_lane_id, run_after = ended.run_after, attempt = ended.attempt, \
         failures = ended.failures, finished_at = ended.finished_at, ignored = ended.ignored, note = ended.note, \
         failure_class = coalesce(ended.failure_class, work_item.failure_class), \
         failure_message = coalesce(ended.failure_message, work_item.failure_message), \
         output_digest = ended.output_digest, lease_token = NULL, \
         projection_active_key = CASE WHEN ended.state = {done} OR ended.source_lane_id IS NULL THEN NULL ELSE projection_active_key END"
    ),
    "ended (ordinal, lease_token, epoch, state, turn, source_lane_id, run_after, attempt, failures, finished_at, \
     ignored, note, failure_class, failure_message, delivery_lane_id, output_digest)",
    sql!(
        "work_item.ordinal = ended.ordinal AND work_item.state = {processing} \
         AND work_item.lease_token = ended.lease_token AND work_item.epoch = ended.epoch"
    ),
);

pub(in crate::store) static RENEW: Statement = Statement::update(
    "work_item",
    "turn = renewed.turn",
    "renewed (id, lease_token, epoch, turn)",
    sql!(
        "work_item.id = renewed.id AND work_item.state = {processing} \
         AND work_item.lease_token = renewed.lease_token AND work_item.epoch = renewed.epoch"
    ),
);

pub(in crate::store) static HELD: Statement = Statement::select(
    "(id, lease_token, epoch)",
    sql!(
        "SELECT work_item.id, work_item.lease_token, work_item.epoch FROM wanted \
     CROSS JOIN work_item ON work_item.id = wanted.id AND work_item.state = {processing} \
     AND work_item.lease_token = wanted.lease_token AND work_item.epoch = wanted.epoch"
    ),
);

static LEAVE_LANE: Statement = Statement::update(
    "work_item",
    "source_lane_id = NULL, delivery_lane_id = NULL, projection_active_key = NULL",
    "skipped (ordinal)",
    sql!("work_item.ordinal = skipped.ordinal AND work_item.state = {dead}"),
);

/// The columns of a WorkItem that its end needs.
struct EndingItem {
    ordinal: i64,
    id: WorkItemId,
    event_id: EventId,
    namespace: Namespace,
    scope: Scope,
    state: WorkState,
    lanes: LaneIds,
    lane_ordinal: i64,
    run_after: Timestamp,
    lease: Option<LeaseToken>,
    epoch: u32,
    attempt: u32,
    failures: u32,
    queue_class: QueueClass,
    coalesces: Option<String>,
    /// Whether it stands in the line of a projection, as an item or as the replay of one.
    is_projected: bool,
}

impl FromColumns for EndingItem {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            ordinal: columns.next()?,
            id: columns.next()?,
            event_id: columns.next()?,
            namespace: columns.next()?,
            scope: columns.next()?,
            state: columns.next()?,
            lanes: columns.next()?,
            lane_ordinal: columns.next()?,
            run_after: columns.next()?,
            lease: columns.next()?,
            epoch: columns.next()?,
            attempt: columns.next()?,
            failures: columns.next()?,
            queue_class: columns.next()?,
            coalesces: columns.next()?,
            is_projected: columns.next()?,
        })
    }
}

/// The new values of a row whose execution ended.
struct End {
    row: EndingItem,
    state: WorkState,
    turn: i64,
    leaves_lanes: bool,
    run_after: Timestamp,
    attempt: u32,
    failures: u32,
    finished_at: Option<Timestamp>,
    ignored: bool,
    note: Option<String>,
    failure: Option<Failure>,
    record: Option<RunRecord>,
}

/// Applies finishes in order. Returns the answers, and the emitted messages, which are still to be stored.
pub(in crate::store) async fn finish(
    unit: &mut Unit<'_>,
    finishes: Vec<Finish>,
) -> Result<(Answers<Finished>, Vec<Emitted>), sqlx::Error> {
    if finishes.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut rows = load(unit, finishes.iter().map(|finish| finish.work_item_id).collect()).await?;
    let mut answers = Vec::with_capacity(finishes.len());
    let mut ends = Vec::new();
    let mut emitted = Vec::new();
    let mut handoffs = Vec::new();
    for finish in finishes {
        // The row is taken out: a second finish of it comes too late.
        let held = rows.get(&finish.work_item_id).is_some_and(|row| row.is_held_by(&finish));
        let Some(row) = rows.remove(&finish.work_item_id).filter(|_| held) else {
            answers.push(Ok(Finished::LeaseLost));
            continue;
        };
        handoffs.extend(row.handoff(answers.len(), &finish));
        answers.push(Ok(Finished::Applied));
        let (end, messages) = End::of(row, finish.disposition, finish.now);
        emitted.extend(messages.into_iter().map(|message| Emitted {
            event_id: end.row.event_id,
            work_item_id: end.row.id,
            namespace: end.row.namespace.clone(),
            queue_class: end.row.queue_class,
            message,
            now: finish.now,
        }));
        ends.push(end);
    }
    for (finish, item) in write(unit, ends, handoffs).await? {
        answers[finish] = Ok(Finished::Continued(Box::new(item)));
    }
    Ok((answers, emitted))
}

/// Writes the ends, and lets lanes go on. Returns the successors that were claimed, with the finishes that they go
/// with.
async fn write(
    unit: &mut Unit<'_>,
    mut ends: Vec<End>,
    handoffs: Vec<Handoff>,
) -> Result<Vec<(usize, ClaimedWorkItem)>, sqlx::Error> {
    let mut left = Vec::new();
    for end in &ends {
        unit.count_work_items(&end.row.scope, Some(end.row.state), end.state, 1);
        unit.work_changed |= !end.state.is_terminal();
        left.extend(end.lets_lanes_go_on().then_some(end.row.lanes));
    }
    let expected = ends.len();
    let records = ends.iter_mut().filter_map(End::take_reads).collect();
    let written = END.execute(&mut unit.connection, ends, End::bind).await?;
    all_written(written, expected)?;
    records::keep(unit, records).await?;
    let held = lane::hold(unit, left.iter().copied().chain(handoffs.iter().map(Handoff::lane)).collect()).await?;
    let latest = handoff::supersede(unit, &held, handoffs).await?;
    lane::advance(unit, &held, left).await?;
    handoff::claim(unit, latest).await
}

impl EndingItem {
    fn is_held_by(&self, finish: &Finish) -> bool {
        self.state == WorkState::Processing && self.lease == Some(finish.lease) && self.epoch == finish.epoch
    }

    /// The handoff to its successor, if it succeeded and coalesces.
    fn handoff(&self, number: usize, finish: &Finish) -> Option<Handoff> {
        let succeeded = matches!(finish.disposition, Disposition::Done { .. });
        let lane = self.lanes.source.filter(|_| succeeded);
        Some(Handoff {
            finish: number,
            source_lane_id: lane?,
            scope: self.scope.clone(),
            route: self.coalesces.clone()?,
            queue_class: self.queue_class,
            successor: finish.successor?,
            now: finish.now,
        })
    }
}

impl End {
    /// The end of a row by a disposition, and the emitted messages.
    fn of(row: EndingItem, disposition: Disposition, now: Timestamp) -> (Self, Vec<NewMessage>) {
        let mut end = Self {
            state: WorkState::Ready,
            turn: row.lane_ordinal,
            leaves_lanes: false,
            run_after: row.run_after,
            attempt: row.attempt,
            failures: row.failures,
            finished_at: None,
            ignored: false,
            note: None,
            failure: None,
            record: None,
            row,
        };
        match disposition {
            Disposition::Done { note, ignored, messages, record } => {
                end.record = Some(record);
                end.state = WorkState::Done;
                end.finished_at = Some(now);
                (end.note, end.ignored) = (note, ignored);
                return (end, messages);
            }
            Disposition::Retry { failure, run_after, leaves_lane } => {
                end.state = WorkState::Delayed;
                end.turn = run_after.as_millis();
                end.run_after = run_after;
                // The active item of a projection keeps its place: the queued one waits for its end.
                end.leaves_lanes = leaves_lane && !end.row.is_projected;
                end.failures += 1;
                end.failure = Some(failure);
            }
            Disposition::Dead { failure, leaves_lane } => {
                end.state = WorkState::Dead;
                end.finished_at = Some(now);
                end.leaves_lanes = leaves_lane;
                end.failures += 1;
                end.failure = Some(failure);
            }
            Disposition::Release => end.attempt = end.attempt.saturating_sub(1),
        }
        (end, Vec::new())
    }

    /// The reads of a run that succeeded, if it had any.
    fn take_reads(&mut self) -> Option<(i64, RecordedReads)> {
        let record = self.record.as_mut()?;
        let reads = std::mem::replace(&mut record.reads, RecordedReads::NONE);
        (reads != RecordedReads::NONE).then_some((self.row.ordinal, reads))
    }

    /// Whether the next in its lanes become their heads.
    fn lets_lanes_go_on(&self) -> bool {
        lets_go_on(self.state, self.leaves_lanes)
    }

    fn bind(values: &mut Values, end: Self) {
        values.push(end.row.ordinal).push(end.row.lease).push(end.row.epoch);
        values.push(end.state).push(end.turn);
        let lanes = if end.leaves_lanes { LaneIds::default() } else { end.row.lanes };
        values.push(lanes.source).push(end.run_after);
        values.push(end.attempt).push(end.failures).push(end.finished_at);
        values.push(end.ignored).push(end.note);
        let (class, message) = end.failure.map(|failure| (failure.class, failure.message)).unzip();
        values.push(class).push(message).push(lanes.delivery);
        values.push(end.record.map(|record| record.output_digest));
    }
}

/// Extends leases. The answer to a renewal is the rows that its caller still holds.
pub(in crate::store) async fn renew(
    unit: &mut Unit<'_>,
    renewals: Vec<Renewal>,
) -> Result<Answers<Vec<WorkItemId>>, sqlx::Error> {
    let mut wanted = Vec::new();
    for renewal in &renewals {
        let until = unit.time(renewal.now) + renewal.lease_duration;
        wanted.extend(renewal.rows.iter().map(|row| (*row, until)));
    }
    let expected = wanted.len();
    let renewed = RENEW
        .execute(&mut unit.connection, wanted, |values, ((id, lease, epoch), until)| {
            values.push(id).push(lease).push(epoch).push(until);
        })
        .await?;
    if usize::try_from(renewed) == Ok(expected) {
        let all = |renewal: Renewal| Ok(renewal.rows.into_iter().map(|(id, _, _)| id).collect());
        return Ok(renewals.into_iter().map(all).collect());
    }
    still_held(unit, renewals).await
}

/// Answers renewals of which some came too late: their callers lost the rows that the update did not find.
async fn still_held(unit: &mut Unit<'_>, renewals: Vec<Renewal>) -> Result<Answers<Vec<WorkItemId>>, sqlx::Error> {
    let wanted = renewals.iter().flat_map(|renewal| renewal.rows.iter().copied()).collect();
    let renewed: HashSet<(WorkItemId, LeaseToken, u32)> = HELD
        .fetch(
            &mut unit.connection,
            wanted,
            |values, (id, lease, epoch)| {
                values.push(id).push(lease).push(epoch);
            },
            FromColumns::read,
        )
        .await?
        .into_iter()
        .collect();
    let answer = |renewal: Renewal| {
        Ok(renewal.rows.into_iter().filter(|row| renewed.contains(row)).map(|(id, _, _)| id).collect())
    };
    Ok(renewals.into_iter().map(answer).collect())
}

/// Skips dead heads that block their lanes.
pub(in crate::store) async fn skip_dead(
    unit: &mut Unit<'_>,
    ids: Vec<WorkItemId>,
) -> Result<Answers<bool>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = load(unit, ids.clone()).await?;
    let mut answers = Vec::with_capacity(ids.len());
    let mut holders = Vec::new();
    for id in ids {
        let dead = rows.remove(&id).filter(|row| row.state == WorkState::Dead);
        let held = dead.filter(|row| !row.lanes.is_empty()).map(|row| (row.ordinal, row.lanes));
        answers.push(Ok(held.is_some()));
        holders.extend(held);
    }
    leave_lanes(unit, holders).await?;
    Ok(answers)
}

/// Takes dead WorkItems out of the lanes that they block: each with its ordinal and its lanes.
pub(in crate::store) async fn leave_lanes(
    unit: &mut Unit<'_>,
    holders: Vec<(i64, LaneIds)>,
) -> Result<(), sqlx::Error> {
    let (ordinals, lanes): (Vec<i64>, Vec<LaneIds>) = holders.into_iter().unzip();
    let held = lane::hold(unit, lanes.iter().copied().collect()).await?;
    LEAVE_LANE.execute(&mut unit.connection, ordinals, Values::only).await?;
    lane::advance(unit, &held, lanes).await
}

async fn load(unit: &mut Unit<'_>, mut ids: Vec<WorkItemId>) -> Result<HashMap<WorkItemId, EndingItem>, sqlx::Error> {
    ids.sort_unstable();
    ids.dedup();
    let rows = LOAD.fetch(&mut unit.connection, ids, Values::only, EndingItem::read).await?;
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}
