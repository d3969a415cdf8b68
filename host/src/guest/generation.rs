//! The engine with everything that calls share, and a generation that is ready to be called.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use wasmtime::component::Component;
use wasmtime::{Engine, Store, Trap};

use super::cache::ArtifactCache;
use super::call::{Call, within};
use super::contract::{ContractVersion, Linked};
use super::failure::refused;
use super::imports::{CallState, Entry};
use super::output::{output, prepared};
use super::rehearsal::Meter;
use super::ticker::Ticker;
use super::turns::Places;
use super::waiting::WaitingCalls;
use super::{Ceilings, FlowOutput, GuestOptions, LoadError, Prepared, check, engine};
use crate::env::Env;
use crate::model::event::Event;
use crate::model::failure::Failure;
use crate::model::message::DueAction;
use crate::model::pack::{GenerationNumber, GuestLimits, Manifest};
use crate::model::reading::Reading;

/// What an instance may compute before its first call: about a second.
const TRIAL_FUEL_MAX: u64 = 1_000_000_000;

/// The engine and its bounded pool; clones share them.
#[derive(Clone)]
pub struct GuestHost {
    shared: Arc<SharedEngine>,
}

/// What all calls share.
pub(super) struct SharedEngine {
    pub(super) engine: Engine,
    pub(super) permits: Arc<Semaphore>,
    pub(super) waiting: WaitingCalls,
    pub(super) ticker: Ticker,
    pub(super) places: Places,
    compilations: Arc<Semaphore>,
    compilation_time_max: Duration,
    cache: ArtifactCache,
    memory_bytes_max: u64,
    ceilings: Ceilings,
    instances_max: usize,
    /// Generations that hold compiled code in memory.
    loaded: AtomicUsize,
}

/// What guests hold of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holdings {
    /// Generations whose compiled code is in memory, those that only running calls hold included.
    pub generations: usize,
    /// Instances that are being called.
    pub instances: usize,
}

impl GuestHost {
    /// Starts the engine and its epoch ticker.
    pub fn start(options: GuestOptions, env: Env) -> Result<Self, LoadError> {
        let engine = engine::start(&options)?;
        let shared = SharedEngine {
            permits: Arc::new(Semaphore::new(options.instances_max as usize)),
            waiting: WaitingCalls::default(),
            ticker: Ticker::start(&engine)?,
            places: Places::new(options.long_calls_max),
            compilations: Arc::new(Semaphore::new(options.compilations_max)),
            compilation_time_max: options.compilation_time_max,
            cache: ArtifactCache::open(&options.cache, &engine, env)?,
            memory_bytes_max: options.memory_bytes_max,
            ceilings: options.ceilings,
            instances_max: options.instances_max as usize,
            loaded: AtomicUsize::new(0),
            engine,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Counts the calls that wait for an instance.
    pub fn waiting_calls(&self) -> WaitingCalls {
        self.shared.waiting.clone()
    }

    /// What guests hold now.
    pub fn holdings(&self) -> Holdings {
        Holdings {
            generations: self.shared.loaded.load(Ordering::Relaxed),
            instances: self.shared.instances_max.saturating_sub(self.shared.permits.available_permits()),
        }
    }

    /// Checks and compiles a component (or takes it from the cache), off the calling thread.
    pub async fn load(
        &self,
        number: GenerationNumber,
        manifest: Arc<Manifest>,
        component: Bytes,
    ) -> Result<Arc<LoadedGeneration>, LoadError> {
        self.shared.within_ceilings(&manifest)?;
        let stopping = |_| LoadError("the host is stopping".to_owned());
        let permit = Arc::clone(&self.shared.compilations).acquire_owned().await.map_err(stopping)?;
        let shared = Arc::clone(&self.shared);
        // Told by who waits: what comes too late is neither kept nor served.
        let abandoned = Arc::new(AtomicBool::new(false));
        let given_up = Arc::clone(&abandoned);
        let loading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let built_for = check::check(&component, &manifest.imports)?.contract;
            let compiled = shared.cache.get_or_compile(&shared.engine, &component, &given_up)?;
            let linked = link_and_try(&shared.engine, &manifest, &compiled, built_for)?;
            shared.loaded.fetch_add(1, Ordering::Relaxed);
            let calls = Arc::new(Semaphore::new(manifest.limits.concurrency as usize));
            Ok(Arc::new(LoadedGeneration { manifest, number, linked, calls, engine: shared }))
        });
        match tokio::time::timeout(self.shared.compilation_time_max, loading).await {
            Ok(loaded) => {
                loaded.unwrap_or_else(|error| Err(LoadError(format!("compiling the component failed: {error}"))))
            }
            // A compilation cannot be interrupted. It keeps its place until it ends, so that others like it cannot take
            // more.
            Err(_) => {
                abandoned.store(true, Ordering::Relaxed);
                Err(LoadError(format!(
                    "the component was not compiled within {} s: make it smaller, or raise `guest.compilation_max_seconds`",
                    self.shared.compilation_time_max.as_secs()
                )))
            }
        }
    }

