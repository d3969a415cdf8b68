//! One atomic change of the index.

use rocksdb::WriteBatch;

use super::line::FIRST_MAX;
use super::{Index, Lane, Lanes, OVERFLOW_DOMAINS};
use crate::model::destination_lane::{LaneName, Ordering, OrderingDomain};
use crate::model::ids::MessageId;
use crate::model::names::DestinationName;
use crate::model::time::Timestamp;
use crate::timeline::database::{Broken, Database, Scan};
use crate::timeline::keys::{self, ClaimKey, Family, LaneNumber, Position};
use crate::timeline::values::{Entry, Place, ShardState, write_lane, write_order, write_vacant_lane};

/// A batch that is being put together. Reads do not see it before it is committed, but for the lengths and starts of
/// lines, which are in memory. A step that is not committed leaves those wrong: the index must not be used any more.
pub(in crate::timeline) struct Step<'a> {
    database: &'a Database,
    state: &'a mut ShardState,
    lanes: &'a mut Lanes,
    expiry_start: &'a mut Timestamp,
    touched: Vec<LaneNumber>,
    /// Whether a message joined a line.
    joined: bool,
    batch: WriteBatch,
}

impl<'a> Step<'a> {
    pub(super) fn new(index: &'a mut Index) -> Self {
        let Index { database, state, lanes, expiry_start, is_whole: _ } = index;
        Self { database, state, lanes, expiry_start, touched: Vec::new(), joined: false, batch: WriteBatch::new() }
    }

