//! Requests of schedulers and workers: claims, renewals, and the Events that are the input. `claiming` decides claims.

use std::collections::HashMap;
use std::time::Duration;

use super::claiming;
use crate::model::event::Event;
use crate::model::ids::{EventId, LeaseToken, WorkItemId};
use crate::model::names::PackName;
use crate::model::pack::GenerationNumber;
use crate::model::queue::QueueClasses;
use crate::model::time::Timestamp;
use crate::model::work_item::{ClaimedWorkItem, WorkState, WorkType};
use crate::store::engine::codes::sql;
use crate::store::engine::connection::database_now;
use crate::store::engine::row::{Columns, FromColumns, Sum};
use crate::store::engine::statement::Statement;
use crate::store::engine::values::{Values, values};
use crate::store::writer::Control;
use crate::store::{Store, StoreError};

/// The most rows of one claim.
pub const CLAIM_ROWS_MAX: u32 = 128;

/// A claim of a scheduler.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// The pack.
    pub pack: PackName,
    /// The generations that this host can run; others are invisible.
    pub generations: Vec<GenerationNumber>,
    /// The work types that the workers serve; others are invisible.
    pub work_types: Vec<WorkType>,
    /// The queue classes that the workers serve; others are invisible.
    pub classes: QueueClasses,
    /// The classes whose ready rows come first. A row never passes its lane by it, and stale rows ignore it.
    pub preference: QueueClasses,
    /// The only row to claim, under all predicates of a claim.
    pub only: Option<WorkItemId>,
    /// The most rows, up to [`CLAIM_ROWS_MAX`].
    pub rows_max: u32,
    /// Whether only rows whose lease ran out are claimed.
    pub stale_only: bool,
    /// The lease token of the won rows, fresh for every claim. A used token wins no row of the other claim.
    pub lease: LeaseToken,
    /// The duration of the lease.
    pub lease_duration: Duration,
    /// Now.
    pub now: Timestamp,
}

impl ClaimRequest {
    /// The most rows of this claim.
    pub(in crate::store) fn rows(&self) -> usize {
        usize::try_from(self.rows_max.min(CLAIM_ROWS_MAX)).unwrap_or(usize::MAX)
    }
}

/// Processing rows of a pack, over all hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessingRows {
    /// All processing rows.
    pub rows: u64,
    /// The rows whose lease ran out and that are not taken over yet.
    pub stale: u64,
}

/// A request to extend leases.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// The rows, with the lease token and epoch of their claim.
    pub rows: Vec<(WorkItemId, LeaseToken, u32)>,
    /// The new duration of the leases, from `now`.
    pub lease_duration: Duration,
    /// Now.
    pub now: Timestamp,
}

/// Whether a lease that ends at `until` is over at `now`, both in milliseconds: it holds to its last one. Statements
/// say the same, `turn < now`.
pub(in crate::store) const fn lease_is_over(until: i64, now: i64) -> bool {
    until < now
}

impl Store {
    /// Takes ownership of eligible heads: first rows whose lease ran out, then ready ones of preferred classes, then
    /// the others; in each tier by lane ordinal, `run_after`, creation and id. Delayed rows whose time has come are
    /// made ready first, a bounded number each time.
    pub async fn claim(&self, request: ClaimRequest) -> Result<Vec<ClaimedWorkItem>, StoreError> {
        self.writer.control(|reply| Control::Claim(request, reply)).await
    }

    /// The processing rows under the token of a claim, each with its epoch: the result of a claim whose answer got
    /// lost.
    pub async fn claimed_under(&self, request: &ClaimRequest) -> Result<Vec<(WorkItemId, u32)>, StoreError> {
        let mut reader = self.reader().await?;
        let mut claimed = Vec::new();
        for scope in claiming::scopes(request) {
            let mut values = scope.values();
            values.push(request.lease);
            claimed.extend(reader.connection().read_all::<(WorkItemId, u32)>(CLAIMED_UNDER, values).await?);
        }
        Ok(claimed)
    }

    /// Extends leases. Returns the rows that are still the caller's; it must stop working on the others.
    pub async fn renew(&self, renewal: Renewal) -> Result<Vec<WorkItemId>, StoreError> {
        self.writer.control(|reply| Control::Renew(renewal, reply)).await
    }

    /// Loads Events by id, in the order asked for.
    pub async fn load_events(&self, ids: &[EventId]) -> Result<Vec<Event>, StoreError> {
        let mut reader = self.reader().await?;
        let found = EVENTS.fetch(&mut reader.connection(), ids.to_vec(), Values::only, Event::read).await?;
        let mut found: HashMap<EventId, Event> = found.into_iter().map(|event| (event.id, event)).collect();
        Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
    }

    /// Loads the Events with bodies of at most `body_bytes_max`, in no particular order. Reads no other body.
    pub async fn load_small_events(&self, ids: &[EventId], body_bytes_max: u32) -> Result<Vec<Event>, StoreError> {
        let mut reader = self.reader().await?;
        let bind = |values: &mut Values, id: EventId| {
            values.push(id).push(body_bytes_max);
        };
        Ok(SMALL_EVENTS.fetch(&mut reader.connection(), ids.to_vec(), bind, FromColumns::read).await?)
    }

    /// The sizes of the bodies of Events; an Event that does not exist has no entry. Reads no body.
    pub async fn event_sizes(&self, ids: &[EventId]) -> Result<HashMap<EventId, u64>, StoreError> {
        let mut reader = self.reader().await?;
        let sizes = SIZES.fetch(&mut reader.connection(), ids.to_vec(), Values::only, FromColumns::read).await?;
        Ok(sizes.into_iter().collect())
    }

