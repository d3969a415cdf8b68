//! Changing which generation serves, while this and other runtimes serve: install, activate, roll back, deactivate,
//! drain.
//!
//! Invariants:
//! - A pack is checked, compiled and tried before it is stored, and a generation is loaded before it is activated. What
//!   is refused changes nothing: the old one goes on.
//! - Pack files are read, checked and compiled off the serving path, a bounded number at once.
//! - Each step can be done again: a file that is installed keeps its number, and what is active stays active.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::Supervisor;
use super::generations::NotLoaded;
use crate::env;
use crate::guest::{LoadError, PackFile, describe, parse_manifest};
use crate::intake::{ActiveGeneration, RouteConflict, RouteTable};
use crate::model::names::PackName;
use crate::model::pack::{GenerationNumber, Manifest};
use crate::store::{Activated, DrainTarget, Drained, Generation, Installed, Installing, StoreError};

/// The number under which a file is tried that has none yet.
const UNNUMBERED: GenerationNumber = GenerationNumber(0);

/// Leave to hand in a pack file: few are read and compiled at once.
pub struct UploadPermit(#[allow(dead_code, reason = "it is held, not read")] OwnedSemaphorePermit);

/// A generation that was installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The pack.
    pub pack: PackName,
    /// Its number, and whether it is new.
    pub installed: Installed,
}