    /// The number of a lane. A new lane gets a number that this step records, whatever else it does with the lane.
    ///
    /// A key for which there are no lanes left shares one. It keeps sharing while that lane has messages, or claims, as
    /// `is_busy` says: with a lane of its own before that, its messages would be in two lanes, and in no order.
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
                && (self.lane(*number).pending() > 0 || is_busy(*number))
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
        let number = self.lanes.lanes.push(Lane::new(name.clone()));
        self.lanes.numbers.insert(name.clone(), number);
        self.touch(number);
        number
    }

    /// A vacant number, for a lane of this name.
    fn vacant(&mut self, name: &LaneName) -> Option<LaneNumber> {
        let family = (name.namespace.clone(), name.destination.clone());
        let number = self.lanes.vacant.get_mut(&family)?.pop()?;
        self.lanes.numbers.insert(name.clone(), number);
        *self.lanes.at(number) = Lane::new(name.clone());
        self.touch(number);
        Some(number)
    }

    /// Takes a lane's name away. Its number is vacant then.
    pub(super) fn vacate(&mut self, number: LaneNumber) {
        let name = self.lanes.at(number).name.clone();
        *self.lanes.at(number) = Lane { recorded: Some(0), is_vacant: true, ..Lane::new(name.clone()) };
        self.lanes.numbers.remove(&name);
        let family = (name.namespace.clone(), name.destination.clone());
        self.lanes.vacant.entry(family).or_default().push(number);
        self.database.put(&mut self.batch, Family::Meta, &keys::lane(number), &write_vacant_lane(&name));
    }

    /// A lane.
    pub(in crate::timeline) fn lane(&self, number: LaneNumber) -> &Lane {
        &self.lanes.lanes[number]
    }

    /// The committed entry of a message.
    pub(in crate::timeline) fn entry(&self, id: MessageId) -> Result<Option<Entry>, Broken> {
        self.database.get(Family::Id, &keys::entry(id), |value| Entry::read(id, value))
    }

    /// Begins a walk over a lane's line.
    pub(in crate::timeline) fn walk(&self, number: LaneNumber) -> Walk<'a> {
        Walk { database: self.database, number, scan: None }
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

    /// Takes the head of a line out of it: the message is in flight.
    pub(in crate::timeline) fn claim(&mut self, entry: &Entry) -> Result<(), Broken> {
        self.leave_line(entry)?;
        self.delete_expiry(entry);
        let key = keys::in_flight(self.state.epoch, entry.claim_key());
        self.database.put(&mut self.batch, Family::InFlight, &key, &[]);
        Ok(())
    }

    /// Takes a message out of its line, or back from waiting for its expiry: the message is in flight.
    pub(in crate::timeline) fn take_over(&mut self, entry: &Entry) -> Result<(), Broken> {
        match entry.place {
            Place::Line => self.leave_line(entry)?,
            Place::Expiring => self.touch(entry.lane),
        }
        self.put_entry(&Entry { place: Place::Line, ..*entry });
        self.delete_expiry(entry);
        let key = keys::in_flight(self.state.epoch, entry.claim_key());
        self.database.put(&mut self.batch, Family::InFlight, &key, &[]);
        Ok(())
    }

    /// Takes the head of a line out of it for good: the message only waits for its expiry.
    pub(in crate::timeline) fn set_aside(&mut self, entry: &Entry) -> Result<(), Broken> {
        self.leave_line(entry)?;
        self.put_entry(&Entry { place: Place::Expiring, ..*entry });
        Ok(())
    }

    /// Forgets a claim and nothing else: the index has a newer entry of its message, or none.
    pub(in crate::timeline) fn forget_claim(&mut self, epoch: u64, claim: ClaimKey) {
        self.delete(Family::InFlight, &keys::in_flight(epoch, claim));
    }

    /// Removes the entry of a claimed message. The claim stays.
    pub(in crate::timeline) fn forget(&mut self, id: MessageId) {
        self.delete(Family::Id, &keys::entry(id));
    }

    /// Ends a claim and removes the entry of its message, which has ended or will come with the feed.
    pub(in crate::timeline) fn end(&mut self, epoch: u64, entry: &Entry) {
        self.forget_claim(epoch, entry.claim_key());
        self.forget(entry.id);
    }

    /// Ends a claim and puts its message back into its line, eligible from `eligible_at` on.
    pub(in crate::timeline) fn put_back(&mut self, epoch: u64, entry: &Entry, eligible_at: Timestamp) {
        self.forget_claim(epoch, entry.claim_key());
        self.schedule(&Entry { eligible_at, ..*entry });
    }

    /// Ends a claim whose message only waits for its expiry.
    pub(in crate::timeline) fn put_aside(&mut self, epoch: u64, entry: &Entry) {
        self.forget_claim(epoch, entry.claim_key());
        self.put_entry(&Entry { place: Place::Expiring, ..*entry });
        self.put_expiry(entry);
        self.touch(entry.lane);
    }

    /// The feed is applied up to here.
    pub(in crate::timeline) fn applied(&mut self, seq: u64) {
        if seq > self.state.applied {
            self.state.applied = seq;
            self.record_state();
        }
    }

    /// Records the order by which the lanes of a destination are told apart, as a message comes to stand in one. No
    /// message in the index may stand in another lane by it.
    pub(in crate::timeline) fn tell_apart(&mut self, destination: &DestinationName, ordering: Ordering) {
        if self.lanes.orders.get(destination) != Some(&ordering) {
            self.lanes.orders.insert(destination.clone(), ordering);
            self.database.put(&mut self.batch, Family::Meta, &keys::order(destination), &write_order(ordering));
        }
    }

    pub(super) fn record_state(&mut self) {
        let value = self.state.write();
        self.database.put(&mut self.batch, Family::Meta, &keys::state(), &value);
    }

    /// The epoch of the owner that writes this step.
    pub(in crate::timeline) fn epoch(&self) -> u64 {
        self.state.epoch
    }

    /// Marks a lane as changed: its place in READY is to be decided again.
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

    /// Sets the one place of a lane in READY, or takes it out.
    pub(in crate::timeline) fn set_ready(&mut self, number: LaneNumber, at: Option<Timestamp>) {
        let before = std::mem::replace(&mut self.lanes.at(number).ready_at, at);
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.lanes.ready.remove(&(before, number));
        }
        if let Some(at) = at {
            self.lanes.ready.insert((at, number));
        }
    }

    /// Keys that the step changes so far.
    #[cfg(test)]
    pub(super) fn changes(&self) -> usize {
        self.batch.len()
    }

    /// Writes the batch, unless it is empty.
    pub(in crate::timeline) fn commit(mut self) -> Result<(), Broken> {
        for number in std::mem::take(&mut self.touched) {
            let lane = self.lanes.at(number);
            lane.touched = false;
            if lane.recorded != Some(lane.pending()) {
                lane.recorded = Some(lane.pending());
                let value = write_lane(&lane.name, lane.pending());
                self.database.put(&mut self.batch, Family::Meta, &keys::lane(number), &value);
            }
        }
        if self.batch.is_empty() { Ok(()) } else { self.database.write(self.batch) }
    }

    fn join_line(&mut self, entry: &Entry) {
        let key = keys::due(entry.lane, entry.position());
        self.database.put(&mut self.batch, Family::Timeline, &key, &entry.write_due());
        self.put_expiry(entry);
        self.lanes.at(entry.lane).line.join(entry);
        self.joined = true;
        self.touch(entry.lane);
    }

    fn leave_line(&mut self, entry: &Entry) -> Result<(), Broken> {
        self.delete(Family::Timeline, &keys::due(entry.lane, entry.position()));
        if !self.lanes.at(entry.lane).line.leave(entry) {
            return Err(Broken::Torn { family: Family::Timeline });
        }
        self.touch(entry.lane);
        Ok(())
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

/// A walk over a lane's line. The walk changes nothing: a head stays the head until the step takes it out.
pub(in crate::timeline) struct Walk<'a> {
    database: &'a Database,
    number: LaneNumber,
    /// The scan of the keys, begun once the entries in memory are used up.
    scan: Option<Scan<'a>>,
}

impl<'a> Walk<'a> {
    /// The head of the line now. No message may join a line in the same step, for a walk would not see it.
    pub(in crate::timeline) fn head(&mut self, step: &mut Step<'a>) -> Result<Option<Entry>, Broken> {
        debug_assert!(!step.joined, "a message that joins a line in a step is not seen by its walks");
        let line = &mut step.lanes.at(self.number).line;
        if line.head().is_none() && !line.is_empty() {
            let scan = self.scan.get_or_insert_with(|| {
                let from = match line.start() {
                    Some(start) if start.behind => keys::behind(keys::due(self.number, start.position)),
                    Some(start) => keys::due(self.number, start.position),
                    None => keys::due(self.number, Position::FIRST),
                };
                self.database.scan(Family::Timeline, &from, keys::due_end(self.number))
            });
            let mut first = Vec::with_capacity(FIRST_MAX);
            while first.len() < FIRST_MAX
                && let Some(entry) =
                    scan.peek(|key, value| Entry::read_due(self.number, keys::read_due(key)?.id, value))?
            {
                first.push(entry);
                scan.advance();
            }
            if first.is_empty() {
                // The line has fewer entries than its length says.
                return Err(Broken::Torn { family: Family::Timeline });
            }
            line.found(first);
        }
        Ok(step.lanes.at(self.number).line.head().copied())
    }
}
