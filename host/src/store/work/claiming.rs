//! The claim: one compare-and-swap decides who owns a WorkItem.
//!
//! A claim reads, for each generation, work type and queue class that it may take, one short range of the index
//! `work_item_claim`: the rows whose lease ran out, then the ready ones, by turn. Only heads of lanes are ever in these
//! ranges, so nothing has to be skipped, and the cost does not depend on how many rows wait, are delayed, or have
//! ended.

use std::collections::BTreeSet;
use std::time::Duration;

use super::claim::{CLAIM_ROWS_MAX, ClaimRequest, lease_is_over};
use super::replay;
use crate::model::ids::{EventId, LeaseToken, WorkItemId};
use crate::model::names::Namespace;
use crate::model::queue::QueueClass;
use crate::model::time::Timestamp;
use crate::model::work_item::{ClaimedWorkItem, WorkState, WorkType};
use crate::store::engine::codes::sql;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::statement::{Statement, Text};
use crate::store::engine::values::{Values, values};
use crate::store::writer::unit::{Answers, Scope, Unit, all_written};

/// The most delayed rows of one range that one claim makes ready. More than a claim takes, so that a crowd of delayed
/// rows is worked off as fast as it is claimed.
const DUE_ROWS_MAX: u32 = 2 * CLAIM_ROWS_MAX;

/// `state IN ({claimable})` is the predicate of the index `work_item_claim`; the planner needs it in the statement.
pub(in crate::store) const DUE_SQLITE: &str = sql!(
    "UPDATE work_item SET state = {ready}, turn = lane_ordinal WHERE ordinal IN (SELECT ordinal FROM work_item \
    WHERE pack = ? AND work_type = ? AND generation = ? AND state IN ({claimable}) AND state = {delayed} AND queue_class = ? \
    AND turn <= ? ORDER BY turn, id LIMIT ? + 0)"
);

/// On MySQL an update cannot read its own table, but takes an order and a limit.
const DUE_MYSQL: &str = sql!(
    "UPDATE work_item SET state = {ready}, turn = lane_ordinal \
    WHERE pack = ? AND work_type = ? AND generation = ? AND state = {delayed} AND queue_class = ? AND turn <= ? \
    ORDER BY turn, id LIMIT ?"
);

/// The first rows of one state and class, a short range of the claim index; none with a limit of 0.
macro_rules! range {
    ($state:literal, $class:literal) => {
        concat!(
            "SELECT * FROM (SELECT ordinal, id, event_id, namespace, queue_class, turn, epoch, attempt, failures, state \
             FROM work_item WHERE pack = ? AND work_type = ? AND generation = ? AND state IN ({claimable}) AND state = ",
            $state,
            " AND queue_class = ",
            $class,
            " AND turn <= ? ORDER BY turn, id LIMIT ?) AS of_class"
        )
    };
}

/// The first rows of each class, in the order of [`QueueClass::ALL`] and with its codes.
macro_rules! class_ranges {
    ($state:literal) => {
        concat!(
            range!($state, "{interactive}"),
            " UNION ALL ",
            range!($state, "{default}"),
            " UNION ALL ",
            range!($state, "{bulk}")
        )
    };
}

/// All ranges of a claim, in the order of [`TIERS`] and with its codes: one statement, because the cost of a claim is
/// its statements.
pub(in crate::store) static CLAIMABLE: Text = Text::new(sql!(concat!(
    class_ranges!("{processing}"),
    " UNION ALL ",
    class_ranges!("{delayed}"),
    " UNION ALL ",
    class_ranges!("{ready}")
)));

/// One row in any state: the columns of [`CLAIMABLE`], and its scope.
const THE_ONE: &str = "\
    SELECT ordinal, id, event_id, namespace, queue_class, turn, epoch, attempt, failures, state, pack, work_type, generation \
    FROM work_item WHERE id = ?";

/// Rows whose lease may have run out, rows whose delay may be over, and those that are ready.
const TIERS: [WorkState; 3] = [WorkState::Processing, WorkState::Delayed, WorkState::Ready];

pub(in crate::store) static TAKE: Statement = Statement::update(
    "work_item",
    sql!(
        "state = {processing}, turn = taken.lease_until, lease_token = taken.lease_token, \
         epoch = work_item.epoch + 1, attempt = work_item.attempt + 1"
    ),
    "taken (ordinal, lease_until, lease_token, state, turn, epoch, pack, work_type, generation, queue_class)",
    "work_item.ordinal = taken.ordinal AND work_item.state = taken.state AND work_item.turn = taken.turn \
     AND work_item.epoch = taken.epoch AND work_item.pack = taken.pack AND work_item.work_type = taken.work_type \
     AND work_item.generation = taken.generation AND work_item.queue_class = taken.queue_class \
     AND (work_item.projection_key IS NULL OR work_item.projection_active_key IS NOT NULL)",
);

