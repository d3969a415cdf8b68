//! Which generations this runtime serves: it follows the store. What is active there has its routes open here; what is
//! active, or has unfinished work, is loaded; what is neither is let go.
//!
//! Every runtime looks by itself, at intervals and when it was told to. So an activation on one of them reaches all.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Supervisor;
use crate::env;
use crate::guest::{LoadError, LoadedGeneration, describe, parse_manifest};
use crate::intake::ActiveGeneration;
use crate::model::names::PackName;
use crate::model::pack::{GenerationNumber, Manifest};
use crate::store::{Generation, ServingGeneration, StoreError};

/// A generation's name.
pub(super) type Key = (PackName, GenerationNumber);

/// Generations of one pack that stay loaded though nothing refers to them: the latest, for the linger.
const LINGERING_MAX: usize = 2;

/// Why a generation is not loaded.
pub(super) enum NotLoaded {
    /// It cannot be: the same will happen again.
    Refused(String),
    /// The store did not give it: another time, perhaps.
    Store(StoreError),
}

impl From<LoadError> for NotLoaded {
    fn from(error: LoadError) -> Self {
        NotLoaded::Refused(error.to_string())
    }
}

impl From<StoreError> for NotLoaded {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unusable(reason) | StoreError::Refused(reason) | StoreError::Unstorable(reason) => {
                NotLoaded::Refused(reason)
            }
            error => NotLoaded::Store(error),
        }
    }
}

impl Supervisor {
    /// Looks what the store says is to be served, and makes it so. One at a time.
    pub(super) async fn reconcile(&self) -> Result<(), StoreError> {
        let _turn = self.shared.reconciling.lock().await;
        let serving = self.shared.parts.store.serving_generations().await?;
        self.open_routes(&serving).await?;
        let wanted: BTreeSet<Key> =
            serving.into_iter().map(|generation| (generation.pack, generation.number)).collect();
        self.let_go(&wanted);
        for key in self.to_load(&wanted) {
            let task = env::spawn("generation loader", self.clone().load(key));
            self.keep(task);
        }
        Ok(())
    }

    /// Opens the routes of what is active, and no others. A pack whose route another one has already stays closed, and
    /// is named by the readiness: the others go on.
    async fn open_routes(&self, serving: &[ServingGeneration]) -> Result<(), StoreError> {
        let active: Vec<Key> = serving
            .iter()
            .filter(|generation| generation.active)
            .map(|generation| (generation.pack.clone(), generation.number))
            .collect();
        if self.state().open == active {
            return Ok(());
        }
        let mut opened: Vec<ActiveGeneration> = Vec::new();
        let mut closed = Vec::new();
        for (pack, number) in &active {
            let Some(generation) = self.shared.parts.store.generation(pack, *number).await? else { continue };
            let manifest = match parse_manifest(&generation.manifest) {
                Ok(manifest) => Arc::new(manifest),
                Err(error) => {
                    closed.push(format!("generation {number} of pack `{pack}` has no routes: {error}"));
                    continue;
                }
            };
            opened.push(ActiveGeneration { pack: pack.clone(), number: *number, manifest });
            if let Err(conflict) = self.check_routes(&opened) {
                opened.pop();
                closed.push(format!("the routes of pack `{pack}` are closed: {conflict}"));
            }
        }
        self.shared.parts.routes.replace(&self.shared.options.namespaces, &opened).expect("conflicts were left out");
        for reason in &closed {
            tracing::error!(reason, "routes are closed");
        }
        let mut state = self.state();
        (state.open, state.closed) = (active, closed);
        Ok(())
    }

    /// Lets generations go that nothing has referred to for the linger: work that is just being admitted, or replayed,
    /// finds them still there.
    fn let_go(&self, wanted: &BTreeSet<Key>) {
        let now = self.shared.parts.env.clock.monotonic();
        let loaded = self.shared.generations.all();
        let mut state = self.state();
        state.unloadable.retain(|key, _| wanted.contains(key));
        state.unreferenced.retain(|key, _| !wanted.contains(key) && loaded.contains(key));
        for key in loaded.into_iter().filter(|key| !wanted.contains(key)) {
            state.unreferenced.entry(key).or_insert(now);
        }
        let gone = lingered(
            &state.unreferenced.iter().map(|(key, since)| (key.clone(), *since)).collect::<Vec<_>>(),
            |since| now.saturating_sub(since) >= self.shared.options.linger,
        );
        for key in gone {
            state.unreferenced.remove(&key);
            self.shared.generations.remove(&key.0, key.1);
            tracing::info!(generation = %describe(&key.0, key.1), "a generation is retired");
        }
    }

