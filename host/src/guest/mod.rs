//! Guests: the only user of wasmtime. Packs are read, checked and compiled here, and their flows called.
//!
//! Invariants:
//! - Every call runs in a fresh instance, under fuel, under a wall-time deadline (epochs in wasm, timeouts in host I/O) and
//!   under byte limits. A call that ends badly takes its store with it and nothing else.
//! - A guest sees what its manifest declares and nothing else.
//! - The same event, state and generation give the same output.

mod manifest;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use self::manifest::parse_manifest;
use crate::env::Env;
use crate::model::event::{Event, Header};
use crate::model::failure::Failure;
use crate::model::names::{DestinationName, PackName};
use crate::model::pack::{GenerationNumber, Manifest};
use crate::model::time::Timestamp;

/// How guests are run.
#[derive(Debug, Clone)]
pub struct GuestOptions {
    /// Host-owned directory of compiled code.
    pub cache: PathBuf,
    /// Instances that may live at once; further calls wait.
    pub instances_max: u32,
    /// The most memory that any manifest may ask for, in bytes.
    pub memory_bytes_max: u64,
    /// Compilations that may run at once.
    pub compilations_max: usize,
}

/// Why a pack cannot be loaded: a text that names the interface and the versions, or what else is wrong, and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(pub String);

/// The engine and its bounded pool; clones share them.
#[derive(Clone)]
pub struct GuestHost {
    env: Env,
}

impl GuestHost {
    /// Starts the engine and its epoch ticker.
    pub fn start(options: GuestOptions, env: Env) -> Result<Self, LoadError> {
        let _ = options;
        Ok(Self { env })
    }

    /// Checks and compiles a component (or takes it from the cache), off the calling thread.
    pub async fn load(
        &self,
        number: GenerationNumber,
        manifest: Arc<Manifest>,
        component: Bytes,
    ) -> Result<Arc<LoadedGeneration>, LoadError> {
        let _ = (number, manifest, component, &self.env);
        todo!()
    }
}

/// A generation that is ready to be called.
pub struct LoadedGeneration {
    manifest: Arc<Manifest>,
    number: GenerationNumber,
}

/// What `prepare` made of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prepared {
    /// It is of no interest.
    Ignore {
        /// Why, for people.
        reason: String,
    },
    /// It is to be run, with this state.
    Run {
        /// What `prepare` hands to `run`.
        state: Bytes,
    },
}

/// What `run` wants to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowOutput {
    /// A short note for people.
    pub note: Option<String>,
    /// What it emits; destinations are checked against the manifest.
    pub messages: Vec<EmittedMessage>,
}

/// A message as a flow emits it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmittedMessage {
    /// Where it goes.
    pub destination: DestinationName,
    /// Its body.
    pub body: Bytes,
    /// Its `content-type`.
    pub content_type: String,
    /// Further headers.
    pub headers: Vec<Header>,
    /// Messages of one destination and key keep their order.
    pub ordering_key: Option<String>,
    /// What the receiver tells duplicates by.
    pub idempotency_key: Option<String>,
    /// When it is due.
    pub due: Due,
    /// When it is of no more use.
    pub expire_at: Option<Timestamp>,
}

/// When an emitted message is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Once it is stored.
    Now,
    /// So long after it is stored.
    After(Duration),
    /// At this time.
    At(Timestamp),
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
        let _ = (event, attempt, deadline);
        todo!()
    }

    /// Calls `run` with what `prepare` returned.
    pub async fn run(
        &self,
        event: &Event,
        attempt: u32,
        state: Bytes,
        deadline: tokio::time::Instant,
    ) -> Result<FlowOutput, Failure> {
        let _ = (event, attempt, state, deadline);
        todo!()
    }
}

/// A pack file, read and checked: what `forebay pack build` writes and `forebay serve --pack` installs.
#[derive(Debug, Clone)]
pub struct PackFile {
    /// What it declares.
    pub manifest: Manifest,
    /// The manifest's text, as stored.
    pub manifest_text: String,
    /// The component.
    pub component: Bytes,
    /// SHA-256 of the file.
    pub digest: [u8; 32],
}

impl PackFile {
    /// Reads a `.fpk` file's bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, LoadError> {
        let _ = bytes;
        todo!()
    }
}

/// The name of a pack, for a log line.
pub fn describe(pack: &PackName, number: GenerationNumber) -> String {
    format!("{pack}#{number}")
}
