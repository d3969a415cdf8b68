//! What operations cost, as the engine counts it: virtual machine steps of SQLite, rows that a server's handlers read.
//!
//! Everything that is measured is undone.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::model::retention::Keep;
use crate::store::engine::sequences::Sequences;
use crate::store::engine::values::values;
use crate::store::retention;
use crate::store::work::{claiming, finalize};
use crate::store::writer::unit::{Terms, Unit};

/// How often an operation is measured. The first time, statements are prepared and pages are read. Also later an engine
/// may do something beside it now and then, which only ever adds; so the least of several counts.
const TIMES: usize = 4;

/// What the operations of the queue cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Costs {
    /// A claim of 32 rows.
    pub(super) claim: u64,
    /// The renewal of these rows' leases.
    pub(super) renewal: u64,
    /// The end of these rows.
    pub(super) finish: u64,
    /// The end of one head, whose successor becomes the head of its lane.
    pub(super) promotion: u64,
}

impl Costs {
    /// Each with its name.
    pub(super) fn named(self) -> [(&'static str, u64); 4] {
        [("claim", self.claim), ("renewal", self.renewal), ("finish", self.finish), ("promotion", self.promotion)]
    }

    fn least(self, other: Self) -> Self {
        Self {
            claim: self.claim.min(other.claim),
            renewal: self.renewal.min(other.renewal),
            finish: self.finish.min(other.finish),
            promotion: self.promotion.min(other.promotion),
        }
    }
}

/// Counts from one reading to the next, without what reading costs itself.
struct Meter {
    steps: Arc<AtomicU64>,
    last: u64,
    reading: u64,
}

impl Meter {
    async fn begin(unit: &mut Unit<'_>, steps: &Arc<AtomicU64>) -> Self {
        let mut meter = Self { steps: Arc::clone(steps), last: 0, reading: 0 };
        meter.lap(unit).await;
        meter.reading = meter.lap(unit).await;
        meter
    }

    /// What was spent since the last lap.
    async fn lap(&mut self, unit: &mut Unit<'_>) -> u64 {
        // What is written without an answer is written before this is asked.
        unit.connection.execute("SELECT 1", values![]).await.unwrap();
        let now = self.steps.load(Ordering::Relaxed) + rows_read(unit).await;
        let spent = now - self.last - self.reading;
        self.last = now;
        spent
    }
}

/// Rows that the server has read for this session; 0 where there is no server.
async fn rows_read(unit: &mut Unit<'_>) -> u64 {
    if unit.connection.engine() == Engine::Sqlite {
        return 0;
    }
    let text = "SELECT CAST(sum(variable_value) AS SIGNED) FROM information_schema.session_status \
                WHERE variable_name LIKE 'HANDLER_READ%'";
    unit.connection.read_one(text, values![]).await.unwrap()
}

impl Fixture {
    /// What a claim of 32 rows of these classes costs.
    pub(super) async fn claim_cost_of(&self, classes: QueueClasses) -> u64 {
        let mut cost = u64::MAX;
        for _ in 0..TIMES {
            let measured = self.measured(async |unit, meter| {
                self.claim_in(unit, classes, 32).await;
                meter.lap(unit).await
            });
            cost = cost.min(measured.await);
        }
        cost
    }

    /// What each operation costs: with 32 rows of the class `default`, and with the head of the only lane of the class
    /// `interactive`.
    pub(super) async fn costs(&self) -> Costs {
        let mut costs = self.costs_once().await;
        for _ in 1..TIMES {
            costs = costs.least(self.costs_once().await);
        }
        costs
    }