    /// What is wanted, and neither there nor on its way nor refused. It is on its way from now on.
    fn to_load(&self, wanted: &BTreeSet<Key>) -> Vec<Key> {
        let mut state = self.state();
        let missing =
            |key: &&Key| self.shared.generations.get(&key.0, key.1).is_none() && !state.unloadable.contains_key(*key);
        let missing: Vec<Key> = wanted.iter().filter(missing).cloned().collect();
        missing.into_iter().filter(|key| state.loading.insert(key.clone())).collect()
    }

    async fn load(self, key: Key) {
        let loaded = self.load_stored(&key).await;
        self.state().loading.remove(&key);
        match loaded {
            Ok(generation) => self.loaded(&key.0, key.1, generation),
            Err(NotLoaded::Refused(reason)) => {
                tracing::error!(generation = %describe(&key.0, key.1), reason, "a generation could not be loaded");
                self.state().unloadable.insert(key, reason);
            }
            Err(NotLoaded::Store(error)) => {
                tracing::warn!(generation = %describe(&key.0, key.1), %error, "a generation was not loaded yet");
            }
        }
    }

    /// Reads a generation from the store and makes it ready to be called.
    pub(super) async fn load_stored(&self, (pack, number): &Key) -> Result<Arc<LoadedGeneration>, NotLoaded> {
        let _room = self.shared.loads.acquire().await.expect("the semaphore is never closed");
        let Some(generation) = self.shared.parts.store.generation(pack, *number).await? else {
            return Err(NotLoaded::Refused("the store has no such generation".to_owned()));
        };
        let manifest = Arc::new(parse_manifest(&generation.manifest)?);
        self.load_generation(&generation, manifest).await
    }

    async fn load_generation(
        &self,
        generation: &Generation,
        manifest: Arc<Manifest>,
    ) -> Result<Arc<LoadedGeneration>, NotLoaded> {
        let component = self.shared.parts.store.component(generation).await?;
        Ok(self.shared.parts.guests.load(generation.number, manifest, component).await?)
    }

    /// Loads a generation that work refers to again, if it is not loaded: now, not at the next look.
    pub fn serve_generation(&self, pack: &PackName, number: GenerationNumber) {
        // One that could not be loaded is tried again: whoever asks has done something about it.
        self.state().unloadable.remove(&(pack.clone(), number));
        self.shared.look.notify_one();
    }
}

/// Which generations have lingered long enough, or are too many of their pack.
fn lingered(unreferenced: &[(Key, Duration)], is_over: impl Fn(Duration) -> bool) -> Vec<Key> {
    let mut gone = Vec::new();
    let packs: BTreeSet<&PackName> = unreferenced.iter().map(|((pack, _), _)| pack).collect();
    for pack in packs {
        let mut own: Vec<_> = unreferenced.iter().filter(|((of, _), _)| of == pack).collect();
        own.sort_by_key(|(key, since)| (std::cmp::Reverse(*since), std::cmp::Reverse(key.1)));
        let over = own.iter().enumerate().filter(|(place, (_, since))| *place >= LINGERING_MAX || is_over(*since));
        gone.extend(over.map(|(_, (key, _))| key.clone()));
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    // GST-6
    #[test]
    fn a_few_generations_linger_for_a_while_and_no_more() {
        let key = |pack: &str, number| (pack.parse().unwrap(), GenerationNumber(number));
        let since = Duration::from_secs;
        let all = [(key("a", 1), since(1)), (key("a", 2), since(5)), (key("a", 3), since(5)), (key("b", 1), since(9))];
        assert_eq!(lingered(&all, |_| false), [key("a", 1)], "the latest two of a pack");
        assert_eq!(lingered(&all, |at| at <= since(5)), [key("a", 3), key("a", 2), key("a", 1)]);
    }
}
