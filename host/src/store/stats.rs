//! Statistics from incremental counters: the same cost at any backlog.

use std::collections::BTreeMap;

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
        todo!()
    }

    /// Counts the rows themselves. For tests and for `forebay doctor`: its cost grows with the tables.
    pub async fn count_rows(&self) -> Result<Stats, StoreError> {
        todo!()
    }
}