    /// Components that were compiled, and not taken from the cache, since the engine was started.
    pub fn compiled(&self) -> u64 {
        self.shared.cache.compiled()
    }
}

impl SharedEngine {
    /// Whether the manifest asks for no more than this host gives.
    fn within_ceilings(&self, manifest: &Manifest) -> Result<(), LoadError> {
        let GuestLimits { fuel, memory_bytes, output_bytes, messages, log_bytes, .. } = manifest.limits;
        let Ceilings { fuel: fuel_max, output_bytes: output_max, messages: messages_max, log_bytes: log_max } =
            self.ceilings;
        let wishes = [
            ("bytes of memory", memory_bytes, self.memory_bytes_max, "memory_mib", "memory_max_mib"),
            ("units of fuel", fuel, fuel_max, "fuel", "fuel_max_millions"),
            ("bytes of output", output_bytes, output_max, "output_kib", "output_max_kib"),
            ("messages", messages.into(), messages_max.into(), "messages", "messages_max"),
            ("bytes of log text", log_bytes, log_max, "log_kib", "log_max_kib"),
        ];
        match wishes.into_iter().find(|(_, wanted, allowed, ..)| wanted > allowed) {
            None => Ok(()),
            Some((what, wanted, allowed, limit, key)) => Err(LoadError(format!(
                "pack `{}` asks for {wanted} {what}, and this host allows {allowed}: lower `limits.{limit}`, or raise the \
                 host's `guest.{key}`",
                manifest.name
            ))),
        }
    }
}

/// Links a component to what its manifest declares, compares every type with the contract's, and makes an instance
/// once: what cannot be called is refused before it serves.
pub(super) fn link_and_try(
    engine: &Engine,
    manifest: &Arc<Manifest>,
    component: &Component,
    built_for: ContractVersion,
) -> Result<Linked, LoadError> {
    let unfit = |error: wasmtime::Error| unfit(built_for, &error);
    let linked = Linked::link(built_for, engine, &manifest.imports, component).map_err(unfit)?;
    let mut store = Store::new(engine, CallState::for_trial(manifest));
    store.limiter(|state| &mut state.memory);
    store.set_fuel(manifest.limits.fuel.min(TRIAL_FUEL_MAX)).map_err(unfit)?;
    // Fuel bounds it; nobody else waits for this thread.
    store.set_epoch_deadline(u64::MAX / 2);
    let instance = linked
        .instance_pre()
        .instantiate(&mut store)
        .map_err(|error| unstarted(built_for, &error, store.data(), &manifest.limits))?;
    linked.compare(&mut store, &instance).map_err(unfit)?;
    Ok(linked)
}

fn unfit(built_for: ContractVersion, error: &wasmtime::Error) -> LoadError {
    LoadError(format!(
        "the component does not fit {built_for}: {error:#}. Build it against the contract that this host serves"
    ))
}