    /// Counts the processing rows of `pack` over all hosts, by the counters, and those with a lease that had run out at
    /// `now`: the same cost at any backlog, plus a row read for each stale one.
    pub async fn processing_rows(&self, pack: &PackName, now: Timestamp) -> Result<ProcessingRows, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let now = database_now(&mut connection, self.lease_time).await?.unwrap_or(now);
        let values = values![now, pack, pack, WorkState::Processing];
        let (Sum(rows), stale) = connection.read_one(PROCESSING_ROWS, values).await?;
        Ok(ProcessingRows { rows, stale })
    }

    /// The time, at `from` or later, at which the next WorkItem of `pack` becomes claimable by time alone: a delay ends
    /// or a lease runs out. Rows that were claimable before are left out: this host may not be able to run them, and
    /// they would hide later ones.
    ///
    /// `from` is about now. Where the database's clock measures leases, its time is converted to the caller's.
    pub async fn next_claimable_at(&self, pack: &PackName, from: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let database_now = database_now(&mut connection, self.lease_time).await?;
        let ahead = database_now.map_or(0, |now| now.as_millis() - from.as_millis());
        let values = values![from.as_millis() + ahead, pack];
        let at: Option<Timestamp> = connection.read_one(NEXT_CLAIMABLE, values).await?;
        Ok(at.map(|at| Timestamp::from_millis(at.as_millis() - ahead)))
    }
}

/// The processing rows of a generation, in the claim index.
const CLAIMED_UNDER: &str = sql!(
    "SELECT id, epoch FROM work_item WHERE pack = ? AND work_type = ? AND generation = ? AND state IN ({claimable}) AND state = {processing} \
    AND queue_class IN ({any_class}) AND lease_token = ?"
);

/// The columns of an [`Event`].
macro_rules! event_columns {
    () => {
        "event.id, receipt.id, event.namespace, receipt.pack, receipt.generation, event.route, event.source_key, \
         event.delivery_key, event.payload_digest, receipt.content_type, receipt.headers, event.body, receipt.received_at"
    };
}

pub(in crate::store) static EVENTS: Statement = Statement::select(
    "(id)",
    concat!(
        "SELECT ",
        event_columns!(),
        " FROM wanted CROSS JOIN event ON event.id = wanted.id CROSS JOIN receipt ON receipt.ordinal = event.receipt"
    ),
);

static SMALL_EVENTS: Statement = Statement::select(
    "(id, bytes_max)",
    concat!(
        "SELECT ",
        event_columns!(),
        " FROM wanted CROSS JOIN event ON event.id = wanted.id AND length(event.body) <= wanted.bytes_max \
         CROSS JOIN receipt ON receipt.ordinal = event.receipt"
    ),
);

/// SQLite knows a blob's length from the head of its row, wherever the blob itself is.
static SIZES: Statement = Statement::select(
    "(id)",
    "SELECT event.id, length(event.body) FROM wanted CROSS JOIN event ON event.id = wanted.id",
);

/// A count is the sum over stripes; `SIGNED`, because a sum is a decimal number on some engines.
///
/// Stale rows are one short range of the claim index for each generation and work type that the counters know, and each
/// queue class. A lease holds to its last millisecond.
const PROCESSING_ROWS: &str = sql!(
    "SELECT CAST(coalesce(sum(count), 0) AS SIGNED), (SELECT CAST(coalesce(sum((SELECT count(*) FROM work_item \
    WHERE work_item.pack = scope.pack AND work_item.work_type = scope.work_type \
    AND work_item.generation = scope.generation AND work_item.state IN ({claimable}) AND work_item.state = {processing} \
    AND work_item.queue_class = class.code AND work_item.turn < ?)), 0) AS SIGNED) \
    FROM (SELECT pack, work_type, generation FROM work_item_counter WHERE pack = ? AND state = {processing} \
    GROUP BY pack, work_type, generation) AS scope \
    CROSS JOIN (SELECT {interactive} AS code UNION ALL SELECT {default} UNION ALL SELECT {bulk}) AS class) \
    FROM work_item_counter WHERE pack = ? AND state = ?"
);

/// The earliest turn, from a time on, among a pack's delayed and processing rows: one index seek for each
/// generation, work type and state that the counters know, and each queue class.
const NEXT_CLAIMABLE: &str = sql!(
    "SELECT min((SELECT min(work_item.turn) FROM work_item WHERE work_item.pack = counter.pack \
    AND work_item.work_type = counter.work_type AND work_item.generation = counter.generation \
    AND work_item.state = counter.state AND work_item.state IN ({claimable}) AND work_item.queue_class = class.code \
    AND work_item.turn >= ?)) FROM work_item_counter AS counter \
    CROSS JOIN (SELECT {interactive} AS code UNION ALL SELECT {default} UNION ALL SELECT {bulk}) AS class WHERE counter.pack = ? AND counter.state IN ({delayed}, {processing})"
);

impl FromColumns for Event {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: columns.next()?,
            receipt_id: columns.next()?,
            namespace: columns.next()?,
            pack: columns.next()?,
            generation: columns.next()?,
            route: columns.next()?,
            source_key: columns.next()?,
            delivery_key: columns.next()?,
            payload_digest: columns.next()?,
            content_type: columns.next()?,
            headers: columns.next()?,
            body: columns.next()?,
            received_at: columns.next()?,
        })
    }
}
