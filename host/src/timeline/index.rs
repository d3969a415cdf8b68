//! A shard's index: which messages wait in which lane's line, from when on, until when.
//!
//! ```text
//!   schedule ──> line ──claim──> in flight ──end──────> gone
//!                 ^ │ └─set_aside─> (expires) ──end──────^ │
//!                 │ └───withdraw────────────────────────────┘
//!                 └─────release, retry── in flight
//! ```
//!
//! Invariants:
//! - A [`Step`] is one atomic batch: after a crash the index is as it was before it or after it.
//! - A mutation touches a fixed number of keys, however long the lines are.
//! - A message stands in its line (one DUE key, one EXPIRY key if it expires), or is in flight (one IN_FLIGHT key), or
//!   is set aside (one EXPIRY key); its ENTRY key says which line.
//! - A lane has exactly one READY key while it may be served and its line is not empty, and none otherwise. The key's
//!   time is never later than the lane's next eligibility; a visit that comes too early corrects it. So a withdrawal of
//!   a head never looks for the next one.
//! - In memory there is something for each lane and nothing for each message. Lanes are bounded.

mod step;
mod vacate;

pub(super) use step::Step;
pub(super) use vacate::LANES_KEPT;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::database::{Broken, Database, Memory, Scan};
use super::keys::{self, ClaimKey, Family, LaneNumber, Position};
use super::values::{Entry, ShardState, StoredLane, read_lane};
use crate::model::destination_lane::LaneName;
use crate::model::ids::MessageId;
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;
use crate::store::ShardId;

/// Lanes of a shard after which a further ordering key gets no lane of its own, but shares one of [`OVERFLOW_DOMAINS`].
const EXACT_LANES_MAX: usize = 16_384;
const OVERFLOW_DOMAINS: u16 = 64;

/// Why an index that was found is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unusable {
    /// There is none.
    Missing,
    /// It cannot be opened or read.
    Broken,
    /// It, or something in it, is not as it was written.
    Torn,
    /// It was written by another version, or for another shard.
    OtherVersion,
    /// It tells lanes apart in another way: what keeps its order was configured anew.
    OtherOrdering,
    /// Its shard has had another owner since, whose outcomes are not in it.
    OtherOwner,
    /// It has applied more than the store has: the database was replaced.
    AheadOfStore,
}

impl Unusable {
    /// The word for it in metrics.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Unusable::Missing => "missing",
            Unusable::Broken => "broken",
            Unusable::Torn => "torn",
            Unusable::OtherVersion => "other_version",
            Unusable::OtherOrdering => "other_ordering",
            Unusable::OtherOwner => "other_owner",
            Unusable::AheadOfStore => "ahead_of_store",
        }
    }
}

/// Where a lane's line begins: at or just behind a position. Everything before is known to be gone, so that the
/// tombstones there are not walked over again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LineStart {
    position: Position,
    behind: bool,
    /// A time before which nobody from there on is eligible; in an ordered lane, before which its head is not.
    eligible_at: Timestamp,
}

impl LineStart {
    /// The line begins with this message.
    fn at(entry: &Entry) -> Self {
        Self { position: entry.position(), behind: false, eligible_at: entry.eligible_at }
    }
}

/// A lane's line, but for the messages in it.
#[derive(Debug)]
pub(super) struct Lane {
    pub name: LaneName,
    /// How many messages stand in the line.
    pub pending: u64,
    start: Option<LineStart>,
    ready_at: Option<Timestamp>,
    /// Its LANE key says this of `pending`; `None` if it has none yet, or one of another name.
    recorded: Option<u64>,
    touched: bool,
    /// Whether it is nobody's, and its number another key's to have.
    pub is_vacant: bool,
}

impl Lane {
    fn new(name: LaneName) -> Self {
        Self { name, pending: 0, start: None, ready_at: None, recorded: None, touched: false, is_vacant: false }
    }

