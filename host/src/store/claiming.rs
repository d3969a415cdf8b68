//! The claim: one compare-and-swap decides who owns a WorkItem.
//!
//! A claim reads, for each generation and work type that it may take, one short range of the index `work_item_claim`: the
//! rows whose lease ran out, then the ready ones, by turn. Only heads of lanes are ever in these ranges, so nothing has to
//! be skipped, and the cost does not depend on how many rows wait, are delayed, or have ended.

use std::collections::BTreeSet;

use super::claim::{CLAIM_ROWS_MAX, ClaimRequest};
use super::error::StoreError;
use super::statement::Statement;
use super::stored::{Columns, work_state_code, work_type_code};
use super::unit::{Scope, Unit, all_written};
use crate::model::ids::{EventId, WorkItemId};
use crate::model::names::Namespace;
use crate::model::work_item::{ClaimedWorkItem, WorkState, WorkType};

/// Delayed rows that one claim makes ready at most. More than a claim takes, so that a crowd of delayed rows is worked off
/// as fast as it is claimed.
const DUE_ROWS_MAX: u32 = 2 * CLAIM_ROWS_MAX;

/// `state IN (1, 2, 3)` is what the index `work_item_claim` says; the planner wants to read it in the statement.
const DUE: &str = "\
    UPDATE work_item SET state = 1, turn = lane_ordinal WHERE ordinal IN (SELECT ordinal FROM work_item \
    WHERE pack = ? AND work_type = ? AND generation = ? AND state IN (1, 2, 3) AND state = 2 AND turn <= ? \
    ORDER BY turn, id LIMIT ?)";

macro_rules! candidates {
    ($predicate:literal) => {
        concat!(
            "SELECT ordinal, id, event_id, namespace, turn, epoch, attempt, failures FROM work_item \
             WHERE pack = ? AND work_type = ? AND generation = ? AND state IN (1, 2, 3) AND ",
            $predicate,
            " ORDER BY turn, id LIMIT ?"
        )
    };
}

const STALE: &str = candidates!("state = 3 AND turn < ?");
const READY: &str = candidates!("state = 1 AND turn <= ?");

static TAKE: Statement = Statement::new(
    "UPDATE work_item SET state = 3, turn = taken.column2, lease_token = taken.column3, epoch = epoch + 1, \
     attempt = attempt + 1 FROM (",
    9,
    ") AS taken WHERE work_item.ordinal = taken.column1 AND work_item.state = taken.column4 \
     AND work_item.turn = taken.column5 AND work_item.epoch = taken.column6 AND work_item.pack = taken.column7 \
     AND work_item.work_type = taken.column8 AND work_item.generation = taken.column9",
);

/// A row that may be taken, as it was read.
struct Candidate {
    ordinal: i64,
    id: WorkItemId,
    event_id: EventId,
    namespace: Namespace,
    scope: Scope,
    state: WorkState,
    turn: i64,
    epoch: u32,
    attempt: u32,
    failures: u32,
}

/// Applies claims in order.
pub(super) async fn apply(
    unit: &mut Unit<'_>,
    requests: Vec<ClaimRequest>,
) -> Result<Vec<Result<Vec<ClaimedWorkItem>, StoreError>>, sqlx::Error> {
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
    take(unit, request, candidates).await
}

/// The first rows of a tier over all generations and work types: each range is in order, and they are merged here.
async fn read(
    unit: &mut Unit<'_>,
    request: &ClaimRequest,
    tier: WorkState,
    rows_max: usize,
) -> Result<Vec<Candidate>, sqlx::Error> {
    let (text, turn_max) = match tier {
        WorkState::Processing => (STALE, request.now.as_millis()),
        WorkState::Ready => (READY, i64::MAX),
        WorkState::Blocked | WorkState::Delayed | WorkState::Done | WorkState::Dead => return Ok(Vec::new()),
    };
    let mut candidates = Vec::new();
    for scope in scopes(request) {
        let rows = sqlx::query(text)
            .bind(scope.pack.as_str())
            .bind(work_type_code(scope.work_type))
            .bind(scope.generation.0)
            .bind(turn_max)
            .bind(i64::try_from(rows_max).unwrap_or(i64::MAX))
            .fetch_all(&mut *unit.connection)
            .await?;
        for row in rows {
            candidates.push(Candidate {
                ordinal: row.value(0)?,
                id: WorkItemId::from_bytes(row.bytes_16(1)?),
                event_id: EventId::from_bytes(row.bytes_16(2)?),
                namespace: row.name(3)?,
                scope: scope.clone(),
                state: tier,
                turn: row.value(4)?,
                epoch: row.unsigned_32(5)?,
                attempt: row.unsigned_32(6)?,
                failures: row.unsigned_32(7)?,
            });
        }
    }
    candidates.sort_unstable_by_key(|candidate| (candidate.turn, candidate.id));
    candidates.truncate(rows_max);
    Ok(candidates)
}

/// Makes delayed rows ready whose time has come, so that they are claimed by their place and not by when they came due.
async fn promote_due(unit: &mut Unit<'_>, request: &ClaimRequest) -> Result<(), sqlx::Error> {
    for scope in scopes(request) {
        let promoted = sqlx::query(DUE)
            .bind(scope.pack.as_str())
            .bind(work_type_code(scope.work_type))
            .bind(scope.generation.0)
            .bind(request.now.as_millis())
            .bind(DUE_ROWS_MAX)
            .execute(&mut *unit.connection)
            .await?;
        let rows = i64::try_from(promoted.rows_affected()).unwrap_or(i64::MAX);
        unit.count_work_items(&scope, Some(WorkState::Delayed), WorkState::Ready, rows);
    }
    Ok(())
}

async fn take(
    unit: &mut Unit<'_>,
    request: ClaimRequest,
    candidates: Vec<Candidate>,
) -> Result<Vec<ClaimedWorkItem>, sqlx::Error> {
    let lease_until = request.now + request.lease_duration;
    let claimed: Vec<ClaimedWorkItem> = candidates
        .iter()
        .map(|candidate| ClaimedWorkItem {
            id: candidate.id,
            event_id: candidate.event_id,
            work_type: candidate.scope.work_type,
            namespace: candidate.namespace.clone(),
            generation: candidate.scope.generation,
            lease: request.lease,
            epoch: candidate.epoch + 1,
            lease_until,
            attempt: candidate.attempt + 1,
            failures: candidate.failures,
            reclaimed: candidate.state == WorkState::Processing,
        })
        .collect();
    for row in &candidates {
        unit.count_work_items(&row.scope, Some(row.state), WorkState::Processing, 1);
    }
    let taken = TAKE
        .execute(unit.connection, candidates, |values, row| {
            values.push(row.ordinal).time(lease_until).id(request.lease.as_bytes());
            values.push(work_state_code(row.state)).push(row.turn).push(i64::from(row.epoch));
            values.push(row.scope.pack.as_str()).push(work_type_code(row.scope.work_type));
            values.push(i64::from(row.scope.generation.0));
        })
        .await?;
    all_written(taken, claimed.len())?;
    Ok(claimed)
}

/// The ranges of the claim index that a request may take from, each once.
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
