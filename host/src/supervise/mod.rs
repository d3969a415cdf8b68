//! Supervision: installs packs, opens their routes, loads their generations, and keeps one pool per pack alive.
//!
//! Invariants:
//! - Routes open before anything is compiled: an ack does not wait for a guest.
//! - A pack's pool starts with its first loaded generation once its gates are open, and from then on runs until the
//!   host stops or a gap is confirmed (RDY-1). What the queue holds never starts, stops or rebuilds anything (SCH-3).
//! - What is wrong with one pack is said in the readiness, and leaves the others alone.
//! - The store says which generations serve: each runtime follows it, so that all serve the same.

mod destinations;
mod gates;
mod generations;
mod pool;
mod preview;
mod readiness;
mod retention;
mod rollout;
mod start;
mod sweeper;
#[cfg(test)]
mod tests;
mod verify;

pub use destinations::{AdviseOn, DestinationBook, DestinationEntry, DestinationParts, ReadDestination, ReadOrdering};
pub use pool::Pool;
pub use preview::{Against, Cost, DIFFERENCES_KEPT_MAX, Difference, PREVIEW_EVENTS_MAX, Preview};
pub use readiness::Readiness;
pub use retention::{Keeper, Pass, PassEnded, Phase, Progress, RetentionOptions};
pub use rollout::{Arrival, RolloutError, Switch, UploadPermit};
pub use verify::{Verdict, Verification, Verified};

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use metrics::{counter, describe_counter, describe_gauge, gauge};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::sweeper::Sweeper;
use crate::claim::{ClaimOptions, HostPressure, Probe, Probes, WantedAnswer};
use crate::env::{self, Env};
use crate::execute::{Caller, ExecuteOptions, ExecutorParts, Flow, Generations};
use crate::guest::{GuestHost, LoadError};
use crate::intake::{RouteConflict, RouteTable};
use crate::model::ids::WorkItemId;
use crate::model::names::{DestinationName, Namespace, PackName};
use crate::model::pack::GenerationNumber;
use crate::model::queue::QueueClass;
use crate::store::{Store, StoreError};

use self::gates::{Gate, Gates};
use self::generations::Key;

/// How long the store may take to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Generations that are loaded at once. The guest engine bounds compilations further; what it has compiled before loads
/// fast and need not wait behind what it has not.
const LOADS_MAX: usize = 4;

/// How long a work item that an operator asked for may wait for its turn.
const WANTED_TIMEOUT: Duration = Duration::from_secs(5);

/// Pack files that are read, checked and compiled at once.
const UPLOADS_MAX: usize = 1;

/// Says what the metrics of this module mean.
pub fn describe() {
    describe_gauge!("forebay_guest_generations", "Generations whose compiled code is in memory");
    describe_gauge!("forebay_guest_instances", "Guest instances that are being called");
    describe_gauge!("forebay_guest_calls_waiting", "Guest calls that wait for an instance");
    describe_gauge!("forebay_stale_rows", "Work items in processing whose lease has expired, over all hosts");
    describe_gauge!("forebay_readiness_gaps", "Confirmed gaps that keep work from being claimed");
    describe_counter!("forebay_pools_stopped_total", "Pools that a confirmed gap stopped");
    retention::describe();
    describe_counter!(pool::REBUILDS, "Schedulers that were rebuilt, by reason");
}

/// What is supervised, and how.
#[derive(Debug, Clone)]
pub struct SuperviseOptions {
    /// The tenants.
    pub namespaces: Vec<Namespace>,
    /// The data directory, whose disk is watched.
    pub directory: PathBuf,
    /// How queues are claimed from.
    pub claim: ClaimOptions,
    /// How claimed rows are worked off.
    pub execute: ExecuteOptions,
    /// The pause between two looks at pools and store; so long may another runtime's activation take to reach this one.
    pub reconcile: Duration,
    /// How long a generation stays loaded once nothing refers to it.
    pub linger: Duration,
    /// A pool in which nothing drained for so long is not ready. Longer than the poll interval and the flow deadline.
    pub stall: Duration,
    /// How long running executions may take to end when the host stops, before they are released.
    pub drain: Duration,
}

impl Default for SuperviseOptions {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            directory: PathBuf::from("."),
            claim: ClaimOptions::default(),
            execute: ExecuteOptions::default(),
            reconcile: Duration::from_secs(2),
            linger: Duration::from_secs(10),
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
    /// Who makes the calls of readers.
    pub caller: Arc<dyn Caller>,
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
    /// What is installed cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
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
    loads: Semaphore,
    uploads: Arc<Semaphore>,
    /// Called when there is a reason to look at the store before the next interval ends.
    look: Notify,
    reconciling: tokio::sync::Mutex<()>,
    sweeper: Sweeper,
    probes: Probes,
    state: Mutex<State>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    stop: CancellationToken,
}

