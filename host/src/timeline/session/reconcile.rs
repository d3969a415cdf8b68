//! What an index that was found does not know: what its owner of then, or others after it, recorded about attempts.
//!
//! The feed tells of messages and of commands. Admissions, outcomes and expiries are not in it: their row keeps its
//! sequence number, and only the owner that recorded them has them in its index. A copy has none of those that came
//! after it, whether it is a checkpoint or what this runtime kept of a shard that others had since; and after a power
//! cut the owner's own index may have lost its last. One that was left in good order by the owner just before has them
//! all.
//!
//! Nothing is attempted before it is due. So an outcome can be missing only where a message was due: of a line in order
//! of time, those that are eligible by now; of an ordered lane's line, its first ones, up to the first of which nothing
//! is missing. These are compared with their rows when their lane is to be served (`compared`), in pages; the rest,
//! however long the line, is not looked at. What has merely ended is no danger (its admission is refused); what waits
//! for its next attempt, or for an operator, is.
//!
//! What was in flight has its own way (`recovery`), and so has what only waits to expire: the store says whether it
//! does.

use std::collections::HashMap;
use std::time::Duration;

use super::work::in_time;
use super::{End, Session, TRY_AGAIN};
use crate::lanes::WorkClass;
use crate::model::ids::MessageId;
use crate::model::message::{MessageEntry, MessageState};
use crate::model::time::Timestamp;
use crate::timeline::compared::Compared;
use crate::timeline::keys::{LaneNumber, Position};
use crate::timeline::values::Entry;

/// Messages whose rows are read together.
pub(super) const COMPARED_MAX: usize = 256;
/// Those of one ordered lane in a page: mostly, nothing is missing of the first.
const ORDERED_ROWS_MAX: usize = 4;
/// How much later than now a message may be eligible and is compared all the same: other owners' clocks may have been
/// ahead.
const AHEAD_MAX: Duration = Duration::from_secs(60);

/// The next of a line that are compared.
struct Part {
    number: LaneNumber,
    ordered: bool,
    entries: Vec<Entry>,
    /// Whether nobody stands behind them of whom anything may be missing.
    is_last: bool,
}

/// What the rows of a page say.
#[derive(Default)]
struct Differences {
    changed: Vec<MessageEntry>,
    gone: Vec<Entry>,
}

impl Session {
    /// Finds out which lines may not stand as their rows say.
    pub(in crate::timeline) async fn begin_comparing(&mut self) -> Result<(), End> {
        let until = self.parts.env.now().max(self.database_now().await?) + AHEAD_MAX;
        let may_differ = self.index.lanes().iter().map(|lane| {
            let by_now = lane.eligible_from().is_some_and(|from| from <= until);
            lane.pending() > 0 && (lane.name.ordering.is_ordered() || by_now)
        });
        self.schedule.compared = Compared::begin(may_differ, until);
        Ok(())
    }

    /// Whether somebody waits for a line to be compared.
    pub(super) fn is_comparison_due(&self, monotonic: Duration) -> bool {
        self.schedule.compared.is_wanted() && monotonic >= self.compare_from
    }

    /// Compares a page of what is wanted, and brings in what the index does not know. Says how many it looked at.
    pub(super) async fn compare(&mut self) -> Result<usize, End> {
        let mut parts = Vec::new();
        let mut room = COMPARED_MAX;
        while room > 0
            && let Some((number, after)) = self.schedule.compared.next()
        {
            let part = self.part_of(number, after, room)?;
            // A lane costs something also if nobody is to be compared in it.
            room -= part.entries.len().clamp(1, room);
            parts.push(part);
        }
        let ids: Vec<MessageId> = parts.iter().flat_map(|part| &part.entries).map(|entry| entry.id).collect();
        let turn_time = self.parts.work.share(WorkClass::OutcomeAndControl).turn_time;
        let rows = match in_time(turn_time, self.parts.store.message_entries(&ids)).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(%error, "what waits cannot be compared with its rows now");
                parts.iter().for_each(|part| self.schedule.compared.want(part.number));
                self.compare_from = self.parts.env.clock.monotonic() + TRY_AGAIN;
                return Ok(COMPARED_MAX - room);
            }
        };
        self.rows_read += rows.len() as u64;
        let mut rows: HashMap<MessageId, MessageEntry> = rows.into_iter().map(|row| (row.id, row)).collect();
        let mut differences = Differences::default();
        for part in &parts {
            self.take_in(part, &mut rows, &mut differences);
        }
        self.bring_in(differences, &parts)?;
        Ok(COMPARED_MAX - room)
    }

    /// The next of a line that may have been attempted.
    fn part_of(&self, number: LaneNumber, after: Option<Position>, room: usize) -> Result<Part, End> {
        let ordered = self.index.lanes()[number.0 as usize].name.ordering.is_ordered();
        let rows_max = if ordered { room.min(ORDERED_ROWS_MAX) } else { room };
        let mut entries = self.index.line_behind(number, after, rows_max)?;
        if !ordered {
            let until = self.schedule.compared.until();
            let eligible = entries.iter().take_while(|entry| entry.eligible_at <= until).count();
            entries.truncate(eligible);
        }
        Ok(Part { number, ordered, is_last: entries.len() < rows_max, entries })
    }

    /// Compares a part of a line with its rows, and decides how far the line is known by that.
    fn take_in(&mut self, part: &Part, rows: &mut HashMap<MessageId, MessageEntry>, differences: &mut Differences) {
        let mut all_differ = true;
        for entry in &part.entries {
            match rows.remove(&entry.id) {
                None => differences.gone.push(*entry),
                // The feed is about to tell of it.
                Some(row) if row.seq > self.index.applied() => {}
                // Its admission is refused, and then it is asked what became of it.
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
