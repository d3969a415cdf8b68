//! What an execution comes to: the flow's output as messages, a failure as a retry or an end. Pure.

use sha2::{Digest, Sha256};

use crate::guest::{Due, EmittedMessage, ignored_digest};
use crate::model::event::Event;
use crate::model::failure::{Failure, cut};
use crate::model::ids::{MessageId, WorkItemId};
use crate::model::message::NewMessage;
use crate::model::pack::{Coalescing, FailedHeadPolicy, Manifest};
use crate::model::reading::{RecordedReads, RunRecord};
use crate::model::retry::RetryPolicy;
use crate::model::time::Timestamp;
use crate::model::work_item::{AfterFailure, ClaimedWorkItem, after_failure};
use crate::store::Disposition;

/// How an execution ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// `prepare` wants no part of the event.
    Ignored {
        /// Why, for people.
        reason: String,
    },
    /// `run` returned.
    Ran {
        /// The flow's note for people.
        note: Option<String>,
        /// What it emits.
        messages: Vec<EmittedMessage>,
        /// What makes it comparable with another run.
        record: RunRecord,
    },
    /// It failed.
    Failed(Failure),
    /// It was not executed, or not to its end, for reasons of the host's own: the row goes back unspent.
    Released,
    /// The row is no longer ours: nothing may be recorded.
    Lost,
}

/// What is recorded for `ended`; `None` if nothing may be.
pub(super) fn disposition(
    ended: Ended,
    item: &ClaimedWorkItem,
    event: &Event,
    failed_head: FailedHeadPolicy,
    retry: &RetryPolicy,
    now: Timestamp,
) -> Option<Disposition> {
    Some(match ended {
        Ended::Ignored { reason } => {
            let record = RunRecord { output_digest: ignored_digest(&reason), reads: RecordedReads::NONE };
            Disposition::Done { note: Some(cut(reason)), ignored: true, messages: Vec::new(), record }
        }
        Ended::Ran { note, messages, record } => {
            let messages = new_messages(messages, event, replay_of(item), now);
            Disposition::Done { note: note.map(cut), ignored: false, messages, record }
        }
        Ended::Failed(failure) => failed(failure, item, failed_head, retry, now),
        Ended::Released => Disposition::Release,
        Ended::Lost => return None,
    })
}

/// What is recorded for a failure.
pub(super) fn failed(
    failure: Failure,
    item: &ClaimedWorkItem,
    failed_head: FailedHeadPolicy,
    retry: &RetryPolicy,
    now: Timestamp,
) -> Disposition {
    match after_failure(item.id, item.failures, &failure, retry, failed_head, now) {
        AfterFailure::Retry { run_after, leaves_lane } => Disposition::Retry { failure, run_after, leaves_lane },
        AfterFailure::Dead { leaves_lane } => Disposition::Dead { failure, leaves_lane },
    }
}

/// What a route says of the lanes that its events stand in.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneTerms {
    pub(super) failed_head: FailedHeadPolicy,
    pub(super) coalescing: Coalescing,
}

impl LaneTerms {
    /// Of an event whose route is not known.
    pub(super) const DEFAULT: LaneTerms =
        LaneTerms { failed_head: FailedHeadPolicy::DEFAULT, coalescing: Coalescing::None };

    /// Of the route that an event came in by.
    pub(super) fn of(manifest: &Manifest, event: &Event) -> Option<Self> {
        let route = manifest.routes.iter().find(|route| route.path == event.route)?;
        Some(Self { failed_head: route.failed_head, coalescing: route.coalescing })
    }
}

/// What tells a replay's messages from those that the event brought before.
fn replay_of(item: &ClaimedWorkItem) -> Option<WorkItemId> {
    item.replay.then_some(item.id)
}

fn new_messages(
    emitted: Vec<EmittedMessage>,
    event: &Event,
    replay: Option<WorkItemId>,
    now: Timestamp,
) -> Vec<NewMessage> {
    let with_position = (0_u32..).zip(emitted);
    with_position
        .map(|(position, message)| NewMessage {
            id: message_id(event, replay, position),
            destination: message.destination,
            body: message.body,
            content_type: message.content_type,
            headers: message.headers,
            ordering_key: message.ordering_key,
            idempotency_key: message.idempotency_key,
            due_at: match message.due {
                Due::Now => now,
                Due::After(delay) => now + delay,
                Due::At(at) => at,
            },
            expire_at: message.expire_at,
        })
        .collect()
}

