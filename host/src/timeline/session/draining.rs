//! The end of a session: claims that are not being admitted yet are recalled, and the others are waited for.

use super::{DRAIN_MAX, End, Session};
use crate::env;
use crate::timeline::database::Broken;

impl Session<'_> {
    /// Waits for the settlements of claims, so that the next owner knows their outcomes.
    pub(super) async fn drain(mut self, mut end: End) -> End {
        if let Some(lease) = self.tenure.lease() {
            // Claims that are not being admitted yet are left to the next owner.
            self.around.publisher.recall(lease, |_| true);
        }
        let is_over = env::sleep(DRAIN_MAX);
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
