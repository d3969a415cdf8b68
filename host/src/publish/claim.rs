//! A claimed message on its way through the publisher.
//!
//! Invariant: it settles exactly once. Its settlement is sent when it is dropped, so no path can forget it: not an
//! early return, not a panic, not a task that is thrown away. What is sent then is the last thing that was certain.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::adapter::Adapter;
use super::entrance::Place;
use super::metrics::DestinationMetrics;
use super::reliance::Reliance;
use super::{ClaimedMessage, Settled, Settlement};
use crate::env::Clock;
use crate::model::destination::Terms;
use crate::model::time::Timestamp;

/// Wall and monotonic time diverge by no more than this part: what Linux slews a clock by at the most.
const DRIFT_PART: u32 = 2_000;

/// How messages get to a destination, with what is counted about it.
pub(super) struct Route {
    pub(super) adapter: Box<dyn Adapter>,
    pub(super) terms: Terms,
    pub(super) metrics: DestinationMetrics,
}

/// A claimed message that has not settled yet.
pub(super) struct Claim {
    pub(super) message: ClaimedMessage,
    pub(super) route: Arc<Route>,
    /// Until when it may be sent.
    pub(super) reliance: Reliance,
    /// When it was claimed.
    pub(super) since: Duration,
    certain: Settled,
    settled: mpsc::Sender<Settlement>,
    place: Option<Place>,
    _unsettled: TaskTrackerToken,
}

impl Claim {
    /// Takes a message over; until more is known it settles as it came.
    pub(super) fn new(
        (message, place): (ClaimedMessage, Place),
        route: Arc<Route>,
        reliance: Reliance,
        since: Duration,
        settled: mpsc::Sender<Settlement>,
        unsettled: TaskTrackerToken,
    ) -> Self {
        let (certain, place) = (Settled::NotAdmitted, Some(place));
        Self { message, route, reliance, since, certain, settled, place, _unsettled: unsettled }
    }

    /// From here on it may have been admitted.
    pub(super) fn may_be_admitted(&mut self) {
        self.certain = Settled::Unrecorded;
    }

    /// Settles it.
    pub(super) fn settle(mut self, result: Settled) {
        self.certain = result;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        send(&self.settled, &self.message, self.certain, self.place.take());
    }
}

/// Tells a shard what became of a message.
///
/// The place goes with it: were it free before, the shard could take it for another message of a destination of which
/// it has not heard yet that it fails.
pub(super) fn send(
    settled: &mpsc::Sender<Settlement>,
    message: &ClaimedMessage,
    result: Settled,
    place: Option<Place>,
) {
    let ClaimedMessage { id, generation, seq, .. } = *message;
    let settlement = Settlement { id, generation, seq, result, place };
    match settled.try_send(settlement) {
        // A closed channel is a shard that has ended; its next owner finds the message in SQL.
        Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
        Err(mpsc::error::TrySendError::Full(settlement)) => {
            tracing::error!(message = %settlement.id, "a shard has no room for a settlement of its own claim");
        }
    }
}

/// The latest that it can be, carried forward from a reading of trusted time by the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct Latest {
    then: Timestamp,
    monotonic: Duration,
}

impl Latest {
    /// `then` was the latest that it could be at this monotonic time: that of the reading, however long ago it is.
    pub fn at(then: Timestamp, monotonic: Duration) -> Self {
        Self { then, monotonic }
    }

    /// The monotonic time from which on it can be `at`; by a clock that may run as fast as [`DRIFT_PART`] says.
    pub(super) fn reaches(self, at: Timestamp) -> Duration {
        let until = at.since(self.then);
        self.monotonic + (until - until / DRIFT_PART)
    }

    /// The latest that it can be now.
    pub(super) fn now(self, clock: &dyn Clock) -> Timestamp {
        self.then + clock.monotonic().saturating_sub(self.monotonic)
    }
}
