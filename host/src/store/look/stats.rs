//! Statistics from incremental counters: the same cost at any backlog.
//!
//! They are of the work types that this program knows (1 and 2 in the statements, as claims have them): rows of others
//! are as invisible here as they are to claims. `ready` counts heads of lanes and active items of projections only, as
//! claims do. Due times and leases are left to `exact`.

use std::collections::BTreeMap;

use crate::model::message::MessageState;
use crate::model::time::Timestamp;
use crate::model::work_item::WorkState;
use crate::store::engine::codes::sql;
use crate::store::engine::row::{Columns, Sum};
use crate::store::engine::values::values;
use crate::store::{Store, StoreError};

/// Rows by state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// The WorkItems in each state, 0 included.
    pub work_items: BTreeMap<WorkState, u64>,
    /// The messages in each state, 0 included.
    pub messages: BTreeMap<MessageState, u64>,
}

/// The first column of a count of WorkItems; a count of messages has another number.
const WORK_ITEMS: i64 = 0;

/// `SIGNED`, because a sum is a decimal number on some engines.
const COUNTERS: &str = sql!(
    "SELECT 0, state, CAST(sum(count) AS SIGNED) FROM work_item_counter WHERE work_type IN ({any_work_type}) GROUP BY state \
    UNION ALL SELECT 1, state, CAST(sum(count) AS SIGNED) FROM message_counter GROUP BY state"
);

#[cfg(test)]
const ROWS: &str = sql!(
    "SELECT 0, state, count(*) FROM work_item WHERE work_type IN ({any_work_type}) GROUP BY state \
    UNION ALL SELECT 1, state, count(*) FROM message GROUP BY state"
);

/// The admission of the oldest uncertain attempt. Each engine uses an index that holds these rows.
const OLDEST_UNCERTAIN_SQLITE: &str =
    sql!("SELECT min(admitted_at) FROM message WHERE state IN ({message_troubled}) AND state = {message_uncertain}");
const OLDEST_UNCERTAIN_MYSQL: &str = sql!(
    "SELECT min(message.admitted_at) FROM shard CROSS JOIN message ON message.shard = shard.id AND message.state = {message_uncertain}"
);

impl Stats {
    /// Nothing in any state.
    pub(in crate::store) fn zero() -> Self {
        Self {
            work_items: WorkState::ALL.into_iter().map(|state| (state, 0)).collect(),
            messages: MessageState::ALL.into_iter().map(|state| (state, 0)).collect(),
        }
    }

    /// Adds a row of the statements above: its kind, a state, and the rows in that state.
    fn add(&mut self, columns: &mut Columns<'_>) -> Result<(), sqlx::Error> {
        if columns.next::<i64>()? == WORK_ITEMS {
            let (state, Sum(count)) = columns.next()?;
            self.work_items.insert(state, count);
        } else {
            let (state, Sum(count)) = columns.next()?;
            self.messages.insert(state, count);
        }
        Ok(())
    }
}

impl Store {
    /// Reads the counters.
    pub async fn stats(&self) -> Result<Stats, StoreError> {
        self.read_stats(COUNTERS).await
    }

    /// Counts the rows themselves: its cost grows with the tables.
    #[cfg(test)]
    pub async fn count_rows(&self) -> Result<Stats, StoreError> {
        self.read_stats(ROWS).await
    }

    /// The admission of the oldest uncertain attempt.
    pub async fn oldest_uncertain(&self) -> Result<Option<Timestamp>, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let text = connection.engine().pick(OLDEST_UNCERTAIN_SQLITE, OLDEST_UNCERTAIN_MYSQL);
        Ok(connection.read_one(text, values![]).await?)
    }

    /// One statement for both: a commit between two would show a finished item without its messages.
    async fn read_stats(&self, text: &'static str) -> Result<Stats, StoreError> {
        let mut reader = self.reader().await?;
        let mut stats = Stats::zero();
        for row in reader.connection().fetch_all(text, values![]).await? {
            row.decode(|columns| stats.add(columns))?;
        }
        Ok(stats)
    }
}
