//! The lanes of WorkItems: lines in which one item at a time may run, the head. What becomes of lanes and of those who
//! stand in them is decided here; the store does it, and its tests try every order in which it can be done.
//!
//! An item stands in at most two lanes: that of its source, and the delivery lane of its route. It has one place in
//! both. A generation of a source's projection stands in the line of its projection and in no other lane.
//!
//! ```text
//!  enqueue ──> blockers = lanes in which somebody is before it
//!                 │ 0                      │ more
//!                 v                        v
//!               ready  <──── none left ── blocked ──┐
//!                                          ^        │ it becomes the head of a lane:
//!                                          └────────┘ one blocker less
//! ```
//!
//! Invariants:
//! - A lane in which anybody stands has a head, and it is the one with the lowest place.
//! - An item is blocked as long as it is not the head of every lane that it stands in; `blockers` counts the others.
//! - The head stays the head until it leaves: by its end, or because its route lets others pass while it is retried.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use super::work_item::WorkState;

/// What a lane is about. Whoever holds several lanes takes them in this order, so that no two wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneKind {
    /// Everything that comes in by one route.
    Delivery,
    /// Everything about one source.
    Source,
    /// What stands for one source, where a route's events are its projection: the active generation, and who is queued
    /// behind it. Whoever stands there stands in no other lane.
    Projection,
}

/// A lane, as it is stored. Items are told apart by numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Lane {
    /// The item that may run; none, if the lane is empty.
    pub head: Option<i64>,
    /// The last place that was handed out.
    pub last: i64,
}

/// In how many of its lanes an item is not the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blockers(pub u32);

/// The next in line behind a head that left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Successor {
    /// The item.
    pub item: i64,
    /// Its blockers before.
    pub blockers: Blockers,
}

impl Lane {
    /// Puts an item behind those who stand there. Returns what that adds to its blockers.
    pub fn append(&mut self, item: i64, place: i64) -> Blockers {
        assert!(place > self.last, "places rise");
        self.last = place;
        Blockers(u32::from(*self.head.get_or_insert(item) != item))
    }
}

impl Blockers {
    /// Nobody is before it.
    pub const NONE: Blockers = Blockers(0);

    /// How an item stands that waits for nothing else.
    pub const fn state(self) -> WorkState {
        match self.0 {
            0 => WorkState::Ready,
            _ => WorkState::Blocked,
        }
    }

    fn one_less(self) -> Option<Self> {
        self.0.checked_sub(1).map(Blockers)
    }
}

impl AddAssign for Blockers {
    fn add_assign(&mut self, more: Self) {
        self.0 += more.0;
    }
}

/// An item that waits in more lanes than it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Miscounted(pub i64);

/// What becomes of those who are next in lanes whose heads left, one for each lane that is not empty now.
pub fn promote(successors: impl IntoIterator<Item = Successor>) -> Result<BTreeMap<i64, Blockers>, Miscounted> {
    let mut promoted = BTreeMap::new();
    for next in successors {
        let blockers = promoted.entry(next.item).or_insert(next.blockers);
        *blockers = blockers.one_less().ok_or(Miscounted(next.item))?;
    }
    Ok(promoted)
}

/// What is seen of a lane in which somebody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// The head, if it stands in the lane, has not ended well, and is not behind the first one who waits.
    pub head: Option<i64>,
    /// The first who waits. It may be the head itself, and wait in its other lane.
    pub first: i64,
    /// What the first one counts.
    pub blockers: Blockers,
    /// The head of the first one's other lane, if it has one.
    pub other_head: Option<Option<i64>>,
}

impl Line {
    /// What is wrong, if nobody will ever let this lane go on as it is: its head has to be that one, and the first one
    /// has to have these blockers.
    pub fn amiss(self) -> Option<(i64, Blockers)> {
        let head = self.head.unwrap_or(self.first);
        let behind = head != self.first;
        let elsewhere = self.other_head.is_some_and(|head| head != Some(self.first));
        let blockers = Blockers(u32::from(behind) + u32::from(elsewhere));
        let waits_rightly = self.head.is_some() && self.blockers == blockers && blockers > Blockers::NONE;
        (!waits_rightly).then_some((head, blockers))
    }
}

/// How many of the first who wait are of no more use, when each of them makes those before it superfluous that are
/// `alike`: all before the last of an unbroken line of them.
pub fn superseded(alike: impl Iterator<Item = bool>) -> usize {
    alike.take_while(|alike| *alike).count().saturating_sub(1)
}

/// Whether a head that came to `state` lets its lanes go on. `leaves_lanes` says so of one that did not succeed.
pub const fn lets_go_on(state: WorkState, leaves_lanes: bool) -> bool {
    match state {
        WorkState::Done => true,
        WorkState::Delayed | WorkState::Dead => leaves_lanes,
        WorkState::Blocked | WorkState::Ready | WorkState::Processing => false,
    }
}

#[cfg(test)]
mod tests;
