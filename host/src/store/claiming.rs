//! The claim: one compare-and-swap decides who owns a WorkItem.
//!
//! A claim reads, for each generation, work type and queue class that it may take, one short range of the index
//! `work_item_claim`: the rows whose lease ran out, then the ready ones, by turn. Only heads of lanes are ever in these ranges, so nothing has to
//! be skipped, and the cost does not depend on how many rows wait, are delayed, or have ended.

use std::collections::BTreeSet;
use std::time::Duration;

use super::claim::{CLAIM_ROWS_MAX, ClaimRequest};
use super::replay;
use super::statement::{Statement, Text};
use super::stored::{Values, queue_class_code, work_state_code, work_type_code};
use super::unit::{Answers, Scope, Unit};
use crate::model::ids::{EventId, LeaseToken, WorkItemId};
use crate::model::names::Namespace;
use crate::model::queue::{QueueClass, QueueClasses};
use crate::model::time::Timestamp;
use crate::model::work_item::{ClaimedWorkItem, WorkState, WorkType};

/// Delayed rows of one range that one claim makes ready at most. More than a claim takes, so that a crowd of delayed rows is worked off
/// as fast as it is claimed.
const DUE_ROWS_MAX: u32 = 2 * CLAIM_ROWS_MAX;

/// `state IN (1, 2, 3)` is what the index `work_item_claim` says; the planner wants to read it in the statement.
const DUE_SQLITE: &str = "\
    UPDATE work_item SET state = 1, turn = lane_ordinal WHERE ordinal IN (SELECT ordinal FROM work_item \
    WHERE pack = ? AND work_type = ? AND generation = ? AND state IN (1, 2, 3) AND state = 2 AND queue_class = ? \
    AND turn <= ? ORDER BY turn, id LIMIT ? + 0)";

/// A table that is updated cannot be read beside it there, but an update takes an order and a limit itself.
const DUE_MYSQL: &str = "\
    UPDATE work_item SET state = 1, turn = lane_ordinal \
    WHERE pack = ? AND work_type = ? AND generation = ? AND state = 2 AND queue_class = ? AND turn <= ? \
    ORDER BY turn, id LIMIT ?";

/// The first rows of one class, a short range of the claim index; none with a limit of 0.
macro_rules! class_range {
    ($columns:literal, $predicate:literal, $class:literal) => {
        concat!(
            "SELECT * FROM (SELECT ",
            $columns,
            " FROM work_item WHERE pack = ? AND work_type = ? AND generation = ? AND state IN (1, 2, 3) AND ",
            $predicate,
            " AND queue_class = ",
            $class,
            " AND turn <= ? ORDER BY turn, id LIMIT ?) AS of_class"
        )
    };
}

/// The first rows of each class, in the order of [`QueueClass::ALL`] and with its codes: one statement, because it is the
/// statements that a claim pays for.
macro_rules! class_ranges {
    ($columns:literal, $predicate:literal) => {
        concat!(
            class_range!($columns, $predicate, "0"),
            " UNION ALL ",
            class_range!($columns, $predicate, "1"),
            " UNION ALL ",
            class_range!($columns, $predicate, "2")
        )
    };
}

macro_rules! candidates {
    ($predicate:literal) => {
        class_ranges!("ordinal, id, event_id, namespace, queue_class, turn, epoch, attempt, failures", $predicate)
    };
}

static STALE: Text = Text::new(candidates!("state = 3"));
static READY: Text = Text::new(candidates!("state = 1"));

/// The classes that have rows whose delay is over.
static DUE_CLASSES: Text = Text::new(class_ranges!("queue_class", "state = 2"));

static TAKE: Statement = Statement::update(
    "work_item",
    "state = 3, turn = taken.column2, lease_token = taken.column3, epoch = epoch + 1, attempt = attempt + 1",
    "taken",
    10,
    "work_item.ordinal = taken.column1 AND work_item.state = taken.column4 AND work_item.turn = taken.column5 \
     AND work_item.epoch = taken.column6 AND work_item.pack = taken.column7 \
     AND work_item.work_type = taken.column8 AND work_item.generation = taken.column9 \
     AND work_item.queue_class = taken.column10",
);

