//! A repair's transaction, which is redone if it loses against those of running hosts.
//!
//! Invariant: what a lost attempt wrote is undone before the next one begins.

use std::time::Duration;

use crate::env;
use crate::store::StoreError;
use crate::store::engine::connection::Connection;
use crate::store::engine::dialect::is_conflict;
use crate::store::engine::sequences::Sequences;
use crate::store::writer::unit::{Terms, Unit};

/// How often a repair's transaction is begun that loses against others.
pub(in crate::store) const ATTEMPTS_MAX: u32 = 10;

/// The pause after a transaction that lost, doubled each time.
const CONFLICT_PAUSE: Duration = Duration::from_millis(20);

/// Repairs touch no shard, and count in one stripe: to a sum, one is as good as another.
const TERMS: Terms = Terms { shard_count: 0, stripe: 0, database_now: None };

/// Runs `body` in a transaction. The numbers that it took from `sequences` are used up only by the commit.
pub(in crate::store) async fn in_transaction<T>(
    connection: &mut Connection<'_>,
    sequences: &mut Sequences,
    mut body: impl AsyncFnMut(&mut Unit<'_>) -> Result<T, sqlx::Error>,
) -> Result<T, StoreError> {
    for attempt in 0..ATTEMPTS_MAX {
        let mut unit = Unit::new(connection.reborrow(), sequences.clone(), TERMS, attempt);
        unit.connection.begin().await?;
        let committed = match body(&mut unit).await {
            Ok(done) => unit.connection.commit().await.map(|()| done).map_err(sqlx::Error::from),
            Err(error) => Err(error),
        };
        match committed {
            Ok(done) => {
                *sequences = unit.sequences;
                return Ok(done);
            }
            Err(error) => {
                let undone = unit.connection.rollback().await;
                if undone.is_err() || !is_conflict(&error) {
                    return Err(error.into());
                }
            }
        }
        env::sleep(CONFLICT_PAUSE * 2_u32.pow(attempt)).await;
    }
    Err(StoreError::Unavailable(format!("a repair lost against others {ATTEMPTS_MAX} times: do it again")))
}
