//! Checkpoints of shards' indexes: the list of those that count.
//!
//! An object store holds their bytes, and every former owner of a shard may still be writing there. The shard's owner
//! records here, under its lease, which checkpoints count; unrecorded bytes are nothing. The digest covers every byte.

use super::{ShardId, ShardLease, Shards};
use crate::model::time::Timestamp;
use crate::store::engine::dialect::Conflict;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::statement::{Statement, Text};
use crate::store::engine::values::{Values, values};
use crate::store::writer::Control;
use crate::store::writer::unit::{Answers, Unit};
use crate::store::{Store, StoreError};

/// The most checkpoints of a list: more than all shards keep.
const LISTED_MAX: u32 = 4_096;

/// A checkpoint that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRow {
    /// The shard.
    pub shard: ShardId,
    /// The ownership epoch of its maker.
    pub epoch: u64,
    /// The number among the checkpoints of that epoch.
    pub number: u64,
    /// The sequence number up to which the feed is in it, at least.
    pub applied: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// SHA-256 of the manifest, which names the files by their digests.
    pub digest: [u8; 32],
    /// The time of recording.
    pub created_at: Timestamp,
}

/// An owner's request about the checkpoints of its shard.
#[derive(Debug, Clone)]
pub(in crate::store) struct CheckpointRequest {
    pub(in crate::store) lease: ShardLease,
    change: Change,
}

#[derive(Debug, Clone)]
enum Change {
    /// Adds a checkpoint and keeps the newest `kept_max`.
    Keep { checkpoint: CheckpointRow, kept_max: u32 },
    /// Drops all checkpoints.
    Forget,
}

impl Store {
    /// The identity of this store, different from every other one's.
    pub async fn identity(&self) -> Result<[u8; 16], StoreError> {
        let mut reader = self.reader().await?;
        Ok(reader.connection().read_one("SELECT id FROM store_identity", values![]).await?)
    }

    /// Adds a checkpoint, and keeps the newest `kept_max` of the shard. Returns the kept ones, newest first; `None`,
    /// and nothing is changed, if another host owns the shard.
    pub async fn keep_checkpoint(
        &self,
        lease: ShardLease,
        checkpoint: CheckpointRow,
        kept_max: u32,
    ) -> Result<Option<Vec<CheckpointRow>>, StoreError> {
        let request = CheckpointRequest { lease, change: Change::Keep { checkpoint, kept_max } };
        self.writer.control(|reply| Control::Checkpoint(Box::new(request), reply)).await
    }

    /// Drops all checkpoints of a shard. `false`, and nothing is changed, if another host owns the shard.
    pub async fn forget_checkpoints(&self, lease: ShardLease) -> Result<bool, StoreError> {
        let request = CheckpointRequest { lease, change: Change::Forget };
        let left = self.writer.control(|reply| Control::Checkpoint(Box::new(request), reply)).await?;
        Ok(left.is_some())
    }

    /// The checkpoints of a shard, newest first.
    pub async fn checkpoints_of(&self, shard: ShardId) -> Result<Vec<CheckpointRow>, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let text = OF_SHARD.of(connection.engine());
        Ok(connection.read_all(text, values![shard, LISTED_MAX]).await?)
    }

    /// All checkpoints, by shard, newest first.
    pub async fn checkpoints(&self) -> Result<Vec<CheckpointRow>, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let text = ALL.of(connection.engine());
        Ok(connection.read_all(text, values![LISTED_MAX]).await?)
    }
}

static OF_SHARD: Text = Text::new(
    "SELECT shard, epoch, number, applied, bytes, digest, created_at FROM shard_checkpoint WHERE shard = ? \
     ORDER BY epoch DESC, number DESC LIMIT ?",
);

static ALL: Text = Text::new(
    "SELECT shard, epoch, number, applied, bytes, digest, created_at FROM shard_checkpoint \
     ORDER BY shard, epoch DESC, number DESC LIMIT ?",
);

/// A repeated request, after a commit with an unknown outcome, finds its own row.
static INSERT: Statement = Statement::insert(
    "shard_checkpoint (shard, epoch, number, applied, bytes, digest, created_at)",
    Conflict::Keep("shard, epoch, number"),
);

const DROP: &str = "DELETE FROM shard_checkpoint WHERE shard = ? AND epoch = ? AND number = ?";

/// Applies requests, in order. The shards' rows are held, so that no owner changes meanwhile.
pub(in crate::store) async fn apply(
    unit: &mut Unit<'_>,
    shards: &Shards,
    requests: impl Iterator<Item = CheckpointRequest>,
) -> Result<Answers<Option<Vec<CheckpointRow>>>, sqlx::Error> {
    let mut answers = Vec::new();
    for CheckpointRequest { lease, change } in requests {
        let is_owner = shards.ownership(lease.shard).is_some_and(|ownership| ownership.is_held_by(&lease));
        answers.push(Ok(if is_owner { Some(change_one(unit, lease.shard, change).await?) } else { None }));
    }
    Ok(answers)
}

async fn change_one(unit: &mut Unit<'_>, shard: ShardId, change: Change) -> Result<Vec<CheckpointRow>, sqlx::Error> {
    let kept_max = match change {
        Change::Keep { checkpoint, kept_max } => {
            INSERT.write(&mut unit.connection, vec![checkpoint], bind).await?;
            kept_max as usize
        }
        Change::Forget => 0,
    };
    let text = OF_SHARD.of(unit.connection.engine());
    let mut rows: Vec<CheckpointRow> = unit.connection.read_all(text, values![shard, LISTED_MAX]).await?;
    for row in rows.split_off(rows.len().min(kept_max)) {
        unit.connection.execute(DROP, values![row.shard, row.epoch, row.number]).await?;
    }
    Ok(rows)
}

fn bind(values: &mut Values, row: CheckpointRow) {
    values.push(row.shard).push(row.epoch).push(row.number);
    values.push(row.applied).push(row.bytes).push(row.digest).push(row.created_at);
}

impl FromColumns for CheckpointRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            shard: columns.next()?,
            epoch: columns.next()?,
            number: columns.next()?,
            applied: columns.next()?,
            bytes: columns.next()?,
            digest: columns.next()?,
            created_at: columns.next()?,
        })
    }
}
