//! Work items on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Reads, rfc3339, work_state};
use crate::store;

/// A work item.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkItem {
    /// The work item's id, `wi_…`.
    pub id: String,
    /// Its event.
    pub event_id: String,
    /// Kind of execution: `connector_event` or `workflow_action_apply`.
    pub work_type: String,
    /// The namespace.
    pub namespace: String,
    /// The pack.
    pub pack: String,
    /// The pack's generation that runs it.
    pub generation: u32,
    /// The source key of its lane; null where it has none.
    #[schema(required = true)]
    pub source_key: Option<String>,
    /// `interactive`, `default` or `bulk`.
    pub queue_class: String,
    /// `active`, `queued` or `ended`, as an item of a projection; null for any other work item.
    #[schema(required = true)]
    pub projection: Option<String>,
    /// Its state.
    #[schema(schema_with = work_state)]
    pub state: String,
    /// Claims so far.
    pub attempt: u32,
    /// Failures that count against its budget.
    pub failures: u32,
    /// Earliest time of the next claim.
    pub run_after: String,
    /// End of the present lease; null unless the state is `processing`.
    #[schema(required = true)]
    pub lease_until: Option<String>,
    /// The note of the flow.
    #[schema(required = true)]
    pub note: Option<String>,
    /// Whether `prepare` ignored the event.
    pub ignored: bool,
    /// The last failure.
    #[schema(required = true)]
    pub failure: Option<Failure>,
    /// Time of creation.
    pub created_at: String,
    /// Time of its end.
    #[schema(required = true)]
    pub finished_at: Option<String>,
    /// The work item that this one replays.
    #[schema(required = true)]
    pub replay_of: Option<String>,
    /// Time at which it was replayed itself.
    #[schema(required = true)]
    pub replayed_at: Option<String>,
    /// SHA-256 of its output, in hexadecimal; null for runs before digests were recorded.
    #[schema(required = true)]
    pub output_sha256: Option<String>,
    /// The reads of its last run; null if it read nothing.
    #[schema(required = true)]
    pub reads: Option<Reads>,
    /// The message whose action it applies.
    #[schema(required = true)]
    pub action: Option<String>,
}

/// The answer to `POST /api/v1/work-items/{id}/replay`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Replay {
    /// Whether the replay existed before this request.
    pub already: bool,
    /// The replay.
    pub work_item: WorkItem,
}

/// A failed execution.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    /// Kind of failure.
    pub class: String,
    /// The text of the guest or of the host.
    pub message: String,
}

impl From<store::WorkItemDetail> for WorkItem {
    fn from(item: store::WorkItemDetail) -> Self {
        Self {
            id: item.id.to_string(),
            event_id: item.event_id.to_string(),
            work_type: item.work_type.as_str().to_owned(),
            namespace: item.namespace.to_string(),
            pack: item.pack.to_string(),
            generation: item.generation.0,
            source_key: item.source_key,
            queue_class: item.queue_class.as_str().to_owned(),
            projection: item.projection.map(|part| part.as_str().to_owned()),
            state: item.state.as_str().to_owned(),
            attempt: item.attempt,
            failures: item.failures,
            run_after: rfc3339(item.run_after),
            lease_until: item.lease_until.map(rfc3339),
            note: item.note,
            ignored: item.ignored,
            failure: item
                .failure
                .map(|failure| Failure { class: failure.class.as_str().to_owned(), message: failure.message }),
            created_at: rfc3339(item.created_at),
            finished_at: item.finished_at.map(rfc3339),
            replay_of: item.replay_of.map(|id| id.to_string()),
            replayed_at: item.replayed_at.map(rfc3339),
            output_sha256: item.output_digest.map(|digest| data_encoding::HEXLOWER.encode(&digest)),
            reads: Reads::of(&item.reads),
            action: item.action.map(|id| id.to_string()),
        }
    }
}
