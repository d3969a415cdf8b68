//! Reading a shard's feed: in pages, whenever the store calls, and every so often anyway.
//!
//! One page is read ahead and no more; a shard that does not keep up leaves its feed where it is, in SQL.

use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::env;
use crate::model::message::MessageEntry;
use crate::store::{FeedPage, ShardId, Store, StoreError};

/// Rows of a page.
pub(super) const PAGE_ROWS_MAX: u32 = 512;
/// Bytes that a row takes up in memory, mostly.
pub(super) const ROW_BYTES: usize = size_of::<MessageEntry>() + 256;
/// Bytes of a page's rows in memory. A row alone may take up more, if its ordering key is long.
pub(super) const PAGE_BYTES_MAX: usize = PAGE_ROWS_MAX as usize * ROW_BYTES;
/// Pages that wait to be applied.
pub(super) const PAGES_MAX: usize = 1;
/// Pause after a page could not be read.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// A part of the feed.
#[derive(Debug)]
pub(super) struct Page {
    pub rows: Vec<MessageEntry>,
    /// With these rows applied, everything up to this sequence number is.
    pub through: u64,
    /// How many sequence numbers the feed is ahead of this page; 0 at its end.
    pub behind: u64,
    /// Whether the end of a message may be missing here: it was removed before this page was read.
    pub has_gap: bool,
}

/// Where a shard stands in its feed.
pub(super) struct Source {
    pub store: Store,
    pub shard: ShardId,
    /// The last sequence number that was read.
    pub after: u64,
    /// Up to here only what has not ended is read: the index is rebuilt. Behind it the feed must be read whole, for
    /// what ended meanwhile has moved there.
    pub rebuild_through: u64,
    /// The longest pause between two looks.
    pub poll: Duration,
}

impl Page {
    /// What its rows take up in memory.
    pub(super) fn bytes(&self) -> usize {
        self.rows.iter().map(row_bytes).sum()
    }
}

impl Source {
    /// Sends pages until nobody receives them; the first one ever, and every later one that is not empty.
    pub(super) async fn run(mut self, pages: mpsc::Sender<Page>, mut wake: watch::Receiver<u64>) {
        let mut feed = self.store.subscribe_feed();
        let mut has_reached_end = false;
        while !pages.is_closed() {
            feed.mark_unchanged();
            wake.mark_unchanged();
            let pause = match self.read().await {
                Ok(page) => {
                    let is_end = page.behind == 0;
                    let is_told = !page.rows.is_empty() || page.has_gap || (is_end && !has_reached_end);
                    if is_told && pages.send(page).await.is_err() {
                        return;
                    }
                    if !is_end {
                        continue;
                    }
                    has_reached_end = true;
                    self.poll
                }
                Err(error) => {
                    tracing::warn!(shard = self.shard.0, %error, "a shard's feed cannot be read now");
                    env::sleep(TRY_AGAIN).await;
                    continue;
                }
            };
            tokio::select! {
                Ok(()) = feed.changed() => {}
                Ok(()) = wake.changed() => {}
                () = env::sleep(pause) => {}
                () = pages.closed() => return,
            }
        }
    }

    async fn read(&mut self) -> Result<Page, StoreError> {
        let rebuilding = self.after < self.rebuild_through;
        let FeedPage { entries: mut rows, end, has_gap } =
            self.store.feed(self.shard, self.after, rebuilding, PAGE_ROWS_MAX).await?;
        let fitting = fitting(&rows, PAGE_BYTES_MAX);
        let is_full = rows.len() as u64 >= u64::from(PAGE_ROWS_MAX) || fitting < rows.len();
        rows.truncate(fitting);
        let read_through = rows.last().filter(|_| is_full).map_or(end.max(self.after), |row| row.seq);
        let through = if rebuilding { read_through.min(self.rebuild_through) } else { read_through };
        rows.retain(|row| row.seq <= through);
        self.after = through;
        // A rebuild knows nobody yet, so that it misses no end.
        Ok(Page { rows, through, behind: end.saturating_sub(through), has_gap: has_gap && !rebuilding })
    }
}

/// What a row takes up in memory.
fn row_bytes(row: &MessageEntry) -> usize {
    let key = row.ordering_key.as_ref().map_or(0, String::len);
    size_of::<MessageEntry>() + row.namespace.as_str().len() + row.destination.as_str().len() + key
}

/// How many of the first rows fit into so many bytes; one does always.
fn fitting(rows: &[MessageEntry], bytes_max: usize) -> usize {
    let mut left = bytes_max;
    let fits = |row: &&MessageEntry| {
        let after = left.checked_sub(row_bytes(row));
        left = after.unwrap_or(0);
        after.is_some()
    };
    rows.iter().take_while(fits).count().max(rows.len().min(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{EventId, MessageId, WorkItemId};
    use crate::model::message::MessageState;
    use crate::model::time::Timestamp;

    fn row(key_bytes: usize) -> MessageEntry {
        let now = Timestamp::from_millis(0);
        MessageEntry {
            id: MessageId::from_bytes([0; 16]),
            seq: 1,
            event_id: EventId::from_bytes([0; 16]),
            work_item_id: WorkItemId::from_bytes([0; 16]),
            namespace: "acme".parse().unwrap(),
            destination: "sink".parse().unwrap(),
            state: MessageState::Scheduled,
            generation: 1,
            attempt: 0,
            due_at: now,
            eligible_at: now,
            expire_at: None,
            bytes: 1 << 20,
            ordering_key: Some("k".repeat(key_bytes)),
            place: 1,
        }
    }

    // WRK-1, DRR-2
    #[test]
    fn a_page_ends_where_its_bytes_do_and_has_a_row_at_least() {
        let rows = [row(100), row(100), row(5_000), row(100)];
        let first = row_bytes(&rows[0]);
        assert_eq!(fitting(&rows, PAGE_BYTES_MAX), 4);
        assert_eq!(fitting(&rows, 2 * first), 2);
        assert_eq!(fitting(&rows, 2 * first - 1), 1);
        assert_eq!(fitting(&rows, 3 * first), 2, "the third is large, and the fourth comes after it");
        assert_eq!((fitting(&rows[2..], 1), fitting(&[], 1)), (1, 0));
    }
}
