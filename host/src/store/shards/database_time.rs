//! What time it is by the database's clock, which all runtimes that share it have in common.

use std::time::Duration;

use crate::env::Clock;
use crate::model::time::Timestamp;
use crate::store::engine::connection::database_now;
use crate::store::{LeaseTime, Store, StoreError};

/// What the database's clock showed, at some moment between two monotonic times of this runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseTime {
    /// What it showed, in whole milliseconds, rounded down.
    pub now: Timestamp,
    /// When it was asked.
    pub asked: Duration,
    /// When the answer had come.
    pub answered: Duration,
}

impl Store {
    /// Whether time is the database's to tell: it is shared, and leases are measured by its clock.
    pub fn keeps_time(&self) -> bool {
        self.is_shared() && self.lease_time == LeaseTime::Database
    }

    /// Looks at the database's clock. Refused by a store that does not keep time.
    pub async fn database_time(&self, clock: &dyn Clock) -> Result<DatabaseTime, StoreError> {
        let read = async {
            let mut reader = self.reader().await?.in_doubt();
            let asked = clock.monotonic();
            let now = database_now(&mut reader.connection(), self.lease_time).await?;
            let answered = clock.monotonic();
            reader.is_answered();
            Ok((asked, now, answered))
        };
        let (asked, now, answered) = self.bounded(read).await?;
        let now = now.ok_or_else(|| StoreError::Refused("this database does not keep time".to_owned()))?;
        Ok(DatabaseTime { now, asked, answered })
    }
}
