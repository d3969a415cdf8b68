//! Why a message is not sent: the first reason that holds, in words, and what to do about it.

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

/// A reason, in words, and what to do.
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
            words.explanation = format!("{} Its own last attempt: {error}.", words.explanation);
        }
        return Ok(match obstacle(parts, held, entry) {
            Some(obstacle) => Words {
                explanation: format!("This host cannot send it: {obstacle}."),
                advice: Some("It is retried once that is mended, and this costs no attempt.".to_owned()),
                ..words
            },
            None => words,
        });
    }
    // Another runtime knows; the store says what it can.
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
            explanation: format!("Its shard {} is owned by another host, {owner}, which knows why it waits.", shard.0),
            advice: Some("Ask that host: give its admin listener with --admin.".to_owned()),
        },
        None => held_words(Held::Recovering, entry),
    })
}

/// What this host itself lacks for a message whose attempts fail, so that nobody looks for it at the destination.
fn obstacle(parts: &AdminParts, held: Held, entry: &MessageEntry) -> Option<String> {
    if !matches!(held, Held::CircuitOpen | Held::RetryBackoff | Held::LaneFull | Held::Capacity | Held::Fairness) {
        return None;
    }
    match &*parts.stage.borrow() {
        Stage::Serving { publisher, .. } => publisher.obstacle(&entry.namespace, &entry.destination),
        Stage::Starting | Stage::Stopping => None,
    }
}

/// What to do about an attempt whose outcome is unknown.
fn settle(id: MessageId) -> String {
    format!("Ask the receiver, then: forebay message resolve {id} --as retry|published|dead")
}

fn ended(detail: &MessageDetail, state: MessageState) -> Words {
    let id = detail.summary.entry.id;
    let last = detail.error.as_deref().unwrap_or("nothing was noted");
    let (explanation, advice) = match state {
        MessageState::Publishing => ("Its destination is being called.".to_owned(), None),
        MessageState::Uncertain => (
            format!("The outcome of its last attempt is unknown ({last}), and its destination holds such messages."),
            Some(settle(id)),
        ),
        MessageState::Published => ("It was published.".to_owned(), None),
        MessageState::HandedOff => {
            let work_item = detail.action.as_ref().and_then(|action| action.work_item);
            let advice = work_item.map(|id| format!("See forebay work-item show {id}"));
            ("It was an action, and was handed off to its pack when it was due.".to_owned(), advice)
        }
        MessageState::Cancelled => ("It was cancelled.".to_owned(), None),
        MessageState::Expired => ("It expired before it could be published.".to_owned(), None),
        MessageState::Dead => (
            format!("It was given up: {last}."),
            Some(format!("To send it again, with the same idempotency key: forebay message redrive {id}")),
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
        Held::LanePaused => ("Its lane is paused.".to_owned(), format!("To go on: forebay lane resume {lane}")),
        Held::OrderingHead => (
            "Its lane is ordered, and a message before it is not settled.".to_owned(),
            format!("Find it: forebay message list --destination {destination} --state uncertain (or retry_wait)"),
        ),
        Held::ClockGated => (
            "This host's clock is not trusted at the moment: nothing is published early.".to_owned(),
            "Check the machine's time synchronization".to_owned(),
        ),
        Held::Recovering => (
            "Its shard has no owner that has caught up with its messages yet.".to_owned(),
            "See forebay shard list".to_owned(),
        ),
        Held::Capability => (
            format!(
                "This host knows no destination `{destination}`, or cannot use it: it was not set, or was removed."
            ),
            format!(
                "To set it, for every host and at once: forebay destination set {destination} url=https://… (or see forebay \
                 destination show {destination})"
            ),
        ),
        Held::CircuitOpen => (
            "Its destination failed repeatedly, and is only probed or not called at all.".to_owned(),
            format!("The host probes it by itself. {show}"),
        ),
        Held::RetryBackoff => (
            format!("Its last attempt failed; the next is made at {}.", wire::rfc3339(entry.eligible_at)),
            format!("To try now: forebay message reschedule {} --in 0s", entry.id),
        ),
        Held::Throttled => ("Its destination asked to be left alone for a while.".to_owned(), show),
        Held::LaneFull => (
            "Its lane has as much in flight as it may.".to_owned(),
            format!("Check whether the destination is slow, or raise destinations.{destination}.in_flight_messages"),
        ),
        Held::Capacity => (
            "Its shard has claimed as much as it may, the store admits nothing at the moment, or the host is short of \
             something."
                .to_owned(),
            "See forebay shard list and /readyz, or raise timeline.claimed_max and publish.in_flight_max".to_owned(),
        ),
        Held::Fairness => ("It is the turn of other lanes; its own comes soon.".to_owned(), show),
    };
    Words { reason: Some(held), explanation, advice: Some(format!("{advice}.")) }
}