    /// What a page of a shelf costs: to look at it, and to remove what may go.
    pub(super) async fn retention_costs(&self, shelf: Shelf, keep: &Keep) -> [u64; 2] {
        let limits = keep.limits(self.now());
        let mut costs = [u64::MAX; 2];
        for _ in 0..TIMES {
            let measured = self.measured(async |unit, meter| {
                let (_, request) = retention::look(&mut unit.connection, shelf, limits, None).await.unwrap();
                let looked = meter.lap(unit).await;
                let removed = retention::apply(unit, vec![request.unwrap()]).await.unwrap().remove(0).unwrap();
                assert!(removed.events + removed.messages >= 32, "{removed:?}");
                unit.write_counters().await.unwrap();
                [looked, meter.lap(unit).await]
            });
            let measured = measured.await;
            costs = [costs[0].min(measured[0]), costs[1].min(measured[1])];
        }
        costs
    }

    async fn costs_once(&self) -> Costs {
        let (default, interactive) = (QueueClass::Default, QueueClass::Interactive);
        self.measured(async |unit, meter| {
            let items = self.claim_in(unit, QueueClasses::of(&[default]), 32).await;
            let claim = meter.lap(unit).await;
            let rows = items.iter().map(|item| (item.id, item.lease, item.epoch)).collect();
            let renewal = Renewal { rows, lease_duration: LEASE, now: self.now() };
            let kept = finalize::renew(unit, vec![renewal]).await.unwrap();
            assert_eq!(kept[0].as_ref().unwrap().len(), 32);
            let renewal = meter.lap(unit).await;
            self.finish_in(unit, &items).await;
            let finish = meter.lap(unit).await;
            let head = self.claim_in(unit, QueueClasses::of(&[interactive]), 1).await;
            meter.lap(unit).await;
            self.finish_in(unit, &head).await;
            let promotion = meter.lap(unit).await;
            assert!(unit.work_changed, "a successor was promoted");
            Costs { claim, renewal, finish, promotion }
        })
        .await
    }

    /// Runs `operations` in a transaction that is undone.
    async fn measured<T>(&self, operations: impl AsyncFnOnce(&mut Unit<'_>, &mut Meter) -> T) -> T {
        let mut tampering = Tampering::with(self).await;
        let steps = Arc::new(AtomicU64::new(0));
        match &mut tampering {
            Tampering::Sqlite(connection) => {
                let counted = Arc::clone(&steps);
                connection.lock_handle().await.unwrap().set_progress_handler(1, move || {
                    counted.fetch_add(1, Ordering::Relaxed);
                    true
                });
            }
            // When a table's definition falls out of the server's cache, because other databases are used beside this
            // one, the next statement reads its statistics again, some fifty rows, and they would count as the
            // statement's.
            Tampering::MariaDb(_) => tampering.execute("SET SESSION use_stat_tables = NEVER").await,
        }
        let mut connection = tampering.connection();
        connection.begin().await.unwrap();
        let terms = Terms { shard_count: 1, stripe: 0, database_now: None };
        let mut unit = Unit::new(connection, Sequences::default(), terms, 0);
        let mut meter = Meter::begin(&mut unit, &steps).await;
        let measured = operations(&mut unit, &mut meter).await;
        unit.connection.rollback().await.unwrap();
        if let Tampering::Sqlite(connection) = &mut tampering {
            connection.lock_handle().await.unwrap().remove_progress_handler();
        }
        tampering.close().await;
        measured
    }

    async fn claim_in(&self, unit: &mut Unit<'_>, classes: QueueClasses, rows_max: u32) -> Vec<ClaimedWorkItem> {
        let request = ClaimRequest { classes, ..self.request(rows_max) };
        let items = claiming::apply(unit, vec![request]).await.unwrap().remove(0).unwrap();
        assert_eq!(items.len(), usize::try_from(rows_max).unwrap());
        unit.write_counters().await.unwrap();
        unit.work_changed = false;
        items
    }

    async fn finish_in(&self, unit: &mut Unit<'_>, items: &[ClaimedWorkItem]) {
        let finishes = items.iter().map(|item| self.ending(item, done(vec![]))).collect();
        let (finished, _) = finalize::finish(unit, finishes).await.unwrap();
        assert!(finished.iter().all(|finished| matches!(finished, Ok(Finished::Applied))));
        unit.write_counters().await.unwrap();
    }
}
