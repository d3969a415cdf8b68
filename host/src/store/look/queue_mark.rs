//! A mark by which a host sees that another one changed a queue: two numbers, at the same cost at any backlog.

use crate::model::names::PackName;
use crate::store::engine::codes::sql;
use crate::store::engine::dialect::Engine;
use crate::store::engine::row::Sum;
use crate::store::engine::values::values;
use crate::store::{Store, StoreError};

/// The counters of a pack. Another number of rows means that some were stored, or that retention removed some that had
/// ended; another number of ready rows, that a lane went on or a row was claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueMark {
    stored: u64,
    ready: u64,
}

const MARK: &str = sql!(
    "SELECT CAST(coalesce(sum(count), 0) AS SIGNED), CAST(coalesce(sum(CASE WHEN state = {ready} THEN count ELSE 0 END), 0) AS SIGNED) \
    FROM work_item_counter WHERE pack = ?"
);

impl Store {
    /// Whether other hosts may write to this database. They do not notify this one.
    pub fn is_shared(&self) -> bool {
        self.readers.engine() != Engine::Sqlite
    }

    /// The counters of a pack: once they have changed, there may be work.
    pub async fn queue_mark(&self, pack: &PackName) -> Result<QueueMark, StoreError> {
        let mut reader = self.reader().await?;
        let (Sum(stored), Sum(ready)) = reader.connection().read_one(MARK, values![pack]).await?;
        Ok(QueueMark { stored, ready })
    }
}