    /// Whether all wait for a head of which nobody knows yet what became of it.
    pub(super) fn waits_for_its_head(&self) -> bool {
        self.eligible_from() == Some(Timestamp::MAX)
    }

    /// A time before which nobody in the line is eligible; `None` if nobody stands in it.
    pub(super) fn eligible_from(&self) -> Option<Timestamp> {
        match self.start {
            Some(start) if self.pending > 0 => Some(start.eligible_at),
            Some(_) | None => None,
        }
    }
}

/// Every lane that the shard has met. Their number is that of namespaces times destinations times ordering domains, of
/// which there are no more than [`EXACT_LANES_MAX`] of one key each.
#[derive(Debug)]
struct Lanes {
    /// How many lanes there are after which a further key shares one.
    exact_max: usize,
    lanes: Vec<Lane>,
    numbers: HashMap<LaneName, LaneNumber>,
    /// Numbers of keys that nobody needs, by what the next one must have in common with them.
    vacant: HashMap<(Namespace, DestinationName), Vec<LaneNumber>>,
}

impl Lanes {
    fn new() -> Self {
        Self { exact_max: EXACT_LANES_MAX, lanes: Vec::new(), numbers: HashMap::new(), vacant: HashMap::new() }
    }

    fn at(&mut self, number: LaneNumber) -> &mut Lane {
        &mut self.lanes[number.0 as usize]
    }
}

/// Who an index is kept by, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub shard: ShardId,
    pub epoch: u64,
    /// Stands for how lanes are told apart.
    pub ordering: u64,
}

/// An open index.
pub(super) struct Index {
    /// Shared with whoever makes a copy of it meanwhile.
    database: Arc<Database>,
    state: ShardState,
    lanes: Lanes,
    /// No message expires before this.
    expiry_start: Timestamp,
}

/// What a bounded walk found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found<T> {
    pub items: Vec<T>,
    /// The walk ended at its bound: there may be more that qualifies.
    pub stopped_early: bool,
    /// When the first that does not qualify yet will.
    pub next_at: Option<Timestamp>,
}

impl Index {
    /// Opens the index in `path` if its owner can go on with it.
    ///
    /// `feed_end` is the last sequence number that the store has handed out for the shard.
    pub(super) fn open(path: &Path, memory: &Memory, owner: Owner, feed_end: u64) -> Result<Self, Unusable> {
        let (database, state) = Self::find(path, memory, owner, feed_end)?;
        if state.epoch + 1 != owner.epoch {
            return Err(Unusable::OtherOwner);
        }
        let mut index = Self::load(database, state).map_err(unusable)?;
        index.own(owner.epoch).map_err(unusable)?;
        Ok(index)
    }

    /// Opens in `path` what an earlier owner of the shard had, whose outcomes of later are not in it. It is that
    /// owner's until [`Index::own`] says otherwise: if the process ends before that, nobody takes it for one that can
    /// be gone on with.
    pub(super) fn open_copy(path: &Path, memory: &Memory, owner: Owner, feed_end: u64) -> Result<Self, Unusable> {
        let (database, state) = Self::find(path, memory, owner, feed_end)?;
        if state.epoch >= owner.epoch {
            return Err(Unusable::OtherOwner);
        }
        Self::load(database, state).map_err(unusable)
    }

    /// A database that belongs to the shard, and tells lanes apart as its owner does.
    fn find(
        path: &Path,
        memory: &Memory,
        owner: Owner,
        feed_end: u64,
    ) -> Result<(Arc<Database>, ShardState), Unusable> {
        if !path.exists() {
            return Err(Unusable::Missing);
        }
        let database = Database::open(path, memory).map_err(unusable)?;
        let found = database.get(Family::Meta, &keys::state(), |value| Some(ShardState::read(value)));
        let state = match found.map_err(unusable)? {
            None => return Err(Unusable::Missing),
            Some(None) => return Err(Unusable::OtherVersion),
            Some(Some(state)) if state.shard != owner.shard => return Err(Unusable::OtherVersion),
            Some(Some(state)) => state,
        };
        if state.ordering != owner.ordering {
            return Err(Unusable::OtherOrdering);
        }
        if state.applied > feed_end {
            return Err(Unusable::AheadOfStore);
        }
        Ok((Arc::new(database), state))
    }

