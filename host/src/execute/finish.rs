//! Recording an outcome, for as long as the lease allows.
//!
//! A finish that the store did not take is sent again: the same one, so that it counts once. After an answer that left
//! the commit's fate open, a repeat says `LeaseLost` in two cases: the first one counted, or somebody else has the row.
//! A read tells them apart for the counters; there is nothing left to do in either.

use std::time::Duration;

use super::held::HeldRow;
use super::signals::Signals;
use crate::env::{self, Env};
use crate::model::work_item::{ClaimedWorkItem, WorkState};
use crate::store::{Finish, Finished, Store, StoreError};

/// The pause before the first repeat; it doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(10);
/// The longest pause between two repeats.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often one outcome is sent: about as long as a lease of half a minute allows, also where renewals go through
/// and this one write does not.
const SENDS_MAX: u32 = 40;

/// Whether an outcome was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Recorded {
    /// It is durable.
    Applied,
    /// It is durable, and this row is ours in its place.
    Continued(Box<ClaimedWorkItem>),
    /// The row was somebody else's.
    LeaseLost,
    /// The store cannot hold it, now or later, for this reason.
    Unstorable(String),
    /// The store did not take it while the lease lasted. The row comes back when the lease runs out.
    GivenUp,
}

/// Sends `finish` until the store answers, the lease runs out, or [`SENDS_MAX`] is reached.
pub(super) async fn record(
    finish: Finish,
    item: &ClaimedWorkItem,
    held: &HeldRow,
    store: &Store,
    env: &Env,
    signals: &Signals,
) -> Recorded {
    let mut pause = PAUSE_FIRST;
    let mut fate_open = false;
    for _ in 0..SENDS_MAX {
        match store.finish(finish.clone()).await {
            Ok(Finished::Continued(successor)) => return Recorded::Continued(successor),
            Ok(Finished::Applied) => return Recorded::Applied,
            Ok(Finished::LeaseLost) if fate_open && counted_before(item, store).await => return Recorded::Applied,
            Ok(Finished::LeaseLost) => return Recorded::LeaseLost,
            Err(StoreError::Unstorable(reason)) => return Recorded::Unstorable(reason),
            Err(StoreError::Refused(reason) | StoreError::Unusable(reason)) => {
                tracing::error!(work_item = %item.id, %reason, "an outcome cannot be recorded");
                return Recorded::GivenUp;
            }
            Err(StoreError::Unknown(_)) => fate_open = true,
            Err(StoreError::Busy { .. } | StoreError::Unavailable(_)) => {}
        }
        signals.finish_retries.increment(1);
        env::sleep(pause).await;
        if !held.stands(env.clock.monotonic()) {
            break;
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
    tracing::warn!(work_item = %item.id, "an outcome was not recorded while the lease lasted");
    Recorded::GivenUp
}

/// Whether the row shows the outcome of this very claim: nobody has claimed it since, and it is no longer in work.
async fn counted_before(item: &ClaimedWorkItem, store: &Store) -> bool {
    match store.work_item(item.id).await {
        Ok(Some(detail)) => detail.attempt == item.attempt && detail.state != WorkState::Processing,
        Ok(None) | Err(_) => false,
    }
}
