//! Calls that wait for an instance of the pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many calls wait; clones share it.
#[derive(Debug, Clone, Default)]
pub struct WaitingCalls(Arc<AtomicU32>);

/// A call that waits, until it is dropped.
pub(crate) struct WaitingCall(Arc<AtomicU32>);

impl WaitingCalls {
    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// One more.
    pub(crate) fn enter(&self) -> WaitingCall {
        self.0.fetch_add(1, Ordering::Relaxed);
        WaitingCall(Arc::clone(&self.0))
    }
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
