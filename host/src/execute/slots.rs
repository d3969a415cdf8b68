//! Slots: how many events a pack may have in work at once.
//!
//! A slot is taken before the claim and given back when its row is done, by `Drop`: no way out of an execution, a panic
//! included, keeps it.

use std::sync::Arc;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The slots of one pack.
pub(super) struct Slots {
    total: u32,
    free: Arc<Semaphore>,
    freed: Arc<Notify>,
}

/// Slots that are taken and not yet given to rows.
pub struct Reservation {
    permits: OwnedSemaphorePermit,
    freed: Arc<Notify>,
}

/// One slot, while a row has it.
pub(super) struct Slot {
    permit: Option<OwnedSemaphorePermit>,
    freed: Arc<Notify>,
}

impl Slots {
    pub(super) fn new(total: u32) -> Self {
        assert!(total > 0, "a pack has at least one slot");
        Self { total, free: Arc::new(Semaphore::new(total as usize)), freed: Arc::new(Notify::new()) }
    }

    pub(super) fn total(&self) -> u32 {
        self.total
    }

    pub(super) fn free(&self) -> u32 {
        u32::try_from(self.free.available_permits()).expect("there are no more free slots than slots")
    }

    /// Takes this many slots, or none if fewer are free.
    pub(super) fn reserve(&self, count: u32) -> Option<Reservation> {
        let permits = Arc::clone(&self.free).try_acquire_many_owned(count).ok()?;
        Some(Reservation { permits, freed: Arc::clone(&self.freed) })
    }

    /// Returns once a slot was given back since the last call: one waiter at a time.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Returns once every slot is free.
    pub(super) async fn all_free(&self) {
        // The semaphore is never closed.
        let _ = self.free.acquire_many(self.total).await;
    }
}

impl Reservation {
    pub(super) fn take_one(&mut self) -> Slot {
        let permit = self.permits.split(1).expect("a claim returns no more rows than it was asked for");
        Slot { permit: Some(permit), freed: Arc::clone(&self.freed) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // First the permit, then the word: who is woken must find it.
        self.permit.take();
        self.freed.notify_one();
    }
}
