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
//! - A lane stands in READY exactly once while it may be served and its line is not empty, and not otherwise. Its time
//!   there is never later than the lane's next eligibility; a visit that comes too early corrects it. So a withdrawal
//!   of a head never looks for the next one.
//! - Memory is bounded per lane, and lanes are bounded. Messages take none.
//!
//! READY is in memory alone: it follows from the heads of all lines, which are read when an index is opened.

mod line;
mod opening;
mod step;
mod vacate;

use opening::unusable;
pub(super) use opening::{FeedBounds, Owner, Unusable};
pub(super) use step::Step;
pub(super) use vacate::LANES_KEPT;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use rocksdb::WriteBatch;

use self::line::Line;
use super::database::{Broken, Database, Scan};
use super::keys::{self, ClaimKey, Family, LaneNumber, Position};
use super::numbered::Numbered;
use super::values::{Entry, ShardState};
use crate::model::destination::Destinations;
use crate::model::destination_lane::{LaneName, Ordering};
use crate::model::ids::MessageId;
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;

/// Lanes of a shard after which a further ordering key gets no lane of its own, but shares one of [`OVERFLOW_DOMAINS`].
const EXACT_LANES_MAX: usize = 16_384;
const OVERFLOW_DOMAINS: u16 = 64;

/// The in-memory part of a lane.
#[derive(Debug)]
pub(super) struct Lane {
    pub name: LaneName,
    line: Line,
    /// The time of its place in READY.
    ready_at: Option<Timestamp>,
    /// The length of its line by its LANE key; `None` if the key is missing, or has another name.
    recorded: Option<u64>,
    touched: bool,
    /// Whether the number is free for another key.
    pub is_vacant: bool,
}

impl Lane {
    fn new(name: LaneName) -> Self {
        Self { name, line: Line::default(), ready_at: None, recorded: None, touched: false, is_vacant: false }
    }

    /// Messages in its line.
    pub(super) fn pending(&self) -> u64 {
        self.line.len()
    }

    /// Whether the head is unsettled, so that no message behind it can be sent.
    pub(super) fn waits_for_its_head(&self) -> bool {
        self.eligible_from() == Some(Timestamp::MAX)
    }

    /// Whether its head has failed and waits for its next attempt, as far as the head is known without a walk.
    pub(super) fn head_backs_off(&self, now: Timestamp) -> bool {
        let waits = |head: &Entry| head.retried && now < head.eligible_at && head.eligible_at < Timestamp::MAX;
        self.line.head().is_some_and(waits)
    }

    /// A time before which no message of the line is eligible; `None` if the line is empty.
    pub(super) fn eligible_from(&self) -> Option<Timestamp> {
        self.line.eligible_from()
    }
}

/// Every lane that the shard has met. Their number is that of namespaces times destinations times ordering domains, of
/// which there are no more than [`EXACT_LANES_MAX`] of one key each.
#[derive(Debug)]
struct Lanes {
    /// Lanes after which a further key shares one.
    exact_max: usize,
    lanes: Numbered<LaneNumber, Lane>,
    numbers: HashMap<LaneName, LaneNumber>,
    /// READY: the lanes, by the time at which they are looked at.
    ready: BTreeSet<(Timestamp, LaneNumber)>,
    /// How the lanes of each destination were told apart when a message came to stand in one of them last.
    orders: BTreeMap<DestinationName, Ordering>,
    /// Vacant numbers, by the namespace and destination that they stay within.
    vacant: HashMap<(Namespace, DestinationName), Vec<LaneNumber>>,
}

impl Lanes {
    fn new() -> Self {
        Self {
            exact_max: EXACT_LANES_MAX,
            lanes: Numbered::new(),
            numbers: HashMap::new(),
            ready: BTreeSet::new(),
            orders: BTreeMap::new(),
            vacant: HashMap::new(),
        }
    }

    fn at(&mut self, number: LaneNumber) -> &mut Lane {
        &mut self.lanes[number]
    }
}

/// An open index.
pub(super) struct Index {
    /// The database, shared with the task that copies it.
    database: Arc<Database>,
    state: ShardState,
    /// Whether the owner just before left the index whole.
    is_whole: bool,
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
    /// Whether the shard had no other owner since, as far as `epoch` is the present one's.
    pub(super) fn is_of_owner_before(&self, epoch: u64) -> bool {
        self.state.epoch + 1 == epoch
    }

