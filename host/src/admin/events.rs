//! Events: listing, showing, running and verifying them.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use bytes::Bytes;

use super::error::ApiError;
use super::packs::{check_installed, supervisor};
use super::parameters::{Parameters, PathId, read};
use super::{AdminParts, Stage, wire};
use crate::claim::WantedAnswer;
use crate::model::ids::EventId;
use crate::model::names::PackName;
use crate::model::work_item::WorkState;
use crate::store::{EventFilter, WorkItemDetail};

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
        None => Err(parts.no_event(id)),
    }
}

/// Claims the Event's WorkItem on this host before all others. Lanes, delays and leases still apply: the error names
/// what blocks the WorkItem.
pub(super) async fn run(
    State(parts): State<AdminParts>,
    PathId(id): PathId<EventId>,
) -> Result<Json<wire::WorkItem>, ApiError> {
    let open = open_work_item(&parts, id).await?;
    if open.state == WorkState::Blocked {
        return Err(not_claimable(&open));
    }
    let Stage::Serving { supervisor, .. } = parts.stage.borrow().clone() else { return Err(ApiError::NotServing) };
    let answer = supervisor.run_next(&open.pack, open.id, open.queue_class).await;
    let item = work_item(&parts, &open).await?;
    match answer {
        Some(WantedAnswer::Claimed) => {
            tracing::info!(event = %id, work_item = %item.id, "an operator ran an event next");
            Ok(Json(item.into()))
        }
        Some(WantedAnswer::NotClaimable) => Err(not_claimable(&item)),
        Some(WantedAnswer::Denied(reason)) => {
            Err(ApiError::NotNow(format!("the claim limiter of pack `{}` says {reason}", item.pack)))
        }
        Some(WantedAnswer::Failed) => Err(ApiError::NotNow("the store did not answer the claim".to_owned())),
        None => Err(ApiError::NotNow(format!(
            "this host does not serve pack `{}`, or too many events are being run next",
            item.pack
        ))),
    }
}

/// The Event's last WorkItem, which must not have ended.
async fn open_work_item(parts: &AdminParts, id: EventId) -> Result<WorkItemDetail, ApiError> {
    let Some(event) = parts.store.event(id).await? else {
        return Err(parts.no_event(id));
    };
    let Some(last) = event.work_items.into_iter().next_back() else {
        return Err(ApiError::NotFound {
            what: format!("work item of event {id} yet: `forebay doctor` lists such events"),
        });
    };
    if last.state.is_terminal() { Err(not_claimable(&last)) } else { Ok(last) }
}

async fn work_item(parts: &AdminParts, item: &WorkItemDetail) -> Result<WorkItemDetail, ApiError> {
    let found = parts.store.work_item(item.id).await?;
    found.ok_or_else(|| parts.no_work_item(item.id))
}

fn not_claimable(item: &WorkItemDetail) -> ApiError {
    let why = match item.state {
        WorkState::Blocked => "another work item is before it in its lane".to_owned(),
        WorkState::Delayed => format!("its last run failed; it runs again at {}", wire::rfc3339(item.run_after)),
        WorkState::Processing => match item.lease_until {
            Some(until) => format!("a host is running it, under a lease until {}", wire::rfc3339(until)),
            None => "a host is running it".to_owned(),
        },
        WorkState::Ready => format!("this host has not loaded {}@{}", item.pack, item.generation),
        WorkState::Done | WorkState::Dead => "it has ended: replay it with `forebay event replay`".to_owned(),
    };
    ApiError::NotClaimable { state: item.state, why }
}

/// Re-runs the finished WorkItems of an Event without effects, and compares the outputs.
pub(super) async fn verify(
    State(parts): State<AdminParts>,
    PathId(id): PathId<EventId>,
) -> Result<Json<wire::Verification>, ApiError> {
    match supervisor(&parts)?.verify_event(id).await? {
        Some(verification) => Ok(Json(verification.into())),
        None => Err(parts.no_event(id)),
    }
}

pub(super) async fn verify_last(
    State(parts): State<AdminParts>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<wire::Verification>, ApiError> {
    let wish: wire::VerifyWish = read(body)?;
    let pack = wish.pack.as_deref().map(str::parse::<PackName>).transpose();
    let pack = pack.map_err(|error| ApiError::Invalid(format!("`pack`: {error}")))?;
    let supervisor = supervisor(&parts)?;
    if let Some(pack) = &pack {
        check_installed(&parts, pack).await?;
    }
    // It costs as much as a preview: one preview or verification of many events runs at a time.
    let leave = supervisor.begin_upload()?;
    Ok(Json(supervisor.verify_last(pack, wish.last, &leave).await?.into()))
}
