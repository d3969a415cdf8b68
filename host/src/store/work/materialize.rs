//! Materialization: receipt, Events, lanes and WorkItems in one transaction.
//!
//! Reads inside the transaction decide the answer to a delivery. The embedded database has one writer: the rows that
//! they find are the winners, and nothing can come between them and the writes. Where hosts share a database, a read
//! may show the state before another one's commit, and waiting for a lock does not renew the snapshot of a transaction.
//! So an insert that finds a key taken ends the attempt, and the next attempt reads the current rows and holds them: it
//! converges on the winner, and no neighbour is lost.
//!
//! | of the delivery's events, by key | answer |
//! |---|---|
//! | one is durable with another payload | `Conflict`; nothing of it is stored |
//! | all are durable with these payloads | `Duplicate`; nothing is stored |
//! | some are durable, the others new | `Stored`; the new ones are stored, the others keep their ids |
//! | all are new | `Stored` |
//!
//! An Event that is durable without its WorkItem gets it with the next delivery of its key, unless that conflicts.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::enqueue::{Delivery, Enqueued, NewEvent};
use super::lane::{LaneKey, Lanes};
use super::projection::{self, Part, Projection};
use crate::model::ids::{EventId, ReceiptId, WorkItemId};
use crate::model::lane::LaneKind;
use crate::model::names::{Namespace, PackName, RouteName};
use crate::model::pack::{Coalescing, GenerationNumber, Ordering};
use crate::model::queue::QueueClass;
use crate::model::time::Timestamp;
use crate::model::work_item::{WorkState, WorkType};
use crate::store::engine::codes::{Coded as _, sql};
use crate::store::engine::dialect::{Conflict, Engine, Lock};
use crate::store::engine::row::Columns;
use crate::store::engine::statement::{Reads, Statement};
use crate::store::messages::actions::Applies;
use crate::store::writer::authority::Authority;
use crate::store::writer::unit::{Answers, Scope, Unit};

/// The type of the WorkItems that deliveries bring.
pub(in crate::store) const WORK_TYPE: WorkType = WorkType::ConnectorEvent;

/// The low bits of a WorkItem's ordinal are its work type, the others its Event's ordinal. Statements have this number
/// and the code of [`WORK_TYPE`] in the words `delivered_item` and `items_of_event`.
pub(in crate::store) const WORK_TYPES_PER_EVENT: i64 = 16;

/// The ordinal of an Event's WorkItem of this type.
pub(in crate::store) fn ordinal_of(event: i64, work_type: WorkType) -> i64 {
    event * WORK_TYPES_PER_EVENT + work_type.code()
}

const BY_KEY: &str = sql!(
    "\
    SELECT event.namespace, event.route, event.delivery_key, event.ordinal, event.id, receipt.id, receipt.pack, \
    receipt.generation, event.payload_digest, event.source_key, work_item.ordinal IS NOT NULL, receipt.delivery_lane \
    FROM wanted CROSS JOIN event ON event.namespace = wanted.namespace AND event.route = wanted.route \
    AND event.delivery_key = wanted.delivery_key CROSS JOIN receipt ON receipt.ordinal = event.receipt \
    LEFT JOIN work_item ON work_item.ordinal = {delivered_item}"
);

/// The snapshot of this transaction. Where others write too, it may be old.
static SEEN: Statement = Statement::select("(namespace, route, delivery_key)", BY_KEY);

/// The current rows, locked until the transaction ends, and the gaps with them.
static CURRENT: Statement = Statement::lock("(namespace, route, delivery_key)", BY_KEY, Lock::Update);

static INSERT_RECEIPTS: Statement = Statement::insert(
    "receipt (ordinal, id, pack, generation, received_at, content_type, headers, delivery_lane)",
    Conflict::Fail,
);

static INSERT_EVENTS: Statement = Statement::insert(
    "event (ordinal, id, receipt, namespace, route, delivery_key, source_key, payload_digest, body)",
    Conflict::Fail,
);

