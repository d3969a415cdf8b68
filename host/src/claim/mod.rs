//! The claim: one scheduler per pack decides when the queue is looked at, and how many rows are taken.
//!
//! Invariants:
//! - [`CentralClaimScheduler`] is the only caller of `Store::claim` for its pack in this runtime, and has one claim
//!   outstanding at a time. More executors never mean more scanners.
//! - A claim follows a grant of the limiter and a reservation of slots; what is claimed has a place to run.
//! - A claim is for the slots of one shape, and takes no others, not even for a moment: what one shape holds and does
//!   not use, no other can, here and over the shared budget in other runtimes.
//! - What the queue holds never creates, stops or rebuilds a scheduler. It sleeps, and is woken.

mod doubt;
mod handle;
mod limiter;
mod pressure;
mod probes;
mod scheduler;
#[cfg(test)]
mod tests;
mod wanted;

pub use handle::{SchedulerHandle, WANTED_MAX};
pub use limiter::{Admission, Denial, Pressure, Resource, StaleOnlyReason, StoreHealth, admit};
pub use pressure::{HostPressure, Level, Probe};
pub use probes::Probes;
pub use scheduler::{CentralClaimScheduler, Tick};
pub use wanted::WantedAnswer;

use std::num::NonZeroU32;
use std::time::Duration;

use crate::guest::WaitingCalls;

/// Says what the metrics of this module mean.
pub fn describe() {
    scheduler::describe();
    probes::describe();
}

/// How a pack's queue is claimed from.
#[derive(Debug, Clone)]
pub struct ClaimOptions {
    /// The longest pause between two looks at the queue when nothing calls.
    pub poll: Duration,
    /// The most rows of a pack that may be in work at once (`inbound.max_processing_rows`), over all runtimes:
    /// executed, or waiting for their outcome to be recorded. By default, in each runtime as many as its executors
    /// take.
    ///
    /// A runtime counts before it claims. Runtimes that count at the same moment see the same room, and each may fill
    /// it: with `n` of them, the rows in work exceed this by at most `n - 1` batches, each no larger than the room that
    /// was seen. No more is claimed until they are below it again.
    pub max_processing_rows: Option<NonZeroU32>,
    /// How long a claim may take. The rows of one that took longer come back when their leases run out.
    pub timeout: Duration,
    /// Counts the guest calls of this host that wait for an instance.
    pub calls_waiting: WaitingCalls,
}

/// What a scheduler is configured by: with another one, it is another scheduler (SCH-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    poll: Duration,
    max_processing_rows: Option<NonZeroU32>,
    timeout: Duration,
}

impl ClaimOptions {
    /// What tells one configuration from another.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint { poll: self.poll, max_processing_rows: self.max_processing_rows, timeout: self.timeout }
    }
}

impl Default for ClaimOptions {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(10),
            max_processing_rows: None,
            timeout: Duration::from_secs(10),
            calls_waiting: WaitingCalls::default(),
        }
    }
}
