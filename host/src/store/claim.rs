//! The claim: one compare-and-swap decides who owns a WorkItem. Its renewal, and the loading of its input.

use std::time::Duration;

use super::{Store, StoreError};
use crate::model::event::Event;
use crate::model::ids::{EventId, LeaseToken, WorkItemId};
use crate::model::names::PackName;
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;
use crate::model::work_item::{ClaimedWorkItem, WorkType};

/// The most rows that one claim takes.
pub const CLAIM_ROWS_MAX: u32 = 128;

/// What a scheduler is ready to take on.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// The pack.
    pub pack: PackName,
    /// The generations that this runtime can execute; others are invisible.
    pub generations: Vec<GenerationNumber>,
    /// The work types that the executors serve; others are invisible.
    pub work_types: Vec<WorkType>,
    /// At most so many rows, up to [`CLAIM_ROWS_MAX`].
    pub rows_max: u32,
    /// Only rows whose lease ran out; never a fresh one.
    pub stale_only: bool,
    /// The token that the won rows will carry; fresh for every claim.
    pub lease: LeaseToken,
    /// How long the lease lasts.
    pub lease_duration: Duration,
    /// Now.
    pub now: Timestamp,
}

/// A request to keep rows for longer.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// The rows, with the lease and epoch that they were claimed under.
    pub rows: Vec<(WorkItemId, LeaseToken, u32)>,
    /// How long from `now` the leases are to last.
    pub lease_duration: Duration,
    /// Now.
    pub now: Timestamp,
}

impl Store {
    /// Takes ownership of eligible heads: first rows whose lease ran out, then ready ones by lane ordinal, `run_after`,
    /// creation and id. Delayed rows whose time has come are made ready first, a bounded number each time.
    pub async fn claim(&self, request: ClaimRequest) -> Result<Vec<ClaimedWorkItem>, StoreError> {
        let _ = request;
        todo!()
    }

    /// Extends leases. Returns the rows that are still the caller's; it must stop working on the others.
    pub async fn renew(&self, renewal: Renewal) -> Result<Vec<WorkItemId>, StoreError> {
        let _ = renewal;
        todo!()
    }

    /// Loads Events by id, in the order asked for.
    pub async fn load_events(&self, ids: &[EventId]) -> Result<Vec<Event>, StoreError> {
        let _ = ids;
        todo!()
    }

    /// When the next WorkItem of `pack` becomes claimable by time alone (a delay that ends, a lease that runs out).
    pub async fn next_claimable_at(&self, pack: &PackName) -> Result<Option<Timestamp>, StoreError> {
        let _ = pack;
        todo!()
    }
}
