//! Why a message is not sent: the first reason that holds, its explanation, and what to do.

use axum::Json;
use axum::extract::State;

use super::error::ApiError;
use super::lanes::timeline;
use super::messages::find;
use super::parameters::PathId;
use super::{AdminParts, Stage, wire};
use crate::lanes::Held;
use crate::model::destination_lane::Gate;
use crate::model::ids::MessageId;
use crate::model::message::{MessageEntry, MessageState, is_unsettled};
use crate::store::{MessageDetail, ShardId};

/// A reason with its explanation and advice. Advice that ends in a command has no full stop, so that it can be copied.
struct Words {
    reason: Option<Held>,
    explanation: String,
    advice: Option<String>,
}

pub(super) async fn why(
    State(parts): State<AdminParts>,
    PathId(id): PathId<MessageId>,
) -> Result<Json<wire::Why>, ApiError> {
    let detail = find(&parts, id).await?;
    let entry = &detail.summary.entry;
    let shard = parts.store.shard_of(&entry.namespace, &entry.destination);
    let mut words = match entry.state {
        MessageState::Scheduled | MessageState::RetryWait => waiting(&parts, shard, &detail).await?,
        state => ended(&detail, state),
    };
    if entry.state.waits() && is_unsettled(entry.state, detail.uncertain_attempts) {
        words.explanation += " The outcome of an earlier attempt is unknown, so it cannot be cancelled or rescheduled.";
        words.advice = Some(settle(id));
    }
    Ok(Json(wire::Why {
        message: id.to_string(),
        lane: format!("{}/{}", entry.namespace, entry.destination),
        shard: shard.0,
        state: entry.state.as_str().to_owned(),
        reason: words.reason.map(|held| held.as_str().to_owned()),
        explanation: words.explanation,
        advice: words.advice,
    }))
}

async fn waiting(parts: &AdminParts, shard: ShardId, detail: &MessageDetail) -> Result<Words, ApiError> {
    let entry = &detail.summary.entry;
    if entry.state == MessageState::Scheduled && entry.due_at > parts.env.now() {
        let explanation = format!("It is not due before {}.", wire::rfc3339(entry.due_at));
        let advice = Some(format!("To send it now: forebay message reschedule {} --in 0s", entry.id));
        return Ok(Words { reason: None, explanation, advice });
    }
    let asked = match timeline(parts) {
        Some(timeline) => timeline.why(shard, entry.clone()).await,
        None => None,
    };
    if let Some(held) = asked {
        let mut words = held_words(held, entry);
        if let (Held::CircuitOpen | Held::RetryBackoff, Some(error)) = (held, &detail.error) {
            words.explanation = format!("{} Its last error: {error}.", words.explanation);
        }
        return Ok(match obstacle(parts, held, entry) {
            Some(obstacle) => Words {
                explanation: format!("This host cannot send it: {obstacle}."),
                advice: Some("Fix it and the host retries; no attempt is used up.".to_owned()),
                ..words
            },
            None => words,
        });
    }
    // Another host owns the shard. The store knows gates and owners only.
    let gates = parts.store.gates().await?;
    let gate = gates.iter().filter(|gate| {
        gate.destination == entry.destination
            && gate.namespace.as_ref().is_none_or(|namespace| *namespace == entry.namespace)
    });
    match gate.map(|gate| gate.gate).max().unwrap_or(Gate::Open) {
        Gate::Closed => return Ok(held_words(Held::LaneClosed, entry)),
        Gate::Paused => return Ok(held_words(Held::LanePaused, entry)),
        Gate::Open => {}
    }
    let row = parts.store.shards().await?.into_iter().find(|row| row.shard == shard);
    let owner = row.and_then(|row| row.owner);
    Ok(match owner {
        Some(owner) => Words {
            reason: None,
            explanation: format!("Its shard {} is owned by another host, {owner}, which knows the reason.", shard.0),
            advice: Some("Ask that host: name its admin listener with --admin.".to_owned()),
        },
        None => held_words(Held::Recovering, entry),
    })
}

/// What this host lacks to send the message. If attempts fail for that, the destination is not to blame.
fn obstacle(parts: &AdminParts, held: Held, entry: &MessageEntry) -> Option<String> {
    if !matches!(held, Held::CircuitOpen | Held::RetryBackoff | Held::LaneFull | Held::Capacity | Held::Fairness) {
        return None;
    }
    match &*parts.stage.borrow() {
        Stage::Serving { publisher, .. } => publisher.obstacle(&entry.namespace, &entry.destination),
        Stage::Starting | Stage::Stopping => None,
    }
}

