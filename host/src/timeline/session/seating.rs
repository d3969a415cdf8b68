//! A session's share of the places in flight.

use std::time::Duration;

use crate::publish::Seat;
use crate::timeline::claims::{TurnEnd, WithoutPlace};

/// The time without a place for the lane in turn after which destinations that have nothing in flight are served out of
/// turn: the holders of the places do not give them back.
const STUCK_AFTER: Duration = Duration::from_millis(50);

/// Where a shard takes its places, and whether it lacks any.
pub(super) struct Seating {
    pub seat: Seat,
    /// Whether there was no place for the lane in turn.
    lacks_places: bool,
    /// Whether a message waits for a place, in turn or not.
    waits: bool,
    /// The monotonic time since which the lane in turn has had no place.
    stuck_since: Option<Duration>,
}

impl Seating {
    pub(super) fn new(seat: Seat) -> Self {
        Self { seat, lacks_places: false, waits: false, stuck_since: None }
    }

    /// Whether there was no place for the lane in turn.
    pub(super) fn lacks_places(&self) -> bool {
        self.lacks_places
    }

    /// The rule for a lane in turn without a place.
    pub(super) fn without_place(&self, monotonic: Duration) -> WithoutPlace {
        let is_stuck = self.stuck_since.is_some_and(|since| monotonic.saturating_sub(since) >= STUCK_AFTER);
        if is_stuck { WithoutPlace::ServeQuiet } else { WithoutPlace::Wait }
    }

    /// No message waits for a place.
    pub(super) fn rest(&mut self) {
        self.lack(false);
        self.waits = false;
    }

    /// Takes note of how a turn ended that began at monotonic time `began`. Messages out of turn may wait for a place
    /// as well, as `others_wait` says. Returns whether any message does.
    pub(super) fn turned(&mut self, began: Duration, end: TurnEnd, others_wait: bool) -> bool {
        let is_stuck = matches!(end, TurnEnd::NoPlace { has_moved: false, .. });
        self.stuck_since = self.stuck_since.or(Some(began)).filter(|_| is_stuck);
        let lacks_places = matches!(end, TurnEnd::NoPlace { .. });
        self.lack(lacks_places);
        self.waits = lacks_places || others_wait;
        self.waits
    }

    /// Returns once there may be a place for a message that waits; never if none does.
    pub(super) async fn freed(&self) {
        if self.waits {
            self.seat.freed().await;
        } else {
            std::future::pending().await
        }
    }

    /// Records whether the lane in turn lacks a place. If it no longer does, other shards stop waiting for this one.
    fn lack(&mut self, lacks_places: bool) {
        if std::mem::replace(&mut self.lacks_places, lacks_places) && !lacks_places {
            self.seat.rest();
        }
    }
}
