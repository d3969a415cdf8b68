//! The session's clock, and the times of what it has to do.

use std::time::Duration;

use super::{End, Session};
use crate::env;
use crate::model::time::Timestamp;
use crate::timeline::clock::Interval;

/// The pause before a request that the store could not answer, or did not settle, is made again.
pub(super) const TRY_AGAIN: Duration = Duration::from_secs(1);

/// When to look for messages that time makes ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Messages may be ready.
    Now,
    /// No message is ready before this time, unless something arrives.
    At(Option<Timestamp>),
}

/// Work that time makes ready: messages that become due, or expire.
#[derive(Debug)]
pub(super) struct Awaited {
    look: Look,
    /// The monotonic time before which this is not tried again.
    not_before: Duration,
}

/// Monotonic times before which the store is not asked again.
#[derive(Debug, Default)]
pub(super) struct AskFrom {
    /// About claims without a known outcome.
    pub resolve: Duration,
    /// About lines that may not stand as their rows say.
    pub compare: Duration,
}

impl Awaited {
    /// Work that may be ready.
    pub(super) const fn new() -> Self {
        Self { look: Look::Now, not_before: Duration::ZERO }
    }

    /// Whether there may be work.
    pub(super) fn is_ready(&self, monotonic: Duration) -> bool {
        self.look == Look::Now && !self.is_put_off(monotonic)
    }

    /// Whether a try that failed holds this work up.
    pub(super) fn is_put_off(&self, monotonic: Duration) -> bool {
        monotonic < self.not_before
    }

    /// The time until there may be work; `None` if nothing waits.
    pub(super) fn ready_in(&self, earliest: Timestamp, monotonic: Duration) -> Option<Duration> {
        let put_off = self.not_before.saturating_sub(monotonic);
        match self.look {
            Look::Now => Some(put_off),
            Look::At(at) => at.map(|at| at.since(earliest).max(put_off)),
        }
    }

    /// Something has changed that may have made work ready.
    pub(super) fn look_again(&mut self) {
        self.look = Look::Now;
    }

    /// Nothing is ready before this time.
    pub(super) fn look_at(&mut self, at: Option<Timestamp>) {
        self.look = Look::At(at);
    }

    /// Looks at this time if not earlier.
    pub(super) fn look_by(&mut self, by: Timestamp) {
        if let Look::At(at) = self.look {
            self.look = Look::At(Some(at.map_or(by, |at| at.min(by))));
        }
    }

    /// A try has failed: no other follows before this monotonic time.
    pub(super) fn put_off(&mut self, until: Duration) {
        self.not_before = until;
    }
}

impl Session<'_> {
    /// The monotonic time.
    pub(super) fn monotonic(&self) -> Duration {
        self.around.env.clock.monotonic()
    }

    /// The time that lanes are judged by, also while the clock is gated. Nothing is published by it.
    pub(super) fn now(&mut self) -> Timestamp {
        self.clock.reckoned(&*self.around.env.clock)
    }

    /// Waits for a time that is trusted. The fate of other owners' attempts is decided by no other.
    pub(super) async fn trusted_time(&mut self) -> Result<Interval, End> {
        loop {
            if let Ok(time) = self.clock.read(&*self.around.env.clock) {
                return Ok(time);
            }
            self.tenure.held()?;
            tokio::select! {
                Ok(()) = self.following.watched.wake.changed() => {}
                () = env::sleep(self.around.options.poll) => {}
            }
        }
    }
}
