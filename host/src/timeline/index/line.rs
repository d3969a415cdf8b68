//! What is in memory of a lane's line: how long it is, where it begins, and its first few.
//!
//! A walk through RocksDB costs as much as several claims, most of it for its beginning. So a walk reads a few more
//! than it was asked for, and the next claims of the lane need none.
//!
//! Invariant: `first` is without a gap. Whoever stands in the line and not in `first` stands behind all who do.

use std::collections::VecDeque;

use crate::model::time::Timestamp;
use crate::timeline::keys::Position;
use crate::timeline::values::Entry;

/// How many of a line are in memory, at most.
pub(super) const FIRST_MAX: usize = 8;

/// A lane's line.
#[derive(Debug, Default)]
pub(super) struct Line {
    len: u64,
    /// Where it begins, if it has ever had anybody.
    start: Option<Start>,
    first: VecDeque<Entry>,
}

/// Where a line begins: at or just behind a position. Everything before is known to be gone, so that the tombstones
/// there are not walked over again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Start {
    pub position: Position,
    pub behind: bool,
    /// A time before which nobody from there on is eligible; in an ordered lane, before which its head is not.
    eligible_at: Timestamp,
}

impl Start {
    fn at(entry: &Entry) -> Self {
        Self { position: entry.position(), behind: false, eligible_at: entry.eligible_at }
    }

    fn behind(entry: &Entry) -> Self {
        // Whoever comes next in an ordered lane may have been eligible for long.
        let eligible_at = if entry.order.is_some() { Position::FIRST.at } else { entry.eligible_at };
        Self { position: entry.position(), behind: true, eligible_at }
    }
}

impl Line {
    /// One of so many, of whom the first is known.
    pub(super) fn of(len: u64, first: Option<Entry>) -> Self {
        Self { len, start: first.as_ref().map(Start::at), first: first.into_iter().collect() }
    }

    /// How many stand in it.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether nobody does.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A time before which nobody in it is eligible; `None` if nobody stands in it.
    pub(super) fn eligible_from(&self) -> Option<Timestamp> {
        match (self.first.front(), self.start) {
            (Some(head), _) => Some(head.eligible_at),
            (None, Some(start)) if !self.is_empty() => Some(start.eligible_at),
            (None, Some(_) | None) => None,
        }
    }

    /// The first, as far as that is known without a walk.
    pub(super) fn head(&self) -> Option<&Entry> {
        self.first.front()
    }

    /// Where a walk from its beginning on begins; `None`: where its lane's keys do.
    pub(super) fn start(&self) -> Option<Start> {
        self.start
    }

    /// Takes in what a walk from its beginning on has found, in its order, [`FIRST_MAX`] at most, while none of its
    /// first is known.
    pub(super) fn found(&mut self, first: impl IntoIterator<Item = Entry>) {
        debug_assert!(self.first.is_empty(), "there would be a gap, or somebody twice");
        self.first.extend(first);
        if let Some(head) = self.first.front() {
            self.start = Some(Start::at(head));
        }
    }

    /// Somebody joins it.
    pub(super) fn join(&mut self, entry: &Entry) {
        let (is_whole, start) = (self.first.len() as u64 == self.len, Start::at(entry));
        self.start = match self.start {
            Some(before) if !self.is_empty() => Some(before.min(start)),
            Some(_) | None => Some(start),
        };
        let place = self.first.partition_point(|other| other.position() < entry.position());
        if is_whole || place < self.first.len() {
            self.first.insert(place, *entry);
            self.first.truncate(FIRST_MAX);
        }
        self.len += 1;
    }

    /// Somebody leaves it; `false` if there was nobody.
    #[must_use]
    pub(super) fn leave(&mut self, entry: &Entry) -> bool {
        let Some(len) = self.len.checked_sub(1) else { return false };
        self.len = len;
        let position = entry.position();
        if let Ok(place) = self.first.binary_search_by_key(&position, Entry::position) {
            self.first.remove(place);
            if place == 0 {
                // Whoever stood before is gone, and so is this one.
                self.start = Some(self.first.front().map_or_else(|| Start::behind(entry), Start::at));
            }
        } else if self.start.is_some_and(|start| start.position == position) {
            self.start = Some(Start::behind(entry));
        }
        true
    }

    /// Forgets its first: somebody who changes what is stored under their keys calls for it.
    #[cfg(test)]
    pub(super) fn forget_first(&mut self) {
        self.first.clear();
    }
}
