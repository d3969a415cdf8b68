//! Replay: a finished WorkItem is run again, as exactly one child on the same Event.
//!
//! Invariants:
//! - The parent's `replayed_at` is reserved by compare-and-swap in the transaction that stores the child, so that
//!   a second request is answered with the first one's child.
//! - The Event is read and never written. One that the older protocol replayed gets no child here.
//! - A child is a WorkItem like any other: it waits its turn at the end of its lane, and can be replayed in its turn.
//!
//! Rows are locked Event first, then WorkItem, then lane.

use std::collections::{BTreeMap, HashMap};

use super::finalize;
use super::lane::{LaneIds, Lanes};
use super::materialize::{PlannedWorkItem, ordinal_of, store_work_items};
use super::projection::{Part, Projection};
use crate::model::ids::{EventId, WorkItemId};
use crate::model::names::{Namespace, RouteName};
use crate::model::queue::QueueClass;
use crate::model::time::Timestamp;
use crate::model::work_item::{WorkState, WorkType};
use crate::store::engine::codes::sql;
use crate::store::engine::dialect::Lock;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::statement::Statement;
use crate::store::engine::values::Values;
use crate::store::messages::actions::Applies;
use crate::store::writer::Control;
use crate::store::writer::unit::{Answers, Scope, Unit, all_written};
use crate::store::{Store, StoreError};

/// The answer to a request to replay a WorkItem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed {
    /// The WorkItem runs again, as this child.
    Replayed(WorkItemId),
    /// The WorkItem was replayed before, as this child.
    Already(WorkItemId),
    /// The WorkItem has not ended, but is in this state.
    NotFinished(WorkState),
    /// The older protocol replayed its Event, at this time.
    Fenced(Timestamp),
    /// There is no such WorkItem.
    NotFound,
}

/// A request to replay a WorkItem.
#[derive(Debug, Clone)]
pub(in crate::store) struct Replay {
    parent: WorkItemId,
    child: WorkItemId,
    now: Timestamp,
}

impl Store {
    /// Runs a finished WorkItem again, on the generation that it ran on: as `child`, unless it has a child already.
    ///
    /// A dead head that blocks its lane leaves it: the child, at the lane's end, would wait for it for ever.
    pub async fn replay(&self, parent: WorkItemId, child: WorkItemId, now: Timestamp) -> Result<Replayed, StoreError> {
        self.writer.control(|reply| Control::Replay(Replay { parent, child, now }, reply)).await
    }
}

/// The ordinal of a WorkItem that no delivery brought, a replay or an action's: below 0, with the work type in its low
/// bits as everywhere.
pub(in crate::store) fn ordinal(number: i64, work_type: WorkType) -> i64 {
    ordinal_of(-number, work_type)
}

/// Whether this is the ordinal of a WorkItem that no delivery brought.
pub(in crate::store) fn is_replay(ordinal: i64) -> bool {
    ordinal < 0
}

/// The Events of WorkItems, and whether the WorkItem that an Event's delivery brought is a generation of a projection:
/// all its replays then stand in the projection's line. Neither ever changes.
static EVENTS_OF: Statement = Statement::select(
    "(id)",
    sql!(
        "SELECT work_item.event_id, first.projection_key IS NOT NULL FROM wanted CROSS JOIN work_item ON work_item.id = wanted.id \
     CROSS JOIN event ON event.id = work_item.event_id LEFT JOIN work_item AS first ON first.ordinal = {delivered_item}"
    ),
);

static HOLD_EVENTS: Statement = Statement::lock(
    "(id)",
    "SELECT event.id, event.ordinal, event.source_key, event.replayed_at, event.route, receipt.delivery_lane FROM wanted \
     CROSS JOIN event ON event.id = wanted.id CROSS JOIN receipt ON receipt.ordinal = event.receipt",
    Lock::Share,
);

static HOLD_PARENTS: Statement = Statement::lock(
    "(id)",
    "SELECT work_item.id, work_item.ordinal, work_item.event_id, work_item.namespace, work_item.pack, \
     work_item.work_type, work_item.generation, work_item.state, work_item.delivery_lane_id, work_item.source_lane_id, work_item.queue_class, \
     work_item.action FROM wanted CROSS JOIN work_item ON work_item.id = wanted.id",
    Lock::Update,
);

static CHILDREN: Statement = Statement::lock(
    "(id)",
    "SELECT work_item.replay_of, work_item.id FROM wanted CROSS JOIN work_item ON work_item.replay_of = wanted.id",
    Lock::Share,
);

static RESERVE: Statement = Statement::update(
    "work_item",
    "replayed_at = reserved.replayed_at",
    "reserved (ordinal, replayed_at)",
    sql!(
        "work_item.ordinal = reserved.ordinal AND work_item.state IN ({done}, {dead}) \
         AND work_item.replayed_at IS NULL"
    ),
);

/// The columns of an Event that a replay needs.
struct Input {
    ordinal: i64,
    source_key: Option<String>,
    route: RouteName,
    delivery_lane: Option<RouteName>,
    replayed_at: Option<Timestamp>,
    /// Whether its delivery's WorkItem is a generation of a projection.
    is_projected: bool,
}

/// A WorkItem that is to be replayed.
struct Parent {
    ordinal: i64,
    event_id: EventId,
    namespace: Namespace,
    scope: Scope,
    state: WorkState,
    lanes: LaneIds,
    queue_class: QueueClass,
    /// The ordinal of the message that it applies.
    action: Option<i64>,
}

