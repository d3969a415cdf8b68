//! Statistics and the head of a queue on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Stats, rfc3339};
use crate::model::pack::GenerationNumber;
use crate::store::{ExactStats, Peeked, PeekedItem, Standing};

/// What only a look at the rows themselves tells.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Exact {
    /// Ready heads: the next claim with room takes them.
    pub ready: u64,
    /// Delayed ones whose time has come.
    pub due: u64,
    /// Ones in work whose lease ran out.
    pub stale: u64,
    /// Those among the blocked that are queued behind the active generation of their projection.
    pub queued: u64,
    /// Events that have no work item, and are found by no claim.
    pub uncovered_events: u64,
    /// Whether the counters said the same as the rows, at the same moment.
    pub counters_agree: bool,
}

/// `GET /api/v1/packs/{pack}/queue`: who is next.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// In the order in which claims take them.
    pub next: Vec<QueuedItem>,
    /// How many wait in lanes behind them, or behind dead heads.
    pub blocked: u64,
}

/// A work item that is the head of its lanes, or has none.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct QueuedItem {
    /// Its id.
    pub id: String,
    /// Its event.
    pub event_id: String,
    /// The tenant.
    pub namespace: String,
    /// The generation it runs on.
    pub generation: u32,
    /// What is executed.
    pub work_type: String,
    /// Its class.
    pub queue_class: String,
    /// How often it was claimed.
    pub attempt: u32,
    /// How much of its failure budget is spent.
    pub failures: u32,
    /// `stale`, `ready`, `due`, `delayed` or `leased`.
    pub standing: String,
    /// Since when it is stale or due, or until when it is delayed or leased.
    #[schema(required = true)]
    pub at: Option<String>,
    /// Why it is not in work, or is; in words.
    pub why: String,
}

impl From<ExactStats> for Stats {
    fn from(exact: ExactStats) -> Self {
        let counters_agree = exact.rows == exact.counters;
        let claimable = exact.claimable;
        let (ready, due, stale) = (claimable.ready, claimable.due, claimable.stale);
        let (queued, uncovered_events) = (exact.queued, exact.uncovered);
        let details = Exact { ready, due, stale, queued, uncovered_events, counters_agree };
        Self { exact: Some(details), ..Stats::from(exact.rows) }
    }
}

impl Queue {
    /// As a host sees it that has these generations loaded.
    pub(crate) fn of(peeked: Peeked, loaded: &[GenerationNumber]) -> Self {
        let item = |item: PeekedItem| QueuedItem {
            why: why(item.standing, item.generation, loaded.contains(&item.generation)),
            id: item.id.to_string(),
            event_id: item.event_id.to_string(),
            namespace: item.namespace.to_string(),
            generation: item.generation.0,
            work_type: item.work_type.as_str().to_owned(),
            queue_class: item.queue_class.as_str().to_owned(),
            attempt: item.attempt,
            failures: item.failures,
            standing: item.standing.as_str().to_owned(),
            at: item.standing.at().map(rfc3339),
        };
        Self { next: peeked.next.into_iter().map(item).collect(), blocked: peeked.blocked }
    }
}

fn why(standing: Standing, generation: GenerationNumber, loaded: bool) -> String {
    let claimable = match standing {
        Standing::Leased { .. } => return "a host has claimed it and holds its lease".to_owned(),
        Standing::Delayed { .. } => return "it failed, and is tried again then".to_owned(),
        Standing::Stale { .. } => "the lease of its last claim has expired",
        Standing::Due { .. } => "its delay is over",
        Standing::Ready => "it is ready",
    };
    if loaded {
        format!("{claimable}: the next claim with room takes it")
    } else {
        format!("{claimable}, but this host has not loaded generation {generation}: it waits for a host that has")
    }
}
