//! A shard's status: written by its actor, read by the rest of the host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::actor::ShardTrouble;
use super::inquiry::Inquiries;

/// What the host knows of one shard.
#[derive(Default)]
pub(super) struct ShardStatus {
    active: AtomicBool,
    elsewhere: AtomicBool,
    inquiries: Mutex<Inquiries>,
    trouble: Mutex<Option<ShardTrouble>>,
}

impl ShardStatus {
    /// Whether the shard has caught up with its feed and publishes from here.
    pub(super) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    pub(super) fn set_active(&self, is_active: bool) {
        self.active.store(is_active, Ordering::Release);
    }

    /// Whether another host owns the shard.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.elsewhere.load(Ordering::Acquire)
    }

    pub(super) fn set_elsewhere(&self, is_elsewhere: bool) {
        self.elsewhere.store(is_elsewhere, Ordering::Release);
    }

    /// Whether the shard has an owner, here or on another host.
    pub(super) fn is_owned(&self) -> bool {
        self.is_active() || self.is_elsewhere()
    }

    /// The way to the shard's session, while it has one here.
    pub(super) fn inquiries(&self) -> Inquiries {
        lock(&self.inquiries).clone()
    }

    pub(super) fn set_inquiries(&self, inquiries: Inquiries) {
        *lock(&self.inquiries) = inquiries;
    }

    /// The last panic of the shard's actor, if it panicked since the start.
    pub(super) fn trouble(&self) -> Option<ShardTrouble> {
        lock(&self.trouble).clone()
    }

    pub(super) fn set_trouble(&self, trouble: ShardTrouble) {
        *lock(&self.trouble) = Some(trouble);
    }
}

/// The values are replaced whole, so a panic under the lock leaves none half written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
