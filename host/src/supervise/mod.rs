//! Supervision: installs packs, opens their routes, loads their generations, and keeps one pool per pack alive.
//!
//! Invariants:
//! - Routes open before anything is compiled: an ack does not wait for a guest.
//! - A pack's pool starts with its first loaded generation, and from then on runs until the host stops. What the queue
//!   holds never starts, stops or rebuilds anything (SCH-3).
//! - What is wrong with one pack is said in the readiness, and leaves the others alone.
//! - Only packs that were given are served. Work of others stays in the store until they are given again.

mod generations;
mod pool;
mod readiness;
mod sweeper;
#[cfg(test)]
mod tests;

pub use pool::Pool;
pub use readiness::Readiness;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::sweeper::Sweeper;
use crate::claim::{ClaimOptions, Probe};
use crate::env::{self, Env};
use crate::execute::{ExecuteOptions, ExecutorParts, Flow, Generations};
use crate::guest::{GuestHost, PackFile};
use crate::intake::{RouteConflict, RouteTable};
use crate::model::names::{Namespace, PackName};
use crate::model::pack::GenerationNumber;
use crate::store::{Store, StoreError};

/// How long the store may take to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// What is supervised, and how.
#[derive(Debug, Clone)]
pub struct SuperviseOptions {
    /// The tenants.
    pub namespaces: Vec<Namespace>,
    /// How queues are claimed from.
    pub claim: ClaimOptions,
    /// How claimed rows are worked off.
    pub execute: ExecuteOptions,
    /// The pause between two looks at pools and store.
    pub reconcile: Duration,
    /// A pool in which nothing drained for so long is not ready. Longer than the poll interval and the flow deadline.
    pub stall: Duration,
    /// How long running executions may take to end when the host stops, before they are released.
    pub drain: Duration,
}

impl Default for SuperviseOptions {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            claim: ClaimOptions::default(),
            execute: ExecuteOptions::default(),
            reconcile: Duration::from_secs(2),
            stall: Duration::from_secs(60),
            drain: Duration::from_secs(15),
        }
    }
}

/// What a supervisor works with.
#[derive(Clone)]
pub struct SuperviseParts {
    /// The store.
    pub store: Store,
    /// The guest engine.
    pub guests: GuestHost,
    /// The ways in.
    pub routes: RouteTable,
    /// Time and chance.
    pub env: Env,
    /// The runtime that guests run on: not the caller's, so that guests that burn CPU starve nothing else.
    pub guest_runtime: Handle,
}

