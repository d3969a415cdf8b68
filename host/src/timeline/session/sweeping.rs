//! Clean-up: lanes of ordering keys that nothing refers to lose their names, for other keys to take their numbers.

use std::time::Duration;

use super::{End, Session};
use crate::timeline::index::LANES_KEPT;
use crate::timeline::keys::LaneNumber;

/// Lanes that are looked at together.
pub(super) const VACATED_MAX: usize = 1_024;
/// The pause between two sweeps over all lanes.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// A sweep over all lanes, a part in each turn.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The lane to look at next.
    next: LaneNumber,
    /// The monotonic time before which no sweep begins.
    from: Duration,
}

impl Session<'_> {
    /// Whether a part of a sweep is due.
    pub(super) fn is_sweep_due(&self, monotonic: Duration) -> bool {
        self.index.lanes().len() > LANES_KEPT && monotonic >= self.sweep.from
    }

    /// Looks at the next part of the lanes. Returns how many lanes that are.
    pub(super) fn sweep(&mut self) -> Result<usize, End> {
        let is_idle = |number: LaneNumber| self.schedule.is_idle_lane(number);
        let (looked, next) = self.index.vacate(self.sweep.next, VACATED_MAX, is_idle)?;
        self.sweep.next = next;
        if next == LaneNumber(0) {
            self.sweep.from = self.monotonic() + SWEEP_EVERY;
        }
        Ok(looked)
    }
}
