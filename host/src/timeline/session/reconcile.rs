//! Reconciling an index that was found with the store: the index may lack what earlier owners recorded about attempts.
//!
//! The feed tells of messages and commands. Admissions, outcomes and expiries are not in it: they leave the sequence
//! number of their row as it is, and only the index of the owner that recorded them has them. An index lacks those that
//! came after it, whether it is a checkpoint or was kept here while other hosts owned the shard; and a power cut may
//! cost the owner's own index the last of them. An index that the owner just before left whole has all of them.
//!
//! No message is attempted before it is due. So an outcome can be missing only for a message that was due: in a line in
//! order of time, the messages that are eligible by now; in an ordered lane's line, the first ones, up to a message
//! that stands as its row says. These are compared with their rows when their lane is to be served (`compared`), in
//! pages; the rest of the line, however long, is not looked at. A message that has ended does no harm (its admission is
//! refused); a message that waits for its next attempt, or for an operator, would.
//!
//! Messages in flight are settled by `recovery`. Messages that only wait to expire need nothing: the store decides
//! whether they do.

use std::collections::HashMap;
use std::time::Duration;

use super::time::TRY_AGAIN;
use super::work::in_time;
use super::{End, Session};
use crate::lanes::WorkClass;
use crate::model::ids::MessageId;
use crate::model::message::{MessageEntry, MessageState};
use crate::model::time::Timestamp;
use crate::timeline::compared::Compared;
use crate::timeline::keys::{LaneNumber, Position};
use crate::timeline::values::Entry;

/// Messages whose rows are read together.
pub(super) const COMPARED_MAX: usize = 256;
/// Messages of one ordered lane in a page. Mostly the first one stands as its row says.
const ORDERED_ROWS_MAX: usize = 4;
/// The time from now within which eligible messages are compared as well: other owners' clocks may have been ahead.
const AHEAD_MAX: Duration = Duration::from_secs(60);

/// The next part of a line to be compared.
struct Part {
    number: LaneNumber,
    ordered: bool,
    entries: Vec<Entry>,
    /// Whether the rest of the line needs no comparison.
    is_last: bool,
}

/// The differences between a page of entries and their rows.
#[derive(Default)]
struct Differences {
    changed: Vec<MessageEntry>,
    gone: Vec<Entry>,
}

impl Session<'_> {
    /// Finds the lines that may not stand as their rows say.
    pub(in crate::timeline) async fn begin_comparing(&mut self) -> Result<(), End> {
        let until = self.around.env.now().max(self.database_now().await?) + AHEAD_MAX;
        let may_differ = self.index.lanes().iter().map(|lane| {
            let by_now = lane.eligible_from().is_some_and(|from| from <= until);
            lane.pending() > 0 && (lane.name.ordering.is_ordered() || by_now)
        });
        self.schedule.compared = Compared::begin(may_differ, until);
        Ok(())
    }

    /// Whether a lane waits for its line to be compared.
    pub(super) fn is_comparison_due(&self, monotonic: Duration) -> bool {
        self.schedule.compared.is_wanted() && monotonic >= self.ask_from.compare
    }

    /// Compares a page of the wanted lines with their rows, and corrects the index. Returns how many entries it looked
    /// at.
    pub(super) async fn compare(&mut self) -> Result<usize, End> {
        let mut parts = Vec::new();
        let mut room = COMPARED_MAX;
        while room > 0
            && let Some((number, after)) = self.schedule.compared.next()
        {
            let part = self.part_of(number, after, room)?;
            // A lane costs something also if none of its entries is to be compared.
            room -= part.entries.len().clamp(1, room);
            parts.push(part);
        }
        let ids: Vec<MessageId> = parts.iter().flat_map(|part| &part.entries).map(|entry| entry.id).collect();
        let turn_time = self.around.work.share(WorkClass::OutcomeAndControl).turn_time;
        let rows = match in_time(turn_time, self.around.store.message_entries(&ids)).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(%error, "what waits cannot be compared with its rows now");
                parts.iter().for_each(|part| self.schedule.compared.want(part.number));
                self.ask_from.compare = self.monotonic() + TRY_AGAIN;
                return Ok(COMPARED_MAX - room);
            }
        };
        self.catching_up.rows_read += rows.len() as u64;
        let mut rows: HashMap<MessageId, MessageEntry> = rows.into_iter().map(|row| (row.id, row)).collect();
        let mut differences = Differences::default();
        for part in &parts {
            self.take_in(part, &mut rows, &mut differences);
        }
        self.bring_in(differences, &parts)?;
        Ok(COMPARED_MAX - room)
    }

    /// The next entries of a line that may have been attempted.
    fn part_of(&self, number: LaneNumber, after: Option<Position>, room: usize) -> Result<Part, End> {
        let ordered = self.index.lane(number).name.ordering.is_ordered();
        let rows_max = if ordered { room.min(ORDERED_ROWS_MAX) } else { room };
        let mut entries = self.index.line_behind(number, after, rows_max)?;
        if !ordered {
            let until = self.schedule.compared.until();
            let eligible = entries.iter().take_while(|entry| entry.eligible_at <= until).count();
            entries.truncate(eligible);
        }
        Ok(Part { number, ordered, is_last: entries.len() < rows_max, entries })
    }

    /// Compares a part of a line with its rows, and decides how far the line is known then.
    fn take_in(&mut self, part: &Part, rows: &mut HashMap<MessageId, MessageEntry>, differences: &mut Differences) {
        let mut all_differ = true;
        for entry in &part.entries {
            match rows.remove(&entry.id) {
                None => differences.gone.push(*entry),
                // The feed is about to tell of it.
                Some(row) if row.seq > self.index.applied() => {}
                // Its admission will be refused, and then the store is asked about it.
                Some(row) if row.state == MessageState::Publishing => all_differ = false,
                Some(row) if self.stands_as(entry, &row) => all_differ = false,
                Some(row) => differences.changed.push(row),
            }
        }
        let compared = &mut self.schedule.compared;
        match part.entries.last().map(Entry::position) {
            Some(position) if part.ordered && all_differ && !part.is_last => compared.after(part.number, position),
            Some(position) if !part.ordered && !part.is_last => compared.through(part.number, position),
            Some(_) | None => compared.wholly(part.number),
        }
    }

    fn bring_in(&mut self, Differences { changed, gone }: Differences, parts: &[Part]) -> Result<(), End> {
        if !changed.is_empty() {
            tracing::debug!(messages = changed.len(), "an index did not know what became of some messages");
            self.apply(&changed, None)?;
        }
        let now = self.now();
        let mut step = self.index.begin();
        for entry in &gone {
            step.withdraw(entry)?;
        }
        parts.iter().for_each(|part| step.touch(part.number));
        self.schedule.refresh(&mut step, now);
        Ok(step.commit()?)
    }

    /// Whether a message stands in its line as its row says.
    fn stands_as(&self, entry: &Entry, row: &MessageEntry) -> bool {
        let name = &self.index.lane(entry.lane).name;
        Entry::standing(row, entry.lane, name).as_ref() == Some(entry)
    }

    async fn database_now(&self) -> Result<Timestamp, End> {
        if !self.around.store.keeps_time() {
            return Ok(self.around.env.now());
        }
        let time = self.around.store.database_time(&*self.around.env.clock).await.map_err(End::Store)?;
        Ok(time.now + (time.answered - time.asked))
    }
}
