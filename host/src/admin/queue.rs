//! The queue: counts by state, and the head of a pack's queue.

use axum::Json;
use axum::extract::State;

use super::error::ApiError;
use super::packs::check_installed;
use super::parameters::{Parameters, PathId};
use super::{AdminParts, Stage, wire};
use crate::execute::SERVED_WORK_TYPES;
use crate::model::names::PackName;
use crate::store::{PEEK_ROWS_MAX, PeekRequest};

/// Items of a request without `limit`.
pub(super) const PEEK_ROWS_DEFAULT: u32 = 20;

/// Counts by state: from counters, or with `exact=true` from the rows.
pub(super) async fn stats(
    State(parts): State<AdminParts>,
    mut parameters: Parameters,
) -> Result<Json<wire::Stats>, ApiError> {
    let exact = parameters.take("exact")?.unwrap_or(false);
    parameters.finish()?;
    Ok(Json(match exact {
        true => parts.store.exact_stats(parts.env.now()).await?.into(),
        false => parts.store.stats().await?.into(),
    }))
}

/// The head of a pack's queue, and why each item is not running.
pub(super) async fn peek(
    State(parts): State<AdminParts>,
    PathId(pack): PathId<PackName>,
    mut parameters: Parameters,
) -> Result<Json<wire::Queue>, ApiError> {
    let rows_max = parameters.take("limit")?.unwrap_or(PEEK_ROWS_DEFAULT);
    parameters.finish()?;
    if !(1..=PEEK_ROWS_MAX).contains(&rows_max) {
        return Err(ApiError::Invalid(format!("`limit` is a whole number from 1 to {PEEK_ROWS_MAX}")));
    }
    check_installed(&parts, &pack).await?;
    let loaded = match &*parts.stage.borrow() {
        Stage::Serving { supervisor, .. } => supervisor.loaded_generations(&pack),
        Stage::Starting | Stage::Stopping => Vec::new(),
    };
    let request = PeekRequest { pack, work_types: SERVED_WORK_TYPES.to_vec(), rows_max, now: parts.env.now() };
    Ok(Json(wire::Queue::of(parts.store.peek(&request).await?, &loaded)))
}
