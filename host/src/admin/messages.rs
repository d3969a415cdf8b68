//! Messages: listing and showing them; cancel, reschedule, redrive and resolve. Cancel and reschedule are too late
//! after Publish Admission.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;

use super::error::ApiError;
use super::parameters::{Parameters, PathId, read};
use super::{AdminParts, wire};
use crate::model::ids::{EventId, MessageId};
use crate::model::message::MessageState;
use crate::model::time::Timestamp;
use crate::store::{Cancelled, MessageDetail, MessageFilter, Redriven, Rescheduled, Resolution, Resolved};

/// The longest delay of a reschedule: it catches a mistaken unit.
const DELAY_MAX: Duration = Duration::from_secs(10 * 366 * 86_400);

pub(super) async fn list(
    State(parts): State<AdminParts>,
    mut parameters: Parameters,
) -> Result<Json<wire::List<wire::MessageSummary>>, ApiError> {
    let filter = MessageFilter {
        namespace: parameters.take("namespace")?,
        destination: parameters.take("destination")?,
        state: parameters.take_word("state", &MessageState::ALL, MessageState::as_str)?,
        event_id: parameters.take::<EventId>("event")?,
    };
    let page = parameters.take_page()?;
    parameters.finish()?;
    Ok(Json(parts.store.list_messages(&filter, page).await?.into()))
}

pub(super) async fn show(
    State(parts): State<AdminParts>,
    PathId(id): PathId<MessageId>,
) -> Result<Json<wire::MessageDetail>, ApiError> {
    Ok(Json(find(&parts, id).await?.into()))
}

pub(super) async fn cancel(
    State(parts): State<AdminParts>,
    PathId(id): PathId<MessageId>,
) -> Result<Json<wire::MessageDetail>, ApiError> {
    match parts.store.cancel(id, parts.env.now()).await? {
        Cancelled::Cancelled => tracing::info!(message = %id, "an operator cancelled a message"),
        Cancelled::Already => {}
        Cancelled::TooLate(state) => return Err(ApiError::TooLate(state)),
        Cancelled::NotFound => return Err(parts.no_message(id)),
    }
    Ok(Json(find(&parts, id).await?.into()))
}

pub(super) async fn reschedule(
    State(parts): State<AdminParts>,
    PathId(id): PathId<MessageId>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<wire::MessageDetail>, ApiError> {
    let now = parts.env.now();
    let rescheduled = match parse_due(&read(body)?, now)? {
        Due::At(due_at) => parts.store.reschedule(id, due_at).await?,
        Due::After(delay) => parts.store.delay(id, delay, now).await?,
    };
    match rescheduled {
        Rescheduled::Rescheduled { .. } => tracing::info!(message = %id, "an operator rescheduled a message"),
        Rescheduled::TooLate(state) => return Err(ApiError::TooLate(state)),
        Rescheduled::NotFound => return Err(parts.no_message(id)),
    }
    Ok(Json(find(&parts, id).await?.into()))
}

/// Sends a dead message again.
pub(super) async fn redrive(
    State(parts): State<AdminParts>,
    PathId(id): PathId<MessageId>,
) -> Result<Json<wire::MessageDetail>, ApiError> {
    let redriven = parts.store.redrive(vec![id], parts.env.now()).await?;
    match redriven.first().copied().unwrap_or(Redriven::NotFound) {
        Redriven::Redriven { .. } => tracing::info!(message = %id, "an operator redrove a dead message"),
        Redriven::NotDead(state) => return Err(ApiError::NotDead(state)),
        Redriven::Expired(at) => return Err(ApiError::Expired(wire::rfc3339(at))),
        Redriven::NotFound => return Err(parts.no_message(id)),
    }
    Ok(Json(find(&parts, id).await?.into()))
}

/// Records the outcome of an uncertain message.
pub(super) async fn resolve(
    State(parts): State<AdminParts>,
    PathId(id): PathId<MessageId>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<wire::MessageDetail>, ApiError> {
    let wish: wire::Resolve = read(body)?;
    let resolution = Resolution::ALL.into_iter().find(|resolution| resolution.as_str() == wish.resolution);
    let resolution =
        resolution.ok_or_else(|| ApiError::Invalid("`as` must be one of retry, published, dead".to_owned()))?;
    match parts.store.resolve(id, resolution, parts.env.now()).await? {
        Resolved::Resolved => tracing::info!(message = %id, "an operator resolved an uncertain message"),
        Resolved::NotUncertain(state) => return Err(ApiError::NotUncertain(state)),
        Resolved::NotFound => return Err(parts.no_message(id)),
    }
    Ok(Json(find(&parts, id).await?.into()))
}

/// The new time of a message.
enum Due {
    At(Timestamp),
    /// This long after the reschedule.
    After(Duration),
}

/// The new time in a request: `{"due_at":"…"}` or `{"delay_ms":…}`.
fn parse_due(wish: &wire::Reschedule, now: Timestamp) -> Result<Due, ApiError> {
    let due = match (&wish.due_at, wish.delay_ms) {
        (Some(due_at), None) => {
            let parsed: jiff::Timestamp = due_at.parse().map_err(|_| {
                ApiError::Invalid("`due_at` must be an RFC 3339 time, like 2030-01-31T08:00:00Z".to_owned())
            })?;
            Due::At(Timestamp::from_millis(parsed.as_millisecond()))
        }
        (None, Some(delay_ms)) => Due::After(Duration::from_millis(delay_ms)),
        (Some(_), Some(_)) | (None, None) => {
            return Err(ApiError::Invalid("give either `due_at` or `delay_ms`".to_owned()));
        }
    };
    // An earlier time is a mistake, as it is in the output of a guest.
    if matches!(due, Due::At(due_at) if due_at < Timestamp::from_millis(0)) {
        return Err(ApiError::Invalid("the new time must not be before 1970".to_owned()));
    }
    let is_too_far = match due {
        Due::At(due_at) => due_at > now + DELAY_MAX,
        Due::After(delay) => delay > DELAY_MAX,
    };
    if is_too_far {
        return Err(ApiError::Invalid("the new time must be less than ten years away".to_owned()));
    }
    Ok(due)
}

pub(super) async fn find(parts: &AdminParts, id: MessageId) -> Result<MessageDetail, ApiError> {
    parts.store.message(id).await?.ok_or_else(|| parts.no_message(id))
}
