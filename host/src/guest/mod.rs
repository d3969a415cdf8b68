//! Guests: the only user of wasmtime. Packs are read, checked and compiled here, and their flows called.
//!
//! Invariants:
//! - Every call runs in a fresh instance, under fuel, under a wall-time deadline (epochs in wasm, timeouts in host I/O)
//!   and under byte limits. A call that ends badly takes its store with it and nothing else.
//! - A guest sees what its manifest declares and nothing else.
//! - The same event, state and generation give the same output.

mod artifact;
mod bare;
mod build;
mod cache;
mod call;
mod check;
mod contract;
mod engine;
mod failure;
mod generation;
mod imports;
mod limits;
mod manifest;
mod output;
mod package;
mod reads;
mod rehearsal;
#[cfg(test)]
pub(crate) mod tests;
mod ticker;
mod turns;
mod waiting;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

pub use self::bare::Bare;
pub use self::build::{BuiltPack, PackBuild, PackReport, Trial, build_pack, check_pack_file, read_pack_file};
pub use self::check::Surface;
pub use self::contract::ContractVersion;
pub use self::generation::{GuestHost, Holdings, LoadedGeneration};
pub use self::manifest::parse_manifest;
pub use self::package::PACK_BYTES_MAX;
pub use self::reads::{Decoded, ReadRequest, ReadResponse};
pub use self::rehearsal::{Begun, Halfway, Outcome, Rehearsal, ignored_digest};
pub use self::turns::long_calls_max;
pub use self::waiting::WaitingCalls;
use crate::model::event::Header;
use crate::model::names::{DestinationName, PackName};
use crate::model::pack::{GenerationNumber, Manifest};
use crate::model::reading::ReadWish;
use crate::model::time::Timestamp;

/// How guests are run.
#[derive(Debug, Clone)]
pub struct GuestOptions {
    /// Host-owned directory of compiled code.
    pub cache: PathBuf,
    /// Instances that may live at once; further calls wait.
    pub instances_max: u32,
    /// Calls that may compute at once once they have computed for a tick: fewer than threads run guests.
    pub long_calls_max: usize,
    /// The most memory that any manifest may ask for, in bytes.
    pub memory_bytes_max: u64,
    /// The most of everything else that any manifest may ask for.
    pub ceilings: Ceilings,
    /// Compilations that may run at once.
    pub compilations_max: usize,
    /// How long one compilation may take; a pack that takes longer is refused.
    pub compilation_time_max: Duration,
}

/// The most that any manifest's limits may be. Memory is apart, because the pool of instances is made for it; deadlines
/// are capped where flows are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceilings {
    /// `limits.fuel`.
    pub fuel: u64,
    /// `limits.output_kib`, in bytes.
    pub output_bytes: u64,
    /// `limits.messages`.
    pub messages: u32,
    /// `limits.log_kib`, in bytes.
    pub log_bytes: u64,
}

impl Ceilings {
    /// Whatever a manifest may say at all.
    pub const NONE: Ceilings =
        Ceilings { fuel: u64::MAX, output_bytes: u64::MAX, messages: u32::MAX, log_bytes: u64::MAX };
}

/// Why a pack cannot be loaded: a text that names the interface and the versions, or what else is wrong, and the
/// remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(pub String);

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
        /// What is to be read first.
        reads: Vec<ReadWish>,
    },
}

/// What `run` wants to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowOutput {
    /// A short note for people.
    pub note: Option<String>,
    /// What it emits; destinations are checked against the manifest.
    pub messages: Vec<EmittedMessage>,
    /// Work of its own, for later.
    pub actions: Vec<EmittedAction>,
}

impl FlowOutput {
    /// Nothing happens.
    pub const NOTHING: FlowOutput = FlowOutput { note: None, messages: Vec::new(), actions: Vec::new() };
}

/// An action as a flow emits it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmittedAction {
    /// What to do, in the pack's own words.
    pub name: String,
    /// What it needs to know.
    pub body: Bytes,
    /// What tells it from others: a second one with the same key is not stored.
    pub idempotency_key: Option<String>,
    /// When it is due.
    pub due: Due,
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

/// The name of a pack, for a log line.
pub fn describe(pack: &PackName, number: GenerationNumber) -> String {
    format!("{pack}#{number}")
}
