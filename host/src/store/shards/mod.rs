//! Delay Shards, their owners, and the shard of a message.
//!
//! A lease is lost when another host acquires the shard, or by a release. A lease that ran out is not lost yet, so a
//! slow owner may still record outcomes. A Publish Admission needs a lease that has not run out (`messages`).

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
use crate::store::engine::dialect::Lock;
use crate::store::engine::row::{Column, Columns, FromColumns};
use crate::store::engine::statement::Statement;
use crate::store::engine::values::{Value, Values, values};
use crate::store::writer::Control;
use crate::store::writer::unit::Unit;
use crate::store::{Store, StoreError};

/// A Delay Shard's number, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl Column for ShardId {
    type Stored<'r> = i64;

    fn of_stored(stored: i64) -> Result<Self, sqlx::Error> {
        u16::of_stored(stored).map(Self)
    }
}

impl From<ShardId> for Value {
    fn from(shard: ShardId) -> Self {
        shard.0.into()
    }
}

/// A shard's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardRow {
    /// The shard.
    pub shard: ShardId,
    /// The last owner, unless the shard was released.
    pub owner: Option<RuntimeId>,
    /// The ownership epoch, which rises by one with every change of owner.
    pub epoch: u64,
    /// The end of the owner's lease, unless it is renewed.
    pub lease_until: Timestamp,
    /// The last sequence number of its feed.
    pub last_seq: u64,
}

impl FromColumns for ShardRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            shard: columns.next()?,
            owner: columns.next()?,
            epoch: columns.next()?,
            lease_until: columns.next()?,
            last_seq: columns.next()?,
        })
    }
}

/// Proof of owning a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardLease {
    /// The shard.
    pub shard: ShardId,
    /// The ownership epoch, which rises by one with every change of owner.
    pub epoch: u64,
    /// The end of the lease, unless it is renewed.
    pub until: Timestamp,
}

impl Store {
    /// The number of shards, fixed when the store was created.
    pub fn shard_count(&self) -> u16 {
        self.shards
    }

    /// The shard of a destination's messages.
    pub fn shard_of(&self, namespace: &Namespace, destination: &DestinationName) -> ShardId {
        ShardId(shard_of(namespace, destination, self.shards))
    }

    /// All shards.
    pub async fn shards(&self) -> Result<Vec<ShardRow>, StoreError> {
        let mut reader = self.reader().await?;
        let text = "SELECT id, owner, epoch, lease_until, last_seq FROM shard ORDER BY id";
        Ok(reader.connection().read_all(text, values![]).await?)
    }

    /// Acquires a shard that has no other owner with a lease that holds. The present owner gets a new epoch.
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

    /// Releases a shard.
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

/// A request about a shard's owner.
#[derive(Debug, Clone)]
pub(super) enum ShardRequest {
    Acquire { shard: ShardId, runtime: RuntimeId, lease_duration: Duration, now: Timestamp },
    Renew { lease: ShardLease, lease_duration: Duration, now: Timestamp },
    Release { lease: ShardLease },
}

/// The owner of a shard, and its lease.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ownership {
    owner: Option<RuntimeId>,
    epoch: u64,
    until: Timestamp,
}

impl ShardRequest {
    /// The shard of the request.
    pub(super) fn shard(&self) -> ShardId {
        match self {
            ShardRequest::Acquire { shard, .. } => *shard,
            ShardRequest::Renew { lease, .. } | ShardRequest::Release { lease } => lease.shard,
        }
    }
}

impl Ownership {
    /// Whether `lease` is not lost.
    pub(super) fn is_held_by(&self, lease: &ShardLease) -> bool {
        self.owner.is_some() && self.epoch == lease.epoch
    }

    /// Whether `lease` is not lost and, where hosts share the store, has not run out by `shared_now`. A host that is
    /// alone has no rival, and its own clock, which may be set, ends no lease.
    pub(super) fn admits(&self, lease: &ShardLease, shared_now: Option<Timestamp>) -> bool {
        self.is_held_by(lease) && shared_now.is_none_or(|now| self.until > now)
    }

    /// Grants a request or refuses it. The stored end of a lease is by the unit's time, the answered end by the
    /// caller's clock, which it read before it asked.
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

/// A shard's row: its owner, and the end of its feed.
struct StoredShard {
    ownership: Ownership,
    last_seq: i64,
    changed: bool,
}

/// The shards of a transaction. They are locked together and in order, before any message: a transaction that holds a
/// shard never waits for an earlier one.
pub(super) struct Shards(BTreeMap<ShardId, StoredShard>);

impl Shards {
    /// Loads these shards' rows, and locks them until the transaction ends.
    pub(super) async fn load(unit: &mut Unit<'_>, ids: BTreeSet<ShardId>) -> Result<Self, sqlx::Error> {
        let rows = LOAD
            .fetch(&mut unit.connection, ids.into_iter().collect(), Values::only, |columns| {
                let (id, owner, epoch, until) = columns.next()?;
                let ownership = Ownership { owner, epoch, until };
                Ok((id, StoredShard { ownership, last_seq: columns.next()?, changed: false }))
            })
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

    /// Applies a request.
    pub(super) fn apply(&mut self, unit: &Unit<'_>, request: ShardRequest) -> Result<Option<ShardLease>, StoreError> {
        let shard = request.shard();
        let Some(row) = self.0.get_mut(&shard) else {
            return Err(StoreError::Refused(format!("there is no shard {}", shard.0)));
        };
        row.changed = true;
        Ok(row.ownership.decide(request, unit))
    }

    /// Writes the changed rows.
    pub(super) async fn save(self, unit: &mut Unit<'_>) -> Result<(), sqlx::Error> {
        let changed = self.0.into_iter().filter(|(_, row)| row.changed).collect();
        SAVE.write(&mut unit.connection, changed, |values, (shard, row)| {
            let Ownership { owner, epoch, until } = row.ownership;
            values.push(shard).push(owner).push(epoch).push(until).push(row.last_seq);
        })
        .await?;
        Ok(())
    }
}
