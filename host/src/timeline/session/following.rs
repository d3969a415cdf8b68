//! Destinations that are set, changed and removed while the shard is owned.

use std::sync::Arc;

use tokio::sync::watch;

use super::{End, Session};
use crate::model::destination::Destinations;

/// Destinations, and the ones that come after them.
pub(in crate::timeline) struct Followed {
    /// What lanes have been told.
    pub now: Arc<Destinations>,
    /// What they are to be told.
    pub changes: watch::Receiver<Arc<Destinations>>,
}

impl Followed {
    /// As they stand now.
    pub(in crate::timeline) fn begin(mut changes: watch::Receiver<Arc<Destinations>>) -> Self {
        let now = Arc::clone(&changes.borrow_and_update());
        Self { now, changes }
    }

    /// Whether there is something new.
    pub(super) fn has_news(&self) -> bool {
        self.changes.has_changed().unwrap_or(false)
    }
}

impl Session {
    /// Has lanes go by what destinations are now. If that has messages that wait stand in other lines, the session
    /// ends: with the next one, the index is built again. Says how many lanes it looked at.
    pub(super) fn take_destinations(&mut self) -> Result<usize, End> {
        if !self.parts.destinations.has_news() {
            return Ok(0);
        }
        let destinations = Arc::clone(&self.parts.destinations.changes.borrow_and_update());
        let before = Arc::clone(&self.parts.destinations.now);
        if self.schedule.is_reordered(self.index.lanes(), &before, &destinations) {
            return Err(End::Reordered);
        }
        let (now, lanes) = (self.now(), self.index.lane_numbers());
        let mut step = self.index.begin();
        step.reorder(destinations.ordering_fingerprint());
        self.schedule.set_destinations(&mut step, &before, &destinations, &lanes, now);
        self.schedule.refresh(&mut step, now);
        step.commit()?;
        // What is claimed for a destination that is gone, and not being admitted yet, goes back to its line.
        self.recall_shut();
        self.parts.destinations.now = destinations;
        Ok(lanes.len())
    }
}