#[derive(Default)]
struct State {
    pools: BTreeMap<PackName, Pool>,
    /// Pools that a gap has stopped and whose executions are ending.
    stopping: BTreeMap<PackName, JoinHandle<()>>,
    gates: Gates,
    /// What pressed on the host when it was last measured.
    host: HostPressure,
    /// Generations that are being loaded.
    loading: BTreeSet<Key>,
    /// Generations that could not be loaded, and why.
    unloadable: BTreeMap<Key, String>,
    /// Loaded generations that nothing refers to, and since when.
    unreferenced: BTreeMap<Key, Duration>,
    /// The active generations that the routes were opened for.
    open: Vec<Key>,
    /// Why routes of some of them are closed.
    closed: Vec<String>,
    /// Files given at the start that could not take over from what is active, and why.
    refused: Vec<String>,
    /// What the store's last probe said, if it failed.
    store_error: Option<String>,
}

impl Supervisor {
    /// Remembers a task, to end it when the host stops; those that have ended are forgotten.
    fn keep(&self, task: JoinHandle<()>) {
        let mut tasks = self.shared.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    /// A supervisor with no pools and no tasks.
    fn idle(options: SuperviseOptions, parts: SuperviseParts) -> Self {
        let probes = Probes::new(parts.store.clone(), options.directory.clone());
        let shared = Shared {
            options,
            parts,
            generations: Generations::default(),
            loads: Semaphore::new(LOADS_MAX),
            uploads: Arc::new(Semaphore::new(UPLOADS_MAX)),
            look: Notify::new(),
            reconciling: tokio::sync::Mutex::default(),
            sweeper: Sweeper::new(),
            probes,
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
                () = self.shared.look.notified() => {}
            }
            self.tick().await;
        }
    }

    /// Probes the store, tells the pools, restarts what is dead, follows what the store says is to be served, and has
    /// the lanes looked after.
    pub async fn tick(&self) {
        self.look_after_pools().await;
        // The probe tells of a store that does not answer; what is served stays so meanwhile.
        if let Err(error) = self.reconcile().await {
            tracing::debug!(%error, "the generations to serve could not be read");
        }
        self.measure();
    }

    /// Says what guests hold of this process: what is retired must not stay.
    fn measure(&self) {
        let guests = &self.shared.parts.guests;
        gauge!("forebay_guest_calls_waiting").set(guests.waiting_calls().count());
        let holdings = guests.holdings();
        gauge!("forebay_guest_generations").set(holdings.generations as f64);
        gauge!("forebay_guest_instances").set(holdings.instances as f64);
    }

    async fn look_after_pools(&self) {
        let store_error = match timeout(PROBE_TIMEOUT, self.shared.parts.store.probe()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {} s", PROBE_TIMEOUT.as_secs())),
        };
        let probe = if store_error.is_none() { Probe::Answered } else { Probe::Failed };
        self.tell(store_error, self.shared.probes.measure(probe));
        if probe == Probe::Answered {
            self.confirm().await;
            self.count_stale_rows().await;
            self.sweep().await;
        }
    }

    async fn sweep(&self) {
        match timeout(PROBE_TIMEOUT, self.shared.sweeper.tick(&self.shared.parts.store)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the lanes could not be checked"),
            Err(_) => tracing::debug!("checking the lanes took too long"),
        }
    }

    /// How many rows wait for somebody to take them over from a host that is gone.
    async fn count_stale_rows(&self) {
        let packs: Vec<PackName> = self.state().pools.keys().cloned().collect();
        for pack in packs {
            let now = self.shared.parts.env.now();
            if let Ok(Ok(rows)) = timeout(PROBE_TIMEOUT, self.shared.parts.store.processing_rows(&pack, now)).await {
                gauge!("forebay_stale_rows", "pack" => pack.to_string()).set(rows.stale as f64);
            }
        }
    }

    fn tell(&self, store_error: Option<String>, host: HostPressure) {
        let mut state = self.state();
        if store_error != state.store_error {
            match &store_error {
                Some(error) => tracing::warn!(%error, "the store does not answer"),
                None => tracing::info!("the store answers again"),
            }
        }
        state.store_error = store_error;
        state.host = host;
        for pool in state.pools.values_mut() {
            pool.measured(host);
            pool.revive(&self.shared.options.claim);
        }
    }

    /// Has an executor of this host take one work item next, if it may be claimed. `None`: no pool of its pack runs
    /// here, or too many were asked for at once.
    pub async fn run_next(&self, pack: &PackName, id: WorkItemId, class: QueueClass) -> Option<WantedAnswer> {
        let wanted = self.state().pools.get(pack)?.want(id, class)?;
        match timeout(WANTED_TIMEOUT, wanted).await {
            Ok(Ok(answer)) => Some(answer),
            // The scheduler ended, or had no free executor all the time.
            Ok(Err(_)) | Err(_) => Some(WantedAnswer::Denied("no_slot")),
        }
    }

