//! Watchers: tasks that keep a value up to date for all shards of this host. A watcher that panics is begun again; one
//! that always panics is given up.
//!
//! A watched value stays as it is until its watcher replaces it, so a dead watcher must be noticed. While it is begun
//! again, its value is as old as the pause is long. Once it is given up, its channel is closed, and shards stop.

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::env;

/// Runs the watcher that `task` makes, which writes to `told`, and begins it again after a panic, until `stop`.
pub(super) fn look_after<T, F>(
    name: &'static str,
    told: watch::Sender<T>,
    stop: CancellationToken,
    task: impl Fn(watch::Sender<T>) -> F + Send + Sync + 'static,
) where
    T: Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    env::spawn("timeline watcher", looked_after(name, told, stop, env::AGAIN_AFTER, task));
}

async fn looked_after<T, F>(
    name: &'static str,
    told: watch::Sender<T>,
    stop: CancellationToken,
    again_after: Duration,
    task: impl Fn(watch::Sender<T>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    if let Err(error) = env::run_again(name, again_after, &stop, || task(told.clone())).await {
        tracing::error!(task = name, %error, "a watcher is given up: shards do not go by its last word any more");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::env::PANICS_MAX;

    /// A task that panics so many times and then tells.
    fn panics(times: u32) -> (watch::Receiver<u32>, Arc<AtomicU32>) {
        let (told, seen) = watch::channel(0);
        let begun = Arc::new(AtomicU32::new(0));
        let counts = Arc::clone(&begun);
        let stop = CancellationToken::new();
        let task = move |told: watch::Sender<u32>| {
            let number = counts.fetch_add(1, Ordering::SeqCst);
            async move {
                assert!(number >= times, "the test has it panic");
                told.send_replace(number);
                std::future::pending::<()>().await;
            }
        };
        env::spawn("looks after", looked_after("a task that panics", told, stop, Duration::ZERO, task));
        (seen, begun)
    }

    // WRK-1
    #[tokio::test]
    async fn what_panics_is_begun_again_and_goes_on_telling() {
        let (mut seen, _) = panics(PANICS_MAX - 1);
        seen.changed().await.unwrap();
        assert_eq!(*seen.borrow(), PANICS_MAX - 1);
    }

    // WRK-1
    #[tokio::test]
    async fn what_always_panics_is_given_up_for_all_to_see() {
        let (mut seen, begun) = panics(u32::MAX);
        assert!(seen.changed().await.is_err(), "its last word does not stand");
        assert_eq!(begun.load(Ordering::SeqCst), PANICS_MAX);
    }
}
