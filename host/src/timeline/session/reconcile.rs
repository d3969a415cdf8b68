//! What an index that was found does not know: what its owner of then, or others after it, recorded about attempts.
//!
//! The feed tells of messages and of commands. Admissions, outcomes and expiries are not in it: their row keeps its
//! sequence number, and only the owner that recorded them has them in its index. A checkpoint has none of those that
//! came after it, and after a power cut the owner's own index may have lost its last.
//!
//! Nothing is attempted before it is due. So an outcome can be missing only where a message was due: of a line in order
//! of time, those that are eligible by now; of an ordered lane's line, its first ones, up to the first of which nothing
//! is missing. These are compared with their rows, in pages; the rest, however long the line, is not looked at. What
//! has merely ended is no danger (its admission is refused); what waits for its next attempt, or for an operator, is.
//!
//! What was in flight has its own way (`recovery`), and so has what only waits to expire: the store says whether it
//! does.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::{End, Session};
use crate::model::ids::MessageId;
use crate::model::message::MessageEntry;
use crate::model::time::Timestamp;
use crate::timeline::keys::{LaneNumber, Position};
use crate::timeline::values::Entry;

/// Messages whose rows are read together.
const PAGE_ROWS_MAX: usize = 512;
/// Those of one ordered lane in a page: mostly, nothing is missing of the first.
const ORDERED_ROWS_MAX: usize = 4;
/// How much later than now a message may be eligible and is compared all the same: other owners' clocks may have been
/// ahead.
const AHEAD_MAX: Duration = Duration::from_secs(60);

/// A line that is not compared to its end yet.
#[derive(Clone, Copy)]
struct Line {
    number: LaneNumber,
    ordered: bool,
    after: Option<Position>,
}

impl Session {
    /// Brings in what the index does not know. Ends with an index that knows, but for what the feed tells.
    pub(in crate::timeline) async fn reconcile(&mut self) -> Result<(), End> {
        let until = self.parts.env.now().max(self.database_now().await?) + AHEAD_MAX;
        let lanes = self.index.lane_numbers().into_iter().zip(self.index.lanes());
        let mut lines: VecDeque<Line> = lanes
            .map(|(number, lane)| Line { number, ordered: lane.name.ordering.is_ordered(), after: None })
            .collect();
        while !lines.is_empty() {
            let mut page: Vec<(Line, Vec<Entry>)> = Vec::new();
            let mut room = PAGE_ROWS_MAX;
            while room > 0
                && let Some(line) = lines.pop_front()
            {
                let entries = self.candidates(line, until, room)?;
                if !entries.is_empty() {
                    room -= entries.len();
                    page.push((line, entries));
                }
            }
            self.compare(page, &mut lines).await?;
        }
        Ok(())
    }

    /// The next of a line that may have been attempted.
    fn candidates(&self, line: Line, until: Timestamp, room: usize) -> Result<Vec<Entry>, End> {
        let rows_max = if line.ordered { room.min(ORDERED_ROWS_MAX) } else { room };
        let mut entries = self.index.line_behind(line.number, line.after, rows_max)?;
        if !line.ordered {
            let eligible = entries.iter().take_while(|entry| entry.eligible_at <= until).count();
            entries.truncate(eligible);
        }
        Ok(entries)
    }

    /// Compares what stands in lines with what their rows say. Lines that are to be compared further go back to
    /// `lines`.
    async fn compare(&mut self, page: Vec<(Line, Vec<Entry>)>, lines: &mut VecDeque<Line>) -> Result<(), End> {
        let ids: Vec<MessageId> = page.iter().flat_map(|(_, entries)| entries).map(|entry| entry.id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let rows = self.parts.store.message_entries(&ids).await.map_err(End::Store)?;
        self.rows_read += rows.len() as u64;
        let mut rows: HashMap<MessageId, MessageEntry> = rows.into_iter().map(|row| (row.id, row)).collect();
        let (mut changed, mut gone) = (Vec::new(), Vec::new());
        for (line, entries) in page {
            let mut all_differ = true;
            for entry in &entries {
                match rows.remove(&entry.id) {
                    Some(row) if self.stands_as(entry, &row) => all_differ = false,
                    Some(row) => changed.push(row),
                    None => gone.push(*entry),
                }
            }
            if all_differ || !line.ordered {
                lines.push_back(Line { after: entries.last().map(Entry::position), ..line });
            }
        }
        if !gone.is_empty() {
            let now = self.now();
            let mut step = self.index.begin();
            for entry in &gone {
                step.withdraw(entry)?;
            }
            self.schedule.refresh(&mut step, now);
            step.commit()?;
        }
        if !changed.is_empty() {
            tracing::debug!(messages = changed.len(), "an index did not know what became of some messages");
            self.apply(&changed, None)?;
        }
        Ok(())
    }

    /// Whether a message stands in its line as its row says.
    fn stands_as(&self, entry: &Entry, row: &MessageEntry) -> bool {
        let name = &self.index.lanes()[entry.lane.0 as usize].name;
        Entry::standing(row, entry.lane, name).as_ref() == Some(entry)
    }

    async fn database_now(&self) -> Result<Timestamp, End> {
        if !self.parts.store.keeps_time() {
            return Ok(self.parts.env.now());
        }
        let time = self.parts.store.database_time(&*self.parts.env.clock).await.map_err(End::Store)?;
        Ok(time.now + (time.answered - time.asked))
    }
}
