//! Events: what was delivered, and what became of it.

use axum::Json;
use axum::extract::State;

use super::error::ApiError;
use super::parameters::{Parameters, PathId};
use super::{AdminParts, wire};
use crate::model::ids::EventId;
use crate::model::work_item::WorkState;
use crate::store::EventFilter;

pub(super) async fn list(
    State(parts): State<AdminParts>,
    mut parameters: Parameters,
) -> Result<Json<wire::List<wire::EventSummary>>, ApiError> {
    let filter = EventFilter {
        namespace: parameters.take("namespace")?,
        pack: parameters.take("pack")?,
        route: parameters.take("route")?,
        state: parameters.take_word("state", &WorkState::ALL, WorkState::as_str)?,
    };
    let page = parameters.take_page()?;
    parameters.finish()?;
    Ok(Json(parts.store.list_events(&filter, page).await?.into()))
}

pub(super) async fn show(
    State(parts): State<AdminParts>,
    PathId(id): PathId<EventId>,
) -> Result<Json<wire::EventDetail>, ApiError> {
    match parts.store.event(id).await? {
        Some(event) => Ok(Json(event.into())),
        None => Err(ApiError::NotFound { what: format!("event {id}") }),
    }
}
