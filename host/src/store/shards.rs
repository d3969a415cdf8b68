//! Delay Shards: who owns them, and which one a message belongs to.
//!
//! A lease is lost when somebody else acquires the shard or it is released; that it ran out alone does not end it, so an
//! owner that was slow may still record what it did. Admitting anything new, however, needs a lease that holds (`messages`).

use std::collections::BTreeMap;
use std::time::Duration;

use super::statement::Statement;
use super::stored::Columns;
use super::unit::Unit;
use super::writer::Control;
use super::{Store, StoreError};
use crate::model::ids::RuntimeId;
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;

/// A Delay Shard's number, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

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

    /// Becomes a shard's owner if it has none whose lease still holds. A runtime that owns it already gets a new epoch.
    pub async fn acquire_shard(
        &self,
        shard: ShardId,
        runtime: RuntimeId,
        lease_duration: Duration,
        now: Timestamp,
    ) -> Result<Option<ShardLease>, StoreError> {
        let request = ShardRequest::Acquire { shard, runtime, until: now + lease_duration, now };
        self.writer.control(|reply| Control::Shard(request, reply)).await
    }

    /// Extends a lease; `None` if it is lost.
    pub async fn renew_shard(
        &self,
        lease: ShardLease,
        lease_duration: Duration,
        now: Timestamp,
    ) -> Result<Option<ShardLease>, StoreError> {
        let request = ShardRequest::Renew { lease, until: now + lease_duration };
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
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let name = namespace.as_str().bytes().chain([0]).chain(destination.as_str().bytes());
    let hash = name.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    u16::try_from(hash % u64::from(shards)).expect("a remainder is smaller than its divisor")
}

/// What is asked of a shard's row.
pub(super) enum ShardRequest {
    Acquire { shard: ShardId, runtime: RuntimeId, until: Timestamp, now: Timestamp },
    Renew { lease: ShardLease, until: Timestamp },
    Release { lease: ShardLease },
}

/// A shard's row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ownership {
    owner: Option<RuntimeId>,
    epoch: u64,
    until: Timestamp,
}

impl Ownership {
    /// Whether `lease` is still its owner's.
    pub(super) fn is_held_by(&self, lease: &ShardLease) -> bool {
        self.owner.is_some() && self.epoch == lease.epoch
    }

    /// Whether `lease` is still its owner's and has not run out.
    pub(super) fn admits(&self, lease: &ShardLease, now: Timestamp) -> bool {
        self.is_held_by(lease) && self.until > now
    }
}

static SAVE: Statement = Statement::new(
    "UPDATE shard SET owner = changed.column2, epoch = changed.column3, lease_until = changed.column4 FROM (",
    4,
    ") AS changed WHERE shard.id = changed.column1",
);

/// Every shard's row.
pub(super) async fn load_ownership(unit: &mut Unit<'_>) -> Result<BTreeMap<ShardId, Ownership>, sqlx::Error> {
    let rows = sqlx::query("SELECT id, owner, epoch, lease_until FROM shard").fetch_all(&mut *unit.connection).await?;
    let ownership = rows.iter().map(|row| {
        let owner = row.optional_bytes_16(1)?.map(RuntimeId::from_bytes);
        Ok((ShardId(row.value(0)?), Ownership { owner, epoch: row.unsigned(2)?, until: row.time(3)? }))
    });
    ownership.collect()
}

/// Applies requests in order.
pub(super) async fn apply(
    unit: &mut Unit<'_>,
    requests: Vec<ShardRequest>,
) -> Result<Vec<Result<Option<ShardLease>, StoreError>>, sqlx::Error> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let mut shards = load_ownership(unit).await?;
    let answers = requests.into_iter().map(|request| decide(&mut shards, request)).collect();
    SAVE.execute(unit.connection, shards.into_iter().collect(), |values, (shard, ownership)| {
        values.push(i64::from(shard.0)).optional_id(ownership.owner.as_ref().map(RuntimeId::as_bytes));
        values.push(i64::try_from(ownership.epoch).expect("epochs rise by one")).time(ownership.until);
    })
    .await?;
    Ok(answers)
}

fn decide(shards: &mut BTreeMap<ShardId, Ownership>, request: ShardRequest) -> Result<Option<ShardLease>, StoreError> {
    let shard = match &request {
        ShardRequest::Acquire { shard, .. } => *shard,
        ShardRequest::Renew { lease, .. } | ShardRequest::Release { lease } => lease.shard,
    };
    let Some(ownership) = shards.get_mut(&shard) else {
        return Err(StoreError::Refused(format!("there is no shard {}", shard.0)));
    };
    match request {
        ShardRequest::Acquire { runtime, until, now, .. } => {
            if ownership.owner.is_some_and(|owner| owner != runtime && ownership.until > now) {
                return Ok(None);
            }
            *ownership = Ownership { owner: Some(runtime), epoch: ownership.epoch + 1, until };
        }
        ShardRequest::Renew { lease, until } => {
            if !ownership.is_held_by(&lease) {
                return Ok(None);
            }
            ownership.until = until;
        }
        ShardRequest::Release { lease } => {
            if ownership.is_held_by(&lease) {
                ownership.owner = None;
            }
            return Ok(None);
        }
    }
    Ok(Some(ShardLease { shard, epoch: ownership.epoch, until: ownership.until }))
}
