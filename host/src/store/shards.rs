//! Delay Shards: who owns them, and which one a message belongs to.

use std::time::Duration;

use super::{Store, StoreError};
use crate::model::ids::RuntimeId;
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
        todo!()
    }

    /// Becomes a shard's owner if it has none whose lease still holds. A runtime that owns it already gets a new epoch.
    pub async fn acquire_shard(
        &self,
        shard: ShardId,
        runtime: RuntimeId,
        lease_duration: Duration,
        now: Timestamp,
    ) -> Result<Option<ShardLease>, StoreError> {
        let _ = (shard, runtime, lease_duration, now);
        todo!()
    }

    /// Extends a lease; `None` if it is lost.
    pub async fn renew_shard(
        &self,
        lease: ShardLease,
        lease_duration: Duration,
        now: Timestamp,
    ) -> Result<Option<ShardLease>, StoreError> {
        let _ = (lease, lease_duration, now);
        todo!()
    }

    /// Gives a shard up.
    pub async fn release_shard(&self, lease: ShardLease) -> Result<(), StoreError> {
        let _ = lease;
        todo!()
    }
}