/// The advice for an attempt whose outcome is unknown.
fn settle(id: MessageId) -> String {
    format!("Ask the receiver, then run: forebay message resolve {id} --as retry|published|dead")
}

fn ended(detail: &MessageDetail, state: MessageState) -> Words {
    let id = detail.summary.entry.id;
    let last = detail.error.as_deref().unwrap_or("no error was recorded");
    let (explanation, advice) = match state {
        MessageState::Publishing => ("Its destination is being called.".to_owned(), None),
        MessageState::Uncertain => (
            format!(
                "The outcome of its last attempt is unknown ({last}), and the policy of its destination is to hold."
            ),
            Some(settle(id)),
        ),
        MessageState::Published => ("It was published.".to_owned(), None),
        MessageState::HandedOff => {
            let work_item = detail.action.as_ref().and_then(|action| action.work_item);
            let advice = work_item.map(|id| format!("See forebay work-item show {id}"));
            ("It is an action, and was handed off to its pack when it was due.".to_owned(), advice)
        }
        MessageState::Cancelled => ("It was cancelled.".to_owned(), None),
        MessageState::Expired => ("It expired before it could be published.".to_owned(), None),
        MessageState::Dead => (
            format!("It was given up: {last}."),
            Some(format!("To send it again with the same idempotency key: forebay message redrive {id}")),
        ),
        MessageState::Scheduled | MessageState::RetryWait => ("It waits.".to_owned(), None),
    };
    Words { reason: None, explanation, advice }
}

fn held_words(held: Held, entry: &MessageEntry) -> Words {
    let (namespace, destination) = (&entry.namespace, &entry.destination);
    let lane = format!("{namespace}/{destination}");
    let show = format!("See forebay lane show {lane}");
    let (explanation, advice) = match held {
        Held::LaneClosed => ("Its lane is closed.".to_owned(), format!("To open it: forebay lane resume {lane}")),
        Held::LanePaused => ("Its lane is paused.".to_owned(), format!("To resume it: forebay lane resume {lane}")),
        Held::OrderingHead => (
            "Its lane is ordered, and an earlier message has not ended.".to_owned(),
            format!(
                "Find it among the messages in retry_wait or uncertain: forebay message list --namespace {namespace} \
                 --destination {destination}"
            ),
        ),
        Held::ClockGated => (
            "The time is uncertain, and nothing is published early.".to_owned(),
            "Check the time synchronization of this machine, or of the database server.".to_owned(),
        ),
        Held::Recovering => (
            "Its shard has no owner, or the owner has not caught up with its messages yet.".to_owned(),
            "See forebay shard list".to_owned(),
        ),
        Held::Capability => (
            format!(
                "This host has no usable destination `{destination}`: it was never set, was removed, or is misconfigured."
            ),
            format!(
                "See forebay destination show {destination}. To set it for every host: forebay destination set \
                 {destination} url=https://…"
            ),
        ),
        Held::CircuitOpen => (
            "Its destination failed repeatedly; it is probed, or not called at all.".to_owned(),
            format!("The host probes it by itself and sends again when it answers. {show}"),
        ),
        Held::RetryBackoff => (
            format!("Its last attempt failed; the next is made at {}.", wire::rfc3339(entry.eligible_at)),
            format!("To retry now: forebay message reschedule {} --in 0s", entry.id),
        ),
        Held::Throttled => ("Its destination asked not to be called for a while.".to_owned(), show),
        Held::LaneFull => (
            "Its lane has as much in flight as its limits allow.".to_owned(),
            format!(
                "Check whether the destination is slow, or raise destinations.{destination}.in_flight_messages and \
                 in_flight_mib."
            ),
        ),
        Held::Capacity => (
            "Its shard or the host has as much in flight as its limits allow, the store admits nothing at the moment, \
             or the host is short of a resource."
                .to_owned(),
            "See forebay shard list and /readyz, or raise timeline.claimed_max and publish.in_flight_max.".to_owned(),
        ),
        Held::Fairness => ("Other lanes are served first; its turn comes soon.".to_owned(), show),
    };
    Words { reason: Some(held), explanation, advice: Some(advice) }
}
