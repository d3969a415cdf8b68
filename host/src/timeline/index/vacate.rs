//! Lanes of one ordering key that nobody needs: their numbers are given to other keys of the same destination.
//!
//! Keys come and go, and each has a lane of its own as long as there are lanes enough; without this, the first keys
//! that a shard ever met would keep theirs for good, and later ones would share a few. A number stays within its
//! namespace and destination, so that its limits, weight, gate and circuit are the next key's as well.

use super::Index;
use crate::model::destination_lane::OrderingDomain;
use crate::timeline::database::Broken;
use crate::timeline::keys::LaneNumber;

/// Below so many lanes of a shard nothing is gained by it.
pub(in crate::timeline) const LANES_KEPT: usize = 1_024;

impl Index {
    /// Looks at `lanes_max` lanes from number `from` on and takes the names of those away that are of one key, have an
    /// empty line, and of which `is_idle` says that nothing else is known. Returns how many it looked at, and where to
    /// go on.
    pub(in crate::timeline) fn vacate(
        &mut self,
        from: LaneNumber,
        lanes_max: usize,
        is_idle: impl Fn(LaneNumber) -> bool,
    ) -> Result<(usize, LaneNumber), Broken> {
        let numbers = (from.0..).map(LaneNumber).take(self.lanes.lanes.len().saturating_sub(from.0 as usize));
        let looked: Vec<LaneNumber> = numbers.take(lanes_max).collect();
        let mut step = self.begin();
        for number in &looked {
            if step.lane(*number).is_of_idle_key() && is_idle(*number) {
                step.vacate(*number);
            }
        }
        step.commit()?;
        let next = from.0 + u32::try_from(looked.len()).expect("there are fewer lanes than that");
        let next = if (next as usize) < self.lanes.lanes.len() { next } else { 0 };
        Ok((looked.len(), LaneNumber(next)))
    }
}

impl super::Lane {
    /// Whether it is of one key, and has nothing in its line.
    fn is_of_idle_key(&self) -> bool {
        let is_of_key = matches!(self.name.ordering, OrderingDomain::Key(_));
        is_of_key && !self.is_vacant && self.line.is_empty() && self.ready_at.is_none() && !self.touched
    }
}
