//! A pool: the scheduler, the executors and the lease keeper of one pack.

#[cfg(test)]
mod tests;

use std::time::Duration;

use metrics::counter;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::readiness::Condition;
use crate::claim::{CentralClaimScheduler, ClaimOptions, Probe, SchedulerHandle};
use crate::env::{self, Env};
use crate::execute::{ExecutorParts, Executors};
use crate::store::Store;

/// What works off one pack's queue in this runtime.
pub struct Pool {
    claim: ClaimOptions,
    store: Store,
    env: Env,
    executors: Executors,
    handle: SchedulerHandle,
    scheduler: JoinHandle<()>,
    keeper: JoinHandle<()>,
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
        let scheduler =
            CentralClaimScheduler::new(claim.clone(), store.clone(), executors.clone(), env.clone(), handle.clone());
        let scheduler = env::spawn("claim scheduler", scheduler.run(stop_claiming.clone()));
        let keeper = env::spawn("lease keeper", executors.lease_keeper().run(stop_keeping.clone()));
        Self { claim, store, env, executors, handle, scheduler, keeper, stop_claiming, stop_keeping }
    }

    /// Something changed that the queue does not tell of.
    pub fn wake(&self) {
        self.handle.wake();
    }

    /// The executors.
    pub fn executors(&self) -> &Executors {
        &self.executors
    }

    /// Tells the scheduler how the store's probe went.
    pub(super) fn probed(&self, probe: Probe) {
        self.handle.probed(probe);
    }

    /// Restarts the scheduler or the lease keeper if it is dead, and leaves it alone otherwise.
    pub(super) fn revive(&mut self) {
        let pack = self.executors.pack();
        if self.scheduler.is_finished() {
            tracing::error!(%pack, "the claim scheduler is dead; it is rebuilt");
            counter!("forebay_scheduler_rebuilds_total", "pack" => pack.to_string(), "reason" => "dead").increment(1);
            let scheduler = CentralClaimScheduler::new(
                self.claim.clone(),
                self.store.clone(),
                self.executors.clone(),
                self.env.clone(),
                self.handle.clone(),
            );
            self.scheduler = env::spawn("claim scheduler", scheduler.run(self.stop_claiming.clone()));
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
