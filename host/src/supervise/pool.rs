//! A pool: the scheduler, the executors and the lease keeper of one pack.

#[cfg(test)]
mod tests;

use std::time::Duration;

use metrics::counter;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::readiness::Condition;
use crate::claim::{CentralClaimScheduler, ClaimOptions, HostPressure, SchedulerHandle, WantedAnswer};
use crate::env::{self, Env};
use crate::execute::{ExecutorParts, Executors};
use crate::model::ids::WorkItemId;
use crate::model::queue::QueueClass;
use crate::store::Store;

/// Counts schedulers that were rebuilt, by pack and reason.
pub(super) const REBUILDS: &str = "forebay_scheduler_rebuilds_total";

/// Why a scheduler is rebuilt. What is queued is not among it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rebuild {
    /// It is dead.
    Dead,
    /// It was configured otherwise, and has ended for that.
    Configuration,
}

impl Rebuild {
    const ALL: [Rebuild; 2] = [Rebuild::Dead, Rebuild::Configuration];

    /// The word for it in metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Rebuild::Dead => "dead",
            Rebuild::Configuration => "configuration",
        }
    }
}

/// What works off one pack's queue in this runtime.
pub struct Pool {
    claim: ClaimOptions,
    store: Store,
    env: Env,
    executors: Executors,
    handle: SchedulerHandle,
    scheduler: JoinHandle<()>,
    keeper: JoinHandle<()>,
    /// Ends this scheduler, and not the pool.
    stop_scheduler: CancellationToken,
    stop_claiming: CancellationToken,
    stop_keeping: CancellationToken,
}

impl Pool {
    /// Starts a pool on the current runtime; its executions run on that of `parts`.
    pub fn start(claim: ClaimOptions, parts: ExecutorParts) -> Self {
        let (store, env) = (parts.store.clone(), parts.env.clone());
        let executors = Executors::new(parts);
        let handle = SchedulerHandle::default();
        let (stop_claiming, stop_keeping) = (CancellationToken::new(), CancellationToken::new());
        tracing::info!(
            pack = %executors.pack(),
            workers = executors.slots(),
            max_processing_rows = claim.max_processing_rows.map_or(executors.rows_in_work_max(), |rows| rows.get()),
            "a pool starts"
        );
        // Beside the counts that stay 0, so that they can be seen to.
        for reason in Rebuild::ALL {
            counter!(REBUILDS, "pack" => executors.pack().to_string(), "reason" => reason.as_str()).increment(0);
        }
        let scheduler =
            CentralClaimScheduler::new(claim.clone(), store.clone(), executors.clone(), env.clone(), handle.clone());
        let stop_scheduler = stop_claiming.child_token();
        let scheduler = env::spawn("claim scheduler", scheduler.run(stop_scheduler.clone()));
        let keeper = env::spawn("lease keeper", executors.lease_keeper().run(stop_keeping.clone()));
        Self { claim, store, env, executors, handle, scheduler, keeper, stop_scheduler, stop_claiming, stop_keeping }
    }

    /// Something changed that the queue does not tell of.
    pub fn wake(&self) {
        self.handle.wake();
    }

    /// The executors.
    pub fn executors(&self) -> &Executors {
        &self.executors
    }

    /// Tells the scheduler what presses on the host.
    pub(super) fn measured(&self, host: HostPressure) {
        self.handle.measured(host);
    }

    /// Asks for one work item, before all others.
    pub(super) fn want(&self, id: WorkItemId, class: QueueClass) -> Option<oneshot::Receiver<WantedAnswer>> {
        self.handle.want(id, class)
    }

    /// Rebuilds the scheduler if it is dead, or is to be configured otherwise, restarts the lease keeper if it is dead,
    /// and leaves them alone otherwise. A scheduler that is to be configured otherwise ends first, with the claim that
    /// it has outstanding: a pack has one at a time.
    pub(super) fn revive(&mut self, claim: &ClaimOptions) {
        let pack = self.executors.pack();
        let configured = self.claim.fingerprint() == claim.fingerprint();
        if !configured {
            self.stop_scheduler.cancel();
        }
        if self.scheduler.is_finished() {
            let reason = if configured { Rebuild::Dead } else { Rebuild::Configuration };
            match reason {
                Rebuild::Dead => tracing::error!(%pack, "the claim scheduler is dead; it is rebuilt"),
                Rebuild::Configuration => {
                    tracing::info!(%pack, "the claim scheduler is configured otherwise; it is rebuilt")
                }
            }
            counter!(REBUILDS, "pack" => pack.to_string(), "reason" => reason.as_str()).increment(1);
            self.claim = claim.clone();
            self.stop_scheduler = self.stop_claiming.child_token();
            let scheduler = CentralClaimScheduler::new(
                self.claim.clone(),
                self.store.clone(),
                self.executors.clone(),
                self.env.clone(),
                self.handle.clone(),
            );
            self.scheduler = env::spawn("claim scheduler", scheduler.run(self.stop_scheduler.clone()));
        }
        if self.keeper.is_finished() {
            tracing::error!(pack = %self.executors.pack(), "the lease keeper is dead; it is restarted");
            let keeper = self.executors.lease_keeper();
            self.keeper = env::spawn("lease keeper", keeper.run(self.stop_keeping.clone()));
        }
    }

    pub(super) fn condition(&self) -> Condition {
        Condition {
            scheduler_alive: !self.scheduler.is_finished(),
            keeper_alive: !self.keeper.is_finished(),
            drained_at: self.executors.vitals().drained_at(),
        }
    }

    /// Stops claiming, waits for what is in work, at most for `bound`, and releases the rest.
    pub async fn drain(self, bound: Duration) {
        self.stop_claiming.cancel();
        // A claim that is outstanding ends first: its rows are released with the others, not left to their leases.
        let _ = self.scheduler.await;
        self.executors.drain(bound).await;
        self.stop_keeping.cancel();
        let _ = self.keeper.await;
    }
}
