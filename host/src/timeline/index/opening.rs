//! Opening an index: whether one that was found can be gone on with, what is read of it, and how one begins.

use std::path::Path;
use std::sync::Arc;

use super::line::Line;
use super::{Index, Lane, Lanes};
use crate::model::time::Timestamp;
use crate::store::ShardId;
use crate::timeline::database::{Broken, Database, Memory};
use crate::timeline::keys::{self, Family, LaneNumber};
use crate::timeline::values::{ShardState, StoredLane, read_lane, read_order};

/// Why an index that was found is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::timeline) enum Unusable {
    /// There is none.
    Missing,
    /// It cannot be opened or read.
    Broken,
    /// It, or something in it, is not as it was written.
    Torn,
    /// It was written by another version, or for another shard.
    OtherVersion,
    /// Messages that it knows would stand in other lanes: what keeps its order was configured anew.
    OtherOrdering,
    /// It is of this owner or a later one, which its shard has not had yet; or its shard has had other owners since,
    /// and one of them left a checkpoint in which there is more.
    OtherOwner,
    /// It has applied more than the store has: the database was replaced.
    AheadOfStore,
    /// Messages were removed from the store that it may still hold: nobody will tell it that they ended.
    Trimmed,
}

impl Unusable {
    /// The word for it in metrics.
    pub(in crate::timeline) const fn as_str(self) -> &'static str {
        match self {
            Unusable::Missing => "missing",
            Unusable::Broken => "broken",
            Unusable::Torn => "torn",
            Unusable::OtherVersion => "other_version",
            Unusable::OtherOrdering => "other_ordering",
            Unusable::OtherOwner => "other_owner",
            Unusable::AheadOfStore => "ahead_of_store",
            Unusable::Trimmed => "trimmed",
        }
    }
}

/// Who an index is kept by, and how.
#[derive(Debug, Clone, Copy)]
pub(in crate::timeline) struct Owner {
    pub shard: ShardId,
    pub epoch: u64,
}

/// What there is of a shard's feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::timeline) struct FeedBounds {
    /// Up to here messages that ended may have been removed.
    pub trimmed: u64,
    /// The last sequence number that the store has handed out for the shard.
    pub end: u64,
}

impl Index {
    /// Opens the index in `path`, which an earlier owner of the shard had, if one can go on with it. What was recorded
    /// about attempts after that owner wrote to it last is not in it, unless it [is whole](Index::is_whole). It is that
    /// owner's until [`Index::own`] says otherwise.
    ///
    /// Whether messages stand in the lanes that they belong in is for [`Index::is_reordered`] to say.
    pub(in crate::timeline) fn open(
        path: &Path,
        memory: &Memory,
        owner: Owner,
        feed: FeedBounds,
    ) -> Result<Self, Unusable> {
        let (database, state) = Self::find(path, memory, owner, feed)?;
        if state.epoch >= owner.epoch {
            return Err(Unusable::OtherOwner);
        }
        let left_by = database.get(Family::Meta, &keys::whole(), read_epoch).map_err(unusable)?;
        let mut index = Self::load(database, state).map_err(unusable)?;
        index.is_whole = left_by == Some(state.epoch) && index.is_of_owner_before(owner.epoch);
        Ok(index)
    }

    /// A database that belongs to the shard.
    fn find(
        path: &Path,
        memory: &Memory,
        owner: Owner,
        feed: FeedBounds,
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
        if state.applied > feed.end {
            return Err(Unusable::AheadOfStore);
        }
        if state.applied < feed.trimmed {
            return Err(Unusable::Trimmed);
        }
        Ok((Arc::new(database), state))
    }

    /// Throws away what is in `path` and begins with nothing applied.
    pub(in crate::timeline) fn create(path: &Path, memory: &Memory, owner: Owner) -> Result<Self, Broken> {
        Database::destroy(path)?;
        std::fs::create_dir_all(path)?;
        let database = Database::open(path, memory)?;
        let Owner { shard, epoch } = owner;
        let mut index = Self::load(Arc::new(database), ShardState { shard, epoch, applied: 0 })?;
        index.own(epoch)?;
        Ok(index)
    }

    fn load(database: Arc<Database>, state: ShardState) -> Result<Self, Broken> {
        let expiry_start = Timestamp::from_millis(i64::MIN);
        let mut index = Self { database, state, is_whole: false, lanes: Lanes::new(), expiry_start };
        let mut scan = index.database.scan(Family::Meta, &keys::lane_start(), keys::lane_end());
        while let Some((number, StoredLane { name, pending, is_vacant })) =
            scan.peek(|key, value| Some((keys::read_lane(key)?, read_lane(value)?)))?
        {
            if number != index.lanes.lanes.next_number() {
                return Err(Broken::Torn { family: Family::Meta });
            }
            if is_vacant {
                let family = (name.namespace.clone(), name.destination.clone());
                index.lanes.vacant.entry(family).or_default().push(number);
            } else {
                index.lanes.numbers.insert(name.clone(), number);
            }
            let line = index.first_of(number, pending)?;
            index.lanes.lanes.push(Lane { line, recorded: Some(pending), is_vacant, ..Lane::new(name) });
            scan.advance();
        }
        drop(scan);
        let mut scan = index.database.scan(Family::Meta, &keys::order_start(), keys::order_end());
        while let Some((destination, ordering)) =
            scan.peek(|key, value| Some((keys::read_order(key)?, read_order(value)?)))?
        {
            index.lanes.orders.insert(destination, ordering);
            scan.advance();
        }
        drop(scan);
        Ok(index)
    }

    /// The line of a lane in which `pending` messages stand, as far as it is known without a walk.
    fn first_of(&self, number: LaneNumber, pending: u64) -> Result<Line, Broken> {
        let mut first = self.line_behind(number, None, 1)?;
        match (first.pop(), pending) {
            (None, 1..) => Err(Broken::Torn { family: Family::Timeline }),
            (first, _) => Ok(Line::of(pending, first)),
        }
    }
}

fn read_epoch(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(value.try_into().ok()?))
}

pub(super) fn unusable(error: Broken) -> Unusable {
    tracing::error!(%error, "a shard's index cannot be used");
    if error.is_torn() { Unusable::Torn } else { Unusable::Broken }
}
