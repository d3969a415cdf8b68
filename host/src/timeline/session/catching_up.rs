//! A session's way from the index that it found to the end of its feed.

use super::RestoredFrom;
use crate::timeline::source::Page;

/// How far the index is behind the store.
#[derive(Debug)]
pub(super) struct CatchingUp {
    /// The origin of the index.
    pub restored: RestoredFrom,
    /// Rows of the store that were read until the index had caught up, and since to compare its lines with.
    pub rows_read: u64,
    /// Whether the end of the feed was reached once.
    pub is_done: bool,
    /// Changes in the feed behind the last page that was applied.
    pub behind: u64,
}

impl CatchingUp {
    pub(super) fn begin(restored: RestoredFrom) -> Self {
        Self { restored, rows_read: 0, is_done: false, behind: 0 }
    }

    /// Takes note of a page that is about to be applied.
    pub(super) fn note(&mut self, page: &Page) {
        self.behind = page.behind;
        if !self.is_done {
            self.rows_read += page.rows.len() as u64;
        }
        self.is_done |= page.behind == 0;
    }
}