    /// Throws away what is in `path` and begins with nothing applied.
    pub(super) fn create(path: &Path, memory: &Memory, owner: Owner) -> Result<Self, Broken> {
        Database::destroy(path)?;
        std::fs::create_dir_all(path)?;
        let database = Database::open(path, memory)?;
        let Owner { shard, epoch, ordering } = owner;
        let mut index = Self::load(Arc::new(database), ShardState { shard, epoch, applied: 0, ordering })?;
        index.own(epoch)?;
        Ok(index)
    }

    /// From here on it is this owner's.
    pub(super) fn own(&mut self, epoch: u64) -> Result<(), Broken> {
        self.state.epoch = epoch;
        let mut step = self.begin();
        step.record_state();
        step.commit()
    }

    fn load(database: Arc<Database>, state: ShardState) -> Result<Self, Broken> {
        let mut index = Self { database, state, lanes: Lanes::new(), expiry_start: Timestamp::from_millis(i64::MIN) };
        let mut scan = index.database.scan(Family::Meta, &keys::lane_start(), keys::lane_end());
        while let Some((number, StoredLane { name, pending, is_vacant })) =
            scan.peek(|key, value| Some((keys::read_lane(key)?, read_lane(value)?)))?
        {
            if number.0 as usize != index.lanes.lanes.len() {
                return Err(Broken::Torn { family: Family::Meta });
            }
            if is_vacant {
                let family = (name.namespace.clone(), name.destination.clone());
                index.lanes.vacant.entry(family).or_default().push(number);
            } else {
                index.lanes.numbers.insert(name.clone(), number);
            }
            index.lanes.lanes.push(Lane { pending, recorded: Some(pending), is_vacant, ..Lane::new(name) });
            scan.advance();
        }
        drop(scan);
        index.load_lines()?;
        Ok(index)
    }

    /// Finds where every lane's line begins and which READY key it has.
    fn load_lines(&mut self) -> Result<(), Broken> {
        for number in self.lane_numbers() {
            let from = keys::due(number, Position::FIRST);
            let scan = self.database.scan(Family::Timeline, &from, keys::due_end(number));
            let first = scan.peek(|key, value| Entry::read_due(number, keys::read_due(key)?.id, value))?;
            let lane = self.lanes.at(number);
            if first.is_none() && lane.pending > 0 {
                return Err(Broken::Torn { family: Family::Timeline });
            }
            lane.start = first.map(|first| LineStart::at(&first));
        }
        let mut scan = self.database.scan(Family::Timeline, &keys::ready_start(), keys::ready_end());
        while let Some((at, number)) = scan.peek(|key, _| keys::read_ready(key))? {
            let Some(lane) = self.lanes.lanes.get_mut(number.0 as usize) else {
                return Err(Broken::Torn { family: Family::Timeline });
            };
            lane.ready_at = Some(at);
            scan.advance();
        }
        Ok(())
    }

    /// Everything up to this sequence number is in it.
    pub(super) fn applied(&self) -> u64 {
        self.state.applied
    }

    /// The lanes, in the order of their numbers.
    pub(super) fn lanes(&self) -> &[Lane] {
        &self.lanes.lanes
    }

    /// Every lane's number.
    pub(super) fn lane_numbers(&self) -> Vec<LaneNumber> {
        (0..).map(LaneNumber).take(self.lanes.lanes.len()).collect()
    }

