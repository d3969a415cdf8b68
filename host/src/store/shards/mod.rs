//! Delay Shards: their owners, and which one a message belongs to.
//!
//! A lease is lost when somebody else acquires the shard or it is released; that it ran out alone does not end it, so
//! an owner that was slow may still record what it did. Admitting anything new, however, needs a lease that holds
//! (`messages`).

pub(super) mod checkpoints;
pub(super) mod database_time;
pub(super) mod destinations;
pub(super) mod gates;
pub(super) mod runtimes;
pub(super) mod withdrawals;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::hash::fnv1a;
use crate::model::ids::RuntimeId;
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;
use crate::store::engine::connection::Row;
use crate::store::engine::dialect::Lock;
use crate::store::engine::statement::Statement;
use crate::store::engine::values::values;
use crate::store::writer::Control;
use crate::store::writer::unit::Unit;
use crate::store::{Store, StoreError};

/// A Delay Shard's number, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// A shard as the store knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardRow {
    /// Which one.
    pub shard: ShardId,
    /// Its last owner, unless it was released.
    pub owner: Option<RuntimeId>,
    /// Rises by one with every change of owner.
    pub epoch: u64,
    /// When the owner's lease ends unless it is renewed.
    pub lease_until: Timestamp,
    /// The last change of its messages.
    pub last_seq: u64,
}

/// Proof of owning a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardLease {
    /// The shard.
    pub shard: ShardId,
    /// Rises by one with every change of owner.
    pub epoch: u64,
    /// When it ends unless it is renewed.
    pub until: Timestamp,
}

impl Store {
    /// How many shards there are; fixed when the store was created.
    pub fn shard_count(&self) -> u16 {
        self.shards
    }

    /// The shard of a destination's messages.
    pub fn shard_of(&self, namespace: &Namespace, destination: &DestinationName) -> ShardId {
        ShardId(shard_of(namespace, destination, self.shards))
    }

    /// Every shard, as the store knows it.
    pub async fn shards(&self) -> Result<Vec<ShardRow>, StoreError> {
        let mut reader = self.reader().await?;
        let text = "SELECT id, owner, epoch, lease_until, last_seq FROM shard ORDER BY id";
        let rows = reader.connection().fetch_all(text, values![]).await?;
        let shard = |row: &Row| {
            Ok(ShardRow {
                shard: ShardId(row.unsigned_16(0)?),
                owner: row.optional_bytes_16(1)?.map(RuntimeId::from_bytes),
                epoch: row.unsigned(2)?,
                lease_until: row.time(3)?,
                last_seq: row.unsigned(4)?,
            })
        };
        Ok(rows.iter().map(shard).collect::<Result<_, sqlx::Error>>()?)
    }

    /// Becomes a shard's owner if it has none whose lease still holds. A runtime that owns it already gets a new epoch.
    pub async fn acquire_shard(
        &self,
        shard: ShardId,
        runtime: RuntimeId,
        lease_duration: Duration,
        now: Timestamp,
    ) -> Result<Option<ShardLease>, StoreError> {
        let request = ShardRequest::Acquire { shard, runtime, lease_duration, now };
        self.writer.control(|reply| Control::Shard(request, reply)).await
    }

    /// Extends a lease; `None` if it is lost.
    pub async fn renew_shard(
        &self,
        lease: ShardLease,
        lease_duration: Duration,
        now: Timestamp,
    ) -> Result<Option<ShardLease>, StoreError> {
        let request = ShardRequest::Renew { lease, lease_duration, now };
        self.writer.control(|reply| Control::Shard(request, reply)).await
    }

    /// Gives a shard up.
    pub async fn release_shard(&self, lease: ShardLease) -> Result<(), StoreError> {
        self.writer.control(|reply| Control::Shard(ShardRequest::Release { lease }, reply)).await?;
        Ok(())
    }
}

/// The shard of a destination's messages: FNV-1a (64 bit) over the namespace, a zero byte and the destination's name,
/// modulo the number of shards. Stored messages depend on it: it must never change.
pub(super) fn shard_of(namespace: &Namespace, destination: &DestinationName, shards: u16) -> u16 {
    let name = namespace.as_str().bytes().chain([0]).chain(destination.as_str().bytes());
    u16::try_from(fnv1a(name) % u64::from(shards)).expect("a remainder is smaller than its divisor")
}

/// What is asked of a shard's row.
#[derive(Debug, Clone)]
pub(super) enum ShardRequest {
    Acquire { shard: ShardId, runtime: RuntimeId, lease_duration: Duration, now: Timestamp },
    Renew { lease: ShardLease, lease_duration: Duration, now: Timestamp },
    Release { lease: ShardLease },
}

/// A shard's row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ownership {
    owner: Option<RuntimeId>,
    epoch: u64,
    until: Timestamp,
}

impl ShardRequest {
    /// Whose row it concerns.
    pub(super) fn shard(&self) -> ShardId {
        match self {
            ShardRequest::Acquire { shard, .. } => *shard,
            ShardRequest::Renew { lease, .. } | ShardRequest::Release { lease } => lease.shard,
        }
    }
}

