//! The start: the pack files that the host was given are installed if they are new, and what is installed is served.
//!
//! A file that is known is left as it stands: whoever rolled back from it did so for a reason. The first file of a pack
//! is active at once; one that is to take over from another is activated when it has been loaded, and until then, and
//! if it cannot be, the other one goes on.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::rollout::RolloutError;
use super::{SuperviseError, SuperviseOptions, SuperviseParts, Supervisor};
use crate::env;
use crate::guest::{PackFile, describe, parse_manifest};
use crate::intake::ActiveGeneration;
use crate::model::names::PackName;
use crate::model::pack::GenerationNumber;
use crate::store::{Installing, ServingGeneration};

impl Supervisor {
    /// Installs what is new of `packs`, opens the routes of what is active, and starts loading and serving it in the
    /// background.
    pub async fn start(
        options: SuperviseOptions,
        packs: Vec<PackFile>,
        parts: SuperviseParts,
    ) -> Result<Self, SuperviseError> {
        let supervisor = Self::idle(options, parts);
        let SuperviseParts { store, env, .. } = &supervisor.shared.parts;
        store.ensure_namespaces(&supervisor.shared.options.namespaces, env.now()).await?;
        let mut active = store.serving_generations().await?;
        active.retain(|generation| generation.active);
        supervisor.check_given(&packs, &active).await?;
        let mut successors = Vec::new();
        for file in packs {
            successors.extend(supervisor.take_in(file, &active).await?);
        }
        supervisor.confirm().await;
        supervisor.reconcile().await?;
        supervisor.keep(env::spawn("supervisor", supervisor.clone().run()));
        if !successors.is_empty() {
            supervisor.keep(env::spawn("succession", supervisor.clone().succeed(successors)));
        }
        Ok(supervisor)
    }

    /// Refuses packs that cannot be served together, before anything is stored.
    async fn check_given(&self, packs: &[PackFile], active: &[ServingGeneration]) -> Result<(), SuperviseError> {
        let mut names = BTreeSet::new();
        if let Some(twice) = packs.iter().find(|file| !names.insert(&file.manifest.name)) {
            return Err(SuperviseError::GivenTwice(twice.manifest.name.clone()));
        }
        let mut together: Vec<ActiveGeneration> = packs
            .iter()
            .map(|file| ActiveGeneration {
                pack: file.manifest.name.clone(),
                number: GenerationNumber(0),
                manifest: Arc::new(file.manifest.clone()),
            })
            .collect();
        for serving in active.iter().filter(|serving| !names.contains(&serving.pack)) {
            let Some(generation) = self.shared.parts.store.generation(&serving.pack, serving.number).await? else {
                continue;
            };
            // One that cannot be read opens no routes; the readiness says so.
            if let Ok(manifest) = parse_manifest(&generation.manifest) {
                let (pack, number) = (generation.pack, generation.number);
                together.push(ActiveGeneration { pack, number, manifest: Arc::new(manifest) });
            }
        }
        Ok(self.check_routes(&together)?)
    }

    /// Installs a file if it is new. Returns the generation that is to take over from the active one, if it is that.
    async fn take_in(
        &self,
        file: PackFile,
        active: &[ServingGeneration],
    ) -> Result<Option<(PackName, GenerationNumber)>, SuperviseError> {
        let store = &self.shared.parts.store;
        let pack = file.manifest.name.clone();
        let serving = active.iter().find(|generation| generation.pack == pack).map(|generation| generation.number);
        if let Some(known) = store.generation_of_file(&pack, file.digest).await? {
            if serving != Some(known) {
                let (generation, serving) = (describe(&pack, known), serving.map(|serving| serving.0));
                tracing::warn!(generation, serving, "a file was given that is installed but not active: it stays so");
            }
            return Ok(None);
        }
        let installing = if serving.is_some() { Installing::Staged } else { Installing::Active };
        let arrival = self.stage(file, installing).await.map_err(|error| match error {
            RolloutError::Store(error) => SuperviseError::Store(error),
            other => SuperviseError::Load(crate::guest::LoadError(other.to_string())),
        })?;
        Ok(serving.map(|_| (pack, arrival.installed.number)))
    }

    /// Activates generations that were given at the start, one after the other.
    async fn succeed(self, successors: Vec<(PackName, GenerationNumber)>) {
        for (pack, number) in successors {
            if let Err(error) = self.activate(&pack, number, None).await {
                tracing::error!(generation = %describe(&pack, number), %error, "a given pack does not take over");
                self.state()
                    .refused
                    .push(format!("pack `{pack}` was given in another version, which was not activated: {error}"));
            }
        }
    }
}