    /// Begins a batch.
    pub(super) fn begin(&mut self) -> Step<'_> {
        Step::new(self)
    }

    /// Lanes whose READY key lies behind `cursor` and not after `until`, and where the walk got to.
    pub(super) fn ready(
        &self,
        cursor: (Timestamp, LaneNumber),
        until: Timestamp,
        items_max: usize,
    ) -> Result<Found<(Timestamp, LaneNumber)>, Broken> {
        let from = keys::behind(keys::ready(cursor.0, cursor.1));
        let mut scan = self.database.scan(Family::Timeline, &from, keys::ready_end());
        collect(&mut scan, keys::read_ready, until, items_max)
    }

    /// Messages that expire at `until` or before and are not in flight.
    pub(super) fn expiring(
        &mut self,
        until: Timestamp,
        items_max: usize,
    ) -> Result<Found<(Timestamp, MessageId)>, Broken> {
        if until < self.expiry_start {
            let next_at = Some(self.expiry_start).filter(|start| *start < Timestamp::MAX);
            return Ok(Found { items: Vec::new(), stopped_early: false, next_at });
        }
        let from = keys::expiry_start(self.expiry_start);
        let mut scan = self.database.scan(Family::Timeline, &from, keys::expiry_end());
        let found = collect(&mut scan, keys::read_expiry, until, items_max)?;
        self.expiry_start = match found.items.first() {
            Some((first, _)) => *first,
            None => found.next_at.unwrap_or(Timestamp::MAX),
        };
        Ok(found)
    }

    /// Those of a line that stand behind `after`, in its order, `items_max` at the most.
    pub(super) fn line_behind(
        &self,
        number: LaneNumber,
        after: Option<Position>,
        items_max: usize,
    ) -> Result<Vec<Entry>, Broken> {
        let from = match after {
            Some(position) => keys::behind(keys::due(number, position)),
            None => keys::due(number, Position::FIRST),
        };
        let mut scan = self.database.scan(Family::Timeline, &from, keys::due_end(number));
        let mut found = Vec::new();
        while found.len() < items_max
            && let Some(entry) = scan.peek(|key, value| Entry::read_due(number, keys::read_due(key)?.id, value))?
        {
            found.push(entry);
            scan.advance();
        }
        Ok(found)
    }

    /// What stands as claimed: what a crash or another owner's end left.
    pub(super) fn in_flight(&self) -> Result<Vec<(u64, ClaimKey)>, Broken> {
        let mut found = Vec::new();
        let mut scan = self.database.scan(Family::InFlight, &keys::in_flight_start(), keys::in_flight_end());
        while let Some(claim) = scan.peek(|key, _| keys::read_in_flight(key))? {
            found.push(claim);
            scan.advance();
        }
        Ok(found)
    }

    /// The entry of a message.
    pub(super) fn entry(&self, id: MessageId) -> Result<Option<Entry>, Broken> {
        self.database.get(Family::Id, &keys::entry(id), |value| Entry::read(id, value))
    }

    /// The database, for whoever makes a copy of it.
    pub(super) fn database(&self) -> Arc<Database> {
        Arc::clone(&self.database)
    }

    /// Writes everything into tables, so that the next opening is quick.
    pub(super) fn flush(&self) -> Result<(), Broken> {
        self.database.flush()
    }
}

fn unusable(error: Broken) -> Unusable {
    tracing::error!(%error, "a shard's index cannot be used");
    if error.is_torn() { Unusable::Torn } else { Unusable::Broken }
}

/// Keys in order of time: those not after `until`, `items_max` at the most.
fn collect<T>(
    scan: &mut Scan<'_>,
    read: impl Fn(&[u8]) -> Option<(Timestamp, T)>,
    until: Timestamp,
    items_max: usize,
) -> Result<Found<(Timestamp, T)>, Broken> {
    let mut found = Found { items: Vec::new(), stopped_early: false, next_at: None };
    while let Some(item) = scan.peek(|key, _| read(key))? {
        if item.0 > until {
            found.next_at = Some(item.0);
            break;
        }
        if found.items.len() == items_max {
            found.stopped_early = true;
            break;
        }
        found.items.push(item);
        scan.advance();
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