/// The rows of a group of requests, held until the transaction ends.
struct Held {
    events: HashMap<EventId, Input>,
    parents: HashMap<WorkItemId, Parent>,
    children: HashMap<WorkItemId, WorkItemId>,
}

/// The changes of replays.
#[derive(Default)]
struct Plan {
    reserved: Vec<(i64, Timestamp)>,
    children: Vec<PlannedWorkItem>,
    /// The dead heads that block their lanes: ordinal and lanes.
    holders: Vec<(i64, LaneIds)>,
}

/// Applies replays in order.
pub(in crate::store) async fn apply(
    unit: &mut Unit<'_>,
    requests: Vec<Replay>,
) -> Result<Answers<Replayed>, sqlx::Error> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let mut held = Held::load(unit, requests.iter().map(|request| request.parent).collect()).await?;
    let mut plan = Plan::default();
    let answers = requests.into_iter().map(|request| Ok(held.decide(unit, &mut plan, &request))).collect();
    plan.store(unit).await?;
    Ok(answers)
}

impl Held {
    async fn load(unit: &mut Unit<'_>, mut parents: Vec<WorkItemId>) -> Result<Self, sqlx::Error> {
        parents.sort_unstable();
        parents.dedup();
        let events = load_events(unit, parents.clone()).await?;
        let held = HOLD_PARENTS.fetch(&mut unit.connection, parents.clone(), Values::only, parent).await?;
        let children = CHILDREN.fetch(&mut unit.connection, parents, Values::only, FromColumns::read).await?;
        Ok(Self { events, parents: held.into_iter().collect(), children: children.into_iter().collect() })
    }

    fn decide(&mut self, unit: &mut Unit<'_>, plan: &mut Plan, request: &Replay) -> Replayed {
        let Some(parent) = self.parents.get(&request.parent) else { return Replayed::NotFound };
        let Some(event) = self.events.get(&parent.event_id) else { return Replayed::NotFound };
        if let Some(child) = self.children.get(&request.parent) {
            return Replayed::Already(*child);
        }
        if let Some(replayed_at) = event.replayed_at {
            return Replayed::Fenced(replayed_at);
        }
        if !parent.state.is_terminal() {
            return Replayed::NotFinished(parent.state);
        }
        self.children.insert(request.parent, request.child);
        plan.add(unit, parent, event, request);
        Replayed::Replayed(request.child)
    }
}

impl Plan {
    fn add(&mut self, unit: &mut Unit<'_>, parent: &Parent, event: &Input, request: &Replay) {
        self.reserved.push((parent.ordinal, request.now));
        // Actions stand in no lane.
        let stands_in_lanes = parent.action.is_none();
        let is_projected = event.is_projected && stands_in_lanes;
        self.children.push(PlannedWorkItem {
            ordinal: ordinal(unit.sequences.replay(), parent.scope.work_type),
            id: request.child,
            event_id: parent.event_id,
            namespace: parent.namespace.clone(),
            scope: parent.scope.clone(),
            source_key: event.source_key.clone().filter(|_| stands_in_lanes),
            delivery_lane: event.delivery_lane.clone().filter(|_| stands_in_lanes),
            queue_class: parent.queue_class,
            // An operator asked for it: nothing supersedes it.
            coalesces: None,
            projection: is_projected.then(|| Projection { route: event.route.clone(), part: Part::Replay }),
            created_at: request.now,
            replays: Some((request.parent, event.ordinal)),
            action: parent.action.map(|message| Applies { message, event: Some(event.ordinal) }),
        });
        if parent.state == WorkState::Dead && !parent.lanes.is_empty() {
            self.holders.push((parent.ordinal, parent.lanes));
        }
    }

    /// Children enter their lanes before heads leave them, so that each is placed behind the items that wait.
    async fn store(self, unit: &mut Unit<'_>) -> Result<(), sqlx::Error> {
        let expected = self.reserved.len();
        let reserved = RESERVE
            .execute(&mut unit.connection, self.reserved, |values, (ordinal, now)| {
                values.push(ordinal).push(now);
            })
            .await?;
        all_written(reserved, expected)?;
        store_work_items(unit, Lanes::default(), self.children).await?;
        finalize::leave_lanes(unit, self.holders).await
    }
}

async fn load_events(unit: &mut Unit<'_>, parents: Vec<WorkItemId>) -> Result<HashMap<EventId, Input>, sqlx::Error> {
    let projected = EVENTS_OF.fetch(&mut unit.connection, parents, Values::only, FromColumns::read).await?;
    let projected: BTreeMap<EventId, bool> = projected.into_iter().collect();
    let ids = projected.keys().copied().collect();
    let events = HOLD_EVENTS
        .fetch(&mut unit.connection, ids, Values::only, |columns| {
            let (id, ordinal, source_key, replayed_at) = columns.next()?;
            let (route, stands_in_lane): (RouteName, bool) = columns.next()?;
            let delivery_lane = stands_in_lane.then(|| route.clone());
            let is_projected = projected[&id];
            Ok((id, Input { ordinal, source_key, route, delivery_lane, replayed_at, is_projected }))
        })
        .await?;
    Ok(events.into_iter().collect())
}

fn parent(columns: &mut Columns<'_>) -> Result<(WorkItemId, Parent), sqlx::Error> {
    let id = columns.next()?;
    let parent = Parent {
        ordinal: columns.next()?,
        event_id: columns.next()?,
        namespace: columns.next()?,
        scope: columns.next()?,
        state: columns.next()?,
        lanes: columns.next()?,
        queue_class: columns.next()?,
        action: columns.next()?,
    };
    Ok((id, parent))
}
