//! The rows that this runtime holds leases on, and until when it may believe so.
//!
//! A lease is measured on the monotonic clock from *before* the request that granted it was sent, so that this runtime
//! always gives up before the store would give the row to another one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::model::ids::{LeaseToken, WorkItemId};
use crate::model::work_item::ClaimedWorkItem;

/// The rows in work; clones share them.
#[derive(Clone, Default)]
pub(super) struct HeldRows {
    rows: Arc<Mutex<BTreeMap<WorkItemId, Lease>>>,
}

/// One row in work. Dropping it ends the lease keeper's care for it.
pub(super) struct HeldRow {
    rows: HeldRows,
    id: WorkItemId,
    epoch: u32,
    lost: CancellationToken,
}

/// A row as the lease keeper names it to the store.
pub(super) type LeaseKey = (WorkItemId, LeaseToken, u32);

struct Lease {
    token: LeaseToken,
    epoch: u32,
    /// On the monotonic clock.
    expires: Duration,
    lost: CancellationToken,
}

impl HeldRows {
    /// Holds a claimed row whose lease, as far as this runtime may believe, lasts until `expires`.
    ///
    /// A row that is held already was reclaimed from this very runtime: the older execution has lost it.
    pub(super) fn hold(&self, item: &ClaimedWorkItem, expires: Duration) -> HeldRow {
        let lost = CancellationToken::new();
        let lease = Lease { token: item.lease, epoch: item.epoch, expires, lost: lost.clone() };
        if let Some(older) = self.lock().insert(item.id, lease) {
            older.lost.cancel();
        }
        HeldRow { rows: self.clone(), id: item.id, epoch: item.epoch, lost }
    }

    /// The rows whose leases still stand.
    pub(super) fn keys(&self) -> Vec<LeaseKey> {
        let rows = self.lock();
        let standing = rows.iter().filter(|(_, lease)| !lease.lost.is_cancelled());
        standing.map(|(id, lease)| (*id, lease.token, lease.epoch)).collect()
    }

    /// When the first lease that stands runs out.
    pub(super) fn first_expiry(&self) -> Option<Duration> {
        let rows = self.lock();
        rows.values().filter(|lease| !lease.lost.is_cancelled()).map(|lease| lease.expires).min()
    }

    /// Of the rows that a renewal named, `confirmed` last until `expires` and the others are lost. Returns how many.
    pub(super) fn renewed(&self, named: &[LeaseKey], confirmed: &BTreeSet<WorkItemId>, expires: Duration) -> usize {
        let mut rows = self.lock();
        let mut lost = 0;
        for (id, _, epoch) in named {
            let Some(lease) = rows.get_mut(id).filter(|lease| lease.epoch == *epoch) else { continue };
            if confirmed.contains(id) {
                lease.expires = expires;
            } else if !lease.lost.is_cancelled() {
                lease.lost.cancel();
                lost += 1;
            }
        }
        lost
    }

    /// Cancels what runs under leases that have run out. Returns how many.
    pub(super) fn expire(&self, now: Duration) -> usize {
        let rows = self.lock();
        let expired = rows.values().filter(|lease| lease.expires <= now && !lease.lost.is_cancelled());
        expired.map(|lease| lease.lost.cancel()).count()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkItemId, Lease>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldRow {
    /// Returns once the lease is lost: what runs must stop, and nothing may be recorded.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Whether the lease still stands at `now` on the monotonic clock.
    pub(super) fn stands(&self, now: Duration) -> bool {
        let rows = self.rows.lock();
        let own = rows.get(&self.id).filter(|lease| lease.epoch == self.epoch);
        own.is_some_and(|lease| now < lease.expires && !lease.lost.is_cancelled())
    }
}

impl Drop for HeldRow {
    fn drop(&mut self) {
        let mut rows = self.rows.lock();
        if rows.get(&self.id).is_some_and(|lease| lease.epoch == self.epoch) {
            rows.remove(&self.id);
        }
    }
}
