//! Statistics from incremental counters: the same cost at any backlog.

use std::collections::BTreeMap;

use super::stored::Columns;
use super::{Store, StoreError};
use crate::model::message::MessageState;
use crate::model::work_item::WorkState;

/// How many rows stand in each state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// WorkItems by state; a state that none stands in is 0.
    pub work_items: BTreeMap<WorkState, u64>,
    /// Messages by state; a state that none stands in is 0.
    pub messages: BTreeMap<MessageState, u64>,
}

impl Store {
    /// Reads the counters.
    pub async fn stats(&self) -> Result<Stats, StoreError> {
        self.read_stats(
            "SELECT state, sum(count) FROM work_item_counter GROUP BY state",
            "SELECT state, count FROM message_counter",
        )
        .await
    }

    /// Counts the rows themselves. For tests and for `forebay doctor`: its cost grows with the tables.
    pub async fn count_rows(&self) -> Result<Stats, StoreError> {
        self.read_stats(
            "SELECT state, count(*) FROM work_item GROUP BY state",
            "SELECT state, count(*) FROM message GROUP BY state",
        )
        .await
    }

    async fn read_stats(&self, work_items: &'static str, messages: &'static str) -> Result<Stats, StoreError> {
        let readers = self.readers();
        // One snapshot for both: a commit between them must not show a finished item without its messages.
        let mut snapshot = readers.begin().await?;
        let mut stats = Stats {
            work_items: WorkState::ALL.into_iter().map(|state| (state, 0)).collect(),
            messages: MessageState::ALL.into_iter().map(|state| (state, 0)).collect(),
        };
        for row in sqlx::query(work_items).fetch_all(&mut *snapshot).await? {
            stats.work_items.insert(row.work_state(0)?, row.unsigned(1)?);
        }
        for row in sqlx::query(messages).fetch_all(&mut *snapshot).await? {
            stats.messages.insert(row.message_state(0)?, row.unsigned(1)?);
        }
        Ok(stats)
    }
}
