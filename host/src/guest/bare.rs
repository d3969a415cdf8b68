//! The same component with nothing around it: what `forebay bench guest` holds the host's calls against.
//!
//! A fresh store and instance for each call, from a pool, as the host has them; no fuel, no epochs, no limits, no
//! deadline, and nothing looked at of what comes back.

use std::sync::Arc;

use wasmtime::component::Component;
use wasmtime::{Engine, Store};

use super::contract::returned::{Failure, Prepared};
use super::contract::{Connector, Linked};
use super::imports::{CallState, Entry};
use super::{GuestOptions, LoadError, PackFile, check, engine};
use crate::model::event::Event;
use crate::model::pack::Manifest;

/// A component, compiled for its own sake.
pub struct Bare {
    engine: Engine,
    linked: Linked,
    manifest: Arc<Manifest>,
}

impl Bare {
    /// Compiles a pack's component.
    pub fn compile(pack: &PackFile, options: &GuestOptions) -> Result<Self, LoadError> {
        let unfit = |error: wasmtime::Error| LoadError(format!("the component cannot be used: {error:#}"));
        let engine = engine::bare(options)?;
        let imports = &pack.manifest.imports;
        let built_for = check::check(&pack.component, imports)?.contract;
        let component = Component::new(&engine, &pack.component).map_err(unfit)?;
        let linked = Linked::link(built_for, &engine, imports, &component).map_err(unfit)?;
        Ok(Self { engine, linked, manifest: Arc::new(pack.manifest.clone()) })
    }

    /// Instantiates.
    pub async fn instantiate(&self, event: &Event) -> Result<(), LoadError> {
        self.start(event, Entry::Prepare).await.map(drop)
    }

    /// `prepare` and, if it wants that, `run`: how many messages came of it.
    pub async fn flow(&self, event: &Event) -> Result<usize, LoadError> {
        let ended = |error: wasmtime::Error| LoadError(format!("the call ended: {error:#}"));
        let failed = |failure: Failure| LoadError(format!("the guest failed: {failure:?}"));
        let (mut store, connector) = self.start(event, Entry::Prepare).await?;
        let prepared = connector.prepare(&mut store, event, 1).await.map_err(ended)?;
        let Prepared::Run(plan) = prepared.map_err(failed)? else { return Ok(0) };
        drop(store);
        let (mut store, connector) = self.start(event, Entry::Run).await?;
        let output = connector.run(&mut store, event, 1, &plan.state, &[]).await.map_err(ended)?;
        Ok(output.map_err(failed)?.messages.len())
    }

    async fn start(&self, event: &Event, entry: Entry) -> Result<(Store<CallState>, Connector), LoadError> {
        let mut store = Store::new(&self.engine, CallState::for_call(&self.manifest, event, entry));
        let connector = self.linked.instantiate(&mut store).await;
        let connector = connector.map_err(|error| LoadError(format!("it cannot be instantiated: {error:#}")))?;
        Ok((store, connector))
    }
}
