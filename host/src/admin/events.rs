//! Events: what was delivered, and what became of it.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use bytes::Bytes;

use super::error::ApiError;
use super::packs::supervisor;
use super::parameters::{Parameters, PathId, read};
use super::{AdminParts, wire};
use crate::model::ids::EventId;
use crate::model::names::PackName;
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

/// Runs an event's flows again, and compares.
pub(super) async fn verify(
    State(parts): State<AdminParts>,
    PathId(id): PathId<EventId>,
) -> Result<Json<wire::Verification>, ApiError> {
    match supervisor(&parts)?.verify_event(id).await? {
        Some(verification) => Ok(Json(verification.into())),
        None => Err(ApiError::NotFound { what: format!("event {id}") }),
    }
}

pub(super) async fn verify_last(
    State(parts): State<AdminParts>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<wire::Verification>, ApiError> {
    let wish: wire::VerifyWish = read(body)?;
    let pack = wish.pack.as_deref().map(str::parse::<PackName>).transpose();
    let pack = pack.map_err(|error| ApiError::Invalid(format!("`pack` is wrong: {error}")))?;
    let supervisor = supervisor(&parts)?;
    // It takes as much as a preview, and no more than one of either runs.
    let leave = supervisor.begin_upload()?;
    Ok(Json(supervisor.verify_last(pack, wish.last, &leave).await?.into()))
}