pub(in crate::store) static TAKEN: Statement = Statement::select(
    "(ordinal, lease_token)",
    sql!(
        "SELECT work_item.ordinal FROM wanted CROSS JOIN work_item ON work_item.ordinal = wanted.ordinal \
     AND work_item.lease_token = wanted.lease_token AND work_item.state = {processing}"
    ),
);

/// The lease under which rows are taken.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Grant {
    pub(in crate::store) lease: LeaseToken,
    pub(in crate::store) lease_duration: Duration,
    pub(in crate::store) now: Timestamp,
}

/// A row that may be taken, as it was read.
pub(in crate::store) struct Candidate {
    pub(in crate::store) ordinal: i64,
    pub(in crate::store) id: WorkItemId,
    pub(in crate::store) event_id: EventId,
    pub(in crate::store) namespace: Namespace,
    pub(in crate::store) scope: Scope,
    pub(in crate::store) class: QueueClass,
    pub(in crate::store) state: WorkState,
    pub(in crate::store) turn: i64,
    pub(in crate::store) epoch: u32,
    pub(in crate::store) attempt: u32,
    pub(in crate::store) failures: u32,
}

/// Applies claims in order.
pub(in crate::store) async fn apply(
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
    let grant = Grant { lease: request.lease, lease_duration: request.lease_duration, now: request.now };
    if let Some(id) = request.only {
        let candidate = the_one(unit, &request, id).await?;
        return take(unit, grant, candidate.into_iter().collect()).await;
    }
    let rows_max = request.rows();
    let mut found = look(unit, &request, rows_max).await?;
    if found.stale.len() < rows_max && !found.due.is_empty() {
        promote(unit, &found.due, request.now).await?;
        found.ready = look(unit, &request, rows_max).await?.ready;
    }
    let mut candidates = found.stale;
    candidates.extend(found.ready);
    candidates.truncate(rows_max);
    take(unit, grant, candidates).await
}

/// The row with this id, if a claim that looked everywhere would take it.
async fn the_one(
    unit: &mut Unit<'_>,
    request: &ClaimRequest,
    id: WorkItemId,
) -> Result<Option<Candidate>, sqlx::Error> {
    let found: Option<(ClaimableRow, Scope)> = unit.connection.read_optional(THE_ONE, values![id]).await?;
    let Some((row, scope)) = found else { return Ok(None) };
    let candidate = row.of(&scope);
    let now = unit.time(request.now).as_millis();
    let in_time = match candidate.state {
        WorkState::Processing => lease_is_over(candidate.turn, now),
        WorkState::Delayed => candidate.turn <= now && !request.stale_only,
        WorkState::Ready => !request.stale_only,
        WorkState::Blocked | WorkState::Done | WorkState::Dead => false,
    };
    let visible = scopes(request).contains(&scope) && request.classes.contains(candidate.class);
    Ok((in_time && visible).then_some(candidate))
}

/// The rows that a claim may take, each tier in its order.
#[derive(Default)]
struct Found {
    stale: Vec<Candidate>,
    ready: Vec<Candidate>,
    /// The ranges with delayed rows whose time has come.
    due: BTreeSet<(Scope, QueueClass)>,
}

/// The first rows of each tier over all generations, work types and classes: each range is in order, and they are
/// merged here.
async fn look(unit: &mut Unit<'_>, request: &ClaimRequest, rows_max: usize) -> Result<Found, sqlx::Error> {
    let text = CLAIMABLE.of(unit.connection.engine());
    let now = unit.time(request.now).as_millis();
    let mut found = Found::default();
    for scope in scopes(request) {
        for row in unit.connection.fetch_all(text, ranges(&scope, request, now, rows_max)).await? {
            let candidate = row.read::<ClaimableRow>()?.of(&scope);
            match candidate.state {
                WorkState::Processing => found.stale.push(candidate),
                WorkState::Ready => found.ready.push(candidate),
                WorkState::Delayed => {
                    found.due.insert((candidate.scope, candidate.class));
                }
                WorkState::Blocked | WorkState::Done | WorkState::Dead => {}
            }
        }
    }
    found.stale.sort_unstable_by_key(|row| (row.turn, row.id));
    found.stale.truncate(rows_max);
    found.ready.sort_unstable_by_key(|row| (!request.preference.contains(row.class), row.turn, row.id));
    Ok(found)
}