/// What an activation changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// The pack.
    pub pack: PackName,
    /// What is active now.
    pub active: Option<GenerationNumber>,
    /// What was active before; the same if nothing changed.
    pub previous: Option<GenerationNumber>,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RolloutError {
    /// It cannot serve.
    #[error("{0}")]
    Refused(String),
    /// There is no such pack, or no such generation of it.
    #[error("there is no {0}: `forebay pack list` shows what there is")]
    NotFound(String),
    /// What is there now does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// Another pack file is being handed in.
    #[error("another pack file is being installed or previewed: try again when that is done")]
    Busy,
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<LoadError> for RolloutError {
    fn from(error: LoadError) -> Self {
        RolloutError::Refused(error.to_string())
    }
}

impl From<RouteConflict> for RolloutError {
    fn from(conflict: RouteConflict) -> Self {
        RolloutError::Refused(conflict.to_string())
    }
}

impl Supervisor {
    /// Leave to hand in a pack file, to be had before its bytes are read.
    pub fn begin_upload(&self) -> Result<UploadPermit, RolloutError> {
        let permit = Arc::clone(&self.shared.uploads).try_acquire_owned();
        permit.map(UploadPermit).map_err(|_| RolloutError::Busy)
    }

    /// Checks, compiles and tries a pack file, and installs it as a staged generation.
    pub async fn install(&self, bytes: Bytes, _leave: &UploadPermit) -> Result<Arrival, RolloutError> {
        let file = read(bytes).await?;
        let manifest = Arc::new(file.manifest.clone());
        self.shared.parts.guests.load(UNNUMBERED, manifest, file.component.clone()).await?;
        self.stage(file, Installing::Staged).await
    }

    /// Stores a pack file as a generation.
    pub(super) async fn stage(&self, file: PackFile, installing: Installing) -> Result<Arrival, RolloutError> {
        let PackFile { manifest, manifest_text, component, digest } = file;
        let pack = manifest.name;
        let now = self.shared.parts.env.now();
        let installed =
            self.shared.parts.store.install_pack(&pack, digest, manifest_text, component, installing, now).await?;
        tracing::info!(generation = %describe(&pack, installed.number), new = installed.new, "a generation is installed");
        Ok(Arrival { pack, installed })
    }

    /// Makes a generation the active one, once it is loaded here. With `expected`, only if that one is active now.
    ///
    /// Whoever asks may go away: what was begun is ended.
    pub async fn activate(
        &self,
        pack: &PackName,
        number: GenerationNumber,
        expected: Option<GenerationNumber>,
    ) -> Result<Switch, RolloutError> {
        let (supervisor, pack) = (self.clone(), pack.clone());
        let switching = env::spawn("activation", async move { supervisor.switch_to(pack, number, expected).await });
        match switching.await {
            Ok(switch) => switch,
            Err(_) => {
                Err(RolloutError::Store(StoreError::Unknown("the activation ended without an answer".to_owned())))
            }
        }
    }

    async fn switch_to(
        &self,
        pack: PackName,
        number: GenerationNumber,
        expected: Option<GenerationNumber>,
    ) -> Result<Switch, RolloutError> {
        let generation = self.find(&pack, number).await?;
        self.check_beside_others(&generation).await?;
        if self.shared.generations.get(&pack, number).is_none() {
            match self.load_stored(&(pack.clone(), number)).await {
                Ok(loaded) => self.loaded(&pack, number, loaded),
                Err(NotLoaded::Store(error)) => return Err(error.into()),
                Err(NotLoaded::Refused(reason)) => {
                    return Err(RolloutError::Refused(format!(
                        "generation {number} of pack `{pack}` cannot serve, and nothing was changed: {reason}"
                    )));
                }
            }
        }
        let now = self.shared.parts.env.now();
        let activated = self.shared.parts.store.activate(&pack, Some(number), expected, now).await?;
        self.switched(pack, Some(number), activated).await
    }

    /// Goes back to the generation that was active before: the newest older one that ever was, or the given one.
    pub async fn rollback(&self, pack: &PackName, to: Option<GenerationNumber>) -> Result<Switch, RolloutError> {
        let generations = self.shared.parts.store.generations(pack).await?;
        if generations.is_empty() {
            return Err(RolloutError::NotFound(format!("pack `{pack}`")));
        }
        let active = generations.iter().find(|generation| generation.active);
        let Some(active) = active.map(|generation| generation.number) else {
            return Err(RolloutError::Conflict(format!(
                "no generation of pack `{pack}` is active: `forebay pack activate {pack}@N` makes one so"
            )));
        };
        let older = generations.iter();
        let older = older.filter(|generation| generation.number < active && generation.activated_at.is_some());
        let target = to.or_else(|| older.map(|generation| generation.number).max()).ok_or_else(|| {
            RolloutError::Conflict(format!(
                "generation {active} of pack `{pack}` is the first that was ever active: there is none to go back to"
            ))
        })?;
        self.activate(pack, target, Some(active)).await
    }

    /// Closes a pack's routes: nothing new is admitted, and what was admitted is worked off.
    pub async fn deactivate(&self, pack: &PackName) -> Result<Switch, RolloutError> {
        let now = self.shared.parts.env.now();
        let activated = self.shared.parts.store.activate(pack, None, None, now).await?;
        self.switched(pack.clone(), None, activated).await
    }

    /// Moves what waits for a generation to another one of its pack, or has it end as dead.
    pub async fn drain_generation(
        &self,
        pack: &PackName,
        from: GenerationNumber,
        target: DrainTarget,
    ) -> Result<Drained, RolloutError> {
        let drained = self.find(pack, from).await?;
        if drained.active {
            return Err(RolloutError::Conflict(format!(
                "generation {from} of pack `{pack}` is active, and gets new work: activate another one first"
            )));
        }
        if let DrainTarget::Generation(to) = target {
            if from == to {
                return Err(RolloutError::Conflict("a generation cannot be drained to itself".to_owned()));
            }
            check_takes_over(&drained, &self.find(pack, to).await?)?;
        }
        let now = self.shared.parts.env.now();
        let drained = self.shared.parts.store.drain_generation(pack, from, target, now).await?;
        tracing::info!(generation = %describe(pack, from), ?target, rows = drained.rows, left = drained.left, "drained");
        self.look_now().await;
        Ok(drained)
    }

    /// A generation that must be there.
    pub(super) async fn find(&self, pack: &PackName, number: GenerationNumber) -> Result<Generation, RolloutError> {
        let found = self.shared.parts.store.generation(pack, number).await?;
        found.ok_or_else(|| RolloutError::NotFound(format!("generation {number} of pack `{pack}`")))
    }

    async fn switched(
        &self,
        pack: PackName,
        number: Option<GenerationNumber>,
        activated: Activated,
    ) -> Result<Switch, RolloutError> {
        let previous = match activated {
            Activated::Activated { previous } => previous,
            Activated::Already => number,
            Activated::NotFound => return Err(RolloutError::NotFound(format!("pack `{pack}`"))),
            Activated::Overtaken { active } => {
                let active = active.map_or("none".to_owned(), |active| active.to_string());
                return Err(RolloutError::Conflict(format!(
                    "pack `{pack}` was changed meanwhile, and its active generation is {active} now: check and repeat"
                )));
            }
        };
        let (now, before) = (number.map(|number| number.0), previous.map(|number| number.0));
        tracing::info!(%pack, generation = now, previous = before, "another generation is active");
        self.look_now().await;
        Ok(Switch { pack, active: number, previous })
    }

    /// What was just changed takes effect here before it is answered. If the store cannot be read, it does at the next
    /// look.
    async fn look_now(&self) {
        if let Err(error) = self.reconcile().await {
            tracing::warn!(%error, "the generations to serve could not be read; this is repeated");
        }
    }

    /// Refuses a generation whose routes another active pack has.
    async fn check_beside_others(&self, generation: &Generation) -> Result<(), RolloutError> {
        let mut together = vec![active(generation)?];
        for serving in self.shared.parts.store.serving_generations().await? {
            if serving.active && serving.pack != generation.pack {
                together.push(active(&self.find(&serving.pack, serving.number).await?)?);
            }
        }
        Ok(self.check_routes(&together)?)
    }

    /// Whether these can be active together.
    pub(super) fn check_routes(&self, together: &[ActiveGeneration]) -> Result<(), RouteConflict> {
        RouteTable::empty().replace(&self.shared.options.namespaces, together)
    }
}

fn active(generation: &Generation) -> Result<ActiveGeneration, LoadError> {
    let manifest = Arc::new(parse_manifest(&generation.manifest)?);
    Ok(ActiveGeneration { pack: generation.pack.clone(), number: generation.number, manifest })
}

/// Reads a pack file where it holds nobody up.
pub(super) async fn read(bytes: Bytes) -> Result<PackFile, LoadError> {
    let reading = tokio::task::spawn_blocking(move || PackFile::parse(&bytes));
    reading.await.unwrap_or_else(|error| Err(LoadError(format!("the pack file cannot be read: {error}"))))
}

/// Route-version validation: what came in by a route of one generation can run on another only if that declares the
/// route.
fn check_takes_over(from: &Generation, to: &Generation) -> Result<(), RolloutError> {
    let (old, new): (Manifest, Manifest) = (parse_manifest(&from.manifest)?, parse_manifest(&to.manifest)?);
    let has = |path| new.routes.iter().any(|route| route.path == path);
    let missing: Vec<String> = old
        .routes
        .into_iter()
        .filter(|route| !has(route.path.clone()))
        .map(|route| format!("`{}`", route.path))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(RolloutError::Refused(format!(
        "generation {} of pack `{}` does not declare {}, which generation {} does: its work cannot run there. Drain it to a \
         generation that does, or have it end with --dead-letter",
        to.number,
        to.pack,
        missing.join(", "),
        from.number
    )))
}
