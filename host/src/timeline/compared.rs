//! The lines of an index that are known to stand as their rows say.
//!
//! ```text
//!   unknown ──(its lane could be served)────> wanted ──(a page is compared)──> known, or known so far
//!                                               ^                                          │
//!                                               └───────(its head stands behind that)──────┘
//! ```
//!
//! An index that the owner just before did not leave whole may lack outcomes of attempts. Comparing all of it with the
//! store's rows before any lane is served would take the longer the more messages are due. So each line is compared
//! when its lane is to be served, a page at a time, and served as far as it was compared. A lane whose gate is shut is
//! not compared; its figures may be out of date until the gate opens.

use std::collections::VecDeque;

use super::keys::{LaneNumber, Position};
use super::numbered::Numbered;
use crate::model::time::Timestamp;

/// How far one line is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Wholly, as far as the line may differ at all.
    Wholly,
    /// Up to a position; messages that join before it are known as well.
    Through(Position),
    /// Not behind a position, if any, and a message behind it is to be served.
    After { position: Option<Position>, wanted: bool },
}

/// How far the lines of a shard are known. The lines of lanes that are met later are known wholly: the feed tells of
/// their messages.
#[derive(Debug)]
pub(super) struct Compared {
    lines: Numbered<LaneNumber, Known>,
    /// Lines that are to be compared, in order.
    wanted: VecDeque<LaneNumber>,
    /// Lines that are not known wholly.
    left: usize,
    /// In a line in order of time, messages that are eligible later than this have not been attempted.
    until: Timestamp,
}

impl Default for Compared {
    fn default() -> Self {
        Self { lines: Numbered::new(), wanted: VecDeque::new(), left: 0, until: Timestamp::MAX }
    }
}

impl Compared {
    /// Begins with all lines, of which those that `may_differ` marks may not stand as their rows say. In a line in
    /// order of time that concerns messages that are eligible at `until` or before.
    pub(super) fn begin(may_differ: impl Iterator<Item = bool>, until: Timestamp) -> Self {
        let unknown = Known::After { position: None, wanted: false };
        let lines: Numbered<LaneNumber, Known> =
            may_differ.map(|it| if it { unknown } else { Known::Wholly }).collect();
        let left = lines.as_slice().iter().filter(|line| **line != Known::Wholly).count();
        Self { lines, wanted: VecDeque::new(), left, until }
    }

    /// See [`Compared::begin`].
    pub(super) fn until(&self) -> Timestamp {
        self.until
    }

    /// Whether every line is known wholly.
    pub(super) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Whether the next message of a line has to be compared first.
    pub(super) fn is_awaited(&self, number: LaneNumber) -> bool {
        matches!(self.lines.get(number), Some(Known::After { .. }))
    }

    /// Whether a line is known as far as its head, at position `head`; if not, it is awaited from now on.
    pub(super) fn reaches(&mut self, number: LaneNumber, head: Position) -> bool {
        let Some(known) = self.lines.get_mut(number) else { return true };
        match *known {
            Known::Wholly => true,
            Known::Through(position) if head <= position => true,
            Known::Through(position) => {
                *known = Known::After { position: Some(position), wanted: false };
                false
            }
            Known::After { .. } => false,
        }
    }

    /// A lane whose line is awaited could be served.
    pub(super) fn want(&mut self, number: LaneNumber) {
        if let Some(Known::After { wanted: wanted @ false, .. }) = self.lines.get_mut(number) {
            *wanted = true;
            self.wanted.push_back(number);
        }
    }

    /// Whether there is a line that is wanted.
    pub(super) fn is_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Takes the next line that is wanted, and the position behind which it is not known.
    pub(super) fn next(&mut self) -> Option<(LaneNumber, Option<Position>)> {
        while let Some(number) = self.wanted.pop_front() {
            if let Known::After { position, wanted } = &mut self.lines[number] {
                *wanted = false;
                return Some((number, *position));
            }
        }
        None
    }

    /// A line was compared up to a position, behind which it still may differ.
    pub(super) fn through(&mut self, number: LaneNumber, position: Position) {
        self.lines[number] = Known::Through(position);
    }

    /// A line was compared up to a position, and no message before it can be served.
    pub(super) fn after(&mut self, number: LaneNumber, position: Position) {
        self.lines[number] = Known::After { position: Some(position), wanted: false };
        self.want(number);
    }

    /// A line was compared as far as it may differ.
    pub(super) fn wholly(&mut self, number: LaneNumber) {
        let known = std::mem::replace(&mut self.lines[number], Known::Wholly);
        self.left -= usize::from(known != Known::Wholly);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::MessageId;

    fn at(order: u64) -> Position {
        Position { at: Timestamp::from_millis(1), order, id: MessageId::from_bytes([0; 16]) }
    }

    // TL-2
    #[test]
    fn a_line_is_served_as_far_as_it_was_compared_and_wanted_where_that_ends() {
        let (known, line) = (LaneNumber(0), LaneNumber(1));
        let mut compared = Compared::begin([false, true].into_iter(), Timestamp::MAX);
        assert!(compared.reaches(known, at(9)) && compared.reaches(LaneNumber(7), at(9)), "nothing is missing of it");
        assert!(compared.is_awaited(line) && !compared.reaches(line, at(1)));
        assert_eq!(compared.next(), None, "nobody could serve it");
        compared.want(line);
        compared.want(line);
        assert_eq!((compared.next(), compared.next()), (Some((line, None)), None), "wanted once");
        compared.through(line, at(5));
        assert!(!compared.is_awaited(line) && compared.reaches(line, at(5)) && compared.reaches(line, at(2)));
        assert!(!compared.reaches(line, at(6)) && compared.is_awaited(line) && !compared.is_complete());
        compared.want(line);
        assert_eq!(compared.next(), Some((line, Some(at(5)))));
        compared.wholly(line);
        compared.wholly(line);
        assert!(compared.reaches(line, at(99)) && compared.is_complete());
    }
}