/// Why no instance can be made.
fn unstarted(
    built_for: ContractVersion,
    error: &wasmtime::Error,
    state: &CallState,
    limits: &GuestLimits,
) -> LoadError {
    let reason = match (state.memory.refused(), error.downcast_ref::<Trap>()) {
        (Some(refusal), _) => refused(refusal, limits),
        (None, Some(Trap::OutOfFuel)) => {
            "its initialization takes more fuel than a call has. Do less in it, or raise `limits.fuel`".to_owned()
        }
        (None, Some(trap)) => format!("it ends at its start: {trap}"),
        (None, None) => return unfit(built_for, error),
    };
    LoadError(format!("the component cannot be instantiated: {reason}"))
}

/// A generation that is ready to be called.
pub struct LoadedGeneration {
    pub(super) linked: Linked,
    pub(super) engine: Arc<SharedEngine>,
    /// Permits of its calls.
    pub(super) calls: Arc<Semaphore>,
    manifest: Arc<Manifest>,
    number: GenerationNumber,
}

impl LoadedGeneration {
    /// What the pack declares.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// The generation's number.
    pub fn number(&self) -> GenerationNumber {
        self.number
    }

    /// Calls `prepare`. The whole flow, this call included, must end by `deadline`.
    pub async fn prepare(
        &self,
        event: &Event,
        attempt: u32,
        deadline: tokio::time::Instant,
    ) -> Result<Prepared, Failure> {
        self.prepare_metered(event, attempt, deadline, &mut Meter::default()).await
    }

    pub(super) async fn prepare_metered(
        &self,
        event: &Event,
        attempt: u32,
        deadline: tokio::time::Instant,
        meter: &mut Meter,
    ) -> Result<Prepared, Failure> {
        let mut call = Call::start(self, CallState::for_call(&self.manifest, event, Entry::Prepare), deadline).await?;
        call.obey(meter);
        let result = within(deadline, call.connector.prepare(&mut call.store, event, attempt)).await;
        call.measure(self, meter);
        prepared(call.finish(self, result)?, &self.manifest)
    }

    /// Calls `run` with what `prepare` returned and what was read.
    pub async fn run(
        &self,
        event: &Event,
        attempt: u32,
        state: Bytes,
        readings: &[Reading],
        deadline: tokio::time::Instant,
    ) -> Result<FlowOutput, Failure> {
        self.run_metered(event, attempt, state, readings, deadline, &mut Meter::default()).await
    }

    pub(super) async fn run_metered(
        &self,
        event: &Event,
        attempt: u32,
        state: Bytes,
        readings: &[Reading],
        deadline: tokio::time::Instant,
        meter: &mut Meter,
    ) -> Result<FlowOutput, Failure> {
        let mut call = Call::start(self, CallState::for_call(&self.manifest, event, Entry::Run), deadline).await?;
        call.obey(meter);
        let result = within(deadline, call.connector.run(&mut call.store, event, attempt, &state, readings)).await;
        call.measure(self, meter);
        output(call.finish(self, result)?, &self.manifest, event.received_at)
    }

    /// Calls `apply` with an action that came due, and that `event` brought about.
    pub async fn apply(
        &self,
        event: &Event,
        action: &DueAction,
        attempt: u32,
        deadline: tokio::time::Instant,
    ) -> Result<FlowOutput, Failure> {
        let mut call = Call::start(self, CallState::for_action(&self.manifest, event, action), deadline).await?;
        let result = within(deadline, call.connector.apply(&mut call.store, event, action, attempt)).await;
        output(call.finish(self, result)?, &self.manifest, action.due_at)
    }
}

impl Drop for LoadedGeneration {
    fn drop(&mut self) {
        self.engine.loaded.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for LoadedGeneration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&super::describe(&self.manifest.name, self.number))
    }
}
