//! Withdrawals: shards that a host cannot open and leaves to others for a time.
//!
//! A withdrawal is no lease and takes none away: it only decides which host tries to acquire the shard. It is stored
//! here, where all hosts see it, and places the shard with another one.

use std::time::Duration;

use super::ShardId;
use crate::model::failure;
use crate::model::ids::RuntimeId;
use crate::model::time::Timestamp;
use crate::store::engine::dialect::Conflict;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::statement::Statement;
use crate::store::engine::values::values;
use crate::store::writer::Control;
use crate::store::writer::unit::{Answers, Unit};
use crate::store::{Store, StoreError};

/// The most withdrawals of an answer: more than there are shards times hosts with a broken disk.
const WITHDRAWALS_MAX: u32 = 4_096;

/// A shard that a runtime has withdrawn from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withdrawal {
    /// The shard.
    pub shard: ShardId,
    /// The runtime.
    pub runtime: RuntimeId,
    /// The end of the withdrawal.
    pub until: Timestamp,
    /// The reason.
    pub reason: String,
}

/// A request to withdraw.
#[derive(Debug, Clone)]
pub(in crate::store) struct Withdraw {
    shard: ShardId,
    runtime: RuntimeId,
    duration: Duration,
    reason: String,
    now: Timestamp,
}

impl Store {
    /// Withdraws a runtime from a shard for `duration`, durably and for every host to see.
    pub async fn withdraw(
        &self,
        shard: ShardId,
        runtime: RuntimeId,
        duration: Duration,
        reason: String,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let wish = Withdraw { shard, runtime, duration, reason: failure::cut(reason), now };
        self.writer.control(|reply| Control::Withdraw(wish, reply)).await
    }

    /// All withdrawals, also those that are over and not forgotten yet.
    pub async fn withdrawals(&self) -> Result<Vec<Withdrawal>, StoreError> {
        let mut reader = self.reader().await?;
        Ok(reader.connection().read_all(KNOWN, values![WITHDRAWALS_MAX]).await?)
    }
}

static SAY: Statement = Statement::insert("shard_withdrawal (shard, runtime, until_time, reason)", Conflict::Fail);

const KNOWN: &str = "SELECT shard, runtime, until_time, reason FROM shard_withdrawal ORDER BY shard, runtime LIMIT ?";

const FORGET: &str = "DELETE FROM shard_withdrawal WHERE shard = ? AND runtime = ?";

/// Stores withdrawals.
pub(in crate::store) async fn apply(unit: &mut Unit<'_>, wishes: Vec<Withdraw>) -> Result<Answers<()>, sqlx::Error> {
    let mut answers = Vec::with_capacity(wishes.len());
    for Withdraw { shard, runtime, duration, reason, now } in wishes {
        let until = unit.time(now) + duration;
        forget(unit, shard, runtime).await?;
        let row = Withdrawal { shard, runtime, until, reason };
        SAY.write(&mut unit.connection, vec![row], |values, row| {
            values.push(row.shard).push(row.runtime).push(row.until).push(row.reason);
        })
        .await?;
        answers.push(Ok(()));
    }
    Ok(answers)
}

/// The withdrawals that hold at `now`; those that are over are forgotten.
pub(in crate::store) async fn current(
    unit: &mut Unit<'_>,
    now: Timestamp,
) -> Result<Vec<(ShardId, RuntimeId)>, sqlx::Error> {
    let rows = unit.connection.read_all(KNOWN, values![WITHDRAWALS_MAX]).await?;
    let mut current = Vec::with_capacity(rows.len());
    for Withdrawal { shard, runtime, until, .. } in rows {
        if until > now {
            current.push((shard, runtime));
        } else {
            forget(unit, shard, runtime).await?;
        }
    }
    Ok(current)
}

async fn forget(unit: &mut Unit<'_>, shard: ShardId, runtime: RuntimeId) -> Result<(), sqlx::Error> {
    unit.connection.execute(FORGET, values![shard, runtime]).await.map(drop)
}

impl FromColumns for Withdrawal {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self { shard: columns.next()?, runtime: columns.next()?, until: columns.next()?, reason: columns.next()? })
    }
}