/// Why the host cannot start with these packs.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// Two files hold the same pack.
    #[error("pack `{0}` is given twice: give one file of it")]
    GivenTwice(PackName),
    /// Two packs want the same route.
    #[error(transparent)]
    Conflict(#[from] RouteConflict),
    /// The store did not take them.
    #[error("the packs could not be installed: {0}")]
    Store(#[from] StoreError),
}

/// Keeps the pools of this runtime; clones share it.
#[derive(Clone)]
pub struct Supervisor {
    shared: Arc<Shared>,
}

struct Shared {
    options: SuperviseOptions,
    parts: SuperviseParts,
    generations: Generations,
    sweeper: Sweeper,
    state: Mutex<State>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    stop: CancellationToken,
}

#[derive(Default)]
struct State {
    pools: BTreeMap<PackName, Pool>,
    /// Generations that are still to be loaded.
    loading: BTreeSet<(PackName, GenerationNumber)>,
    /// Generations that could not be loaded, and why.
    unloadable: BTreeMap<(PackName, GenerationNumber), String>,
    /// What the store's last probe said, if it failed.
    store_error: Option<String>,
}

impl Supervisor {
    /// Installs `packs`, opens their routes, and starts loading and serving them in the background.
    pub async fn start(
        options: SuperviseOptions,
        packs: Vec<PackFile>,
        parts: SuperviseParts,
    ) -> Result<Self, SuperviseError> {
        let to_load = generations::install(&options.namespaces, packs, &parts).await?;
        let supervisor = Self::idle(options, parts);
        supervisor.state().loading = to_load.iter().map(generations::ToLoad::key).collect();
        let tasks = vec![
            env::spawn("generation loader", supervisor.clone().load_all(to_load)),
            env::spawn("supervisor", supervisor.clone().run()),
        ];
        tasks.into_iter().for_each(|task| supervisor.keep(task));
        Ok(supervisor)
    }

    /// Remembers a task, to end it when the host stops; those that have ended are forgotten.
    fn keep(&self, task: JoinHandle<()>) {
        let mut tasks = self.shared.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    /// A supervisor with no pools and no tasks.
    fn idle(options: SuperviseOptions, parts: SuperviseParts) -> Self {
        let shared = Shared {
            options,
            parts,
            generations: Generations::default(),
            sweeper: Sweeper::new(),
            state: Mutex::default(),
            tasks: Mutex::default(),
            stop: CancellationToken::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    async fn run(self) {
        loop {
            tokio::select! {
                () = self.shared.stop.cancelled() => return,
                () = env::sleep(self.shared.options.reconcile) => {}
            }
            self.tick().await;
        }
    }

    /// Probes the store, tells the pools, restarts what is dead, and has the lanes looked after.
    pub async fn tick(&self) {
        let store_error = match timeout(PROBE_TIMEOUT, self.shared.parts.store.probe()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {} s", PROBE_TIMEOUT.as_secs())),
        };
        let probe = if store_error.is_none() { Probe::Answered } else { Probe::Failed };
        self.tell(store_error, probe);
        if probe == Probe::Answered {
            self.sweep().await;
        }
    }

    async fn sweep(&self) {
        match timeout(PROBE_TIMEOUT, self.shared.sweeper.tick(&self.shared.parts.store)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the lanes could not be looked at"),
            Err(_) => tracing::debug!("looking at the lanes took too long"),
        }
    }

    fn tell(&self, store_error: Option<String>, probe: Probe) {
        let mut state = self.state();
        if store_error != state.store_error {
            match &store_error {
                Some(error) => tracing::warn!(%error, "the store does not answer"),
                None => tracing::info!("the store answers again"),
            }
        }
        state.store_error = store_error;
        for pool in state.pools.values_mut() {
            pool.probed(probe);
            pool.revive();
        }
    }

    /// Whether this host does its work, and if not, why.
    pub fn readiness(&self) -> Readiness {
        let state = self.state();
        let mut reasons = Vec::new();
        if self.shared.stop.is_cancelled() {
            reasons.push("the host is shutting down".to_owned());
        }
        if let Some(error) = &state.store_error {
            reasons.push(format!("the store does not answer: {error}"));
        }
        for (pack, number) in &state.loading {
            reasons.push(format!("generation {number} of pack `{pack}` is still being loaded"));
        }
        for ((pack, number), error) in &state.unloadable {
            reasons.push(format!("generation {number} of pack `{pack}` could not be loaded: {error}"));
        }
        let now = self.shared.parts.env.clock.monotonic();
        for (pack, pool) in &state.pools {
            reasons.extend(readiness::complaint(pack, pool.condition(), now, self.shared.options.stall));
        }
        Readiness::from_reasons(reasons)
    }

    /// Stops claiming, lets running executions end within the drain bound, and releases those that did not.
    pub async fn drain(&self) {
        self.shared.stop.cancel();
        let tasks = std::mem::take(&mut *self.shared.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.abort();
            // Either it has ended, or it was aborted: no pool is started from here on.
            let _ = task.await;
        }
        let pools = std::mem::take(&mut self.state().pools);
        join_all(pools.into_values().map(|pool| pool.drain(self.shared.options.drain))).await;
    }

    /// A generation can be executed from now on: its pack gets a pool, or its pool is told.
    fn loaded(&self, pack: &PackName, number: GenerationNumber, flow: Arc<dyn Flow>) {
        self.shared.generations.insert(pack.clone(), number, flow);
        let mut state = self.state();
        state.loading.remove(&(pack.clone(), number));
        match state.pools.get(pack) {
            Some(pool) => pool.wake(),
            None => {
                let parts = ExecutorParts {
                    pack: pack.clone(),
                    options: self.shared.options.execute.clone(),
                    store: self.shared.parts.store.clone(),
                    generations: self.shared.generations.clone(),
                    env: self.shared.parts.env.clone(),
                    runtime: self.shared.parts.guest_runtime.clone(),
                };
                state.pools.insert(pack.clone(), Pool::start(self.shared.options.claim.clone(), parts));
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
