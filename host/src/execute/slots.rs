//! Slots: how many events a pack may have in work at once.
//!
//! A slot is taken before the claim and given back when its row is done, by `Drop`: no way out of an execution, a panic
//! included, keeps it. Every return is told, so that nobody who waits for room misses it.

use std::sync::Arc;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The slots of one pack.
pub(super) struct Slots {
    total: u32,
    free: Arc<Semaphore>,
    returns: Arc<Returns>,
}

/// Slots that are taken and not yet given to rows.
pub struct Reservation(Taken);

/// One slot, while a row has it.
pub(super) struct Slot {
    _taken: Taken,
}

/// Who is told of returned slots.
#[derive(Default)]
struct Returns {
    /// The scheduler, which remembers one return that it has not looked at.
    scheduler: Notify,
    /// Those who wait for all slots to be free.
    idle: Notify,
}

struct Taken {
    permits: Option<OwnedSemaphorePermit>,
    returns: Arc<Returns>,
}

impl Slots {
    pub(super) fn new(total: u32) -> Self {
        assert!(total > 0, "a pack has at least one slot");
        Self { total, free: Arc::new(Semaphore::new(total as usize)), returns: Arc::default() }
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
        Some(Reservation(Taken { permits: Some(permits), returns: Arc::clone(&self.returns) }))
    }

    /// Returns once a slot was given back since the last call: one waiter at a time.
    pub(super) async fn returned(&self) {
        self.returns.scheduler.notified().await;
    }

    /// Returns once every slot is free.
    pub(super) async fn all_free(&self) {
        loop {
            let returned = self.returns.idle.notified();
            if self.free() == self.total {
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
        Slot { _taken: Taken { permits: Some(permits), returns: Arc::clone(&self.0.returns) } }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // First the permits, then the word: who is woken must find them.
        self.permits.take();
        self.returns.scheduler.notify_one();
        self.returns.idle.notify_waiters();
    }
}