/// The id of the message that `event` emits in this place, the same on every run: receivers tell duplicates by it. A
/// replay is meant to emit again, so its messages are others than its parent's, and the same on every run of its own.
fn message_id(event: &Event, replay: Option<WorkItemId>, position: u32) -> MessageId {
    let mut digest = Sha256::new()
        .chain_update(event.id.as_bytes())
        .chain_update(event.generation.0.to_be_bytes())
        .chain_update(position.to_be_bytes());
    if let Some(replay) = replay {
        digest.update(replay.as_bytes());
    }
    let mut entropy = [0; 10];
    entropy.copy_from_slice(&digest.finalize()[..10]);
    MessageId::new(event.received_at, entropy)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::model::event::Header;
    use crate::model::ids::EventId;
    use crate::model::pack::GenerationNumber;

    const RECEIVED: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn event(id: u8) -> Event {
        Event {
            id: EventId::from_bytes([id; 16]),
            receipt_id: crate::model::ids::ReceiptId::from_bytes([9; 16]),
            namespace: "acme".parse().unwrap(),
            pack: "github".parse().unwrap(),
            generation: GenerationNumber(3),
            route: "github".parse().unwrap(),
            source_key: None,
            delivery_key: "d".to_owned(),
            payload_digest: [0; 32],
            content_type: String::new(),
            headers: Vec::new(),
            body: Bytes::new(),
            received_at: RECEIVED,
        }
    }

    fn emit(due: Due) -> EmittedMessage {
        EmittedMessage {
            destination: "sink".parse().unwrap(),
            body: Bytes::from_static(b"body"),
            content_type: "text/plain".to_owned(),
            headers: vec![Header { name: "x-a".to_owned(), value: Bytes::from_static(b"1") }],
            ordering_key: Some("k".to_owned()),
            idempotency_key: None,
            due,
            expire_at: None,
        }
    }

    // GST-5
    #[test]
    fn a_second_run_makes_messages_with_the_same_ids_and_no_two_share_one() {
        let emitted = || vec![emit(Due::Now), emit(Due::Now)];
        let ids = |event: &Event, now| new_messages(emitted(), event, None, now).into_iter().map(|new| new.id);
        let first: Vec<_> = ids(&event(1), RECEIVED).collect();
        let again: Vec<_> = ids(&event(1), RECEIVED + std::time::Duration::from_secs(60)).collect();
        assert_eq!(first, again);
        assert_ne!(first[0], first[1]);
        assert!(ids(&event(2), RECEIVED).all(|id| !first.contains(&id)));
    }

    // RPL-1
    #[test]
    fn a_replay_emits_again_and_the_same_on_each_of_its_runs() {
        let emitted = || vec![emit(Due::Now), emit(Due::Now)];
        let ids = |replay: Option<u8>| -> Vec<MessageId> {
            let replay = replay.map(|id| WorkItemId::from_bytes([id; 16]));
            new_messages(emitted(), &event(1), replay, RECEIVED).into_iter().map(|new| new.id).collect()
        };
        let (first, child, grandchild) = (ids(None), ids(Some(2)), ids(Some(3)));
        assert_eq!(child, ids(Some(2)));
        assert!(child.iter().all(|id| !first.contains(id) && !grandchild.contains(id)));
        assert!(grandchild.iter().all(|id| !first.contains(id)));
    }

    #[test]
    fn due_times_count_from_the_finish() {
        let now = RECEIVED + std::time::Duration::from_secs(5);
        let hour = std::time::Duration::from_secs(3_600);
        let at = Timestamp::from_millis(42);
        let messages =
            new_messages(vec![emit(Due::Now), emit(Due::After(hour)), emit(Due::At(at))], &event(1), None, now);
        assert_eq!(messages.iter().map(|new| new.due_at).collect::<Vec<_>>(), [now, now + hour, at]);
    }
}
