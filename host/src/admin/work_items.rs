//! WorkItems: how far an event's execution is.

use axum::Json;
use axum::extract::State;

use super::error::ApiError;
use super::parameters::PathId;
use super::{AdminParts, wire};
use crate::model::ids::WorkItemId;
use crate::store::{Store, WorkItemDetail};

pub(super) async fn show(
    State(parts): State<AdminParts>,
    PathId(id): PathId<WorkItemId>,
) -> Result<Json<wire::WorkItem>, ApiError> {
    Ok(Json(find(&parts.store, id).await?.into()))
}

/// Lets the lane go on that a dead WorkItem holds up.
pub(super) async fn skip(
    State(parts): State<AdminParts>,
    PathId(id): PathId<WorkItemId>,
) -> Result<Json<wire::WorkItem>, ApiError> {
    let skipped = parts.store.skip_dead(id).await?;
    let item = find(&parts.store, id).await?;
    if !skipped {
        return Err(ApiError::NotSkippable(item.state));
    }
    tracing::info!(work_item = %id, "an operator skipped a dead work item");
    Ok(Json(item.into()))
}

async fn find(store: &Store, id: WorkItemId) -> Result<WorkItemDetail, ApiError> {
    store.work_item(id).await?.ok_or_else(|| ApiError::NotFound { what: format!("work item {id}") })
}
