//! The end of a session: claims that are not being admitted yet are recalled, and the others are waited for.
//!
//! Where the shard is the session's to the end, it is wound down first: destinations that take their time are closed,
//! and waited for while all others are served. So one of them stops only its own lanes.

use std::time::Duration;

use super::{DRAIN_MAX, End, FENCED_DRAIN_MAX, Session};
use crate::env;
use crate::timeline::database::Broken;

/// A destination takes its time if an attempt at it does not end within this.
const SLOW_AFTER: Duration = Duration::from_millis(500);

impl Session<'_> {
    /// Goes on until all that is in flight is quick to end. Returns the end, which may be another one by then.
    pub(super) async fn wind_down(&mut self, end: End) -> End {
        let stop = &self.around.stop;
        let (is_over, mut slow_from) = (env::deadline(DRAIN_MAX), env::deadline(SLOW_AFTER));
        let mut attempted = self.claims.attempted();
        loop {
            attempted.retain(|key, _| self.claims.is_attempted(key));
            if attempted.is_empty() || env::has_passed(is_over) || stop.is_cancelled() {
                return end;
            }
            if env::has_passed(slow_from) {
                for lane in attempted.values() {
                    let destination = self.schedule.destination(*lane).clone();
                    self.schedule.close(&destination);
                }
                (attempted, slow_from) = (self.claims.attempted(), env::deadline(SLOW_AFTER));
            }
            match self.tick().await {
                Ok(next) => self.wait(next, stop).await,
                // The index is built again, or left to another host, in any case.
                Err(End::Reordered) => {}
                Err(End::Abandoned) => return end,
                Err(other) => return other,
            }
        }
    }

    /// Waits for the settlements of claims, so that the next owner knows their outcomes.
    pub(super) async fn drain(mut self, mut end: End) -> End {
        if let Some(lease) = self.tenure.lease() {
            // Claims that are not being admitted yet are left to the next owner.
            self.around.publisher.recall(lease, |_| true);
        }
        // No destination waits for a shard that claims nothing more.
        self.seating.seat.leave();
        let is_over = env::sleep(if matches!(end, End::Fenced) { FENCED_DRAIN_MAX } else { DRAIN_MAX });
        tokio::pin!(is_over);
        let mut left = self.claims.with_publisher();
        while left > 0 {
            let received = tokio::select! {
                received = self.inbox.settlements_arrive() => received,
                () = &mut is_over => break,
            };
            left = left.saturating_sub(received);
            if matches!(end, End::Broken(_)) {
                self.inbox.drop_settlements();
            } else if let Err(End::Broken(broken)) = self.take_settlements() {
                end = End::Broken(broken);
            } else {
                left = self.claims.with_publisher();
            }
        }
        if left > 0 {
            tracing::warn!(messages = left, "a shard ends before all of its messages have settled");
        }
        self.checkpointing.end().await;
        if matches!(end, End::Stopped)
            && let Err(error) = self.leave()
        {
            tracing::warn!(%error, "a shard's index cannot be flushed; it will be read from its log");
        }
        end
    }

    /// Flushes the index, and marks it as whole if it is. Claims that are still in flight are in it; the next owner
    /// asks the store about them.
    fn leave(&self) -> Result<(), Broken> {
        self.index.flush()?;
        if self.schedule.compared.is_complete() { self.index.leave_whole() } else { Ok(()) }
    }
}