static INSERT_WORK_ITEMS: Statement = Statement::insert(
    "work_item (ordinal, id, event_id, work_type, namespace, pack, generation, state, turn, source_lane_id, \
     delivery_lane_id, blockers, lane_ordinal, run_after, created_at, epoch, attempt, failures, ignored, replay_of, \
     replay_event, queue_class, coalesces, action, projection_key, projection_active_key)",
    Conflict::Fail,
);

/// The key of an Event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct EventKey {
    namespace: Namespace,
    route: RouteName,
    delivery_key: String,
}

impl EventKey {
    fn of(delivery: &Delivery, event: &NewEvent) -> Self {
        Self {
            namespace: delivery.namespace.clone(),
            route: delivery.route.clone(),
            delivery_key: event.delivery_key.clone(),
        }
    }
}

/// An Event that is durable, or that this transaction makes durable.
struct Known {
    ordinal: i64,
    id: EventId,
    receipt_id: ReceiptId,
    pack: PackName,
    generation: GenerationNumber,
    payload_digest: [u8; 32],
    source_key: Option<String>,
    delivery_lane: Option<RouteName>,
    has_work_item: bool,
}

impl Known {
    /// Whether a delivered event is this one. The payload decides; where the same rules were applied to both, they must
    /// also have found the same source.
    fn is(&self, generation: GenerationNumber, event: &NewEvent) -> bool {
        self.payload_digest == event.payload_digest
            && (self.generation != generation || self.source_key == event.source_key)
    }
}

/// An Event to be stored.
struct PlannedEvent {
    ordinal: i64,
    receipt: i64,
    namespace: Namespace,
    route: RouteName,
    event: NewEvent,
}

/// A WorkItem to be stored, at the end of its lane.
pub(in crate::store) struct PlannedWorkItem {
    pub(in crate::store) ordinal: i64,
    pub(in crate::store) id: WorkItemId,
    pub(in crate::store) event_id: EventId,
    pub(in crate::store) namespace: Namespace,
    pub(in crate::store) scope: Scope,
    pub(in crate::store) source_key: Option<String>,
    /// The route of its delivery lane.
    pub(in crate::store) delivery_lane: Option<RouteName>,
    pub(in crate::store) queue_class: QueueClass,
    /// The route by which a later item of its source supersedes it.
    pub(in crate::store) coalesces: Option<RouteName>,
    /// The projection of its source, which is then its only lane.
    pub(in crate::store) projection: Option<Projection>,
    pub(in crate::store) created_at: Timestamp,
    /// The WorkItem that it replays, and the ordinal of its Event.
    pub(in crate::store) replays: Option<(WorkItemId, i64)>,
    /// The action that it applies, if no Event brought it.
    pub(in crate::store) action: Option<Applies>,
}

/// The rows that a group of deliveries stores.
struct Plan {
    known: HashMap<EventKey, Known>,
    lanes: Lanes,
    receipts: Vec<(i64, Delivery)>,
    events: Vec<PlannedEvent>,
    work_items: Vec<PlannedWorkItem>,
}

/// Applies deliveries in order.
pub(in crate::store) async fn apply(
    unit: &mut Unit<'_>,
    deliveries: Vec<Delivery>,
) -> Result<Answers<Enqueued>, sqlx::Error> {
    if deliveries.is_empty() {
        return Ok(Vec::new());
    }
    let authority = Authority::of(unit, &deliveries).await?;
    let (known, lanes) = load(unit, &deliveries).await?;
    let mut plan = Plan { known, lanes, receipts: Vec::new(), events: Vec::new(), work_items: Vec::new() };
    let mut answers = Vec::with_capacity(deliveries.len());
    for delivery in deliveries {
        answers.push(match authority.check(&delivery.namespace, &delivery.pack, delivery.generation) {
            Ok(()) => Ok(plan.add(unit, delivery)),
            Err(refusal) => Err(refusal),
        });
    }
    unit.authority = authority;
    plan.store(unit).await?;
    Ok(answers)
}

