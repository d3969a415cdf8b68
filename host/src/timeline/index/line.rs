//! The in-memory part of a lane's line: its length, its start, and its first entries.
//!
//! A walk through RocksDB costs as much as several claims, most of it for its beginning. So a walk reads a few entries
//! more than it was asked for, and the next claims of the lane need no walk.
//!
//! Invariant: `first` has no gap. An entry of the line that is not in `first` stands behind all that are.

use std::collections::VecDeque;

use crate::model::time::Timestamp;
use crate::timeline::keys::Position;
use crate::timeline::values::Entry;

/// Entries of a line that are in memory.
pub(super) const FIRST_MAX: usize = 8;

/// A lane's line.
#[derive(Debug, Default)]
pub(super) struct Line {
    len: u64,
    /// The start of the line; none before its first entry.
    start: Option<Start>,
    first: VecDeque<Entry>,
}

/// The start of a line: at or just behind a position. All entries before it are gone, so no walk goes over their
/// tombstones again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Start {
    pub position: Position,
    pub behind: bool,
    /// A time before which no entry from there on is eligible; in an ordered lane, before which its head is not.
    eligible_at: Timestamp,
}

impl Start {
    fn at(entry: &Entry) -> Self {
        Self { position: entry.position(), behind: false, eligible_at: entry.eligible_at }
    }

    fn behind(entry: &Entry) -> Self {
        // The next entry of an ordered lane may have been eligible for long.
        let eligible_at = if entry.order.is_some() { Position::FIRST.at } else { entry.eligible_at };
        Self { position: entry.position(), behind: true, eligible_at }
    }
}

impl Line {
    /// A line of this length, of which the first entry is known.
    pub(super) fn of(len: u64, first: Option<Entry>) -> Self {
        Self { len, start: first.as_ref().map(Start::at), first: first.into_iter().collect() }
    }

    /// The number of its entries.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether the line has no entries.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A time before which no entry is eligible; `None` if the line is empty.
    pub(super) fn eligible_from(&self) -> Option<Timestamp> {
        match (self.first.front(), self.start) {
            (Some(head), _) => Some(head.eligible_at),
            (None, Some(start)) if !self.is_empty() => Some(start.eligible_at),
            (None, Some(_) | None) => None,
        }
    }

    /// The first entry, if it is known without a walk.
    pub(super) fn head(&self) -> Option<&Entry> {
        self.first.front()
    }

    /// The start for a walk; `None` for the first key of the lane.
    pub(super) fn start(&self) -> Option<Start> {
        self.start
    }

    /// Takes the entries that a walk from the start has found, in order, [`FIRST_MAX`] at most. None was known before.
    pub(super) fn found(&mut self, first: impl IntoIterator<Item = Entry>) {
        debug_assert!(self.first.is_empty(), "there would be a gap, or an entry twice");
        self.first.extend(first);
        if let Some(head) = self.first.front() {
            self.start = Some(Start::at(head));
        }
    }

    /// An entry joins the line.
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

    /// An entry leaves the line; `false` if the line had none.
    #[must_use]
    pub(super) fn leave(&mut self, entry: &Entry) -> bool {
        let Some(len) = self.len.checked_sub(1) else { return false };
        self.len = len;
        let position = entry.position();
        if let Ok(place) = self.first.binary_search_by_key(&position, Entry::position) {
            self.first.remove(place);
            if place == 0 {
                // All entries before this one are gone, and now this one is.
                self.start = Some(self.first.front().map_or_else(|| Start::behind(entry), Start::at));
            }
        } else if self.start.is_some_and(|start| start.position == position) {
            self.start = Some(Start::behind(entry));
        }
        true
    }

    /// Forgets the first entries, after a test has changed what is stored under their keys.
    #[cfg(test)]
    pub(super) fn forget_first(&mut self) {
        self.first.clear();
    }
}
