//! What time a session goes by.

use super::{End, Session};
use crate::env;
use crate::model::time::Timestamp;
use crate::timeline::clock::Interval;
use crate::timeline::lease::Holding;

impl Session {
    /// The time by which lanes are judged, also while the clock is gated. Nothing is published by it.
    pub(super) fn now(&mut self) -> Timestamp {
        self.clock.reckoned(&*self.parts.env.clock)
    }

    /// The time once it is trusted; what became of others' attempts is decided by no other.
    pub(super) async fn trusted_time(&mut self) -> Result<Interval, End> {
        loop {
            if let Ok(time) = self.clock.read(&*self.parts.env.clock) {
                return Ok(time);
            }
            if matches!(*self.holding.borrow(), Holding::Lost) {
                return Err(End::Fenced);
            }
            tokio::select! {
                Ok(()) = self.wake.changed() => {}
                () = env::sleep(self.parts.poll) => {}
            }
        }
    }
}