impl Plan {
    fn add(&mut self, unit: &mut Unit<'_>, mut delivery: Delivery) -> Enqueued {
        if let Some(event_id) = self.conflict(&delivery) {
            return Enqueued::Conflict { event_id };
        }
        let receipt = unit.sequences.receipt();
        let events_before = self.events.len();
        let mut first_receipt = delivery.receipt_id;
        let mut ids = Vec::with_capacity(delivery.events.len());
        for event in std::mem::take(&mut delivery.events) {
            let (id, receipt_id) = self.add_event(unit, &delivery, receipt, event);
            if ids.is_empty() {
                first_receipt = receipt_id;
            }
            ids.push(id);
        }
        if self.events.len() == events_before {
            return Enqueued::Duplicate { receipt_id: first_receipt, events: ids };
        }
        self.receipts.push((receipt, delivery));
        Enqueued::Stored { events: ids }
    }

    /// The Event that a delivery conflicts with: one of the same key with another payload or source.
    fn conflict(&self, delivery: &Delivery) -> Option<EventId> {
        let mut own: HashMap<&str, &NewEvent> = HashMap::new();
        for event in &delivery.events {
            if let Some(known) = self.known.get(&EventKey::of(delivery, event))
                && !known.is(delivery.generation, event)
            {
                return Some(known.id);
            }
            let first = own.entry(&event.delivery_key).or_insert(event);
            if first.payload_digest != event.payload_digest {
                return Some(first.id);
            }
        }
        None
    }

    /// Plans what is missing of one event. Returns the ids of the Event that has its key, and of that one's receipt.
    fn add_event(
        &mut self,
        unit: &mut Unit<'_>,
        delivery: &Delivery,
        receipt: i64,
        event: NewEvent,
    ) -> (EventId, ReceiptId) {
        let (work_item_id, queue_class) = (event.work_item_id, event.queue_class);
        let known = match self.known.entry(EventKey::of(delivery, &event)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let ordinal = unit.sequences.event();
                let known = entry.insert(Known {
                    ordinal,
                    id: event.id,
                    receipt_id: delivery.receipt_id,
                    pack: delivery.pack.clone(),
                    generation: delivery.generation,
                    payload_digest: event.payload_digest,
                    source_key: event.source_key.clone(),
                    delivery_lane: in_delivery_lane(delivery),
                    has_work_item: false,
                });
                let (namespace, route) = (delivery.namespace.clone(), delivery.route.clone());
                self.events.push(PlannedEvent { ordinal, receipt, namespace, route, event });
                known
            }
        };
        if !known.has_work_item {
            known.has_work_item = true;
            self.work_items.push(PlannedWorkItem {
                ordinal: ordinal_of(known.ordinal, WORK_TYPE),
                id: work_item_id,
                event_id: known.id,
                namespace: delivery.namespace.clone(),
                scope: Scope { pack: known.pack.clone(), work_type: WORK_TYPE, generation: known.generation },
                source_key: known.source_key.clone(),
                delivery_lane: known.delivery_lane.clone(),
                queue_class,
                coalesces: coalesces(delivery.coalescing, &delivery.route),
                projection: projection(delivery.coalescing, &delivery.route, known.source_key.as_deref()),
                created_at: delivery.received_at,
                replays: None,
                action: None,
            });
        }
        (known.id, known.receipt_id)
    }

    async fn store(self, unit: &mut Unit<'_>) -> Result<(), sqlx::Error> {
        INSERT_RECEIPTS
            .write(&mut unit.connection, self.receipts, |values, (ordinal, delivery)| {
                values.push(ordinal).push(delivery.receipt_id).push(&delivery.pack);
                values.push(delivery.generation).push(delivery.received_at);
                values.push(delivery.content_type).push(delivery.headers.as_slice());
                values.push(delivery.ordering == Ordering::Delivery);
            })
            .await?;
        INSERT_EVENTS
            .write(
                &mut unit.connection,
                self.events,
                |values, PlannedEvent { ordinal, receipt, namespace, route, event }| {
                    values.push(ordinal).push(event.id).push(receipt);
                    values.push(&namespace).push(&route).push(event.delivery_key).push(event.source_key);
                    values.push(event.payload_digest).push(event.body);
                },
            )
            .await?;
        store_work_items(unit, self.lanes, self.work_items).await
    }
}

