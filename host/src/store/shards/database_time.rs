//! The time by the database's clock, which all hosts over the database have in common.

use std::time::Duration;

use crate::env::Clock;
use crate::model::time::Timestamp;
use crate::store::engine::connection::{Connection, database_now};
use crate::store::{LeaseTime, Store, StoreError};

/// The database's clock at some moment between two monotonic times of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseTime {
    /// The database's time, in whole milliseconds, rounded down.
    pub now: Timestamp,
    /// The monotonic time of the question.
    pub asked: Duration,
    /// The monotonic time of the answer.
    pub answered: Duration,
}

impl Store {
    /// Whether the database keeps the time: hosts share it, and its clock measures leases.
    pub fn keeps_time(&self) -> bool {
        self.is_shared() && self.lease_time == LeaseTime::Database
    }

    /// Reads the database's clock. Refused if the database does not keep the time.
    pub async fn database_time(&self, clock: &dyn Clock) -> Result<DatabaseTime, StoreError> {
        let read = async |connection: &mut Connection<'_>| {
            let asked = clock.monotonic();
            let now = database_now(connection, self.lease_time).await?;
            Ok((asked, now, clock.monotonic()))
        };
        let (asked, now, answered) = self.bounded(read).await?;
        let now = now.ok_or_else(|| StoreError::Refused("this database does not keep time".to_owned()))?;
        Ok(DatabaseTime { now, asked, answered })
    }
}
