//! The next WorkItems, in the order of claims. A peek takes nothing and locks nothing.

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

/// The most rows of one peek.
pub const PEEK_ROWS_MAX: u32 = 1_000;

/// A peek.
#[derive(Debug, Clone)]
pub struct PeekRequest {
    /// The pack.
    pub pack: PackName,
    /// The work types; others are invisible, and take no place among `rows_max`.
    pub work_types: Vec<WorkType>,
    /// The most rows, up to [`PEEK_ROWS_MAX`].
    pub rows_max: u32,
    /// Now.
    pub now: Timestamp,
}

/// The next WorkItems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peeked {
    /// The heads in the order of claims without preference: claimable now, then claimable by time alone.
    pub next: Vec<PeekedItem>,
    /// The rows that wait in lanes behind these heads, or behind dead ones.
    pub blocked: u64,
}

/// A WorkItem that is the head of its lanes, or has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeekedItem {
    /// The id.
    pub id: WorkItemId,
    /// The id of its Event.
    pub event_id: EventId,
    /// The namespace.
    pub namespace: Namespace,
    /// The generation that runs it.
    pub generation: GenerationNumber,
    /// The work type.
    pub work_type: WorkType,
    /// The queue class.
    pub queue_class: QueueClass,
    /// The claims so far.
    pub attempt: u32,
    /// The failures so far.
    pub failures: u32,
    /// Its standing with claims.
    pub standing: Standing,
}

/// The standing of a head with claims. Times are the database's where hosts share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Processing under a lease that ran out: the next claim with room takes it, before any other.
    Stale {
        /// The end of the lease.
        since: Timestamp,
    },
    /// The next claim with room takes it.
    Ready,
    /// Its delay is over: the next claim with room takes it.
    Due {
        /// The end of its delay.
        since: Timestamp,
    },
    /// Time alone makes it claimable.
    Delayed {
        /// The end of its delay.
        until: Timestamp,
    },
    /// Processing.
    Leased {
        /// The end of the lease, unless it is renewed.
        until: Timestamp,
    },
}

/// The work types and generations with rows that may be claimed, now or by time alone.
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

/// In these states `turn` is a time where it is read here.
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
    /// Its tier, and its place there: a due row has the place of its lane ordinal, as if it had always been ready.
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
