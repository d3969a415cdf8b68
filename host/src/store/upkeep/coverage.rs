//! Coverage: whether every Event has its WorkItem. An Event without one, from a time before there were WorkItems, is
//! found by no claim: it is reported, and repaired.
//!
//! A repair is a materialization: it holds the same authority rows and the same Event rows, and decides by the current
//! rows. So it may run while hosts use the database.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::transaction::in_transaction;
use crate::env::Env;
use crate::model::ids::{EventId, WorkItemId};
use crate::model::names::{Namespace, PackName, RouteName};
use crate::model::pack::{Coalescing, GenerationNumber};
use crate::model::queue::QueueClass;
use crate::model::time::Timestamp;
use crate::store::StoreError;
use crate::store::engine::codes::sql;
use crate::store::engine::connection::{Connection, database_now};
use crate::store::engine::dialect::Lock;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::sequences::Sequences;
use crate::store::engine::statement::Statement;
use crate::store::engine::values::{Values, values};
use crate::store::work::lane::Lanes;
use crate::store::work::materialize::{
    PlannedWorkItem, WORK_TYPE, coalesces, ordinal_of, projection, store_work_items,
};
use crate::store::writer::authority::Authority;
use crate::store::writer::unit::{Scope, Unit};

/// The most Events without a WorkItem that a report names; it counts all of them.
pub const GAP_EVENTS_SHOWN_MAX: usize = 20;

/// The ordinals of Events that one statement looks over.
const WINDOW_ORDINALS: i64 = 20_000;

/// The most Events that one transaction repairs: few, because hosts wait for its locks.
const REPAIR_EVENTS_MAX: usize = 500;

/// The rules of a route for the WorkItems of its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteRules {
    /// Whether later events of a source supersede earlier ones.
    pub coalescing: Coalescing,
    /// The class, if it does not depend on the request.
    pub queue_class: QueueClass,
}

/// Reads the rules of the routes in a manifest.
pub type RulesOf<'r> = &'r (dyn Fn(&str) -> BTreeMap<RouteName, RouteRules> + Sync);

/// The rules by which Events were admitted, of the generations that were asked for.
struct Rules<'r> {
    of: RulesOf<'r>,
    known: HashMap<(PackName, GenerationNumber), BTreeMap<RouteName, RouteRules>>,
}

/// Events without a WorkItem.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CoverageGap {
    /// The number of Events.
    pub events: u64,
    /// The oldest Events, at most [`GAP_EVENTS_SHOWN_MAX`].
    pub first: Vec<EventId>,
}

/// The result of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoverageRepair {
    /// The Events that got their WorkItem.
    pub repaired: u64,
    /// The Events that did not: their namespace or their pack's generation does not exist.
    pub left: u64,
}

const MANIFEST: &str = "SELECT manifest FROM generation WHERE pack = ? AND number = ?";

const BOUNDS: &str = "SELECT min(ordinal), max(ordinal) FROM event";

const GAP: &str = sql!(
    "\
    SELECT event.ordinal, event.id FROM event LEFT JOIN work_item ON work_item.ordinal = {delivered_item} \
    WHERE event.ordinal >= ? AND event.ordinal < ? AND work_item.ordinal IS NULL ORDER BY event.ordinal"
);

const UNCOVERED: &str = sql!(
    "SELECT event.ordinal, event.id, event.namespace, event.source_key, receipt.pack, receipt.generation, \
     event.route, receipt.delivery_lane FROM wanted \
     CROSS JOIN event ON event.ordinal = wanted.ordinal CROSS JOIN receipt ON receipt.ordinal = event.receipt \
     LEFT JOIN work_item ON work_item.ordinal = {delivered_item} WHERE work_item.ordinal IS NULL"
);

/// The snapshot of a transaction, by which it knows the rows to hold.
static SEEN: Statement = Statement::select("(ordinal)", UNCOVERED);