/// Stores WorkItems, each in its lane's next place; `lanes` are those that have been read already.
pub(in crate::store) async fn store_work_items(
    unit: &mut Unit<'_>,
    mut lanes: Lanes,
    items: Vec<PlannedWorkItem>,
) -> Result<(), sqlx::Error> {
    lanes.load(unit, items.iter().flat_map(PlannedWorkItem::lanes).collect()).await?;
    let mut placed = Vec::with_capacity(items.len());
    let mut queued = BTreeMap::new();
    for item in items {
        let place = lanes.append(unit, item.lanes().collect(), item.ordinal, item.created_at);
        let state = place.blockers.state();
        unit.count_work_items(&item.scope, None, state, 1);
        unit.work_changed |= state == WorkState::Ready;
        if item.generation_of().is_some() && state == WorkState::Blocked {
            queued.extend(place.lanes.source.map(|line| (line, item.created_at)));
        }
        placed.push((item, place));
    }
    lanes.save(unit).await?;
    INSERT_WORK_ITEMS
        .write(&mut unit.connection, placed, |values, (item, place)| {
            let generation_of = item.generation_of().map(str::to_owned);
            let active = generation_of.clone().filter(|_| place.blockers.state() == WorkState::Ready);
            values.push(item.ordinal).push(item.id).push(item.event_id);
            let Scope { pack, work_type, generation } = item.scope;
            values.push(work_type).push(&item.namespace).push(&pack).push(generation).push(place.blockers.state());
            values.push(place.ordinal).push(place.lanes.source).push(place.lanes.delivery).push(place.blockers);
            values.push(place.ordinal).push(item.created_at).push(item.created_at);
            values.push(0_u32).push(0_u32).push(0_u32).push(false);
            let (parent, event) = item.replays.unzip();
            values
                .push(parent)
                .push(event.or(item.action.and_then(|action| action.event)))
                .push(item.queue_class)
                .push(item.coalesces.as_ref())
                .push(item.action.map(|action| action.message))
                .push(generation_of)
                .push(active);
        })
        .await?;
    projection::supersede(unit, queued).await
}

impl PlannedWorkItem {
    /// The lanes that it stands in, one of each kind at most.
    fn lanes(&self) -> impl Iterator<Item = LaneKey> + '_ {
        let projection = self.projection.as_ref().map(|projection| &projection.route);
        let (namespace, pack) = (&self.namespace, &self.scope.pack);
        lanes(namespace, pack, self.delivery_lane.as_ref(), projection, self.source_key.as_deref())
    }

    /// The source whose projection it is a generation of.
    fn generation_of(&self) -> Option<&str> {
        let is_generation = self.projection.as_ref().is_some_and(|projection| projection.part == Part::Generation);
        self.source_key.as_deref().filter(|_| is_generation)
    }
}

/// The line of the projection that `projection` names, or a delivery lane and the lane of a source.
fn lanes<'a>(
    namespace: &'a Namespace,
    pack: &'a PackName,
    route: Option<&'a RouteName>,
    projection: Option<&'a RouteName>,
    source: Option<&'a str>,
) -> impl Iterator<Item = LaneKey> + 'a {
    let line = projection.zip(source).map(|(route, source)| projection::line(namespace, pack, route, source));
    let (route, source) = if line.is_some() { (None, None) } else { (route, source) };
    let delivery = route.map(|route| (LaneKind::Delivery, route.as_str()));
    let source = source.map(|source| (LaneKind::Source, source));
    let lanes = delivery.into_iter().chain(source).map(|(kind, key)| LaneKey {
        kind,
        namespace: namespace.clone(),
        pack: pack.clone(),
        key: key.to_owned(),
    });
    lanes.chain(line)
}

