//! Backpressure on one shard: host resources, the pace of its index, and attempts without a recorded outcome. It bounds
//! claims and new messages in the index; outcomes, control and the lease go on.

use std::time::Duration;

use super::Session;
use crate::lanes::{Level, Resource, Supply, evidence_level};
use crate::timeline::database::Broken;
use crate::timeline::figures::IndexFigures;

/// The pause between two measurements of the index.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// The last measurements.
#[derive(Debug, Default)]
pub(super) struct Pressing {
    pub supply: Supply,
    pub figures: IndexFigures,
    /// The monotonic time before which the index is not measured again.
    measure_from: Duration,
}

impl Session<'_> {
    /// Measures the backpressure.
    pub(super) fn measure(&mut self) -> Result<(), Broken> {
        let monotonic = self.monotonic();
        if monotonic >= self.pressing.measure_from {
            self.pressing.measure_from = monotonic + MEASURE_EVERY;
            self.pressing.figures = IndexFigures::of(&self.index.database())?;
        }
        let evidence = evidence_level(self.claims.unresolved(), self.around.options.claimed_max);
        let of_host = *self.following.watched.supply.borrow();
        self.pressing.supply =
            of_host.with(Resource::Index, self.pressing.figures.level()).with(Resource::Evidence, evidence);
        Ok(())
    }

    /// How many more messages the backpressure lets the shard claim.
    pub(super) fn room_for_claims(&self) -> usize {
        let open_max = self.pressing.supply.claims_max(self.around.options.claimed_max);
        open_max.saturating_sub(self.claims.with_publisher())
    }

    /// Whether a page of the feed may be applied. Until the shard has caught up the feed is all that it writes, and
    /// RocksDB sets the pace.
    pub(super) fn takes_new(&self) -> bool {
        !self.catching_up.is_done || self.pressing.supply.index_takes_new()
    }

    /// Whether there is disk enough for a checkpoint that no operator asked for: while it is uploaded, it keeps files
    /// that the index does not need any more.
    pub(super) fn has_disk_for_checkpoints(&self) -> bool {
        self.pressing.supply.level(Resource::Disk) < Level::Exhausted
    }
}
