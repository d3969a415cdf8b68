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

/// `GET /api/v1/packs`: generations by pack, newest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Packs {
    /// The generations.
    pub items: Vec<Generation>,
}

/// A generation of a pack.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Generation {
    /// The pack.
    pub pack: String,
    /// Its number.
    pub generation: u32,
    /// `staged`, `active`, `draining` or `retired`.
    pub stage: String,
    /// Its author's version; null if this host cannot read its manifest.
    #[schema(required = true)]
    pub version: Option<String>,
    /// SHA-256 of the pack file, in hexadecimal.
    pub sha256: String,
    /// The component's size.
    pub component_bytes: u64,
    /// When it was installed.
    pub installed_at: String,
    /// When it was last made active.
    #[schema(required = true)]
    pub activated_at: Option<String>,
    /// The unfinished work items that refer to it, by state, and as `action` the actions that are not due yet; what has
    /// none is left out.
    pub unfinished: BTreeMap<String, u64>,
}

/// `POST /api/v1/packs`: a pack file was installed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Installed {
    /// The pack.
    pub pack: String,
    /// The generation that has this file.
    pub generation: u32,
    /// Whether it is new; false if this very file was installed before.
    pub new: bool,
    /// What is active, if an activation was asked for.
    #[schema(required = true)]
    pub activation: Option<Activation>,
}

/// Another generation is active.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Activation {
    /// The pack.
    pub pack: String,
    /// The generation that is active now.
    #[schema(required = true)]
    pub active: Option<u32>,
    /// The one that was before; the same if nothing changed.
    #[schema(required = true)]
    pub previous: Option<u32>,
}

/// `POST /api/v1/packs/{pack}/activate`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Activate {
    /// The generation to activate.
    pub generation: u32,
}

/// `POST /api/v1/packs/{pack}/rollback`; an empty body is one without a wish.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The generation to go back to; by default the newest older one that was active.
    #[serde(default)]
    pub to: Option<u32>,
}

/// `POST /api/v1/packs/{pack}/drain`: either `to`, or `dead_letter`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// The generation to drain.
    pub generation: u32,
    /// The generation that its work is moved to.
    #[serde(default)]
    pub to: Option<u32>,
    /// Its work ends as dead.
    #[serde(default)]
    pub dead_letter: bool,
}

/// What a drain came to.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DrainOutcome {
    /// Work items that were moved, or ended.
    pub rows: u64,
    /// Work items that still refer to the generation: they run, or there were too many for one request.
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
    /// What came of an upload.
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