/// The durable Events, and in an embedded database, which has no other writer, the lanes too.
async fn load(unit: &mut Unit<'_>, deliveries: &[Delivery]) -> Result<(HashMap<EventKey, Known>, Lanes), sqlx::Error> {
    let events = deliveries.iter().flat_map(|delivery| delivery.events.iter().map(move |event| (delivery, event)));
    let mut keys = HashSet::new();
    let mut lane_keys = HashSet::new();
    for (delivery, event) in events {
        keys.insert(EventKey::of(delivery, event));
        let (route, source) = (in_delivery_lane(delivery), event.source_key.as_deref());
        let projection = projection(delivery.coalescing, &delivery.route, source).map(|projection| projection.route);
        lane_keys.extend(lanes(&delivery.namespace, &delivery.pack, route.as_ref(), projection.as_ref(), source));
    }
    let engine = unit.connection.engine();
    let mut reads = Reads::of(engine);
    let known = reads.ask(if unit.attempt == 0 { &SEEN } else { &CURRENT }, sorted(keys), |values, key| {
        values.push(&key.namespace).push(&key.route).push(key.delivery_key);
    });
    let ahead = match engine {
        Engine::Sqlite => Lanes::ask(&mut reads, sorted(lane_keys)),
        Engine::MySql { .. } => Lanes::ask(&mut reads, Vec::new()),
    };
    let answered = reads.answer(&mut unit.connection).await?;
    let known = answered.decode(known, known_event)?;
    Ok((known.into_iter().collect(), Lanes::answered(&answered, ahead)?))
}

fn known_event(columns: &mut Columns<'_>) -> Result<(EventKey, Known), sqlx::Error> {
    let key = EventKey { namespace: columns.next()?, route: columns.next()?, delivery_key: columns.next()? };
    let known = Known {
        ordinal: columns.next()?,
        id: columns.next()?,
        receipt_id: columns.next()?,
        pack: columns.next()?,
        generation: columns.next()?,
        payload_digest: columns.next()?,
        source_key: columns.next()?,
        has_work_item: columns.next()?,
        delivery_lane: columns.next::<bool>()?.then(|| key.route.clone()),
    };
    Ok((key, known))
}

/// The route whose delivery lane the events of a delivery stand in.
fn in_delivery_lane(delivery: &Delivery) -> Option<RouteName> {
    match delivery.ordering {
        Ordering::Delivery => Some(delivery.route.clone()),
        Ordering::None | Ordering::Source => None,
    }
}

/// The route by which later events of a source supersede earlier ones.
pub(in crate::store) fn coalesces(coalescing: Coalescing, route: &RouteName) -> Option<RouteName> {
    match coalescing {
        Coalescing::LatestBySource => Some(route.clone()),
        Coalescing::None | Coalescing::SourceProjection => None,
    }
}

/// The projection of an event of `route` about `source`.
pub(in crate::store) fn projection(
    coalescing: Coalescing,
    route: &RouteName,
    source: Option<&str>,
) -> Option<Projection> {
    match coalescing {
        Coalescing::SourceProjection => source.map(|_| Projection { route: route.clone(), part: Part::Generation }),
        Coalescing::None | Coalescing::LatestBySource => None,
    }
}

/// Rows are locked in order, so that two transactions do not wait for each other.
pub(in crate::store) fn sorted<T: Ord>(set: HashSet<T>) -> Vec<T> {
    let mut sorted: Vec<T> = set.into_iter().collect();
    sorted.sort_unstable();
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_and_code_have_the_same_ordinals() {
        let delivered = format!("event.ordinal * {WORK_TYPES_PER_EVENT} + {}", ordinal_of(0, WORK_TYPE));
        assert_eq!(sql!("{delivered_item}"), delivered);
        let last = WORK_TYPES_PER_EVENT - 1;
        let items =
            format!("event.ordinal * {WORK_TYPES_PER_EVENT} AND event.ordinal * {WORK_TYPES_PER_EVENT} + {last}");
        assert_eq!(sql!("{items_of_event}"), items);
    }
}
