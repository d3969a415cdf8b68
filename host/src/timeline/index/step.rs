//! One atomic change of the index.

use rocksdb::WriteBatch;

use super::{Index, Lane, Lanes, LineStart, OVERFLOW_DOMAINS};
use crate::model::destination_lane::{LaneName, OrderingDomain};
use crate::model::ids::MessageId;
use crate::model::time::Timestamp;
use crate::timeline::database::{Broken, Database, Scan};
use crate::timeline::keys::{self, ClaimKey, Family, LaneNumber, Position};
use crate::timeline::values::{Entry, Place, ShardState, write_lane, write_vacant_lane};

/// A batch that is being put together. What it holds is not seen by reads before it is committed, but for the lanes'
/// lengths and beginnings, which are kept in memory. A step that is not committed leaves those wrong: the index must
/// then not be used any more.
pub(in crate::timeline) struct Step<'a> {
    database: &'a Database,
    state: &'a mut ShardState,
    lanes: &'a mut Lanes,
    expiry_start: &'a mut Timestamp,
    touched: Vec<LaneNumber>,
    batch: WriteBatch,
}

impl<'a> Step<'a> {
    pub(super) fn new(index: &'a mut Index) -> Self {
        let Index { database, state, lanes, expiry_start } = index;
        Self { database, state, lanes, expiry_start, touched: Vec::new(), batch: WriteBatch::new() }
    }

    /// The number of a lane, which is a new one if it is met for the first time: then this step records it, whatever
    /// else becomes of the lane.
    ///
    /// One key more than there are lanes for shares a lane. It goes on to as long as anything is in that lane, or was
    /// claimed from it, which `is_busy` says: were it given a lane of its own before, it would be in two, and in no
    /// order.
    pub(in crate::timeline) fn lane_number(
        &mut self,
        name: &LaneName,
        is_busy: impl Fn(LaneNumber) -> bool,
    ) -> LaneNumber {
        if let Some(number) = self.lanes.numbers.get(name) {
            return *number;
        }
        if let OrderingDomain::Key(key) = &name.ordering {
            let shared = LaneName { ordering: OrderingDomain::hashed(key, OVERFLOW_DOMAINS), ..name.clone() };
            if let Some(number) = self.lanes.numbers.get(&shared)
                && (self.lane(*number).pending > 0 || is_busy(*number))
            {
                return *number;
            }
            if let Some(number) = self.vacant(name) {
                return number;
            }
            if self.lanes.lanes.len() >= self.lanes.exact_max {
                return self.lane_number(&shared, is_busy);
            }
        }
        let number = LaneNumber(u32::try_from(self.lanes.lanes.len()).expect("there are fewer lanes than that"));
        self.lanes.numbers.insert(name.clone(), number);
        self.lanes.lanes.push(Lane::new(name.clone()));
        self.touch(number);
        number
    }

    /// The number of a key that nobody needs, for a lane of this name.
    fn vacant(&mut self, name: &LaneName) -> Option<LaneNumber> {
        let family = (name.namespace.clone(), name.destination.clone());
        let number = self.lanes.vacant.get_mut(&family)?.pop()?;
        self.lanes.numbers.insert(name.clone(), number);
        *self.lanes.at(number) = Lane::new(name.clone());
        self.touch(number);
        Some(number)
    }

    /// Takes a lane's name away: its number is another key's to have.
    pub(super) fn vacate(&mut self, number: LaneNumber) {
        let lane = self.lanes.at(number);
        (lane.is_vacant, lane.recorded, lane.start) = (true, Some(0), None);
        let name = lane.name.clone();
        self.lanes.numbers.remove(&name);
        let family = (name.namespace.clone(), name.destination.clone());
        self.lanes.vacant.entry(family).or_default().push(number);
        self.database.put(&mut self.batch, Family::Meta, &keys::lane(number), &write_vacant_lane(&name));
    }

    /// A lane.
    pub(in crate::timeline) fn lane(&self, number: LaneNumber) -> &Lane {
        &self.lanes.lanes[number.0 as usize]
    }

    /// The committed entry of a message.
    pub(in crate::timeline) fn entry(&self, id: MessageId) -> Result<Option<Entry>, Broken> {
        self.database.get(Family::Id, &keys::entry(id), |value| Entry::read(id, value))
    }

