//! Execution: claimed rows in, recorded outcomes out.
//!
//! A *slot* is one place in which an event can be worked off; each pack has a fixed number of them. A row is given a
//! slot by the scheduler, in the same step in which it is put under the lease keeper's care, and then runs as a task of
//! its own on the guest runtime, where guests that burn CPU cannot keep intake or the timeline from their work.
//!
//! ```text
//!  claimed rows ──dispatch──> memory for bodies ──> load Events ──> prepare ──> run ──> slot free ──> finish, durable
//!                     │         (waits, in order)    (together)       └──one deadline──┘
//!                     └──> held rows <──renew── lease keeper ──lost──> the execution is dropped, nothing is recorded
//! ```
//!
//! Invariants:
//! - Nothing here claims: rows come through [`Executors::dispatch`] only.
//! - A row ends by exactly one finish, or by none at all when its lease is lost. Its slot is free afterwards, whatever
//!   happened, a panic included.
//! - No Event is loaded before there is memory for its body, and a row that waits for it waits under its lease.
//! - A second run of the same event on the same generation makes messages with the same ids.
//! - No payload, header or key goes into a log line, a metric or a failure text.

mod bodies;
mod catalog;
mod conclude;
mod executors;
mod finish;
mod flow;
mod heartbeat;
mod held;
mod reads;
mod signals;
mod slots;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use catalog::Generations;
pub use executors::{ClaimTimes, ExecutorParts, Executors};
pub use flow::{Flow, NoopFlow};
pub use heartbeat::{LeaseKeeper, Renewed};
pub use reads::{Blame, CallOutcome, Caller, HttpCaller, ReaderCall, Unconnected, Unread, read_all};
pub use signals::Vitals;
pub use slots::{Reservation, rows_in_work_max};

use std::time::Duration;

use crate::lanes::Profile;
use crate::model::retry::RetryPolicy;
use crate::model::work_item::WorkType;

/// Says what the metrics of this module mean.
pub fn describe() {
    reads::describe();
    signals::describe();
}

/// The work types that executors serve; rows of others are left to hosts that know them.
pub const SERVED_WORK_TYPES: [WorkType; 2] = [WorkType::ConnectorEvent, WorkType::WorkflowActionApply];

/// How many slots a pack gets, and the most that is known to be safe: what one writer commits together, and well below
/// what the guest engine has instances for. More are allowed and logged as unsafe.
pub const SLOTS_SAFE_MAX: u32 = 64;

/// How the executors of a pack work.
#[derive(Debug, Clone)]
pub struct ExecuteOptions {
    /// Slots of one pack (`inbound.workers_per_pack`); with 0 there is nothing that executes.
    pub slots: u32,
    /// How they are divided among queue classes (`inbound.queue_profile`).
    pub profile: Profile,
    /// Bytes of bodies that one pack may have in memory (`inbound.bodies_max_mib`). A larger body has all of it for
    /// itself.
    pub bodies_bytes_max: usize,
    /// The cap of every manifest's deadline (`flow.deadline_ms`).
    pub deadline_max: Duration,
    /// How long a lease lasts. Renewed at a third of it.
    pub lease: Duration,
    /// How failed executions are spaced, and when they end.
    pub retry: RetryPolicy,
    /// Whether every event's stage times are logged, at debug level (`inbound.stage_timing`).
    pub stage_timing: bool,
}

impl Default for ExecuteOptions {
    fn default() -> Self {
        Self {
            slots: SLOTS_SAFE_MAX,
            profile: Profile::default(),
            bodies_bytes_max: 64 * 1_024 * 1_024,
            deadline_max: Duration::from_secs(10),
            lease: Duration::from_secs(30),
            retry: RetryPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(600), failures_max: 8 },
            stage_timing: false,
        }
    }
}