    /// The generations of a pack that this host can execute.
    pub fn loaded_generations(&self, pack: &PackName) -> Vec<GenerationNumber> {
        self.shared.generations.numbers(pack)
    }

    /// The destinations that the packs which serve here may emit to, with the pack.
    pub fn destinations_named(&self) -> Vec<(PackName, DestinationName)> {
        let open = self.state().open.clone();
        let mut named = Vec::new();
        for (pack, number) in open {
            if let Some(flow) = self.shared.generations.get(&pack, number) {
                named
                    .extend(flow.manifest().destinations.iter().map(|destination| (pack.clone(), destination.clone())));
            }
        }
        named
    }

    /// Whether this host works a tenant's events off.
    pub fn serves(&self, namespace: &Namespace) -> bool {
        self.shared.options.namespaces.contains(namespace)
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
        reasons.extend(state.gates.gaps().into_iter().map(|gap| gap.seen));
        let unconfirmed = |pack: &PackName| state.gates.verdict(pack) == Gate::Undecided;
        let works = self.shared.options.execute.slots > 0;
        let idle = self.shared.generations.packs().into_iter().filter(|pack| works && !state.pools.contains_key(pack));
        for pack in idle.filter(unconfirmed) {
            reasons.push(format!("pack `{pack}` waits until the store is confirmed to have all that its work needs"));
        }
        reasons.extend(state.closed.iter().chain(&state.refused).cloned());
        let now = self.shared.parts.env.clock.monotonic();
        // A pool that has nothing to execute anything by does not drain, and need not.
        let at_work = |pack: &PackName| !self.shared.generations.numbers(pack).is_empty();
        for (pack, pool) in state.pools.iter().filter(|(pack, _)| at_work(pack)) {
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
        let (pools, stopping) = {
            let mut state = self.state();
            (std::mem::take(&mut state.pools), std::mem::take(&mut state.stopping))
        };
        join_all(stopping.into_values()).await;
        join_all(pools.into_values().map(|pool| pool.drain(self.shared.options.drain))).await;
    }

    /// A generation can be executed from now on: its pool is told, or its pack gets one as soon as it may.
    fn loaded(&self, pack: &PackName, number: GenerationNumber, flow: Arc<dyn Flow>) {
        self.shared.generations.insert(pack.clone(), number, flow);
        let mut state = self.state();
        state.unloadable.remove(&(pack.clone(), number));
        if let Some(pool) = state.pools.get(pack) {
            return pool.wake();
        }
        drop(state);
        self.obey_gates();
    }

    /// Stops the pools whose gates are closed, and gives those packs a pool that have none and may.
    fn obey_gates(&self) {
        let mut state = self.state();
        if self.shared.stop.is_cancelled() {
            return;
        }
        state.stopping.retain(|_, stopping| !stopping.is_finished());
        gauge!("forebay_readiness_gaps").set(state.gates.gaps().len() as f64);
        let running: Vec<PackName> = state.pools.keys().cloned().collect();
        for pack in running {
            let Gate::Closed(gap) = state.gates.verdict(&pack) else { continue };
            tracing::error!(%pack, gap = gap.seen, "a confirmed gap stops the pool");
            let labels = [("pack", pack.to_string()), ("reason", gap.kind.as_str().to_owned())];
            counter!("forebay_pools_stopped_total", &labels).increment(1);
            let Some(pool) = state.pools.remove(&pack) else { continue };
            let stopping = env::spawn("pool stop", pool.drain(self.shared.options.drain));
            state.stopping.insert(pack, stopping);
        }
        if self.shared.options.execute.slots == 0 {
            // This runtime only takes deliveries in.
            return;
        }
        for pack in self.shared.generations.packs() {
            let idle = !state.pools.contains_key(&pack) && !state.stopping.contains_key(&pack);
            if idle && state.gates.verdict(&pack) == Gate::Open {
                let pool = Pool::start(self.shared.options.claim.clone(), self.executor_parts(&pack));
                pool.measured(state.host);
                state.pools.insert(pack, pool);
            }
        }
    }

    fn executor_parts(&self, pack: &PackName) -> ExecutorParts {
        ExecutorParts {
            pack: pack.clone(),
            options: self.shared.options.execute.clone(),
            store: self.shared.parts.store.clone(),
            generations: self.shared.generations.clone(),
            env: self.shared.parts.env.clone(),
            caller: Arc::clone(&self.shared.parts.caller),
            runtime: self.shared.parts.guest_runtime.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
