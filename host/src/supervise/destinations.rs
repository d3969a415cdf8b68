//! The destinations of this runtime: those of its configuration, and those that are set while hosts run, which every
//! runtime over the database has.
//!
//! Invariants:
//! - The configuration wins: a name that it has is called as it says, whatever is set under it.
//! - What is set is read by the rules of the configuration, by every runtime for itself. What one of them cannot use
//!   waits there, keeps its order, and is told of.
//! - The publisher knows a destination before the timeline claims for it, and each of them is given all destinations at
//!   once.
//! - Notifications are hints: the store is looked at every second.
//! - The task that looks is begun again when it panics. Once it is given up, this runtime is not ready: it goes by what
//!   was set before, and must not do so unnoticed.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use crate::env::{self, GivenUp};
use crate::model::destination::{Destination, Destinations};
use crate::model::destination_lane::Ordering;
use crate::model::names::{DestinationName, Namespace, PackName};
use crate::publish::{self, Publisher};
use crate::secrets::Secrets;
use crate::store::{DestinationRow, Store, StoreError};

/// How long a destination that was set elsewhere may go unseen.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a document's keys come to; if it cannot be used, everything that is wrong with it.
pub type ReadDestination =
    Arc<dyn Fn(&DestinationName, &str) -> Result<Destination, Vec<String>> + Send + Sync + 'static>;

/// Which messages a document has keep their order, also if it cannot be used otherwise; `None` if it does not say so in
/// words that are known here.
pub type ReadOrdering = Arc<dyn Fn(&str) -> Option<Ordering> + Send + Sync + 'static>;

/// What is to be said of so many destinations, if anything is.
pub type AdviseOn = Arc<dyn Fn(usize) -> Option<String> + Send + Sync + 'static>;

/// What the destinations of a runtime are made of.
#[derive(Clone)]
pub struct DestinationParts {
    /// Those of the configuration.
    pub configured: Destinations,
    /// The tenants.
    pub namespaces: Vec<Namespace>,
    /// The rules.
    pub read: ReadDestination,
    /// The part of them that lanes are told apart by.
    pub ordering: ReadOrdering,
    /// What this machine has for that many.
    pub advise: AdviseOn,
    /// Their secrets.
    pub secrets: Secrets,
    /// Where those are that are set.
    pub store: Store,
}

/// The destinations of a runtime; clones share them.
#[derive(Clone)]
pub struct DestinationBook {
    shared: Arc<Shared>,
}

struct Shared {
    parts: DestinationParts,
    now: watch::Sender<Arc<Destinations>>,
    looked: Mutex<Looked>,
    /// Why nobody looks any more.
    given_up: OnceLock<GivenUp>,
}

/// What was seen of the store.
#[derive(Default)]
struct Looked {
    version: Option<u64>,
    /// Nothing had changed when it was looked at after that: a snapshot may hold a change and lack the one before it.
    confirmed: bool,
    /// What was told to the log of it.
    told: BTreeMap<DestinationName, String>,
}

/// One destination, as this runtime sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationEntry {
    /// Its name.
    pub name: DestinationName,
    /// What it is called by; `None` if it was removed, or cannot be used here.
    pub destination: Option<Destination>,
    /// Whether that is this runtime's configuration's.
    pub configured: bool,
    /// What was set under this name, if anything was.
    pub set: Option<DestinationRow>,
    /// Why this runtime cannot use what was set.
    pub trouble: Option<String>,
    /// Tenants whose secret for it this runtime lacks, and why it cannot be used.
    pub lacking: Vec<(Namespace, String)>,
}

impl DestinationBook {
    /// Reads what is set.
    pub async fn open(parts: DestinationParts) -> Result<Self, StoreError> {
        let now = watch::Sender::new(Arc::new(parts.configured.clone()));
        let book =
            Self { shared: Arc::new(Shared { parts, now, looked: Mutex::default(), given_up: OnceLock::new() }) };
        book.look(None).await?;
        Ok(book)
    }