static TAKEN: Statement = Statement::select(
    "(ordinal, lease_token)",
    2,
    "SELECT work_item.ordinal FROM wanted CROSS JOIN work_item ON work_item.ordinal = wanted.ordinal \
     AND work_item.lease_token = wanted.lease_token AND work_item.state = 3",
);

/// Under what rows are taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) lease: LeaseToken,
    pub(super) lease_duration: Duration,
    pub(super) now: Timestamp,
}

/// A row that may be taken, as it was read.
pub(super) struct Candidate {
    pub(super) ordinal: i64,
    pub(super) id: WorkItemId,
    pub(super) event_id: EventId,
    pub(super) namespace: Namespace,
    pub(super) scope: Scope,
    pub(super) class: QueueClass,
    pub(super) state: WorkState,
    pub(super) turn: i64,
    pub(super) epoch: u32,
    pub(super) attempt: u32,
    pub(super) failures: u32,
}

/// Applies claims in order.
pub(super) async fn apply(
    unit: &mut Unit<'_>,
    requests: Vec<ClaimRequest>,
) -> Result<Answers<Vec<ClaimedWorkItem>>, sqlx::Error> {
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests {
        answers.push(Ok(claim(unit, request).await?));
    }
    Ok(answers)
}

async fn claim(unit: &mut Unit<'_>, request: ClaimRequest) -> Result<Vec<ClaimedWorkItem>, sqlx::Error> {
    let rows_max = usize::try_from(request.rows_max.min(CLAIM_ROWS_MAX)).unwrap_or(usize::MAX);
    let mut candidates = read(unit, &request, WorkState::Processing, rows_max).await?;
    if !request.stale_only && candidates.len() < rows_max {
        promote_due(unit, &request).await?;
        let left = rows_max - candidates.len();
        candidates.extend(read(unit, &request, WorkState::Ready, left).await?);
    }
    let grant = Grant { lease: request.lease, lease_duration: request.lease_duration, now: request.now };
    take(unit, grant, candidates).await
}

/// The first rows of a tier over all generations, work types and classes: each range is in order, and they are merged here.
async fn read(
    unit: &mut Unit<'_>,
    request: &ClaimRequest,
    tier: WorkState,
    rows_max: usize,
) -> Result<Vec<Candidate>, sqlx::Error> {
    let (text, turn_max, preference) = match tier {
        // A lease holds to its last millisecond.
        WorkState::Processing => (&STALE, unit.time(request.now).as_millis() - 1, QueueClasses::NONE),
        WorkState::Ready => (&READY, i64::MAX, request.preference),
        WorkState::Blocked | WorkState::Delayed | WorkState::Done | WorkState::Dead => return Ok(Vec::new()),
    };
    let engine = unit.connection.engine();
    let mut candidates = Vec::new();
    for scope in scopes(request) {
        let values = class_values(&scope, request.classes, turn_max, rows_max);
        for row in unit.connection.fetch_all(text.of(engine), values).await? {
            candidates.push(Candidate {
                ordinal: row.value(0)?,
                id: WorkItemId::from_bytes(row.bytes_16(1)?),
                event_id: EventId::from_bytes(row.bytes_16(2)?),
                namespace: row.name(3)?,
                scope: scope.clone(),
                class: row.queue_class(4)?,
                state: tier,
                turn: row.value(5)?,
                epoch: row.unsigned_32(6)?,
                attempt: row.unsigned_32(7)?,
                failures: row.unsigned_32(8)?,
            });
        }
    }
    candidates.sort_unstable_by_key(|row| (!preference.contains(row.class), row.turn, row.id));
    candidates.truncate(rows_max);
    Ok(candidates)
}

/// The values of [`class_ranges`]: up to `rows_max` rows of each of `classes`, and none of the others.
fn class_values(scope: &Scope, classes: QueueClasses, turn_max: i64, rows_max: usize) -> Values {
    let mut values = Values::default();
    for class in QueueClass::ALL {
        let rows_max = if classes.contains(class) { rows_max } else { 0 };
        values.append(scope.values());
        values.push(turn_max).push(i64::try_from(rows_max).unwrap_or(i64::MAX));
    }
    values
}

