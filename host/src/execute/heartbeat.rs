//! The lease keeper: renews every row in work with one request, and stops the work on those that it cannot keep.
//!
//! One keeper serves all slots of a pack, so that the cost of keeping leases does not grow with the slots. A renewal
//! that failed is repeated sooner; a lease that was not confirmed by its own end is lost (CLM-6).

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::held::HeldRows;
use super::signals::Signals;
use crate::env::{self, Env};
use crate::model::ids::WorkItemId;
use crate::model::time::Timestamp;
use crate::store::{Renewal, Store};

/// Renewals in the time of one lease: two may fail in a row and the lease still holds.
const RENEWALS_PER_LEASE: u32 = 3;
/// How often a failed renewal is tried again in the time between two renewals.
const RETRIES_PER_RENEWAL: u32 = 4;

/// Keeps the leases of one pack's rows.
pub struct LeaseKeeper {
    pub(super) held: HeldRows,
    pub(super) store: Store,
    pub(super) env: Env,
    pub(super) signals: Signals,
    pub(super) lease: Duration,
}

/// What one round of renewals came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// No row is in work.
    Nothing,
    /// The store answered.
    Rows {
        /// Leases that stand.
        kept: usize,
        /// Leases that belong to somebody else, or to nobody.
        lost: usize,
    },
    /// The store did not answer in time, or could not.
    Failed,
}

impl LeaseKeeper {
    /// Renews until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let interval = self.lease / RENEWALS_PER_LEASE;
        let mut pause = interval;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = env::sleep(self.until_next_expiry(pause)) => {}
            }
            pause = match self.tick(self.env.now()).await {
                Renewed::Nothing | Renewed::Rows { .. } => interval,
                Renewed::Failed => interval / RETRIES_PER_RENEWAL,
            };
        }
    }

    /// Renews what is held, and cancels the work on what is lost.
    pub async fn tick(&self, now: Timestamp) -> Renewed {
        self.give_up_expired();
        let rows = self.held.keys();
        if rows.is_empty() {
            return Renewed::Nothing;
        }
        let sent = self.env.clock.monotonic();
        let renewal = Renewal { rows: rows.clone(), lease_duration: self.lease, now };
        let Some(confirmed) = self.renew(renewal).await else { return Renewed::Failed };
        let lost = self.held.renewed(&rows, &confirmed, sent + self.lease);
        self.signals.leases_lost_to_others.increment(lost as u64);
        Renewed::Rows { kept: confirmed.len(), lost }
    }

    /// Sends a renewal and waits for its answer, within a bound. Whatever runs out meanwhile is given up on time: the
    /// answer comes too late for it.
    async fn renew(&self, renewal: Renewal) -> Option<BTreeSet<WorkItemId>> {
        let (rows, bound) = (renewal.rows.len(), self.lease / RENEWALS_PER_LEASE);
        let mut answer = pin!(timeout(bound, self.store.renew(renewal)));
        let answer = loop {
            tokio::select! {
                answer = &mut answer => break answer,
                () = env::sleep(self.until_next_expiry(bound)) => self.give_up_expired(),
            }
        };
        self.give_up_expired();
        match answer {
            Ok(Ok(confirmed)) => return Some(confirmed.into_iter().collect()),
            Ok(Err(error)) => tracing::warn!(%error, rows, "leases could not be renewed"),
            Err(_) => tracing::warn!(rows, "the store did not renew leases in time"),
        }
        None
    }

    fn give_up_expired(&self) {
        let expired = self.held.expire(self.env.clock.monotonic());
        self.signals.leases_expired.increment(expired as u64);
    }

    /// `pause`, or less if a lease runs out sooner.
    fn until_next_expiry(&self, pause: Duration) -> Duration {
        let now = self.env.clock.monotonic();
        self.held.first_expiry().map_or(pause, |expiry| pause.min(expiry.saturating_sub(now)))
    }
}
