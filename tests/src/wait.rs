//! Waiting for what must happen.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::bail;
use forebay::env::{self, Env};

/// Longer than anything takes that happens at all, on a machine that does much else besides.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(25);

/// Looks again and again until `enough` says so, and returns what was seen then.
///
/// What `look` returns is shown if it never happens; an error of `look` counts as "not yet".
pub async fn until<T: Debug>(
    what: &str,
    mut look: impl AsyncFnMut() -> anyhow::Result<T>,
    enough: impl Fn(&T) -> bool,
) -> anyhow::Result<T> {
    let clock = Env::system().clock;
    let end = clock.monotonic() + PATIENCE;
    loop {
        let seen = match look().await {
            Ok(seen) if enough(&seen) => return Ok(seen),
            other => other,
        };
        if clock.monotonic() > end {
            bail!("after {} s still not so: {what}; last seen: {seen:?}", PATIENCE.as_secs());
        }
        env::sleep(LOOK).await;
    }
}
