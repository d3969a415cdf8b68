//! The gates in the store: read at the start, whenever one is set on this host, and regularly, for another host may set
//! one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::env;
use crate::model::destination_lane::{Gate, LaneName};
use crate::model::names::{DestinationName, Namespace};
use crate::store::{GateRow, Store};

/// The longest that a gate goes unseen that another host has set.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The gates that are not open.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Gates(BTreeMap<DestinationName, OfDestination>);

/// The gates of one destination.
#[derive(Debug, Default, PartialEq, Eq)]
struct OfDestination {
    of_all: Option<Gate>,
    of_tenants: BTreeMap<Namespace, Gate>,
}

impl Gates {
    /// A lane's gate: the stricter one of its namespace's and its destination's.
    pub(super) fn of(&self, lane: &LaneName) -> Gate {
        let Some(gates) = self.0.get(&lane.destination) else { return Gate::Open };
        gates.of_tenants.get(&lane.namespace).copied().max(gates.of_all).unwrap_or(Gate::Open)
    }
}

impl FromIterator<GateRow> for Gates {
    fn from_iter<T: IntoIterator<Item = GateRow>>(rows: T) -> Self {
        let mut gates = Self::default();
        for GateRow { destination, namespace, gate, .. } in rows {
            let of_destination = gates.0.entry(destination).or_default();
            match namespace {
                Some(namespace) => drop(of_destination.of_tenants.insert(namespace, gate)),
                None => of_destination.of_all = Some(gate),
            }
        }
        gates
    }
}

/// Reads gates until `stop` is cancelled. The value is `None` before the first reading.
pub(super) async fn watch_gates(store: Store, gates: watch::Sender<Option<Arc<Gates>>>, stop: CancellationToken) {
    let mut changes = store.subscribe_gates();
    while !stop.is_cancelled() {
        changes.mark_unchanged();
        match store.gates().await {
            Ok(rows) => {
                let read: Gates = rows.into_iter().collect();
                gates.send_if_modified(|gates| {
                    let changed = gates.as_deref() != Some(&read);
                    if changed {
                        *gates = Some(Arc::new(read));
                    }
                    changed
                });
            }
            Err(error) => tracing::warn!(%error, "the gates of lanes cannot be read now"),
        }
        tokio::select! {
            () = stop.cancelled() => {}
            Ok(()) = changes.changed() => {}
            () = env::sleep(READ_EVERY) => {}
        }
    }
}
