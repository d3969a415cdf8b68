//! One call of one guest: a fresh store and instance, bounded in every way, gone when it ends.
//!
//! Both halves of the deadline are here. While wasm computes, each epoch lets other calls have their turn and traps the
//! guest once the deadline has passed. Whatever else the call waits for (an instance, the host) is under a timeout.
//!
//! ```text
//! wait for a permit ──> instantiate ──> call ──> lift the result ──> drop store, instance, permit
//!        └───────────────────┴─ timeout ─┴─ fuel, epochs, limiter ─┘
//! ```

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use wasmtime::{Store, UpdateDeadline};

use super::contract::Connector;
use super::failure::{classify, deadline as deadline_failure};
use super::generation::LoadedGeneration;
use super::imports::CallState;
use super::rehearsal::Meter;
use super::ticker::{Running, TICK};
use crate::env;
use crate::model::failure::{Failure, FailureClass};

/// What a call may lift beyond its output's bytes: the host's own form of records and lists is larger than the guest's.
const LIFT_OVERHEAD_BYTES: usize = 1024 * 1024;

/// An instance that is ready to be called once.
pub(super) struct Call {
    pub(super) store: Store<CallState>,
    pub(super) connector: Connector,
    _running: Running,
    _permits: [OwnedSemaphorePermit; 2],
}

impl Call {
    /// Waits for room in the pool and instantiates.
    pub(super) async fn start(
        generation: &LoadedGeneration,
        state: CallState,
        deadline: Instant,
    ) -> Result<Self, Failure> {
        let engine = &generation.engine;
        // The pack's own first: who waits for it takes nothing from others.
        let own = permit(&generation.calls, deadline, "the pack's other calls took until the deadline").await?;
        let waits = engine.waiting.enter();
        let shared = permit(&engine.permits, deadline, "no guest instance became free before the deadline").await?;
        drop(waits);
        let running = engine.ticker.enter();
        let limits = &generation.manifest().limits;
        let mut store = Store::new(&engine.engine, state);
        store.limiter(|state| &mut state.memory);
        store.set_hostcall_fuel(
            usize::try_from(limits.output_bytes).unwrap_or(usize::MAX).saturating_add(LIFT_OVERHEAD_BYTES),
        );
        store.set_epoch_deadline(1);
        let turn = engine.places.turn();
        store.epoch_deadline_callback(move |_| {
            Ok(if env::has_passed(deadline) {
                UpdateDeadline::Interrupt
            } else {
                UpdateDeadline::YieldCustom(1, Box::pin(turn.clone().next(deadline)))
            })
        });
        let instantiated = match store.set_fuel(limits.fuel) {
            Ok(()) => within(deadline, generation.linked.instantiate(&mut store)).await,
            Err(error) => Some(Err(error)),
        };
        match instantiated {
            Some(Ok(connector)) => Ok(Self { store, connector, _running: running, _permits: [own, shared] }),
            Some(Err(error)) => Err(classify(&error, store.data(), limits)),
            None => Err(deadline_failure(limits, "")),
        }
    }

    /// Drops its log lines, if it is only rehearsed.
    pub(super) fn obey(&mut self, meter: &Meter) {
        self.store.data_mut().muted = meter.muted;
    }

    /// Adds what the guest has used.
    pub(super) fn measure(&self, generation: &LoadedGeneration, meter: &mut Meter) {
        let left = self.store.get_fuel().unwrap_or(0);
        meter.fuel += generation.manifest().limits.fuel.saturating_sub(left);
    }

    /// Takes what the call came to; `None` if the deadline passed while the guest was not computing.
    pub(super) fn finish<T>(
        self,
        generation: &LoadedGeneration,
        result: Option<wasmtime::Result<T>>,
    ) -> Result<T, Failure> {
        self.store.data().report_cut_lines();
        let limits = &generation.manifest().limits;
        match result {
            Some(Ok(returned)) => Ok(returned),
            Some(Err(error)) => Err(classify(&error, self.store.data(), limits)),
            None => Err(deadline_failure(limits, "")),
        }
    }
}

/// Waits for a permit; `late` says why there was none.
async fn permit(
    permits: &Arc<Semaphore>,
    deadline: Instant,
    late: &'static str,
) -> Result<OwnedSemaphorePermit, Failure> {
    match tokio::time::timeout_at(deadline, Arc::clone(permits).acquire_owned()).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) => Err(Failure::new(FailureClass::NotRun, "the host is stopping")),
        Err(_) => Err(Failure::new(FailureClass::NotRun, late)),
    }
}

/// Awaits a step of a call. A guest that computes is trapped at the deadline, and says where it was; so it gets two
/// ticks more than what waits.
pub(super) async fn within<T>(deadline: Instant, step: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(deadline + 2 * TICK, step).await.ok()
}
