//! WorkItems: showing, skipping and replaying them.

use axum::Json;
use axum::extract::State;

use super::error::ApiError;
use super::parameters::PathId;
use super::{AdminParts, Stage, wire};
use crate::model::ids::WorkItemId;
use crate::store::{Replayed, WorkItemDetail};

pub(super) async fn show(
    State(parts): State<AdminParts>,
    PathId(id): PathId<WorkItemId>,
) -> Result<Json<wire::WorkItem>, ApiError> {
    Ok(Json(find(&parts, id).await?.into()))
}

/// Skips a dead WorkItem, so that its lane continues.
pub(super) async fn skip(
    State(parts): State<AdminParts>,
    PathId(id): PathId<WorkItemId>,
) -> Result<Json<wire::WorkItem>, ApiError> {
    let skipped = parts.store.skip_dead(id).await?;
    let item = find(&parts, id).await?;
    if !skipped {
        return Err(ApiError::NotSkippable(item.state));
    }
    tracing::info!(work_item = %id, "an operator skipped a dead work item");
    Ok(Json(item.into()))
}

/// Replays a finished WorkItem once, as a new one.
pub(super) async fn replay(
    State(parts): State<AdminParts>,
    PathId(id): PathId<WorkItemId>,
) -> Result<Json<wire::Replay>, ApiError> {
    let now = parts.env.now();
    let child = WorkItemId::new(now, parts.env.id_entropy());
    let (child, already) = match parts.store.replay(id, child, now).await? {
        Replayed::Replayed(child) => (child, false),
        Replayed::Already(child) => (child, true),
        Replayed::NotFinished(state) => return Err(ApiError::NotFinished(state)),
        Replayed::Fenced(at) => return Err(ApiError::OlderReplay(wire::rfc3339(at))),
        Replayed::NotFound => return Err(parts.no_work_item(id)),
    };
    let item = find(&parts, child).await?;
    if !already {
        tracing::info!(work_item = %id, %child, "an operator replayed a work item");
        let stage = parts.stage.borrow().clone();
        if let Stage::Serving { supervisor, .. } = stage {
            supervisor.serve_generation(&item.pack, item.generation);
        }
    }
    Ok(Json(wire::Replay { already, work_item: item.into() }))
}

async fn find(parts: &AdminParts, id: WorkItemId) -> Result<WorkItemDetail, ApiError> {
    parts.store.work_item(id).await?.ok_or_else(|| parts.no_work_item(id))
}