impl Ownership {
    /// Whether `lease` is still its owner's.
    pub(super) fn is_held_by(&self, lease: &ShardLease) -> bool {
        self.owner.is_some() && self.epoch == lease.epoch
    }

    /// Whether `lease` is still its owner's and, where runtimes share the store, has not run out by `shared_now`. A
    /// runtime that is alone has no rival, and its own clock, which may be set, ends no lease.
    pub(super) fn admits(&self, lease: &ShardLease, shared_now: Option<Timestamp>) -> bool {
        self.is_held_by(lease) && shared_now.is_none_or(|now| self.until > now)
    }

    /// Grants a wish, or does not. What is stored is measured by the unit's time; the caller is told when its lease
    /// ends by its own clock, which it read before it asked.
    fn decide(&mut self, request: ShardRequest, unit: &Unit<'_>) -> Option<ShardLease> {
        let shard = request.shard();
        let until = match request {
            ShardRequest::Acquire { runtime, lease_duration, now, .. } => {
                if self.owner.is_some_and(|owner| owner != runtime && self.until > unit.time(now)) {
                    return None;
                }
                let until = unit.time(now) + lease_duration;
                *self = Ownership { owner: Some(runtime), epoch: self.epoch + 1, until };
                now + lease_duration
            }
            ShardRequest::Renew { lease, lease_duration, now } => {
                if !self.is_held_by(&lease) {
                    return None;
                }
                self.until = unit.time(now) + lease_duration;
                now + lease_duration
            }
            ShardRequest::Release { lease } => {
                if self.is_held_by(&lease) {
                    self.owner = None;
                }
                return None;
            }
        };
        Some(ShardLease { shard, epoch: self.epoch, until })
    }
}

static LOAD: Statement = Statement::lock(
    "(id)",
    "SELECT shard.id, shard.owner, shard.epoch, shard.lease_until, shard.last_seq \
     FROM wanted CROSS JOIN shard ON shard.id = wanted.id",
    Lock::Update,
);

static SAVE: Statement = Statement::update(
    "shard",
    "owner = changed.owner, epoch = changed.epoch, lease_until = changed.lease_until, last_seq = changed.last_seq",
    "changed (id, owner, epoch, lease_until, last_seq)",
    "shard.id = changed.id",
);

/// A shard's row: its owner, and how far its feed goes.
struct StoredShard {
    ownership: Ownership,
    last_seq: i64,
    changed: bool,
}

/// The shards that a transaction concerns. They are locked together and in order, before any message is: a transaction
/// that holds a shard waits for none that comes before it.
pub(super) struct Shards(BTreeMap<ShardId, StoredShard>);

impl Shards {
    /// Loads these shards' rows, and keeps everybody else from changing them until the transaction ends.
    pub(super) async fn load(unit: &mut Unit<'_>, ids: BTreeSet<ShardId>) -> Result<Self, sqlx::Error> {
        let rows = LOAD
            .fetch(
                &mut unit.connection,
                ids.into_iter().collect(),
                |values, shard| {
                    values.push(i64::from(shard.0));
                },
                |row| {
                    let owner = row.optional_bytes_16(1)?.map(RuntimeId::from_bytes);
                    let ownership = Ownership { owner, epoch: row.unsigned(2)?, until: row.time(3)? };
                    let id = ShardId(row.unsigned_16(0)?);
                    Ok((id, StoredShard { ownership, last_seq: row.value(4)?, changed: false }))
                },
            )
            .await?;
        Ok(Self(rows.into_iter().collect()))
    }

    /// The ownership of a shard; `None` if there is no such shard.
    pub(super) fn ownership(&self, shard: ShardId) -> Option<&Ownership> {
        self.0.get(&shard).map(|row| &row.ownership)
    }

    /// Hands out the next sequence number of a shard.
    pub(super) fn next_seq(&mut self, shard: ShardId) -> i64 {
        let row = self.0.get_mut(&shard).expect("the shards of a transaction's messages are loaded");
        row.changed = true;
        row.last_seq += 1;
        row.last_seq
    }

    /// Applies requests in order.
    pub(super) fn apply(&mut self, unit: &Unit<'_>, request: ShardRequest) -> Result<Option<ShardLease>, StoreError> {
        let shard = request.shard();
        let Some(row) = self.0.get_mut(&shard) else {
            return Err(StoreError::Refused(format!("there is no shard {}", shard.0)));
        };
        row.changed = true;
        Ok(row.ownership.decide(request, unit))
    }

    /// Writes back what changed.
    pub(super) async fn save(self, unit: &mut Unit<'_>) -> Result<(), sqlx::Error> {
        let changed = self.0.into_iter().filter(|(_, row)| row.changed).collect();
        SAVE.write(&mut unit.connection, changed, |values, (shard, row)| {
            let Ownership { owner, epoch, until } = row.ownership;
            values.push(i64::from(shard.0)).optional_id(owner.as_ref().map(RuntimeId::as_bytes));
            values.push(i64::try_from(epoch).expect("epochs rise by one")).time(until).push(row.last_seq);
        })
        .await?;
        Ok(())
    }
}
