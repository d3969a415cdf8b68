//! The engine with everything that calls share, and a generation that is ready to be called.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::Semaphore;
use wasmtime::component::{Component, Linker};
use wasmtime::{Engine, Store};

use super::bindings::forebay::connector::types as wire;
use super::bindings::{Connector, ConnectorPre};
use super::cache::ArtifactCache;
use super::call::{Call, within};
use super::imports::{CallState, Entry, link};
use super::output::{output, prepared};
use super::reads::readings_for_guest;
use super::rehearsal::Meter;
use super::ticker::Ticker;
use super::{FlowOutput, GuestOptions, LoadError, Prepared, check, engine};
use crate::env::Env;
use crate::model::event::Event;
use crate::model::failure::Failure;
use crate::model::pack::{GenerationNumber, Manifest};
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
    pub(super) ticker: Ticker,
    compilations: Arc<Semaphore>,
    cache: ArtifactCache,
    memory_bytes_max: u64,
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
            ticker: Ticker::start(&engine)?,
            compilations: Arc::new(Semaphore::new(options.compilations_max)),
            cache: ArtifactCache::open(&options.cache, &engine, env)?,
            memory_bytes_max: options.memory_bytes_max,
            instances_max: options.instances_max as usize,
            loaded: AtomicUsize::new(0),
            engine,
        };
        Ok(Self { shared: Arc::new(shared) })
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
        let (wanted, allowed) = (manifest.limits.memory_bytes, self.shared.memory_bytes_max);
        if wanted > allowed {
            return Err(LoadError(format!(
                "pack `{}` asks for {wanted} bytes of memory, and this host allows {allowed}: lower `limits.memory_mib`, or \
                 raise the host's bound",
                manifest.name
            )));
        }
        let stopping = |_| LoadError("the host is stopping".to_owned());
        let permit = Arc::clone(&self.shared.compilations).acquire_owned().await.map_err(stopping)?;
        let shared = Arc::clone(&self.shared);
        let loading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            check::check(&component, &manifest.imports)?;
            let compiled = shared.cache.get_or_compile(&shared.engine, &component)?;
            let pre = link_and_try(&shared.engine, &manifest, &compiled)?;
            shared.loaded.fetch_add(1, Ordering::Relaxed);
            Ok(Arc::new(LoadedGeneration { manifest, number, pre, engine: shared }))
        });
        loading.await.unwrap_or_else(|error| Err(LoadError(format!("compiling the component failed: {error}"))))
    }
}

/// Links a component to what its manifest declares, compares every type with the contract's, and makes an instance once:
/// what cannot be called is refused before it serves.
pub(super) fn link_and_try(
    engine: &Engine,
    manifest: &Arc<Manifest>,
    component: &Component,
) -> Result<ConnectorPre<CallState>, LoadError> {
    let mut linker = Linker::new(engine);
    let linked = link(&mut linker, &manifest.imports)
        .and_then(|()| linker.instantiate_pre(component))
        .and_then(ConnectorPre::new);
    let tried = linked.and_then(|pre| {
        let mut store = Store::new(engine, CallState::for_trial(manifest));
        store.limiter(|state| &mut state.memory);
        store.set_fuel(manifest.limits.fuel.min(TRIAL_FUEL_MAX))?;
        // Fuel bounds it; nobody else waits for this thread.
        store.set_epoch_deadline(u64::MAX / 2);
        let instance = pre.instance_pre().instantiate(&mut store)?;
        Connector::new(&mut store, &instance)?;
        Ok(pre)
    });
    tried.map_err(|error| {
        LoadError(format!(
            "the component does not fit {}: {error:#}. Build it against the contract that this host serves",
            check::CONTRACT_NAME
        ))
    })
}

/// A generation that is ready to be called.
pub struct LoadedGeneration {
    pub(super) pre: ConnectorPre<CallState>,
    pub(super) engine: Arc<SharedEngine>,
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
        let argument = event_for_guest(event, attempt);
        let flow = call.connector.forebay_connector_flow();
        let result = within(deadline, flow.call_prepare(&mut call.store, &argument)).await;
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
        let (argument, state) = (event_for_guest(event, attempt), state.to_vec());
        let readings = readings_for_guest(readings);
        let flow = call.connector.forebay_connector_flow();
        let result = within(deadline, flow.call_run(&mut call.store, &argument, &state, &readings)).await;
        call.measure(self, meter);
        output(call.finish(self, result)?, &self.manifest, event)
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

fn event_for_guest(event: &Event, attempt: u32) -> wire::Event {
    wire::Event {
        id: event.id.to_string(),
        namespace: event.namespace.as_str().to_owned(),
        route: event.route.as_str().to_owned(),
        route_version: event.generation.0,
        source_key: event.source_key.clone(),
        delivery_key: event.delivery_key.clone(),
        received_at: event.received_at.as_millis(),
        content_type: event.content_type.clone(),
        headers: event
            .headers
            .iter()
            .map(|header| wire::Header { name: header.name.clone(), value: header.value.to_vec() })
            .collect(),
        body: event.body.to_vec(),
        attempt,
    }
}
