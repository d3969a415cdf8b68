//! Gates and destinations that change while the shard is owned.

use std::sync::Arc;

use super::{End, Session};
use crate::model::destination::Destinations;
use crate::model::names::{DestinationName, Namespace};
use crate::publish::ClaimedMessage;
use crate::timeline::keys::LaneNumber;
use crate::timeline::schedule::Changes;
use crate::timeline::surroundings::Watched;

/// Lanes that are told their gates, or what their destinations are, together.
pub(super) const GATES_MAX: usize = 1_024;

/// The gates and destinations that lanes have been told, and what follows them.
pub(in crate::timeline) struct Following {
    /// The destinations that lanes have been told, or are being told.
    pub destinations: Arc<Destinations>,
    /// Lanes that are being told.
    changes: Changes,
    /// The news for the shard.
    pub watched: Watched,
    /// Whether lanes have their gates: all were taken once.
    pub knows_gates: bool,
    /// The lane from which on gates are taken next, until all are.
    gates_from: Option<LaneNumber>,
}

impl Following {
    /// Begins with the destinations as they are now, and no gates.
    pub(in crate::timeline) fn begin(mut watched: Watched) -> Self {
        let destinations = Arc::clone(&watched.destinations.borrow_and_update());
        // Gates that were read before this session are news for it.
        watched.gates.mark_changed();
        Self { destinations, changes: Changes::default(), watched, knows_gates: false, gates_from: None }
    }

    /// Whether there are gates or destinations that lanes have not been told.
    pub(super) fn has_news(&self) -> bool {
        self.gates_from.is_some() || !self.changes.is_empty() || self.watched.has_news()
    }
}

impl Session<'_> {
    /// Takes gates that were set, for a part of the lanes. Returns how many lanes that are.
    pub(super) fn take_gates(&mut self) -> Result<usize, End> {
        let Following { watched, gates_from, .. } = &mut self.following;
        if watched.gates.has_changed().unwrap_or(false)
            && let Some(gates) = watched.gates.borrow_and_update().clone()
        {
            self.schedule.set_gates(gates);
            *gates_from = Some(LaneNumber(0));
        }
        let Some(from) = *gates_from else { return Ok(0) };
        let now = self.now();
        let mut step = self.index.begin();
        let (looked, next) = self.schedule.take_gates(&mut step, from, GATES_MAX);
        self.schedule.refresh(&mut step, now);
        step.commit()?;
        self.following.gates_from = next;
        self.following.knows_gates |= next.is_none();
        self.recall_shut();
        Ok(looked)
    }

    /// Tells a part of the lanes what their destinations are now. Returns how many outlets and lanes that are. The
    /// session ends if messages that wait would stand in other lines; with the next one, the index is built again.
    pub(super) fn take_destinations(&mut self) -> Result<usize, End> {
        let Following { watched, destinations, changes, .. } = &mut self.following;
        if watched.destinations.has_changed().unwrap_or(false) {
            let mut now = Arc::clone(&watched.destinations.borrow_and_update());
            let is_reordered = self.schedule.is_reordered(&self.index, &now);
            if is_reordered {
                // Until this session has ended, their messages stand where they stood, and none of them is sent.
                let mut in_order = Destinations::clone(&now);
                for (destination, was) in self.index.reordered(&now) {
                    in_order.keep_order(destination, *was);
                    self.schedule.close(destination);
                }
                now = Arc::new(in_order);
            }
            self.schedule.note_changes(changes, destinations, &now);
            *destinations = now;
            if is_reordered {
                return Err(End::Reordered);
            }
        }
        if self.following.changes.is_empty() {
            return Ok(0);
        }
        let now = self.now();
        let Following { destinations, changes, .. } = &mut self.following;
        let mut step = self.index.begin();
        let told = self.schedule.tell_changes(&mut step, changes, destinations, GATES_MAX, now);
        self.schedule.refresh(&mut step, now);
        step.commit()?;
        // Claims for a destination that is gone go back to their line, unless they are being admitted.
        self.recall_shut();
        Ok(told)
    }

    /// Recalls claims that are not being admitted yet, for outlets that were shut.
    pub(super) fn recall_shut(&mut self) {
        let shut = self.schedule.take_shut();
        if let Some(lease) = self.tenure.lease()
            && !shut.is_empty()
        {
            let is_of = |message: &ClaimedMessage, (namespace, destination): &(Namespace, DestinationName)| {
                message.destination == *destination && message.namespace == *namespace
            };
            self.around.publisher.recall(lease, |message| shut.iter().any(|outlet| is_of(message, outlet)));
        }
    }
}
