//! Packs: installing, activating, draining and previewing generations.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use bytes::Bytes;

use super::error::ApiError;
use super::parameters::{Parameters, PathId, read};
use super::{AdminParts, Stage, wire};
use crate::guest::PACK_BYTES_MAX;
use crate::model::names::PackName;
use crate::model::pack::GenerationNumber;
use crate::store::DrainTarget;
use crate::supervise::{Against, PREVIEW_EVENTS_MAX, Supervisor};

pub(super) async fn list(
    State(parts): State<AdminParts>,
    mut parameters: Parameters,
) -> Result<Json<wire::Packs>, ApiError> {
    let pack: Option<PackName> = parameters.take("pack")?;
    parameters.finish()?;
    let generations = parts.store.list_generations(pack.as_ref()).await?;
    Ok(Json(wire::Packs { items: generations.into_iter().map(wire::Generation::from).collect() }))
}

/// Installs the pack file in the body.
pub(super) async fn install(
    State(parts): State<AdminParts>,
    mut parameters: Parameters,
    body: Body,
) -> Result<Json<wire::Installed>, ApiError> {
    let activate = parameters.take("activate")?.unwrap_or(false);
    parameters.finish()?;
    let supervisor = supervisor(&parts)?;
    // The permit comes before the bytes: few pack files are in memory at once.
    let leave = supervisor.begin_upload()?;
    let arrival = supervisor.install(pack_bytes(body).await?, &leave).await?;
    drop(leave);
    let switch = match activate {
        true => Some(supervisor.activate(&arrival.pack, arrival.installed.number, None).await?),
        false => None,
    };
    Ok(Json(wire::Installed::of(arrival, switch)))
}

pub(super) async fn activate(
    State(parts): State<AdminParts>,
    PathId(pack): PathId<PackName>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<wire::Activation>, ApiError> {
    let wish: wire::Activate = read(body)?;
    let switch = supervisor(&parts)?.activate(&pack, GenerationNumber(wish.generation), None).await?;
    Ok(Json(switch.into()))
}

pub(super) async fn rollback(
    State(parts): State<AdminParts>,
    PathId(pack): PathId<PackName>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<wire::Activation>, ApiError> {
    let wish: wire::Rollback = match body {
        Ok(body) if body.is_empty() => wire::Rollback::default(),
        body => read(body)?,
    };
    Ok(Json(supervisor(&parts)?.rollback(&pack, wish.to.map(GenerationNumber)).await?.into()))
}

pub(super) async fn deactivate(
    State(parts): State<AdminParts>,
    PathId(pack): PathId<PackName>,
) -> Result<Json<wire::Activation>, ApiError> {
    Ok(Json(supervisor(&parts)?.deactivate(&pack).await?.into()))
}

pub(super) async fn drain(
    State(parts): State<AdminParts>,
    PathId(pack): PathId<PackName>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<wire::DrainOutcome>, ApiError> {
    let wish: wire::Drain = read(body)?;
    let target = match (wish.to, wish.dead_letter) {
        (Some(to), false) => DrainTarget::Generation(GenerationNumber(to)),
        (None, true) => DrainTarget::DeadLetter,
        (Some(_), true) | (None, false) => {
            return Err(ApiError::Invalid("give either `to` or `dead_letter`".to_owned()));
        }
    };
    let drained = supervisor(&parts)?.drain_generation(&pack, GenerationNumber(wish.generation), target).await?;
    Ok(Json(drained.into()))
}

pub(super) async fn preview_generation(
    State(parts): State<AdminParts>,
    PathId(pack): PathId<PackName>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<wire::Preview>, ApiError> {
    let wish: wire::PreviewWish = read(body)?;
    let (number, against) = (GenerationNumber(wish.generation), parse_against(&wish.against)?);
    let supervisor = supervisor(&parts)?;
    let leave = supervisor.begin_upload()?;
    Ok(Json(supervisor.preview_generation(&pack, number, against, wish.last, &leave).await?.into()))
}

/// Previews the pack file in the body.
pub(super) async fn preview_file(
    State(parts): State<AdminParts>,
    mut parameters: Parameters,
    body: Body,
) -> Result<Json<wire::Preview>, ApiError> {
    let last = parameters.take("last")?.unwrap_or(PREVIEW_EVENTS_MAX);
    let against: Option<String> = parameters.take("against")?;
    parameters.finish()?;
    let against = parse_against(against.as_deref().unwrap_or("active"))?;
    let supervisor = supervisor(&parts)?;
    let leave = supervisor.begin_upload()?;
    Ok(Json(supervisor.preview_file(pack_bytes(body).await?, against, last, &leave).await?.into()))
}

fn parse_against(text: &str) -> Result<Against, ApiError> {
    match (text, text.parse()) {
        ("active", _) => Ok(Against::Active),
        ("recorded", _) => Ok(Against::Recorded),
        (_, Ok(number @ 1..)) => Ok(Against::Generation(GenerationNumber(number))),
        _ => Err(ApiError::Invalid("`against` is `active`, `recorded` or a generation's number".to_owned())),
    }
}

/// Refuses the name of a pack that was never installed: an empty answer would look like good news.
pub(super) async fn check_installed(parts: &AdminParts, pack: &PackName) -> Result<(), ApiError> {
    match parts.store.list_generations(Some(pack)).await?.is_empty() {
        true => Err(ApiError::NotFound { what: format!("pack {pack}") }),
        false => Ok(()),
    }
}

/// The supervisor, once the host serves.
pub(super) fn supervisor(parts: &AdminParts) -> Result<Supervisor, ApiError> {
    match &*parts.stage.borrow() {
        Stage::Serving { supervisor, .. } => Ok(supervisor.clone()),
        Stage::Starting | Stage::Stopping => Err(ApiError::NotServing),
    }
}

/// The bytes of a pack file.
pub(super) async fn pack_bytes(body: Body) -> Result<Bytes, ApiError> {
    to_bytes(body, PACK_BYTES_MAX).await.map_err(|error| {
        let too_large =
            std::error::Error::source(&error).is_some_and(|cause| cause.is::<http_body_util::LengthLimitError>());
        if too_large {
            ApiError::TooLarge { bytes_max: PACK_BYTES_MAX }
        } else {
            ApiError::Invalid("the pack file did not arrive completely".to_owned())
        }
    })
}