/// The current rows, locked until the transaction ends, and the gaps with them.
static CURRENT: Statement = Statement::lock("(ordinal)", UNCOVERED, Lock::Update);

/// An Event without a WorkItem.
pub(in crate::store) struct Uncovered {
    pub(in crate::store) ordinal: i64,
    pub(in crate::store) id: EventId,
    namespace: Namespace,
    route: RouteName,
    source_key: Option<String>,
    delivery_lane: Option<RouteName>,
    pub(in crate::store) scope: Scope,
}

/// Looks for Events without a WorkItem. Reads the key of every Event, in short statements.
pub(in crate::store) async fn gap(connection: &mut Connection<'_>) -> Result<CoverageGap, StoreError> {
    let mut gap = CoverageGap::default();
    for window in windows(connection).await? {
        let missing = missing_in(connection, window, window_end(window)).await?;
        gap.events += missing.len() as u64;
        let room = GAP_EVENTS_SHOWN_MAX - gap.first.len();
        gap.first.extend(missing.into_iter().take(room).map(|(_, id)| id));
    }
    Ok(gap)
}

/// Makes the WorkItems that Events lack, a bounded number in each transaction, by the rules of the generation that
/// admitted them.
pub(in crate::store) async fn repair(
    connection: &mut Connection<'_>,
    env: &Env,
    rules: RulesOf<'_>,
) -> Result<CoverageRepair, StoreError> {
    let mut rules = Rules { of: rules, known: HashMap::new() };
    let mut sequences = Sequences::load(connection).await?;
    let mut repair = CoverageRepair::default();
    for window in windows(connection).await? {
        let missing = missing_in(connection, window, window_end(window)).await?;
        for batch in missing.chunks(REPAIR_EVENTS_MAX) {
            let ordinals: Vec<i64> = batch.iter().map(|(ordinal, _)| *ordinal).collect();
            rules.learn(connection, &ordinals).await?;
            sequences.stock(connection, ordinals.len()).await?;
            let cover = async |unit: &mut Unit<'_>| cover(unit, ordinals.clone(), env, &rules).await;
            let done = in_transaction(connection, &mut sequences, cover).await?;
            repair.repaired += done.repaired;
            repair.left += done.left;
        }
    }
    Ok(repair)
}

/// The ranges of ordinals, from the first Event to the last.
async fn windows(connection: &mut Connection<'_>) -> Result<impl Iterator<Item = i64> + use<>, StoreError> {
    let (first, last) = bounds(connection).await?.unwrap_or((0, -1));
    let step = usize::try_from(WINDOW_ORDINALS).unwrap_or(usize::MAX);
    Ok((first..=last).step_by(step))
}

/// The ordinals of the first and the last Event.
pub(in crate::store) async fn bounds(connection: &mut Connection<'_>) -> Result<Option<(i64, i64)>, StoreError> {
    let (first, last): (Option<i64>, Option<i64>) = connection.read_one(BOUNDS, values![]).await?;
    Ok(first.zip(last))
}

/// Where a window ends that begins here.
pub(in crate::store) fn window_end(first: i64) -> i64 {
    first + WINDOW_ORDINALS
}

/// The ordinals of Events in a range without a WorkItem.
pub(in crate::store) async fn missing(
    connection: &mut Connection<'_>,
    first: i64,
    end: i64,
) -> Result<Vec<i64>, StoreError> {
    Ok(missing_in(connection, first, end).await?.into_iter().map(|(ordinal, _)| ordinal).collect())
}

/// The Events among these that have no WorkItem.
pub(in crate::store) async fn uncovered_of(
    connection: &mut Connection<'_>,
    ordinals: Vec<i64>,
) -> Result<Vec<Uncovered>, StoreError> {
    Ok(SEEN.fetch(connection, ordinals, Values::only, FromColumns::read).await?)
}

async fn missing_in(connection: &mut Connection<'_>, first: i64, end: i64) -> Result<Vec<(i64, EventId)>, StoreError> {
    Ok(connection.read_all(GAP, values![first, end]).await?)
}

