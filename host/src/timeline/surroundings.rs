//! The surroundings of the shards: what all shards of this host share, and what they watch.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::TimelineOptions;
use super::capacity::HostFigures;
use super::checkpoint::Checkpoints;
use super::clock::{self, TimeSource};
use super::database::Memory;
use super::gates::{self, Gates};
use super::placement::{Placement, Presence};
use super::watchers::look_after;
use crate::env::Env;
use crate::lanes::{Supply, WorkPlan};
use crate::model::destination::Destinations;
use crate::model::ids::RuntimeId;
use crate::publish::Publisher;
use crate::store::Store;

/// What all shards of this host share. Nothing in it changes.
pub(super) struct Surroundings {
    /// The settings of the timeline.
    pub options: TimelineOptions,
    /// This host.
    pub runtime: RuntimeId,
    pub store: Store,
    pub publisher: Publisher,
    pub env: Env,
    /// The clock that messages are published by.
    pub time: TimeSource,
    /// Block cache and write buffers.
    pub memory: Arc<Memory>,
    pub checkpoints: Arc<Checkpoints>,
    /// The shards that have their place on this host.
    pub placement: Placement,
    /// The work classes of a shard, and their shares.
    pub work: WorkPlan,
    /// Cancelled when the host stops.
    pub stop: CancellationToken,
}

/// The news for shards. A clone begins with what its original has not seen, and sees each change once.
#[derive(Clone)]
pub(super) struct Watched {
    /// The destinations that this host knows.
    pub destinations: watch::Receiver<Arc<Destinations>>,
    /// The gates that are not open; `None` before the first reading.
    pub gates: watch::Receiver<Option<Arc<Gates>>>,
    /// The resources of the host.
    pub supply: watch::Receiver<Supply>,
    /// Hints that the feed has something new, or that time has passed.
    pub wake: watch::Receiver<u64>,
}

impl Watched {
    /// Whether gates and supply are still kept up to date. Their last values are not used beyond that.
    pub(super) fn is_kept(&self) -> bool {
        self.gates.has_changed().is_ok() && self.supply.has_changed().is_ok()
    }

    /// Whether there are gates or destinations that were not taken yet.
    pub(super) fn has_news(&self) -> bool {
        self.gates.has_changed().unwrap_or(false) || self.destinations.has_changed().unwrap_or(false)
    }

    /// Returns at a hint, or once there are gates or destinations to take.
    pub(super) async fn changed(&mut self) {
        tokio::select! {
            biased;
            Ok(()) = self.wake.changed() => {}
            Ok(()) = self.gates.changed() => self.gates.mark_changed(),
            Ok(()) = self.destinations.changed() => self.destinations.mark_changed(),
            else => std::future::pending().await,
        }
    }
}

/// Chooses the shards that this host may own: all, or the ones that are placed here where hosts share the store.
pub(super) fn placement(presence: Presence, stop: &CancellationToken) -> Placement {
    if presence.store.is_shared() {
        Placement::shared(presence, stop.clone())
    } else {
        Placement::alone(&presence.store)
    }
}

/// Starts the watcher of gates.
pub(super) fn watch_gates(store: &Store, stop: &CancellationToken) -> watch::Receiver<Option<Arc<Gates>>> {
    let (gates, seen) = watch::channel(None);
    let (store, until) = (store.clone(), stop.clone());
    look_after("lane gates", gates, stop.clone(), move |gates| gates::watch_gates(store.clone(), gates, until.clone()));
    seen
}

/// Starts the watcher of host resources. The first measurement is taken before this returns.
pub(super) fn watch_host(
    options: &TimelineOptions,
    publisher: &Publisher,
    memory: &Arc<Memory>,
    stop: &CancellationToken,
) -> watch::Receiver<Supply> {
    let (directory, floors) = (options.directory.clone(), options.floors);
    let figures = HostFigures { directory, floors, publisher: publisher.clone(), memory: Arc::clone(memory) };
    let (supply, measured) = watch::channel(figures.measure());
    let until = stop.clone();
    look_after("timeline capacity", supply, stop.clone(), move |supply| figures.clone().watch(supply, until.clone()));
    measured
}

/// Chooses the clock that messages are published by: the database's, where hosts share it.
pub(super) fn time_source(store: &Store, env: &Env, stop: &CancellationToken) -> TimeSource {
    if !store.keeps_time() {
        return TimeSource::System;
    }
    let (samples, seen) = watch::channel(None);
    let (store, env, until) = (store.clone(), env.clone(), stop.clone());
    look_after("database clock", samples, stop.clone(), move |samples| {
        clock::watch_database(store.clone(), env.clone(), samples, until.clone())
    });
    TimeSource::Database(seen)
}
