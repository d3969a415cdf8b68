//! Requests to the object store that are under way: bounded, each in time, and counted.
//!
//! Who restores a shard has places that nobody else takes: shards come back however much is being uploaded. What finds
//! no place waits for one, and each that is taken is given back within [`REQUEST_TIME_MAX`].

use std::future::Future;
use std::time::Duration;

use metrics::{Gauge, describe_gauge, gauge};
use tokio::sync::Semaphore;

use super::CheckpointError;
use crate::env;

/// How long one request to the object store may take: a part of a file, at the most.
pub(super) const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);
/// Requests at once for making checkpoints and letting old ones go, over all shards of a runtime.
const KEEPING_MAX: usize = 2;
/// Requests at once for restoring shards: kept for that.
const RESTORING_MAX: usize = 4;

const OPERATIONS: &str = "forebay_timeline_object_store_operations";

/// Says what the metrics of this module mean.
pub(super) fn describe() {
    describe_gauge!(OPERATIONS, "Requests to the object store of checkpoints that are under way, by what they are for");
}

/// How many connections to the object store there are at the most.
pub(super) const fn operations_max() -> usize {
    KEEPING_MAX + RESTORING_MAX
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Making a checkpoint, or letting an old one go.
    Keeping,
    /// Restoring a shard.
    Restoring,
}

/// The places of requests.
pub(super) struct Operations {
    keeping: Places,
    restoring: Places,
}

struct Places {
    free: Semaphore,
    under_way: Gauge,
}

impl Places {
    fn new(count: usize, purpose: &'static str) -> Self {
        Self { free: Semaphore::new(count), under_way: gauge!(OPERATIONS, "purpose" => purpose) }
    }
}

/// A request that is under way.
struct UnderWay<'a>(&'a Gauge);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

impl Operations {
    pub(super) fn new() -> Self {
        Self { keeping: Places::new(KEEPING_MAX, "keep"), restoring: Places::new(RESTORING_MAX, "restore") }
    }

    /// What the object store answers, if it does in time, once there is a place for the request.
    pub(super) async fn ask<T>(
        &self,
        purpose: Purpose,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, CheckpointError> {
        let places = match purpose {
            Purpose::Keeping => &self.keeping,
            Purpose::Restoring => &self.restoring,
        };
        let _place = places.free.acquire().await.expect("the places are never closed");
        places.under_way.increment(1);
        let _under_way = UnderWay(&places.under_way);
        match tokio::time::timeout_at(env::deadline(REQUEST_TIME_MAX), request).await {
            Ok(answer) => Ok(answer?),
            Err(_elapsed) => Err(CheckpointError::TooSlow),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;

    // WRK-3
    #[tokio::test]
    async fn uploads_take_their_own_places_and_none_of_those_that_restore() {
        let operations = Arc::new(Operations::new());
        let answer = Arc::new(Notify::new());
        let uploads: Vec<_> = (0..KEEPING_MAX)
            .map(|_| {
                let (operations, answer) = (Arc::clone(&operations), Arc::clone(&answer));
                env::spawn("upload", async move {
                    let request = async {
                        answer.notified().await;
                        Ok(())
                    };
                    operations.ask(Purpose::Keeping, request).await
                })
            })
            .collect();
        while operations.keeping.free.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let mut further = Box::pin(operations.ask(Purpose::Keeping, async { Ok(()) }));
        assert!(futures_util::poll!(&mut further).is_pending(), "there is no place for a further one");
        operations.ask(Purpose::Restoring, async { Ok(()) }).await.unwrap();
        // One that ends lets the next one in.
        answer.notify_one();
        further.await.unwrap();
        answer.notify_waiters();
        answer.notify_one();
        for upload in uploads {
            upload.await.unwrap().unwrap();
        }
        assert_eq!(operations.keeping.free.available_permits(), KEEPING_MAX);
    }
}