/// The values of [`CLAIMABLE`]: up to `rows_max` rows of each class that is asked for, and none of the others.
fn ranges(scope: &Scope, request: &ClaimRequest, now: i64, rows_max: usize) -> Values {
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    let mut values = Values::default();
    for tier in TIERS {
        let (turn_max, rows_max) = match tier {
            // A lease holds to its last millisecond.
            WorkState::Processing => (now - 1, rows_max),
            _ if request.stale_only => (now, 0),
            // One row shows that the range has any.
            WorkState::Delayed => (now, 1),
            _ => (i64::MAX, rows_max),
        };
        for class in QueueClass::ALL {
            scope.bind(&mut values);
            values.push(turn_max).push(if request.classes.contains(class) { rows_max } else { 0 });
        }
    }
    values
}

/// A row of [`CLAIMABLE`], which is about one scope.
struct ClaimableRow {
    ordinal: i64,
    id: WorkItemId,
    event_id: EventId,
    namespace: Namespace,
    class: QueueClass,
    turn: i64,
    epoch: u32,
    attempt: u32,
    failures: u32,
    state: WorkState,
}

impl FromColumns for ClaimableRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            ordinal: columns.next()?,
            id: columns.next()?,
            event_id: columns.next()?,
            namespace: columns.next()?,
            class: columns.next()?,
            turn: columns.next()?,
            epoch: columns.next()?,
            attempt: columns.next()?,
            failures: columns.next()?,
            state: columns.next()?,
        })
    }
}

impl ClaimableRow {
    fn of(self, scope: &Scope) -> Candidate {
        let Self { ordinal, id, event_id, namespace, class, turn, epoch, attempt, failures, state } = self;
        let scope = scope.clone();
        Candidate { ordinal, id, event_id, namespace, scope, class, state, turn, epoch, attempt, failures }
    }
}

/// Makes delayed rows ready whose time has come, so that claims take them by their place and not by their due time.
async fn promote(unit: &mut Unit<'_>, due: &BTreeSet<(Scope, QueueClass)>, now: Timestamp) -> Result<(), sqlx::Error> {
    let text = unit.connection.engine().pick(DUE_SQLITE, DUE_MYSQL);
    for (scope, class) in due {
        let mut values = scope.values();
        values.push(*class).push(unit.time(now)).push(DUE_ROWS_MAX);
        let rows = unit.connection.execute(text, values).await?;
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        unit.count_work_items(scope, Some(WorkState::Delayed), WorkState::Ready, rows);
    }
    Ok(())
}

pub(in crate::store) async fn take(
    unit: &mut Unit<'_>,
    grant: Grant,
    candidates: Vec<Candidate>,
) -> Result<Vec<ClaimedWorkItem>, sqlx::Error> {
    let lease_until = unit.time(grant.now) + grant.lease_duration;
    let taken = TAKE
        .execute(&mut unit.connection, candidates.iter().collect(), |values, row: &Candidate| {
            values.push(row.ordinal).push(lease_until).push(grant.lease);
            values.push(row.state).push(row.turn).push(row.epoch);
            row.scope.bind(values);
            values.push(row.class);
        })
        .await?;
    let won = match usize::try_from(taken) {
        Ok(0) => Vec::new(),
        Ok(all) if all == candidates.len() => candidates,
        _ => won(unit, grant.lease, candidates).await?,
    };
    // Rows of another claim with the same token would read back as ours: no more rows are won than were written.
    all_written(taken, won.len())?;
    for row in &won {
        unit.count_work_items(&row.scope, Some(row.state), WorkState::Processing, 1);
    }
    Ok(won.into_iter().map(|row| row.claimed(grant)).collect())
}

/// The rows that were taken, where another host was faster with others.
async fn won(
    unit: &mut Unit<'_>,
    lease: LeaseToken,
    candidates: Vec<Candidate>,
) -> Result<Vec<Candidate>, sqlx::Error> {
    let bind = |values: &mut Values, ordinal: i64| {
        values.push(ordinal).push(lease);
    };
    let ordinals = candidates.iter().map(|row| row.ordinal).collect();
    let won = TAKEN.fetch(&mut unit.connection, ordinals, bind, FromColumns::read).await?;
    let won: BTreeSet<i64> = won.into_iter().collect();
    Ok(candidates.into_iter().filter(|row| won.contains(&row.ordinal)).collect())
}

impl Candidate {
    /// The row for its new owner. The end of the lease is by the owner's clock, which it read before it asked.
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

/// The scopes of a request, each once: the claim index has ranges for each.
pub(in crate::store) fn scopes(request: &ClaimRequest) -> BTreeSet<Scope> {
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
