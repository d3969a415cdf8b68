//! The end of a session: what is not being admitted yet is called back, what is in flight is waited for.

use super::{DRAIN_MAX, End, SETTLEMENTS_MAX, Session};
use crate::env;
use crate::timeline::database::Broken;

impl Session {
    /// Waits for what is in flight, so that the next owner has nothing to guess about.
    pub(super) async fn drain(mut self, mut end: End) -> End {
        if let Some(lease) = self.lease {
            // What is not being admitted yet is for the next owner.
            self.parts.publisher.recall(lease, |_| true);
        }
        let is_over = env::sleep(DRAIN_MAX);
        tokio::pin!(is_over);
        let mut left = self.claims.with_publisher();
        while left > 0 {
            let received = tokio::select! {
                received = self.settled.recv_many(&mut self.settlements, SETTLEMENTS_MAX) => received,
                () = &mut is_over => break,
            };
            left = left.saturating_sub(received);
            if matches!(end, End::Broken(_)) {
                self.settlements.clear();
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

    /// Leaves the index as whole as it is: what is in flight yet stands in it, and the next owner asks about it.
    fn leave(&self) -> Result<(), Broken> {
        self.index.flush()?;
        if self.schedule.compared.is_complete() { self.index.leave_whole() } else { Ok(()) }
    }
}
