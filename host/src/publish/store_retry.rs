//! Trying again what the store could not do: a few times, further and further apart.

use std::time::Duration;

use crate::env;
use crate::model::retry::RetryPolicy;
use crate::store::{ShardId, StoreError};

/// About six seconds in all: longer than a lock or a full queue lasts, shorter than a shard's owner should be kept
/// waiting.
const STORE_RETRY: RetryPolicy =
    RetryPolicy { initial: Duration::from_millis(50), max: Duration::from_secs(2), failures_max: 9 };

/// The failures of one call to the store.
pub(super) struct StoreRetry {
    shard: ShardId,
    failures: u32,
}

impl StoreRetry {
    /// For a call on behalf of `shard`; shards wait differently long.
    pub(super) fn new(shard: ShardId) -> Self {
        Self { shard, failures: 0 }
    }

    /// Waits for the next try; `false`, at once, if there is none.
    pub(super) async fn wait(&mut self, error: &StoreError) -> bool {
        match error {
            StoreError::Busy { .. } | StoreError::Unavailable(_) | StoreError::Unknown(_) => {}
            StoreError::Refused(_) | StoreError::Unstorable(_) | StoreError::Unusable(_) => return false,
        }
        self.failures += 1;
        match STORE_RETRY.delay_after(self.failures, &self.shard.0.to_be_bytes()) {
            Some(delay) => {
                env::sleep(delay).await;
                true
            }
            None => false,
        }
    }
}