    /// Whether what it says of messages is what the store says of them, up to what its feed tells.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether messages that it knows would stand in other lanes by the destinations `now`: messages of a destination
    /// with another order wait or are in flight. Where no order was kept, it is enough that some were met, for they may
    /// have been set aside, which no lane shows.
    pub(super) fn is_reordered(&self, now: &Destinations) -> Result<bool, Unusable> {
        let reordered: BTreeMap<_, _> = self.reordered(now).collect();
        if reordered.is_empty() {
            return Ok(false);
        }
        let mut busy = HashSet::new();
        for (_, claim) in self.in_flight().map_err(unusable)? {
            busy.extend(self.entry(claim.id).map_err(unusable)?.map(|entry| entry.lane));
        }
        let lanes = (0..).map(LaneNumber).zip(self.lanes.lanes.as_slice());
        let mut of_them =
            lanes.filter_map(|(number, lane)| Some((number, lane, reordered.get(&lane.name.destination)?)));
        Ok(of_them.any(|(number, lane, was)| {
            let holds = lane.pending() > 0 || busy.contains(&number) || **was == Ordering::None;
            holds && !lane.is_vacant
        }))
    }

    /// The destinations whose order is another now than when a message came to stand in a lane of theirs last, and what
    /// it was then.
    pub(super) fn reordered<'a>(
        &'a self,
        now: &'a Destinations,
    ) -> impl Iterator<Item = (&'a DestinationName, &'a Ordering)> {
        self.lanes.orders.iter().filter(|(destination, was)| now.ordering_of(destination) != **was)
    }

    /// From here on it is this owner's.
    pub(super) fn own(&mut self, epoch: u64) -> Result<(), Broken> {
        self.state.epoch = epoch;
        let mut step = self.begin();
        step.record_state();
        step.commit()
    }

    /// Everything up to this sequence number is in it.
    pub(super) fn applied(&self) -> u64 {
        self.state.applied
    }

    /// The lanes, in the order of their numbers.
    pub(super) fn lanes(&self) -> &[Lane] {
        self.lanes.lanes.as_slice()
    }

    /// A lane.
    pub(super) fn lane(&self, number: LaneNumber) -> &Lane {
        &self.lanes.lanes[number]
    }

    /// The numbers of all lanes.
    pub(super) fn lane_numbers(&self) -> Vec<LaneNumber> {
        self.lane_numbers_from(LaneNumber(0)).collect()
    }

    /// The numbers of lanes, beginning with `from`.
    pub(super) fn lane_numbers_from(&self, from: LaneNumber) -> impl Iterator<Item = LaneNumber> + use<> {
        self.lanes.lanes.numbers_from(from)
    }

    /// Begins a batch.
    pub(super) fn begin(&mut self) -> Step<'_> {
        Step::new(self)
    }

    /// Lanes that stand in READY behind `cursor` and not after `until`, and where the walk got to.
    pub(super) fn ready(
        &self,
        cursor: (Timestamp, LaneNumber),
        until: Timestamp,
        items_max: usize,
    ) -> Found<(Timestamp, LaneNumber)> {
        let mut behind = self.lanes.ready.range((Bound::Excluded(cursor), Bound::Unbounded)).copied();
        let mut found = Found { items: Vec::new(), stopped_early: false, next_at: None };
        for (at, number) in behind.by_ref() {
            if at > until {
                found.next_at = Some(at);
                break;
            }
            if found.items.len() == items_max {
                found.stopped_early = true;
                break;
            }
            found.items.push((at, number));
        }
        found
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
        let found = collect(&mut scan, until, items_max)?;
        self.expiry_start = match found.items.first() {
            Some((first, _)) => *first,
            None => found.next_at.unwrap_or(Timestamp::MAX),
        };
        Ok(found)
    }

    /// Who stands at the head of a lane's line.
    pub(super) fn head(&mut self, number: LaneNumber) -> Result<Option<Entry>, Broken> {
        let mut step = self.begin();
        step.walk(number).head(&mut step)
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

    /// The database, for a copy of it.
    pub(super) fn database(&self) -> Arc<Database> {
        Arc::clone(&self.database)
    }

    /// Writes everything into tables, so that the next opening is quick.
    pub(super) fn flush(&self) -> Result<(), Broken> {
        self.database.flush()
    }

    /// Says that its owner leaves it in good order: all that it recorded is in it, and on the disk before this is. It
    /// must not be changed any more.
    pub(super) fn leave_whole(&self) -> Result<(), Broken> {
        let mut batch = WriteBatch::default();
        self.database.put(&mut batch, Family::Meta, &keys::whole(), &self.state.epoch.to_be_bytes());
        self.database.write_through(batch)
    }
}

/// EXPIRY keys in their order: those not after `until`, `items_max` at the most.
fn collect(scan: &mut Scan<'_>, until: Timestamp, items_max: usize) -> Result<Found<(Timestamp, MessageId)>, Broken> {
    let mut found = Found { items: Vec::new(), stopped_early: false, next_at: None };
    while let Some(item) = scan.peek(|key, _| keys::read_expiry(key))? {
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
