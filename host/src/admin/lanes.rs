//! Destination Lanes: listing them, setting their gates, redriving their dead messages.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;

use super::error::ApiError;
use super::parameters::{Parameters, read};
use super::{AdminParts, Stage, wire};
use crate::model::destination_lane::Gate;
use crate::model::failure;
use crate::model::ids::MessageId;
use crate::model::message::MessageState;
use crate::model::names::{DestinationName, Namespace};
use crate::store::{GateChange, GateRow, MessageFilter, PageRequest, Redriven, SetBy};
use crate::timeline::{LaneView, Timeline};

/// The circuit of a lane without trouble.
const CIRCUIT_CLOSED: &str = "closed";
/// Dead messages of one page of a redrive.
const REDRIVEN_MAX: u32 = 500;

pub(super) async fn list(
    State(parts): State<AdminParts>,
    mut parameters: Parameters,
) -> Result<Json<wire::Lanes>, ApiError> {
    let namespace: Option<Namespace> = parameters.take("namespace")?;
    let destination: Option<DestinationName> = parameters.take("destination")?;
    let troubled = parameters.take("troubled")?.unwrap_or(false);
    parameters.finish()?;
    let looked = match timeline(&parts) {
        Some(timeline) => timeline.look().await,
        None => Vec::new(),
    };
    let here: Vec<u16> = looked.iter().map(|(shard, _)| shard.shard.0).collect();
    let elsewhere = (0..parts.store.shard_count()).filter(|shard| !here.contains(shard)).collect();
    let fits = |of: &Namespace, to: &DestinationName| {
        namespace.as_ref().is_none_or(|namespace| namespace == of)
            && destination.as_ref().is_none_or(|destination| destination == to)
    };
    let lanes = looked.into_iter().flat_map(|(_, lanes)| lanes);
    let lanes = lanes.filter(|lane| fits(&lane.name.namespace, &lane.name.destination));
    let mut lanes: Vec<_> = lanes.filter(|lane| !troubled || is_troubled(lane)).collect();
    lanes.sort_by(|one, other| one.name.cmp(&other.name));
    let more = lanes.len() > wire::LANES_SHOWN_MAX;
    lanes.truncate(wire::LANES_SHOWN_MAX);
    let items = lanes.into_iter().map(wire::Lane::from).collect();
    let gates = parts.store.gates().await?.into_iter().filter(|gate| {
        destination.as_ref().is_none_or(|destination| *destination == gate.destination)
            && (gate.namespace.is_none() || namespace.is_none() || namespace == gate.namespace)
    });
    let gates = gates.map(wire::GateOf::from).collect();
    Ok(Json(wire::Lanes { items, more, gates, elsewhere }))
}

/// Whether the gate is not open, the circuit not closed, or the destination throttled.
fn is_troubled(lane: &LaneView) -> bool {
    lane.gate != Gate::Open || lane.circuit != CIRCUIT_CLOSED || lane.throttled_until.is_some()
}

pub(super) async fn set_gate(
    State(parts): State<AdminParts>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<wire::SetGate>, ApiError> {
    let wish: wire::SetGate = read(body)?;
    let destination: DestinationName = parse("destination", &wish.destination)?;
    let namespace: Option<Namespace> = wish.namespace.as_deref().map(|text| parse("namespace", text)).transpose()?;
    let gate = Gate::ALL.into_iter().find(|gate| gate.as_str() == wish.gate);
    let gate = gate.ok_or_else(|| ApiError::Invalid("`gate` must be one of open, paused, closed".to_owned()))?;
    check_target(&parts, &destination, namespace.as_ref(), gate).await?;
    let reason = wish.reason.clone().map(failure::cut);
    let now = parts.env.now();
    let change = GateChange { destination, namespace, gate, reason, by: SetBy::Operator, now };
    let namespace = change.namespace.as_ref().map_or("all", Namespace::as_str);
    tracing::info!(destination = %change.destination, namespace, gate = gate.as_str(), "an operator set a gate");
    parts.store.set_gate(change).await?;
    Ok(Json(wish))
}

/// Refuses a gate for a name that this host does not know, which is a typing mistake. A destination that is not set, or
/// was removed, is known while messages wait for it; and an existing gate may be opened in any case.
async fn check_target(
    parts: &AdminParts,
    destination: &DestinationName,
    namespace: Option<&Namespace>,
    gate: Gate,
) -> Result<(), ApiError> {
    let Stage::Serving { supervisor, timeline, .. } = parts.stage.borrow().clone() else { return Ok(()) };
    let is_waited_for = async || {
        let pending = parts.store.pending_of(destination).await?;
        Ok::<bool, ApiError>(pending.messages > 0 || pending.more)
    };
    let unknown = if !timeline.can_call(destination) && !is_waited_for().await? {
        format!("destination {destination} on this host")
    } else if let Some(namespace) = namespace.filter(|namespace| !supervisor.serves(namespace)) {
        format!("namespace {namespace} in the configuration of this host")
    } else {
        return Ok(());
    };
    let is_of_it =
        |row: &GateRow| row.destination == *destination && (namespace.is_none() || row.namespace.as_ref() == namespace);
    if gate == Gate::Open && parts.store.gates().await?.iter().any(is_of_it) {
        return Ok(());
    }
    Err(ApiError::NotFound { what: unknown })
}

/// Redrives a page of a lane's dead messages.
pub(super) async fn redrive(
    State(parts): State<AdminParts>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<wire::Redriven>, ApiError> {
    let wish: wire::RedriveLane = read(body)?;
    let filter = MessageFilter {
        namespace: Some(parse("namespace", &wish.namespace)?),
        destination: Some(parse("destination", &wish.destination)?),
        state: Some(MessageState::Dead),
        event_id: None,
    };
    let after: Option<MessageId> = wish.after.as_deref().map(|text| parse("after", text)).transpose()?;
    let page = parts.store.list_messages(&filter, PageRequest { after, limit: REDRIVEN_MAX }).await?;
    let ids: Vec<MessageId> = page.items.iter().map(|message| message.entry.id).collect();
    let mut answer = wire::Redriven { redriven: 0, expired: 0, next: page.next.map(|id| id.to_string()) };
    if ids.is_empty() {
        return Ok(Json(answer));
    }
    for redriven in parts.store.redrive(ids, parts.env.now()).await? {
        match redriven {
            Redriven::Redriven { .. } => answer.redriven += 1,
            Redriven::Expired(_) => answer.expired += 1,
            // Another request redrove it first.
            Redriven::NotDead(_) | Redriven::NotFound => {}
        }
    }
    tracing::info!(messages = answer.redriven, "an operator redrove a lane's dead messages");
    Ok(Json(answer))
}

/// The timeline, once it runs.
pub(super) fn timeline(parts: &AdminParts) -> Option<Timeline> {
    match &*parts.stage.borrow() {
        Stage::Serving { timeline, .. } => Some(timeline.clone()),
        Stage::Starting | Stage::Stopping => None,
    }
}

fn parse<T>(name: &str, text: &str) -> Result<T, ApiError>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| ApiError::Invalid(format!("`{name}`: {error}")))
}