/// Makes delayed rows ready whose time has come, so that they are claimed by their place and not by when they came due.
async fn promote_due(unit: &mut Unit<'_>, request: &ClaimRequest) -> Result<(), sqlx::Error> {
    let now = unit.time(request.now);
    let engine = unit.connection.engine();
    for scope in scopes(request) {
        let values = class_values(&scope, request.classes, now.as_millis(), 1);
        for row in unit.connection.fetch_all(DUE_CLASSES.of(engine), values).await? {
            let mut values = scope.values();
            values.push(queue_class_code(row.queue_class(0)?)).time(now).push(DUE_ROWS_MAX);
            let text = engine.pick(DUE_SQLITE, DUE_MYSQL);
            let promoted = unit.connection.execute(text, values).await?;
            let rows = i64::try_from(promoted).unwrap_or(i64::MAX);
            unit.count_work_items(&scope, Some(WorkState::Delayed), WorkState::Ready, rows);
        }
    }
    Ok(())
}

/// Takes those of the rows that are still as they were read.
pub(super) async fn take(
    unit: &mut Unit<'_>,
    grant: Grant,
    candidates: Vec<Candidate>,
) -> Result<Vec<ClaimedWorkItem>, sqlx::Error> {
    let lease_until = unit.time(grant.now) + grant.lease_duration;
    let taken = TAKE
        .execute(&mut unit.connection, candidates.iter().collect(), |values, row: &Candidate| {
            values.push(row.ordinal).time(lease_until).id(grant.lease.as_bytes());
            values.push(work_state_code(row.state)).push(row.turn).push(row.epoch);
            values.push(row.scope.pack.as_str()).push(work_type_code(row.scope.work_type)).push(row.scope.generation.0);
            values.push(queue_class_code(row.class));
        })
        .await?;
    let won = if usize::try_from(taken) == Ok(candidates.len()) {
        candidates
    } else {
        won(unit, grant.lease, candidates).await?
    };
    for row in &won {
        unit.count_work_items(&row.scope, Some(row.state), WorkState::Processing, 1);
    }
    Ok(won.into_iter().map(|row| row.claimed(grant)).collect())
}

/// The rows that were taken, where another runtime was faster with others.
async fn won(
    unit: &mut Unit<'_>,
    lease: LeaseToken,
    candidates: Vec<Candidate>,
) -> Result<Vec<Candidate>, sqlx::Error> {
    let bind = |values: &mut Values, ordinal: i64| {
        values.push(ordinal).id(lease.as_bytes());
    };
    let ordinals = candidates.iter().map(|row| row.ordinal).collect();
    let won = TAKEN.fetch(&mut unit.connection, ordinals, bind, |row| row.value(0)).await?;
    let won: BTreeSet<i64> = won.into_iter().collect();
    Ok(candidates.into_iter().filter(|row| won.contains(&row.ordinal)).collect())
}

impl Candidate {
    /// The row as its new owner knows it. When the lease ends it is told by its own clock, which it read before it asked.
    fn claimed(self, grant: Grant) -> ClaimedWorkItem {
        ClaimedWorkItem {
            id: self.id,
            event_id: self.event_id,
            work_type: self.scope.work_type,
            namespace: self.namespace,
            generation: self.scope.generation,
            lease: grant.lease,
            epoch: self.epoch + 1,
            lease_until: grant.now + grant.lease_duration,
            attempt: self.attempt + 1,
            failures: self.failures,
            reclaimed: self.state == WorkState::Processing,
            replay: replay::is_replay(self.ordinal),
        }
    }
}

/// What the ranges of the claim index that a request may take from begin with, each once.
fn scopes(request: &ClaimRequest) -> BTreeSet<Scope> {
    let generations = |work_type: WorkType| {
        let pack = &request.pack;
        request.generations.iter().map(move |generation| Scope {
            pack: pack.clone(),
            work_type,
            generation: *generation,
        })
    };
    request.work_types.iter().flat_map(|work_type| generations(*work_type)).collect()
}
