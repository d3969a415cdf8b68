//! The head of a pack's queue on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rfc3339;
use crate::model::pack::GenerationNumber;
use crate::store::{Peeked, PeekedItem, Standing};

/// `GET /api/v1/packs/{pack}/queue`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// Heads of lanes, and work items without a lane, in the order of claims.
    pub items: Vec<QueuedItem>,
    /// Work items behind those heads, or behind dead heads.
    pub blocked: u64,
}

/// A work item that is the head of its lanes, or has no lane.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct QueuedItem {
    /// The work item.
    pub id: String,
    /// Its event.
    pub event_id: String,
    /// The namespace.
    pub namespace: String,
    /// The pack's generation that runs it.
    pub generation: u32,
    /// Kind of execution: `connector_event` or `workflow_action_apply`.
    pub work_type: String,
    /// `interactive`, `default` or `bulk`.
    pub queue_class: String,
    /// Claims so far.
    pub attempt: u32,
    /// Failures that count against its budget.
    pub failures: u32,
    /// `stale`, `ready`, `due`, `delayed` or `leased`.
    pub standing: String,
    /// Start of the standing if it is stale or due; end of it if it is delayed or leased.
    #[schema(required = true)]
    pub at: Option<String>,
    /// The reason in a sentence.
    pub why: String,
}

impl Queue {
    /// The queue, seen by a host with these generations loaded.
    pub(crate) fn of(peeked: Peeked, loaded: &[GenerationNumber]) -> Self {
        let item = |item: PeekedItem| QueuedItem {
            why: why(&item, loaded.contains(&item.generation)),
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
        Self { items: peeked.next.into_iter().map(item).collect(), blocked: peeked.blocked }
    }
}

fn why(item: &PeekedItem, is_loaded: bool) -> String {
    let claimable = match item.standing {
        Standing::Leased { .. } => return "a host has claimed it and holds its lease".to_owned(),
        Standing::Delayed { .. } => return "its last run failed; it runs again at this time".to_owned(),
        Standing::Stale { .. } => "the lease of its last claim has expired",
        Standing::Due { .. } => "its delay is over",
        Standing::Ready => "it is ready",
    };
    if is_loaded {
        format!("{claimable}: the next claim with room takes it")
    } else {
        format!("{claimable}, but this host has not loaded generation {}: another host must claim it", item.generation)
    }
}
