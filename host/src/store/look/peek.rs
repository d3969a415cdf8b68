//! The next WorkItems, in the order in which claims take them. Takes nothing, and locks nothing.

use crate::model::ids::{EventId, WorkItemId};
use crate::model::names::{Namespace, PackName};
use crate::model::pack::GenerationNumber;
use crate::model::queue::QueueClass;
use crate::model::time::Timestamp;
use crate::model::work_item::{WorkState, WorkType};
use crate::store::engine::codes::sql;
use crate::store::engine::connection::database_now;
use crate::store::engine::row::Sum;
use crate::store::engine::values::values;
use crate::store::work::claim::lease_is_over;
use crate::store::{Store, StoreError};

/// The most rows that one look shows.
pub const PEEK_ROWS_MAX: u32 = 1_000;

/// What is looked at.
#[derive(Debug, Clone)]
pub struct PeekRequest {
    /// The pack.
    pub pack: PackName,
    /// The work types that are looked at; others are invisible, and take no place among `rows_max`.
    pub work_types: Vec<WorkType>,
    /// The most rows, up to [`PEEK_ROWS_MAX`].
    pub rows_max: u32,
    /// Now.
    pub now: Timestamp,
}

/// The next WorkItems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peeked {
    /// In the order of claims without preference: what may be claimed now, then what time makes claimable.
    pub next: Vec<PeekedItem>,
    /// Rows that wait behind these, or behind dead heads, in their lanes.
    pub blocked: u64,
}

/// A WorkItem that is the head of its lanes, or has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeekedItem {
    /// Its identity.
    pub id: WorkItemId,
    /// Its Event.
    pub event_id: EventId,
    /// The tenant.
    pub namespace: Namespace,
    /// The generation it runs on.
    pub generation: GenerationNumber,
    /// What is executed.
    pub work_type: WorkType,
    /// Its class.
    pub queue_class: QueueClass,
    /// How often it was claimed.
    pub attempt: u32,
    /// How much of its failure budget is spent.
    pub failures: u32,
    /// What a claim would make of it.
    pub standing: Standing,
}

/// How a head stands; times are the lease's clock, the database's where runtimes share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// In work under a lease that ran out: the next claim with room takes it, before any other.
    Stale {
        /// When it ran out.
        since: Timestamp,
    },
    /// The next claim with room takes it.
    Ready,
    /// Its delay is over: the next claim with room takes it.
    Due {
        /// Since when.
        since: Timestamp,
    },
    /// Time alone makes it claimable.
    Delayed {
        /// When.
        until: Timestamp,
    },
    /// In work.
    Leased {
        /// Until when, unless it is renewed.
        until: Timestamp,
    },
}

/// The work types and generations that have rows which may be claimed, now or by time alone.
const SCOPES: &str = sql!(
    "SELECT work_type, generation FROM work_item_counter WHERE pack = ? AND state IN ({claimable}) \
    GROUP BY work_type, generation HAVING sum(count) > 0 ORDER BY work_type, generation"
);

/// One short range of the claim index.
const RANGE: &str = sql!(
    "SELECT id, event_id, namespace, turn, lane_ordinal, attempt, failures FROM work_item \
    WHERE pack = ? AND work_type = ? AND generation = ? AND state IN ({claimable}) AND state = ? AND queue_class = ? \
    ORDER BY turn, id LIMIT ?"
);

/// Rows of one work type that wait in lanes.
const BLOCKED: &str = sql!(
    "SELECT CAST(coalesce(sum(count), 0) AS SIGNED) FROM work_item_counter WHERE pack = ? AND work_type = ? AND state = {blocked}"
);

impl Store {
    /// Reads the next WorkItems: up to `rows_max` rows of each generation, state and class, whatever the backlog.
    pub async fn peek(&self, request: &PeekRequest) -> Result<Peeked, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let now = database_now(&mut connection, self.lease_time).await?.unwrap_or(request.now);
        let limit = request.rows_max.min(PEEK_ROWS_MAX);
        let pack = &request.pack;
        let mut placed = Vec::new();
        let scopes: Vec<(WorkType, GenerationNumber)> = connection.read_all(SCOPES, values![pack]).await?;
        for (work_type, generation) in scopes {
            if !request.work_types.contains(&work_type) {
                continue;
            }
            for state in [WorkState::Ready, WorkState::Delayed, WorkState::Processing] {
                for queue_class in QueueClass::ALL {
                    let values = values![pack, work_type, generation, state, queue_class, limit];
                    for row in connection.fetch_all(RANGE, values).await? {
                        placed.push(row.decode(|columns| {
                            let (id, event_id, namespace) = columns.next()?;
                            let standing = standing(state, columns.next()?, now);
                            let place = standing.place(columns.next()?);
                            let (attempt, failures) = columns.next()?;
                            let item = PeekedItem {
                                id,
                                event_id,
                                namespace,
                                generation,
                                work_type,
                                queue_class,
                                attempt,
                                failures,
                                standing,
                            };
                            Ok((place, item))
                        })?);
                    }
                }
            }
        }
        let mut blocked = 0;
        for work_type in &request.work_types {
            blocked += connection.read_one::<Sum>(BLOCKED, values![pack, *work_type]).await?.0;
        }
        placed.sort_unstable_by_key(|(place, item)| (*place, item.id));
        let next = placed.into_iter().map(|(_, item)| item).take(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(Peeked { next: next.collect(), blocked })
    }
}

/// `turn` is a time in the states in which it is looked at here.
fn standing(state: WorkState, turn: Timestamp, now: Timestamp) -> Standing {
    match state {
        WorkState::Processing if lease_is_over(turn.as_millis(), now.as_millis()) => Standing::Stale { since: turn },
        WorkState::Processing => Standing::Leased { until: turn },
        WorkState::Delayed if turn <= now => Standing::Due { since: turn },
        WorkState::Delayed => Standing::Delayed { until: turn },
        WorkState::Ready | WorkState::Blocked | WorkState::Done | WorkState::Dead => Standing::Ready,
    }
}

#[cfg(test)]
impl PeekedItem {
    /// Whether the next claim with room takes it.
    pub const fn is_claimable(&self) -> bool {
        matches!(self.standing, Standing::Stale { .. } | Standing::Ready | Standing::Due { .. })
    }
}

impl Standing {
    /// Its tier, and its place in it: what is due takes the place of its lane ordinal, as if it had been ready all
    /// along.
    fn place(self, lane_ordinal: i64) -> (u8, i64) {
        match self {
            Standing::Stale { since } => (0, since.as_millis()),
            Standing::Ready | Standing::Due { .. } => (1, lane_ordinal),
            Standing::Delayed { until } => (2, until.as_millis()),
            Standing::Leased { until } => (3, until.as_millis()),
        }
    }

    /// The word for it in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Standing::Stale { .. } => "stale",
            Standing::Ready => "ready",
            Standing::Due { .. } => "due",
            Standing::Delayed { .. } => "delayed",
            Standing::Leased { .. } => "leased",
        }
    }

    /// The time that goes with it.
    pub const fn at(self) -> Option<Timestamp> {
        match self {
            Standing::Ready => None,
            Standing::Stale { since } | Standing::Due { since } => Some(since),
            Standing::Delayed { until } | Standing::Leased { until } => Some(until),
        }
    }
}
