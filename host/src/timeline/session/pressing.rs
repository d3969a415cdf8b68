//! What presses on a shard: what its host is short of, how its own index keeps up, and which of its attempts have no
//! outcome on record. It bounds what is claimed, and what is new in the index; outcomes, control and the lease go on.

use std::time::Duration;

use super::Session;
use crate::lanes::{Level, Resource, Supply, evidence_level};
use crate::timeline::database::Broken;
use crate::timeline::figures::IndexFigures;

/// The index is asked this often, at the most.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// What was measured last.
#[derive(Debug, Default)]
pub(super) struct Pressing {
    pub supply: Supply,
    pub figures: IndexFigures,
    /// The index is not asked before this monotonic time.
    measure_from: Duration,
}

impl Session {
    /// Looks at what presses now.
    pub(super) fn measure(&mut self) -> Result<(), Broken> {
        let monotonic = self.parts.env.clock.monotonic();
        if monotonic >= self.pressing.measure_from {
            self.pressing.measure_from = monotonic + MEASURE_EVERY;
            self.pressing.figures = IndexFigures::of(&self.index.database())?;
        }
        let evidence = evidence_level(self.claims.unresolved(), self.parts.claimed_max);
        let of_host = *self.parts.supply.borrow();
        self.pressing.supply =
            of_host.with(Resource::Index, self.pressing.figures.level()).with(Resource::Evidence, evidence);
        Ok(())
    }

    /// How many more may be claimed for what presses.
    pub(super) fn room_for_claims(&self) -> usize {
        let open_max = self.pressing.supply.claims_max(self.parts.claimed_max);
        open_max.saturating_sub(self.claims.with_publisher())
    }

    /// Whether a page of the feed may be applied. Before the shard has caught up nothing else is written, and RocksDB
    /// itself sets the pace.
    pub(super) fn takes_new(&self) -> bool {
        !self.caught_up || self.pressing.supply.index_takes_new()
    }

    /// Whether a checkpoint may be begun that nobody asked for: while it is uploaded, it keeps files that the index has
    /// let go.
    pub(super) fn has_disk_for_checkpoints(&self) -> bool {
        self.pressing.supply.level(Resource::Disk) < Level::Exhausted
    }
}