/// Makes the WorkItems of those Events that have none now.
async fn cover(
    unit: &mut Unit<'_>,
    ordinals: Vec<i64>,
    env: &Env,
    rules: &Rules<'_>,
) -> Result<CoverageRepair, sqlx::Error> {
    let seen = SEEN.fetch(&mut unit.connection, ordinals, Values::only, Uncovered::read).await?;
    let namespaces: HashSet<_> = seen.iter().map(|event| event.namespace.clone()).collect();
    let generations: HashSet<_> = seen.iter().map(|event| (event.scope.pack.clone(), event.scope.generation)).collect();
    let authority = Authority::load(unit, namespaces, generations).await?;
    let mut ordinals: Vec<i64> = seen.iter().map(|event| event.ordinal).collect();
    ordinals.sort_unstable();
    let mut current = CURRENT.fetch(&mut unit.connection, ordinals, Values::only, Uncovered::read).await?;
    current.sort_unstable_by_key(|event| event.ordinal);
    let found = current.len();
    current.retain(|event| authority.check(&event.namespace, &event.scope.pack, event.scope.generation).is_ok());
    let repaired = current.len();
    let now = database_now(&mut unit.connection, crate::store::LeaseTime::Database).await?.unwrap_or(env.now());
    let planned = |event: Uncovered| {
        let rules = rules.of(&event);
        event.planned(now, env, rules)
    };
    let items = current.into_iter().map(planned).collect();
    store_work_items(unit, Lanes::default(), items).await?;
    unit.write_counters().await?;
    Ok(CoverageRepair { repaired: repaired as u64, left: (found - repaired) as u64 })
}

impl FromColumns for Uncovered {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        let (ordinal, id, namespace, source_key) = columns.next()?;
        let scope = Scope { pack: columns.next()?, work_type: WORK_TYPE, generation: columns.next()? };
        let (route, stands_in_lane): (RouteName, bool) = columns.next()?;
        let delivery_lane = stands_in_lane.then(|| route.clone());
        Ok(Self { ordinal, id, namespace, route, source_key, delivery_lane, scope })
    }
}

impl Rules<'_> {
    /// Reads the manifests of the generations that admitted these Events; they never change.
    async fn learn(&mut self, connection: &mut Connection<'_>, ordinals: &[i64]) -> Result<(), StoreError> {
        for event in uncovered_of(connection, ordinals.to_vec()).await? {
            let key = (event.scope.pack, event.scope.generation);
            if !self.known.contains_key(&key) {
                let manifest: Option<String> = connection.read_optional(MANIFEST, values![&key.0, key.1]).await?;
                let rules = manifest.map_or_else(BTreeMap::new, |manifest| (self.of)(&manifest));
                self.known.insert(key, rules);
            }
        }
        Ok(())
    }

    /// The rules of an Event's route, if its manifest is known and can be read.
    fn of(&self, event: &Uncovered) -> Option<RouteRules> {
        self.known.get(&(event.scope.pack.clone(), event.scope.generation))?.get(&event.route).copied()
    }
}

impl Uncovered {
    fn planned(self, now: Timestamp, env: &Env, rules: Option<RouteRules>) -> PlannedWorkItem {
        let coalescing = rules.map_or(Coalescing::None, |rules| rules.coalescing);
        let projection = projection(coalescing, &self.route, self.source_key.as_deref());
        PlannedWorkItem {
            ordinal: ordinal_of(self.ordinal, WORK_TYPE),
            id: WorkItemId::new(now, env.id_entropy()),
            event_id: self.id,
            namespace: self.namespace,
            scope: self.scope,
            source_key: self.source_key,
            delivery_lane: self.delivery_lane,
            queue_class: rules.map_or(QueueClass::Default, |rules| rules.queue_class),
            coalesces: coalesces(coalescing, &self.route),
            projection,
            created_at: now,
            replays: None,
            action: None,
        }
    }
}
