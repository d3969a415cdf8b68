//! Packs and their generations on the wire.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rfc3339;
use crate::guest::parse_manifest;
use crate::model::pack::GenerationNumber;
use crate::store::{self, Drained};
use crate::supervise::{Arrival, Switch};

/// `GET /api/v1/packs`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Packs {
    /// Generations by pack, newest first.
    pub items: Vec<Generation>,
}

/// A generation of a pack.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Generation {
    /// The pack.
    pub pack: String,
    /// The generation's number.
    pub generation: u32,
    /// `staged`, `active`, `draining` or `retired`.
    pub stage: String,
    /// The version in its manifest; null if this host cannot read the manifest.
    #[schema(required = true)]
    pub version: Option<String>,
    /// SHA-256 of the pack file, in hexadecimal.
    pub sha256: String,
    /// Size of the component.
    pub component_bytes: u64,
    /// Time of installation.
    pub installed_at: String,
    /// Time of its last activation.
    #[schema(required = true)]
    pub activated_at: Option<String>,
    /// Unfinished work items that refer to it, by state, and actions that are not due yet as `action`; zeros are left
    /// out.
    pub unfinished: BTreeMap<String, u64>,
}

/// The answer to `POST /api/v1/packs`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Installed {
    /// The pack.
    pub pack: String,
    /// The generation that has this file.
    pub generation: u32,
    /// Whether it is new; false if the same file was installed before.
    pub new: bool,
    /// The activation, if the request asked for one.
    #[schema(required = true)]
    pub activation: Option<Activation>,
}

/// A change of the active generation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Activation {
    /// The pack.
    pub pack: String,
    /// The generation that is active now.
    #[schema(required = true)]
    pub active: Option<u32>,
    /// The generation that was active before; the same if nothing changed.
    #[schema(required = true)]
    pub previous: Option<u32>,
}

/// The body of `POST /api/v1/packs/{pack}/activate`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Activate {
    /// The generation to activate.
    pub generation: u32,
}

/// The body of `POST /api/v1/packs/{pack}/rollback`; it may be empty.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The generation to go back to; by default the newest older one that was active.
    #[serde(default)]
    pub to: Option<u32>,
}

/// The body of `POST /api/v1/packs/{pack}/drain`: either `to` or `dead_letter`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// The generation to drain.
    pub generation: u32,
    /// The generation that takes over its work.
    #[serde(default)]
    pub to: Option<u32>,
    /// Whether its work ends as dead.
    #[serde(default)]
    pub dead_letter: bool,
}

/// The result of a drain.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DrainOutcome {
    /// Work items that were moved or ended.
    pub rows: u64,
    /// Work items that still refer to the generation: they run, or were too many for one request.
    pub left: u64,
}

impl From<store::GenerationStatus> for Generation {
    fn from(status: store::GenerationStatus) -> Self {
        let stage = status.stage().as_str().to_owned();
        let generation = status.generation;
        let unfinished = status.unfinished.into_iter();
        let actions = (status.actions > 0).then(|| ("action".to_owned(), status.actions));
        Self {
            pack: generation.pack.to_string(),
            generation: generation.number.0,
            stage,
            version: parse_manifest(&generation.manifest).ok().map(|manifest| manifest.version),
            sha256: HEXLOWER.encode(&generation.digest),
            component_bytes: generation.component_bytes,
            installed_at: rfc3339(generation.installed_at),
            activated_at: generation.activated_at.map(rfc3339),
            unfinished: unfinished.map(|(state, count)| (state.as_str().to_owned(), count)).chain(actions).collect(),
        }
    }
}

impl Installed {
    /// The answer to an upload.
    pub fn of(arrival: Arrival, switch: Option<Switch>) -> Self {
        Self {
            pack: arrival.pack.to_string(),
            generation: arrival.installed.number.0,
            new: arrival.installed.new,
            activation: switch.map(Activation::from),
        }
    }
}

impl From<Switch> for Activation {
    fn from(switch: Switch) -> Self {
        let number = |number: Option<GenerationNumber>| number.map(|number| number.0);
        Self { pack: switch.pack.to_string(), active: number(switch.active), previous: number(switch.previous) }
    }
}

impl From<Drained> for DrainOutcome {
    fn from(drained: Drained) -> Self {
        Self { rows: drained.rows, left: drained.left }
    }
}
