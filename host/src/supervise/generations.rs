//! The generations of the given packs: installed and given their routes at once, then loaded in the background.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::{SuperviseError, SuperviseParts, Supervisor};
use crate::env;
use crate::guest::{PackFile, describe, parse_manifest};
use crate::intake::{ActiveGeneration, RouteTable};
use crate::model::names::{Namespace, PackName};
use crate::model::pack::{GenerationNumber, Manifest};
use crate::store::Generation;

/// Generations that are loaded at once. The guest engine bounds compilations further; what it has compiled before loads
/// fast and need not wait behind what it has not.
const LOADS_MAX: usize = 4;

/// A generation that is to be loaded.
pub(super) struct ToLoad {
    pack: PackName,
    number: GenerationNumber,
    manifest: LoadManifest,
    component: Bytes,
}

impl ToLoad {
    /// One that was installed earlier.
    fn stored(generation: Generation) -> Self {
        Self {
            pack: generation.pack,
            number: generation.number,
            manifest: LoadManifest::Stored(generation.manifest),
            component: generation.component,
        }
    }

    /// What names it.
    pub(super) fn key(&self) -> (PackName, GenerationNumber) {
        (self.pack.clone(), self.number)
    }
}

enum LoadManifest {
    Parsed(Arc<Manifest>),
    Stored(String),
}

/// Installs `packs` and opens their routes. Returns what is to be loaded: active generations first, then the older
/// ones of the same packs that unfinished work refers to.
pub(super) async fn install(
    namespaces: &[Namespace],
    packs: Vec<PackFile>,
    parts: &SuperviseParts,
) -> Result<Vec<ToLoad>, SuperviseError> {
    check_routes(namespaces, &packs)?;
    parts.store.ensure_namespaces(namespaces, parts.env.now()).await?;
    let mut active = Vec::new();
    let mut to_load = Vec::new();
    for file in packs {
        let manifest = Arc::new(file.manifest);
        let pack = manifest.name.clone();
        let now = parts.env.now();
        let installed =
            parts.store.install_pack(&pack, file.digest, file.manifest_text, file.component.clone(), now).await?;
        tracing::info!(generation = %describe(&pack, installed.number), new = installed.new, "a pack is active");
        active.push(ActiveGeneration { pack: pack.clone(), number: installed.number, manifest: Arc::clone(&manifest) });
        to_load.push(ToLoad {
            pack,
            number: installed.number,
            manifest: LoadManifest::Parsed(manifest),
            component: file.component,
        });
    }
    parts.routes.replace(namespaces, &active)?;
    to_load.extend(older_generations(&active, parts).await?);
    Ok(to_load)
}

/// Refuses packs that cannot be served together, before anything is stored.
fn check_routes(namespaces: &[Namespace], packs: &[PackFile]) -> Result<(), SuperviseError> {
    let mut names = BTreeSet::new();
    if let Some(twice) = packs.iter().find(|file| !names.insert(&file.manifest.name)) {
        return Err(SuperviseError::GivenTwice(twice.manifest.name.clone()));
    }
    let tentative: Vec<ActiveGeneration> = packs
        .iter()
        .map(|file| ActiveGeneration {
            pack: file.manifest.name.clone(),
            number: GenerationNumber(0),
            manifest: Arc::new(file.manifest.clone()),
        })
        .collect();
    RouteTable::empty().replace(namespaces, &tentative)?;
    Ok(())
}

async fn older_generations(active: &[ActiveGeneration], parts: &SuperviseParts) -> Result<Vec<ToLoad>, SuperviseError> {
    let mut older = Vec::new();
    for generation in parts.store.serving_generations().await? {
        match active.iter().find(|served| served.pack == generation.pack) {
            Some(served) if served.number == generation.number => {}
            Some(_) => older.push(ToLoad::stored(generation)),
            None => {
                let generation = describe(&generation.pack, generation.number);
                tracing::warn!(%generation, "installed earlier but not given now: its unfinished work waits");
            }
        }
    }
    Ok(older)
}

impl Supervisor {
    /// Loads generations, several at once, in order.
    pub(super) async fn load_all(self, to_load: Vec<ToLoad>) {
        stream::iter(to_load).for_each_concurrent(LOADS_MAX, |generation| self.load(generation)).await;
    }

    /// Loads a generation that work refers to again, if it is one of a pack that is served and is not loaded yet.
    pub fn serve_generation(&self, pack: &PackName, number: GenerationNumber) {
        let mut state = self.state();
        let known = self.shared.generations.get(pack, number).is_some() || !state.pools.contains_key(pack);
        // One that could not be loaded is tried again: whoever asks has done something about it.
        state.unloadable.remove(&(pack.clone(), number));
        if known || !state.loading.insert((pack.clone(), number)) {
            return;
        }
        drop(state);
        let task = env::spawn("generation loader", self.clone().load_stored(pack.clone(), number));
        self.keep(task);
    }

    async fn load_stored(self, pack: PackName, number: GenerationNumber) {
        let serving = match self.shared.parts.store.serving_generations().await {
            Ok(serving) => serving,
            Err(error) => return self.not_loaded(pack, number, &error),
        };
        let found = serving.into_iter().find(|generation| (&generation.pack, generation.number) == (&pack, number));
        match found {
            Some(found) => self.load(ToLoad::stored(found)).await,
            // Its work has ended meanwhile.
            None => drop(self.state().loading.remove(&(pack, number))),
        }
    }

    async fn load(&self, generation: ToLoad) {
        let ToLoad { pack, number, manifest, component } = generation;
        let parsed = match manifest {
            LoadManifest::Parsed(manifest) => Ok(manifest),
            LoadManifest::Stored(text) => parse_manifest(&text).map(Arc::new),
        };
        let loaded = match parsed {
            Ok(manifest) => self.shared.parts.guests.load(number, manifest, component).await,
            Err(error) => Err(error),
        };
        match loaded {
            Ok(flow) => {
                tracing::info!(generation = %describe(&pack, number), "a generation is loaded");
                self.loaded(&pack, number, flow);
            }
            Err(error) => self.not_loaded(pack, number, &error),
        }
    }

    fn not_loaded(&self, pack: PackName, number: GenerationNumber, error: &dyn std::fmt::Display) {
        tracing::error!(generation = %describe(&pack, number), %error, "a generation could not be loaded");
        let mut state = self.state();
        state.loading.remove(&(pack.clone(), number));
        state.unloadable.insert((pack, number), error.to_string());
    }
}