    /// The destinations, and the ones that come after them.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Destinations>> {
        self.shared.now.subscribe()
    }

    /// Has `publisher`, and after it those who subscribed, follow what is set, until `stop` is cancelled.
    pub async fn follow(self, publisher: Publisher, stop: CancellationToken) {
        self.keep_following(Some(publisher), stop, env::AGAIN_AFTER).await;
    }

    /// What keeps this runtime from following what is set, if anything does.
    pub fn trouble(&self) -> Option<String> {
        let given_up = self.shared.given_up.get()?;
        Some(format!(
            "destinations are called as they were set before, and no change is followed: the task that follows them failed: \
             {given_up}. See the log, and start this host again"
        ))
    }

    async fn keep_following(self, publisher: Option<Publisher>, stop: CancellationToken, again_after: Duration) {
        let look = || self.clone().look_on(publisher.clone(), stop.clone());
        if let Err(given_up) = env::run_again("destinations", again_after, &stop, look).await {
            tracing::error!(error = %given_up, "destinations that are set are not followed any more");
            // It is given up once.
            let _ = self.shared.given_up.set(given_up);
        }
    }

    async fn look_on(self, publisher: Option<Publisher>, stop: CancellationToken) {
        let mut changes = self.shared.parts.store.subscribe_destinations();
        while !stop.is_cancelled() {
            changes.mark_unchanged();
            if let Err(error) = self.look(publisher.as_ref()).await {
                tracing::warn!(%error, "destinations cannot be read now: those that are known go on");
            }
            tokio::select! {
                () = stop.cancelled() => {}
                Ok(()) = changes.changed() => {}
                () = env::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Whether the configuration has it.
    pub fn is_configured(&self, name: &DestinationName) -> bool {
        self.shared.parts.configured.get(name).is_some()
    }

    /// What a document would make of a destination, and what there is to say about it; or everything that is wrong with
    /// it.
    pub fn check(&self, name: &DestinationName, document: &str) -> Result<(Destination, Vec<String>), Vec<String>> {
        let DestinationParts { read, advise, .. } = &self.shared.parts;
        let destination = read(name, document)?;
        let lacking = self.lacking(&destination);
        if !lacking.is_empty() && lacking.len() == self.shared.parts.namespaces.len() {
            return Err(lacking.into_iter().take(1).map(|(_, reason)| reason).collect());
        }
        let mut said: Vec<String> = lacking.into_iter().map(|(_, reason)| reason).collect();
        let known = self.shared.now.borrow();
        let count = known.len() + usize::from(known.get(name).is_none());
        said.extend(advise(count));
        Ok((destination, said))
    }

    /// Which messages of a destination keep their order by what was set. A document that does not say so in words that
    /// are known here leaves it as it was.
    pub fn ordering(&self, row: &DestinationRow) -> Ordering {
        let known = || self.shared.now.borrow().ordering_of(&row.name);
        (self.shared.parts.ordering)(&row.document).unwrap_or_else(known)
    }

    /// Every destination that is configured or set, by name, as the store has it now.
    pub async fn entries(&self) -> Result<Vec<DestinationEntry>, StoreError> {
        let rows = self.shared.parts.store.destinations().await?;
        let mut entries: BTreeMap<DestinationName, DestinationEntry> = BTreeMap::new();
        for destination in self.shared.parts.configured.values() {
            let entry = DestinationEntry {
                name: destination.name.clone(),
                destination: Some(destination.clone()),
                configured: true,
                set: None,
                trouble: None,
                lacking: self.lacking(destination),
            };
            entries.insert(destination.name.clone(), entry);
        }
        for row in rows {
            match entries.get_mut(&row.name) {
                Some(entry) => entry.set = Some(row),
                None => {
                    let entry = self.entry(row);
                    entries.insert(entry.name.clone(), entry);
                }
            }
        }
        Ok(entries.into_values().collect())
    }

    /// What an operator should know, although the host does its work, where its packs emit to these destinations.
    pub async fn notes(&self, named: Vec<(PackName, DestinationName)>) -> Result<Vec<String>, StoreError> {
        let namespaces = self.shared.parts.namespaces.len();
        let note = |entry: DestinationEntry| {
            if entry.set.as_ref().is_some_and(|row| row.removed) && !entry.configured {
                return None;
            }
            let name = &entry.name;
            if let Some(trouble) = entry.trouble {
                return Some(format!("destination `{name}` cannot be used here, and its messages wait: {trouble}"));
            }
            if entry.configured && entry.set.is_some() {
                return Some(configured_and_set(name));
            }
            let (_, reason) = entry.lacking.first().filter(|_| entry.lacking.len() == namespaces)?;
            Some(format!("destination `{name}`: {reason}; its messages wait, and those of no other"))
        };
        let mut notes: Vec<String> = self.entries().await?.into_iter().filter_map(note).collect();
        let known = self.shared.now.borrow();
        notes.extend(named.into_iter().filter(|(_, name)| known.get(name).is_none()).map(|(pack, name)| {
            format!(
                "pack `{pack}` emits to `{name}`, which is no destination here: what it emits waits. To set it: forebay \
                 destination set {name} url=https://…"
            )
        }));
        Ok(notes)
    }

    /// One that is set, and that the configuration does not have.
    fn entry(&self, row: DestinationRow) -> DestinationEntry {
        let read = (self.shared.parts.read)(&row.name, &row.document);
        let (destination, trouble) = match read {
            _ if row.removed => (None, None),
            Ok(destination) => (Some(destination), None),
            Err(problems) => (None, Some(problems.join("; "))),
        };
        let lacking = destination.as_ref().map_or_else(Vec::new, |destination| self.lacking(destination));
        DestinationEntry { name: row.name.clone(), destination, configured: false, set: Some(row), trouble, lacking }
    }

    fn lacking(&self, destination: &Destination) -> Vec<(Namespace, String)> {
        let DestinationParts { namespaces, secrets, .. } = &self.shared.parts;
        let check = |namespace: &Namespace| publish::check_secret(destination, namespace, secrets).err();
        namespaces.iter().filter_map(|namespace| Some((namespace.clone(), check(namespace)?))).collect()
    }

    /// Looks whether something was set since, and takes it up.
    async fn look(&self, publisher: Option<&Publisher>) -> Result<(), StoreError> {
        let store = &self.shared.parts.store;
        let mut looked = self.shared.looked.lock().await;
        let version = store.destinations_version().await?;
        let is_new = looked.version != Some(version);
        if is_new || !looked.confirmed {
            let rows = store.destinations().await?;
            let destinations = self.merged(rows, &mut looked.told);
            self.hand_over(destinations, publisher);
        }
        (looked.version, looked.confirmed) = (Some(version), !is_new);
        Ok(())
    }

    /// The configuration's and what is set beside them. What cannot be taken up is told of, once.
    fn merged(&self, rows: Vec<DestinationRow>, told: &mut BTreeMap<DestinationName, String>) -> Destinations {
        let DestinationParts { configured, read, .. } = &self.shared.parts;
        let mut destinations = configured.clone();
        let mut troubles = BTreeMap::new();
        for row in rows {
            if configured.get(&row.name).is_some() {
                if !row.removed {
                    troubles.insert(row.name.clone(), configured_and_set(&row.name));
                }
                continue;
            }
            match read(&row.name, &row.document) {
                Ok(destination) if row.removed => destinations.remove(&row.name, destination.ordering),
                Ok(destination) => destinations.insert(destination),
                Err(problems) => {
                    // What waits for it stands in the lines that it stood in before.
                    destinations.remove(&row.name, self.ordering(&row));
                    troubles.insert(row.name.clone(), problems.join("; "));
                }
            }
        }
        for (destination, trouble) in troubles.iter().filter(|(name, trouble)| told.get(*name) != Some(*trouble)) {
            tracing::error!(%destination, trouble, "a destination that was set is not taken up by this host");
        }
        *told = troubles;
        destinations
    }

    fn hand_over(&self, destinations: Destinations, publisher: Option<&Publisher>) {
        if **self.shared.now.borrow() == destinations {
            return;
        }
        if let Some(publisher) = publisher
            && let Err(error) = publisher.follow(&destinations)
        {
            tracing::error!(%error, "destinations cannot be called as they are set: those that are known go on");
            return;
        }
        tracing::info!(destinations = destinations.len(), "destinations were set anew");
        self.shared.now.send_replace(Arc::new(destinations));
    }
}

fn configured_and_set(name: &DestinationName) -> String {
    format!(
        "destination `{name}` is in this host's configuration and was set as well: the configuration's counts here. Take one of \
         them away"
    )
}

#[cfg(test)]
mod tests;