    /// A walk over a lane's line from its beginning on.
    pub(in crate::timeline) fn line(&self, number: LaneNumber) -> Line<'a> {
        let from = match self.lane(number).start {
            Some(LineStart { position, behind: false, .. }) => keys::due(number, position),
            Some(LineStart { position, behind: true, .. }) => keys::behind(keys::due(number, position)),
            None => keys::due(number, Position::FIRST),
        };
        Line { scan: self.database.scan(Family::Timeline, &from, keys::due_end(number)), number }
    }

    /// Puts a message into its line.
    pub(in crate::timeline) fn schedule(&mut self, entry: &Entry) {
        self.put_entry(entry);
        self.join_line(entry);
    }

    /// Takes a message that is not in flight out of the index.
    pub(in crate::timeline) fn withdraw(&mut self, entry: &Entry) -> Result<(), Broken> {
        match entry.place {
            Place::Line => self.leave_line(entry)?,
            Place::Expiring => {}
        }
        self.delete_expiry(entry);
        self.delete(Family::Id, &keys::entry(entry.id));
        Ok(())
    }

    /// Takes the first of a line out of it: it is in flight.
    pub(in crate::timeline) fn claim(&mut self, entry: &Entry) -> Result<(), Broken> {
        self.leave_line(entry)?;
        self.start_behind(entry);
        self.delete_expiry(entry);
        let key = keys::in_flight(self.state.epoch, entry.claim_key());
        self.database.put(&mut self.batch, Family::InFlight, &key, &[]);
        Ok(())
    }

    /// Takes the first of a line out of it for good: it only waits for its expiry.
    pub(in crate::timeline) fn set_aside(&mut self, entry: &Entry) -> Result<(), Broken> {
        self.leave_line(entry)?;
        self.start_behind(entry);
        self.put_entry(&Entry { place: Place::Expiring, ..*entry });
        Ok(())
    }

    /// Forgets a claim and nothing else: what the index says about its message is newer.
    pub(in crate::timeline) fn forget_claim(&mut self, epoch: u64, claim: ClaimKey) {
        self.delete(Family::InFlight, &keys::in_flight(epoch, claim));
    }

    /// A claimed message is not the index's any more, but for its claim.
    pub(in crate::timeline) fn forget(&mut self, id: MessageId) {
        self.delete(Family::Id, &keys::entry(id));
    }

    /// A claimed message has ended, or will be told of by the feed.
    pub(in crate::timeline) fn end(&mut self, epoch: u64, entry: &Entry) {
        self.forget_claim(epoch, entry.claim_key());
        self.forget(entry.id);
    }

    /// A claimed message goes back into its line, to be tried from `eligible_at` on.
    pub(in crate::timeline) fn put_back(&mut self, epoch: u64, entry: &Entry, eligible_at: Timestamp) {
        self.forget_claim(epoch, entry.claim_key());
        self.schedule(&Entry { eligible_at, ..*entry });
    }

    /// A claimed message goes back, but not into its line: it only waits for its expiry.
    pub(in crate::timeline) fn put_aside(&mut self, epoch: u64, entry: &Entry) {
        self.forget_claim(epoch, entry.claim_key());
        self.put_entry(&Entry { place: Place::Expiring, ..*entry });
        self.put_expiry(entry);
        self.touch(entry.lane);
    }

    /// The line begins with this message: everything before was found to be gone.
    pub(in crate::timeline) fn start_at(&mut self, entry: &Entry) {
        self.lanes.at(entry.lane).start = Some(LineStart::at(entry));
        self.touch(entry.lane);
    }

    /// The feed is applied up to here.
    pub(in crate::timeline) fn applied(&mut self, seq: u64) {
        if seq > self.state.applied {
            self.state.applied = seq;
            self.record_state();
        }
    }

    /// From here on lanes are told apart as this number stands for. No message that is in the index would stand in
    /// another lane for it.
    pub(in crate::timeline) fn reorder(&mut self, ordering: u64) {
        if ordering != self.state.ordering {
            self.state.ordering = ordering;
            self.record_state();
        }
    }

    pub(super) fn record_state(&mut self) {
        let value = self.state.write();
        self.database.put(&mut self.batch, Family::Meta, &keys::state(), &value);
    }

    /// The owner that this step writes as.
    pub(in crate::timeline) fn epoch(&self) -> u64 {
        self.state.epoch
    }

    /// Something about the lane has changed: its READY key is to be decided anew.
    pub(in crate::timeline) fn touch(&mut self, number: LaneNumber) {
        let lane = self.lanes.at(number);
        if !lane.touched {
            lane.touched = true;
            self.touched.push(number);
        }
    }

    /// The lanes that changed.
    pub(in crate::timeline) fn touched(&self) -> Vec<LaneNumber> {
        self.touched.clone()
    }

    /// Sets the one READY key of a lane, or removes it.
    pub(in crate::timeline) fn set_ready(&mut self, number: LaneNumber, at: Option<Timestamp>) {
        let before = std::mem::replace(&mut self.lanes.at(number).ready_at, at);
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.delete(Family::Timeline, &keys::ready(before, number));
        }
        if let Some(at) = at {
            self.database.put(&mut self.batch, Family::Timeline, &keys::ready(at, number), &[]);
        }
    }

    /// How many keys it changes so far.
    #[cfg(test)]
    pub(super) fn changes(&self) -> usize {
        self.batch.len()
    }

    /// Writes it all, or nothing if there is nothing.
    pub(in crate::timeline) fn commit(mut self) -> Result<(), Broken> {
        for number in std::mem::take(&mut self.touched) {
            let lane = self.lanes.at(number);
            lane.touched = false;
            if lane.recorded != Some(lane.pending) {
                lane.recorded = Some(lane.pending);
                let value = write_lane(&lane.name, lane.pending);
                self.database.put(&mut self.batch, Family::Meta, &keys::lane(number), &value);
            }
        }
        if self.batch.is_empty() { Ok(()) } else { self.database.write(self.batch) }
    }

    fn join_line(&mut self, entry: &Entry) {
        let key = keys::due(entry.lane, entry.position());
        self.database.put(&mut self.batch, Family::Timeline, &key, &entry.write_due());
        self.put_expiry(entry);
        let lane = self.lanes.at(entry.lane);
        let start = LineStart::at(entry);
        lane.start = match lane.start {
            Some(before) if lane.pending > 0 => Some(before.min(start)),
            Some(_) | None => Some(start),
        };
        lane.pending += 1;
        self.touch(entry.lane);
    }

    fn leave_line(&mut self, entry: &Entry) -> Result<(), Broken> {
        self.delete(Family::Timeline, &keys::due(entry.lane, entry.position()));
        let lane = self.lanes.at(entry.lane);
        lane.pending = lane.pending.checked_sub(1).ok_or(Broken::Torn { family: Family::Timeline })?;
        if let Some(start) = &mut lane.start
            && entry.order.is_some()
            && start.position == entry.position()
        {
            // Whoever comes next in an ordered lane may have been eligible for long.
            start.eligible_at = Position::FIRST.at;
        }
        self.touch(entry.lane);
        Ok(())
    }

    fn start_behind(&mut self, entry: &Entry) {
        let eligible_at = if entry.order.is_some() { Position::FIRST.at } else { entry.eligible_at };
        self.lanes.at(entry.lane).start = Some(LineStart { position: entry.position(), behind: true, eligible_at });
    }

    fn put_entry(&mut self, entry: &Entry) {
        self.database.put(&mut self.batch, Family::Id, &keys::entry(entry.id), &entry.write());
    }

    fn put_expiry(&mut self, entry: &Entry) {
        if let Some(expire_at) = entry.expire_at {
            *self.expiry_start = expire_at.min(*self.expiry_start);
            self.database.put(&mut self.batch, Family::Timeline, &keys::expiry(expire_at, entry.id), &[]);
        }
    }

    fn delete_expiry(&mut self, entry: &Entry) {
        if let Some(expire_at) = entry.expire_at {
            self.delete(Family::Timeline, &keys::expiry(expire_at, entry.id));
        }
    }

    fn delete(&mut self, family: Family, key: &[u8]) {
        self.database.delete(&mut self.batch, family, key);
    }
}

/// A walk over a lane's line, as it was when the step began.
pub(in crate::timeline) struct Line<'a> {
    scan: Scan<'a>,
    number: LaneNumber,
}

impl Line<'_> {
    /// Who the walk stands at; `None` at the end of the line.
    pub(in crate::timeline) fn head(&self) -> Result<Option<Entry>, Broken> {
        self.scan.peek(|key, value| Entry::read_due(self.number, keys::read_due(key)?.id, value))
    }

    /// Goes on to the next.
    pub(in crate::timeline) fn advance(&mut self) {
        self.scan.advance();
    }
}
