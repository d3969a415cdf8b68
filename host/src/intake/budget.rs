//! The admission budget: requests in flight and bytes in flight (ADM-1).
//!
//! Invariants:
//! - Nobody waits for a place: it is there, or the answer is no.
//! - A share is given back by dropping it, on every path; whoever still holds the body holds the share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use metrics::Gauge;
use tokio::sync::Semaphore;
use tokio::time::timeout_at;

use super::answer::Refusal;
use crate::env;

/// What all requests in flight may hold together.
pub(super) struct Budget {
    requests: Semaphore,
    requests_max: u32,
    bytes: AtomicUsize,
    bytes_max: usize,
    stopping: AtomicBool,
    in_flight: Gauge,
    bytes_in_flight: Gauge,
}

impl Budget {
    pub(super) fn new(requests_max: usize, bytes_max: usize, in_flight: Gauge, bytes_in_flight: Gauge) -> Arc<Self> {
        let requests_max = u32::try_from(requests_max).unwrap_or(u32::MAX);
        Arc::new(Self {
            requests: Semaphore::new(requests_max as usize),
            requests_max,
            bytes: AtomicUsize::new(0),
            bytes_max,
            stopping: AtomicBool::new(false),
            in_flight,
            bytes_in_flight,
        })
    }

    /// A place for one more request.
    pub(super) fn admit(self: &Arc<Self>) -> Result<Share, Refusal> {
        if self.is_stopping() {
            return Err(Refusal::Stopping);
        }
        let permit = self.requests.try_acquire().map_err(|_| Refusal::RequestsFull)?;
        permit.forget();
        self.in_flight.increment(1.0);
        Ok(Share { budget: self.clone(), bytes: 0 })
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Admits nothing more, and waits until all shares are back, at most for `patience`. Whether they are.
    pub(super) async fn drain(&self, patience: Duration) -> bool {
        self.stopping.store(true, Ordering::Release);
        // The semaphore queues fairly: from here on every place that is given back comes to this call.
        match timeout_at(env::deadline(patience), self.requests.acquire_many(self.requests_max)).await {
            Ok(Ok(all)) => {
                all.forget();
                true
            }
            Ok(Err(_)) | Err(_) => false,
        }
    }
}

/// What one request holds of the budget.
pub(super) struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Share {
    /// Holds `total` bytes from now on; a smaller number than before changes nothing.
    pub(super) fn hold(&mut self, total: usize) -> Result<(), Refusal> {
        let more = total.saturating_sub(self.bytes);
        let bytes_max = self.budget.bytes_max;
        self.budget
            .bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
                held.checked_add(more).filter(|&sum| sum <= bytes_max)
            })
            .map_err(|_| Refusal::BytesFull)?;
        self.bytes += more;
        self.budget.bytes_in_flight.increment(gauge_value(more));
        Ok(())
    }
}

#[cfg(test)]
impl Share {
    /// The bytes that it holds.
    pub(super) fn held(&self) -> usize {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        self.budget.bytes_in_flight.decrement(gauge_value(self.bytes));
        self.budget.in_flight.decrement(1.0);
        self.budget.requests.add_permits(1);
    }
}

/// A gauge counts in floating point, exact up to 2^53.
fn gauge_value(bytes: usize) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(requests_max: usize, bytes_max: usize) -> Arc<Budget> {
        Budget::new(requests_max, bytes_max, Gauge::noop(), Gauge::noop())
    }

    // ADM-1
    #[test]
    fn requests_are_bounded_and_a_dropped_share_is_a_free_place() {
        let budget = budget(2, 100);
        let first = budget.admit().unwrap();
        let _second = budget.admit().unwrap();
        assert_eq!(budget.admit().err(), Some(Refusal::RequestsFull));
        drop(first);
        assert!(budget.admit().is_ok());
    }

    // ADM-1
    #[test]
    fn bytes_are_bounded_over_all_requests_and_given_back_whole() {
        let budget = budget(2, 100);
        let mut first = budget.admit().unwrap();
        let mut second = budget.admit().unwrap();
        first.hold(60).unwrap();
        first.hold(10).unwrap();
        assert_eq!(second.hold(41), Err(Refusal::BytesFull));
        second.hold(40).unwrap();
        assert_eq!(second.hold(usize::MAX), Err(Refusal::BytesFull));
        drop(first);
        second.hold(100).unwrap();
        drop(second);
        assert_eq!(budget.bytes.load(Ordering::Acquire), 0);
    }

    #[tokio::test]
    async fn draining_admits_nothing_more_and_ends_with_the_last_share() {
        let budget = budget(2, 100);
        let share = budget.admit().unwrap();
        let draining = env::spawn("drain", {
            let budget = budget.clone();
            async move { budget.drain(Duration::from_secs(60)).await }
        });
        while !budget.is_stopping() {
            tokio::task::yield_now().await;
        }
        assert_eq!(budget.admit().err(), Some(Refusal::Stopping));
        drop(share);
        assert!(draining.await.unwrap());
    }

    #[tokio::test]
    async fn draining_gives_up_on_a_share_that_does_not_come_back() {
        let budget = budget(1, 100);
        let _share = budget.admit().unwrap();
        assert!(!budget.drain(Duration::from_millis(1)).await);
    }
}
