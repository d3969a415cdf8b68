//! The versions of the contract that this host speaks: a closed set. `check` finds out which one a component was built
//! for; linking and calling go through that version's own bindings, here.
//!
//! ```text
//!  component ──check──> ContractVersion ──link──> Linked ──instantiate──> Connector ──call──> returned::{Prepared, Output, ..}
//!                                          └───────────── v0_1, .. : one file a version ─────────────┘
//! ```
//!
//! Invariants:
//! - A version's file is the only place that knows its types. Arguments go in as the host's own, what is returned comes
//!   out as [`returned`], and what the guest asks of the host ends in [`CallState`]. Nothing outside this folder knows
//!   that there is more than one version.
//! - What is returned is translated here and judged elsewhere (`output`, `reads`): by the same rules for all versions.
//! - A version is added with its file, its arms below, and its line in [`ContractVersion::ALL`]. One that goes takes no
//!   more than that with it.

pub(super) mod returned;
mod v0_1;
#[cfg(test)]
mod v0_2;

use std::fmt;

use wasmtime::component::{Component, Instance, InstancePre, Linker};
use wasmtime::{Engine, Store};
use wit_parser::PackageName;

use self::returned::Returned;
use super::ReadResponse;
use super::imports::CallState;
use crate::model::event::Event;
use crate::model::message::DueAction;
use crate::model::pack::{ImportName, Reader};
use crate::model::reading::Reading;

/// A version of the contract `forebay:connector`. Those that differ by what breaks nothing are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContractVersion {
    /// `0.1.0`, in `wit/`.
    V0_1,
    /// What a next one might be, incompatible in every way: the tests serve both.
    #[cfg(test)]
    V0_2,
}

impl ContractVersion {
    /// All that this host serves, oldest first.
    pub(super) const ALL: &[ContractVersion] = &[
        ContractVersion::V0_1,
        #[cfg(test)]
        ContractVersion::V0_2,
    ];

    /// The one that packs are built for here.
    pub(super) const BUILT: ContractVersion = ContractVersion::V0_1;

    /// The world that a connector is of.
    pub(super) const WORLD: &str = "connector";

    /// The package's name with its version.
    pub(super) const fn name(self) -> &'static str {
        match self {
            ContractVersion::V0_1 => "forebay:connector@0.1.0",
            #[cfg(test)]
            ContractVersion::V0_2 => "forebay:connector@0.2.0",
        }
    }

    /// The package in WIT.
    pub(super) const fn text(self) -> &'static str {
        match self {
            ContractVersion::V0_1 => include_str!("../../../../wit/forebay-connector.wit"),
            #[cfg(test)]
            ContractVersion::V0_2 => include_str!("v0_2.wit"),
        }
    }

    /// The version alone.
    pub(super) fn number(self) -> &'static str {
        self.name().split_once('@').map_or("", |(_, number)| number)
    }

    /// Whether a package of any name and this version is served as this one is: semantic versioning, in which below 1.0
    /// the minor version is what breaks.
    pub(super) fn serves(self, package: &PackageName) -> bool {
        let (major, minor) = match self {
            ContractVersion::V0_1 => (0, 1),
            #[cfg(test)]
            ContractVersion::V0_2 => (0, 2),
        };
        package.version.as_ref().is_some_and(|wanted| {
            wanted.pre.is_empty() && wanted.major == major && (major > 0 || wanted.minor == minor)
        })
    }
}

impl fmt::Display for ContractVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The same done with any version's own.
macro_rules! by_version {
    ($kind:ident, $value:expr, $own:ident => $done:expr) => {
        match $value {
            $kind::V0_1($own) => $done,
            #[cfg(test)]
            $kind::V0_2($own) => $done,
        }
    };
}

/// A component, linked to what it may import, of which instances can be made.
pub(super) enum Linked {
    V0_1(v0_1::ConnectorPre<CallState>),
    #[cfg(test)]
    V0_2(v0_2::ConnectorPre<CallState>),
}

impl Linked {
    /// Links a component to what its manifest declares and nothing else.
    pub(super) fn link(
        version: ContractVersion,
        engine: &Engine,
        declared: &[ImportName],
        component: &Component,
    ) -> wasmtime::Result<Self> {
        let mut linker = Linker::new(engine);
        match version {
            ContractVersion::V0_1 => {
                v0_1::offer(&mut linker, declared)?;
                Ok(Self::V0_1(v0_1::ConnectorPre::new(linker.instantiate_pre(component)?)?))
            }
            #[cfg(test)]
            ContractVersion::V0_2 => {
                v0_2::offer(&mut linker, declared)?;
                Ok(Self::V0_2(v0_2::ConnectorPre::new(linker.instantiate_pre(component)?)?))
            }
        }
    }

    /// What makes instances whose exports have not been looked at.
    pub(super) fn instance_pre(&self) -> &InstancePre<CallState> {
        by_version!(Self, self, own => own.instance_pre())
    }

    /// Compares the type of every export with the version's own.
    pub(super) fn compare(&self, store: &mut Store<CallState>, instance: &Instance) -> wasmtime::Result<()> {
        match self {
            Self::V0_1(_) => v0_1::Connector::new(store, instance).map(drop),
            #[cfg(test)]
            Self::V0_2(_) => v0_2::Connector::new(store, instance).map(drop),
        }
    }

    /// Makes an instance that is ready to be called.
    pub(super) async fn instantiate(&self, store: &mut Store<CallState>) -> wasmtime::Result<Connector> {
        match self {
            Self::V0_1(own) => own.instantiate_async(store).await.map(Connector::V0_1),
            #[cfg(test)]
            Self::V0_2(own) => own.instantiate_async(store).await.map(Connector::V0_2),
        }
    }
}

/// An instance.
pub(super) enum Connector {
    V0_1(v0_1::Connector),
    #[cfg(test)]
    V0_2(v0_2::Connector),
}

impl Connector {
    pub(super) async fn prepare(
        &self,
        store: &mut Store<CallState>,
        event: &Event,
        attempt: u32,
    ) -> wasmtime::Result<Returned<returned::Prepared>> {
        by_version!(Self, self, own => own.prepare(store, event, attempt).await)
    }

    pub(super) async fn encode_read(
        &self,
        store: &mut Store<CallState>,
        reader: &Reader,
        keys: &[String],
    ) -> wasmtime::Result<Returned<returned::HttpRequest>> {
        by_version!(Self, self, own => own.encode_read(store, reader, keys).await)
    }

    pub(super) async fn decode_read(
        &self,
        store: &mut Store<CallState>,
        reader: &Reader,
        keys: &[String],
        response: &ReadResponse,
    ) -> wasmtime::Result<Returned<returned::Records>> {
        by_version!(Self, self, own => own.decode_read(store, reader, keys, response).await)
    }

    pub(super) async fn run(
        &self,
        store: &mut Store<CallState>,
        event: &Event,
        attempt: u32,
        state: &[u8],
        readings: &[Reading],
    ) -> wasmtime::Result<Returned<returned::Output>> {
        by_version!(Self, self, own => own.run(store, event, attempt, state, readings).await)
    }

    pub(super) async fn apply(
        &self,
        store: &mut Store<CallState>,
        event: &Event,
        action: &DueAction,
        attempt: u32,
    ) -> wasmtime::Result<Returned<returned::Output>> {
        by_version!(Self, self, own => own.apply(store, event, action, attempt).await)
    }
}
