//! Turns of calls that compute for long. A call's first tick is its own; from then on it goes on only with a place
//! among the long ones, of which there are fewer than threads. So a thread is left for calls that are short, however
//! many guests never end.
//!
//! ```text
//! call begins ──> first tick ──> ends: it never waited
//!                    └──> waits for a place ──> a tick ──> gives the place back, waits for the next one ─┐
//!                              └─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Places are given in the order in which they were asked for: the long ones share what they have alike.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How many calls may compute for long at once on this machine: all its cores but one. That one is for the short ones;
/// the system would give each of them its core only after some milliseconds.
pub fn long_calls_max() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

/// The places of calls that compute for long.
#[derive(Clone)]
pub(super) struct Places(Arc<Semaphore>);

/// One call's place, while it has one. Dropped with the call.
#[derive(Clone)]
pub(super) struct Turn {
    places: Places,
    held: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl Places {
    /// So many.
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count.max(1))))
    }

    /// For a call that begins: it has none yet.
    pub(super) fn turn(&self) -> Turn {
        Turn { places: self.clone(), held: Arc::new(Mutex::new(None)) }
    }
}

impl Turn {
    /// A tick is over: gives the place back, lets others have their turn, and waits for the next one. At the deadline
    /// the call goes on without, so that it is trapped where it was.
    pub(super) async fn next(self, deadline: Instant) {
        self.hold(None);
        tokio::task::yield_now().await;
        let place = Arc::clone(&self.places.0).acquire_owned();
        if let Ok(Ok(place)) = tokio::time::timeout_at(deadline, place).await {
            self.hold(Some(place));
        }
    }

    fn hold(&self, place: Option<OwnedSemaphorePermit>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::env;

    // GST-2
    #[tokio::test]
    async fn a_place_is_shared_in_turns_and_given_back_at_the_end() {
        let places = Places::new(1);
        let later = env::deadline(Duration::from_secs(60));
        let (one, other) = (places.turn(), places.turn());
        one.clone().next(later).await;
        let mut waiting = std::pin::pin!(other.clone().next(later));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        assert!(futures_util::poll!(&mut waiting).is_pending(), "the place is held");
        // The first one's next turn comes after the other's.
        let mut again = std::pin::pin!(one.clone().next(later));
        assert!(futures_util::poll!(&mut again).is_pending());
        waiting.await;
        assert!(futures_util::poll!(&mut again).is_pending());
        drop(other);
        again.await;
        drop(one);
        assert_eq!(places.0.available_permits(), 1);
    }

    // GST-2
    #[tokio::test]
    async fn at_its_deadline_a_call_waits_no_longer() {
        let places = Places::new(1);
        let holder = places.turn();
        holder.clone().next(env::deadline(Duration::from_secs(60))).await;
        places.turn().next(env::deadline(Duration::from_millis(1))).await;
        assert_eq!(places.0.available_permits(), 0);
    }
}
