//! Slots: how many events of a pack may be executed at once, and how many outcomes may wait to be recorded.
//!
//! A row's slot is taken before the claim. When the flow has ended, the row moves to a place among those that wait for
//! their outcome to be durable, so that executions do not wait for the disk; if all of those places are taken it keeps
//! its slot, and the pack claims no more. Both are given back by `Drop`: no way out of an execution, a panic included,
//! keeps one. Every return is told, so that nobody who waits for room misses it.
//!
//! A taken slot has a shape, that of the claim it was taken for, and keeps it until it is given back. Of each shape no
//! more are taken than the layout has; the layout may change meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::lanes::{Layout, Shape};

/// Outcomes that may wait to be recorded, for each slot: enough to fill a transaction while the one before it commits.
const FINISHING_PER_SLOT: u32 = 2;

/// The slots of one pack.
pub(super) struct Slots {
    total: u32,
    free: Arc<Semaphore>,
    finishing_total: u32,
    finishing_free: Arc<Semaphore>,
    ledger: Arc<Ledger>,
}

/// Slots that are taken and not yet given to rows.
pub struct Reservation(Taken);

/// One slot, or one place among the finishing, while a row has it.
pub(super) struct Slot {
    _taken: Taken,
}

/// What is taken, and who is told of what comes back.
#[derive(Default)]
struct Ledger {
    /// Taken slots by their shape.
    taken: [AtomicU32; Shape::COUNT],
    /// The scheduler, which remembers one return that it has not looked at.
    scheduler: Notify,
    /// Those who wait until nothing is taken.
    idle: Notify,
}

struct Taken {
    permits: Option<OwnedSemaphorePermit>,
    /// `None` for a place among the finishing.
    shape: Option<Shape>,
    ledger: Arc<Ledger>,
}

impl Slots {
    pub(super) fn new(total: u32) -> Self {
        assert!(total > 0, "a pack has at least one slot");
        let finishing_total = rows_in_work_max(total) - total;
        Self {
            total,
            free: Arc::new(Semaphore::new(total as usize)),
            finishing_total,
            finishing_free: Arc::new(Semaphore::new(finishing_total as usize)),
            ledger: Arc::default(),
        }
    }

    pub(super) fn total(&self) -> u32 {
        self.total
    }

    pub(super) fn free(&self) -> u32 {
        available(&self.free)
    }

    /// Free slots of this shape.
    pub(super) fn free_of(&self, layout: &Layout, shape: Shape) -> u32 {
        let taken = self.ledger.taken[shape.index()].load(Ordering::Acquire);
        layout.count(shape).saturating_sub(taken).min(self.free())
    }

    /// Rows that have a slot or a place among the finishing.
    pub(super) fn taken(&self) -> u32 {
        self.total - self.free() + self.finishing_total - available(&self.finishing_free)
    }

    /// The most that [`Self::taken`] can be.
    pub(super) fn taken_max(&self) -> u32 {
        rows_in_work_max(self.total)
    }

    /// Takes this many slots of this shape and no others, or none if fewer are free. One caller at a time.
    pub(super) fn reserve(&self, layout: &Layout, shape: Shape, count: u32) -> Option<Reservation> {
        if self.free_of(layout, shape) < count {
            return None;
        }
        let permits = Arc::clone(&self.free).try_acquire_many_owned(count).ok()?;
        self.ledger.taken[shape.index()].fetch_add(count, Ordering::AcqRel);
        Some(Reservation(Taken { permits: Some(permits), shape: Some(shape), ledger: Arc::clone(&self.ledger) }))
    }

    /// Moves a row whose flow has ended out of its slot, once there is a place for it.
    pub(super) async fn finishing(&self, slot: Slot) -> Slot {
        let place = Arc::clone(&self.finishing_free).acquire_owned().await.expect("the semaphore is never closed");
        drop(slot);
        Slot { _taken: Taken { permits: Some(place), shape: None, ledger: Arc::clone(&self.ledger) } }
    }

    /// Returns once a slot was given back since the last call: one waiter at a time.
    pub(super) async fn returned(&self) {
        self.ledger.scheduler.notified().await;
    }

    /// Returns once no row has a slot or a place.
    pub(super) async fn all_free(&self) {
        loop {
            let returned = self.ledger.idle.notified();
            if self.taken() == 0 {
                return;
            }
            returned.await;
        }
    }
}

impl Reservation {
    /// Hands one of its slots to a row.
    pub(super) fn take_one(&mut self) -> Slot {
        let permits = self.0.permits.as_mut().and_then(|permits| permits.split(1));
        let permits = permits.expect("a claim returns no more rows than it was asked for");
        Slot { _taken: Taken { permits: Some(permits), shape: self.0.shape, ledger: Arc::clone(&self.0.ledger) } }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // First the permits, then the word: who is woken must find them.
        if let Some(permits) = self.permits.take()
            && let Some(shape) = self.shape
        {
            let count = u32::try_from(permits.num_permits()).expect("no more are taken than there are");
            self.ledger.taken[shape.index()].fetch_sub(count, Ordering::AcqRel);
        }
        self.ledger.scheduler.notify_one();
        self.ledger.idle.notify_waiters();
    }
}

/// The most rows that can be in work with this many slots: in a slot, or waiting for their outcome to be recorded.
pub const fn rows_in_work_max(slots: u32) -> u32 {
    slots.saturating_mul(1 + FINISHING_PER_SLOT)
}

fn available(semaphore: &Semaphore) -> u32 {
    u32::try_from(semaphore.available_permits()).expect("a semaphore has no more permits than it began with")
}
