//! Tasks that are begun again when they panic, and given up when they always do.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{deadline, has_passed, sleep, spawn};

/// Pause before a task that panicked is begun again.
pub const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Panics in a row after which a task is given up.
pub(crate) const PANICS_MAX: u32 = 8;
/// A task that lives as long as this has nothing to do with what was before.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// A task panicked so often in a row that it is begun no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it panicked {panics} times in a row, and is not begun again before this host is")]
pub struct GivenUp {
    /// How often.
    pub panics: u32,
}

/// Runs what `task` makes, and begins it again `again_after` a panic, until it ends by itself or `stop` is cancelled.
/// What each panic said is logged where it happened.
pub async fn run_again<F>(
    name: &'static str,
    again_after: Duration,
    stop: &CancellationToken,
    task: impl Fn() -> F,
) -> Result<(), GivenUp>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut panics = 0;
    while panics < PANICS_MAX {
        let lasting = deadline(FORGOTTEN_AFTER);
        if spawn(name, task()).await.is_ok() {
            return Ok(());
        }
        panics = if has_passed(lasting) { 1 } else { panics + 1 };
        tokio::select! {
            () = sleep(again_after) => {}
            () = stop.cancelled() => return Ok(()),
        }
    }
    Err(GivenUp { panics })
}
