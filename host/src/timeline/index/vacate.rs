//! Vacant lanes: the number of an ordering key without messages goes to another key of the same destination.
//!
//! Keys come and go, and each has a lane of its own while there are lanes enough. Without this, the first keys that a
//! shard met would keep their lanes for good, and later keys would share a few. A number stays within its namespace and
//! destination, so that the next key has the same limits, weight, gate and circuit.

use super::Index;
use crate::model::destination_lane::OrderingDomain;
use crate::timeline::database::Broken;
use crate::timeline::keys::LaneNumber;

/// Lanes of a shard below which none are vacated.
pub(in crate::timeline) const LANES_KEPT: usize = 1_024;

impl Index {
    /// Looks at `lanes_max` lanes from number `from` on, and vacates those of one key that have an empty line and are
    /// idle, as `is_idle` says. Returns how many lanes it looked at, and the next one.
    pub(in crate::timeline) fn vacate(
        &mut self,
        from: LaneNumber,
        lanes_max: usize,
        is_idle: impl Fn(LaneNumber) -> bool,
    ) -> Result<(usize, LaneNumber), Broken> {
        let mut numbers = self.lanes.lanes.numbers_from(from);
        let looked: Vec<LaneNumber> = numbers.by_ref().take(lanes_max).collect();
        let mut step = self.begin();
        for number in &looked {
            if step.lane(*number).is_of_idle_key() && is_idle(*number) {
                step.vacate(*number);
            }
        }
        step.commit()?;
        Ok((looked.len(), numbers.next().unwrap_or(LaneNumber(0))))
    }
}

impl super::Lane {
    /// Whether the lane is of one key, and its line is empty.
    fn is_of_idle_key(&self) -> bool {
        let is_of_key = matches!(self.name.ordering, OrderingDomain::Key(_));
        is_of_key && !self.is_vacant && self.line.is_empty() && self.ready_at.is_none() && !self.touched
    }
}
