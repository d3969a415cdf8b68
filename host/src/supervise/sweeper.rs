//! The sweeper: looks, a few lanes at a time, for work items that nobody would ever let go on, and has them repaired.

use std::sync::Mutex;

use metrics::{Counter, counter, describe_counter};

use crate::store::{Store, StoreError, SweepCursor};

const REPAIRS: &str = "forebay_lane_repairs_total";

/// Goes round the lanes of a store, for ever.
pub(super) struct Sweeper {
    cursor: Mutex<SweepCursor>,
    repairs: Counter,
}

impl Sweeper {
    /// Takes the metric's handle from the recorder that is installed now.
    pub(super) fn new() -> Self {
        describe_counter!(REPAIRS, "Stuck lanes of work items that were repaired; more than 0 is a bug");
        Self { cursor: Mutex::default(), repairs: counter!(REPAIRS) }
    }

    /// Looks at the next few lanes.
    pub(super) async fn tick(&self, store: &Store) -> Result<(), StoreError> {
        let from = *self.cursor.lock().expect("nobody panics while they hold it");
        let sweep = store.sweep_lanes(from).await?;
        *self.cursor.lock().expect("nobody panics while they hold it") = sweep.next;
        self.repairs.increment(sweep.repaired);
        if sweep.repaired > 0 {
            tracing::error!(lanes = sweep.repaired, "stuck lanes were repaired: this is a bug");
        }
        Ok(())
    }
}
