//! The generations that this runtime can execute: loaded, and ready to be called.
//!
//! Readers take a snapshot and never wait for a load; a change replaces the whole map.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use super::flow::Flow;
use crate::model::names::PackName;
use crate::model::pack::GenerationNumber;
use crate::model::queue::QueueClasses;

type Loaded = BTreeMap<(PackName, GenerationNumber), Arc<dyn Flow>>;

/// The loaded generations of all packs; clones share them.
#[derive(Clone, Default)]
pub struct Generations {
    loaded: Arc<RwLock<Arc<Loaded>>>,
}

impl Generations {
    /// Makes a generation executable.
    pub fn insert(&self, pack: PackName, number: GenerationNumber, flow: Arc<dyn Flow>) {
        let mut current = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = Loaded::clone(&current);
        next.insert((pack, number), flow);
        *current = Arc::new(next);
    }

    /// Lets a generation go. Executions that have it keep it to their end.
    pub fn remove(&self, pack: &PackName, number: GenerationNumber) {
        let mut current = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = Loaded::clone(&current);
        next.remove(&(pack.clone(), number));
        *current = Arc::new(next);
    }

    /// All that is loaded.
    pub fn all(&self) -> Vec<(PackName, GenerationNumber)> {
        self.snapshot().keys().cloned().collect()
    }

    /// The packs of which any is loaded.
    pub fn packs(&self) -> BTreeSet<PackName> {
        self.snapshot().keys().map(|(pack, _)| pack.clone()).collect()
    }

    /// A generation, if it is loaded.
    pub fn get(&self, pack: &PackName, number: GenerationNumber) -> Option<Arc<dyn Flow>> {
        self.snapshot().get(&(pack.clone(), number)).cloned()
    }

    /// The loaded generations of a pack, oldest first.
    pub fn numbers(&self, pack: &PackName) -> Vec<GenerationNumber> {
        let all = (pack.clone(), GenerationNumber(0))..=(pack.clone(), GenerationNumber(u32::MAX));
        self.snapshot().range(all).map(|((_, number), _)| *number).collect()
    }

    /// The queue classes that the loaded generations of a pack admit.
    pub fn queue_classes(&self, pack: &PackName) -> QueueClasses {
        let all = (pack.clone(), GenerationNumber(0))..=(pack.clone(), GenerationNumber(u32::MAX));
        let loaded = self.snapshot();
        let classes = loaded.range(all).map(|(_, flow)| flow.manifest().queue_classes());
        classes.fold(QueueClasses::NONE, QueueClasses::with)
    }

    fn snapshot(&self) -> Arc<Loaded> {
        Arc::clone(&self.loaded.read().unwrap_or_else(PoisonError::into_inner))
    }
}
