//! Whether other runtimes changed a queue: two numbers, at the same cost at any backlog.

use crate::model::names::PackName;
use crate::store::engine::codes::sql;
use crate::store::engine::dialect::Engine;
use crate::store::engine::values::values;
use crate::store::{Store, StoreError};

/// What a pack's counters said. Another number of rows means that some were stored (or removed, which happens to what
/// ended long ago); another number of ready ones, that a lane went on or that a row was claimed.
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
    /// Whether other runtimes may write to this database. They do not notify this one.
    pub fn is_shared(&self) -> bool {
        self.readers.engine() != Engine::Sqlite
    }

    /// What the counters of a pack say: when they say something else later, there may be work.
    pub async fn queue_mark(&self, pack: &PackName) -> Result<QueueMark, StoreError> {
        let mut reader = self.reader().await?;
        let row = reader.connection().fetch_one(MARK, values![pack.as_str()]).await?;
        Ok(QueueMark { stored: row.sum(0)?, ready: row.sum(1)? })
    }
}
