//! What an execution comes to: the flow's output as messages, a failure as a retry or an end. Pure.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::guest::{Due, EmittedAction, EmittedMessage, FlowOutput, ignored_digest};
use crate::model::event::Event;
use crate::model::failure::{Failure, cut};
use crate::model::ids::{MessageId, WorkItemId};
use crate::model::message::{NewAction, NewMessage};
use crate::model::names::DestinationName;
use crate::model::pack::{Coalescing, FailedHeadPolicy, GenerationNumber, Manifest};
use crate::model::reading::{Reading, RecordedReads, RunRecord};
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
        record: Box<RunRecord>,
        /// Its work for later.
        actions: Vec<EmittedAction>,
    },
    /// It failed.
    Failed(Failure),
    /// It was not executed, or not to its end, for reasons of the host's own: the row goes back unspent.
    Released,
    /// The row is no longer ours: nothing may be recorded.
    Lost,
}

impl Ended {
    /// What a flow came to for which this was read.
    pub(super) fn ran(output: FlowOutput, readings: Vec<Reading>) -> Self {
        let record = Box::new(RunRecord { output_digest: output.digest(), reads: RecordedReads::of(readings) });
        Ended::Ran { note: output.note, messages: output.messages, actions: output.actions, record }
    }
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
        Ended::Ran { note, messages, actions, record } => {
            let emitter = Emitter { event, generation: item.generation, beside: beside(item) };
            let mut messages = emitter.messages(messages, now);
            let emitted = messages.len();
            messages.extend(emitter.actions(actions, emitted, now));
            Disposition::Done { note: note.map(cut), ignored: false, messages, record: *record }
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

/// What tells the messages of a replay, or of an action, from those that the event brought before.
fn beside(item: &ClaimedWorkItem) -> Option<WorkItemId> {
    item.replay.then_some(item.id)
}

/// Whose output is made messages of.
struct Emitter<'e> {
    event: &'e Event,
    /// The generation that was executed.
    generation: GenerationNumber,
    /// The WorkItem, where it is another than the one that the event's delivery brought.
    beside: Option<WorkItemId>,
}

impl Emitter<'_> {
    fn messages(&self, emitted: Vec<EmittedMessage>, now: Timestamp) -> Vec<NewMessage> {
        let with_position = (0_u32..).zip(emitted);
        with_position
            .map(|(position, message)| NewMessage {
                id: self.id(position),
                destination: message.destination,
                body: message.body,
                content_type: message.content_type,
                headers: message.headers,
                ordering_key: message.ordering_key,
                idempotency_key: message.idempotency_key,
                due_at: due_at(message.due, now),
                due_after: due_after(message.due),
                expire_at: message.expire_at,
                action: None,
            })
            .collect()
    }

    /// Messages to the pack's own flow; their places are behind those of `emitted` messages.
    fn actions(&self, actions: Vec<EmittedAction>, emitted: usize, now: Timestamp) -> Vec<NewMessage> {
        let pack = &self.event.pack;
        let first = u32::try_from(emitted).expect("a flow emits a bounded number of messages");
        let with_position = (first..).zip(actions);
        with_position
            .map(|(position, action)| NewMessage {
                id: match &action.idempotency_key {
                    Some(key) => self.id_of_key(key),
                    None => self.id(position),
                },
                destination: DestinationName::flow_of(pack),
                body: action.body,
                content_type: String::new(),
                headers: Vec::new(),
                ordering_key: None,
                idempotency_key: action.idempotency_key,
                due_at: due_at(action.due, now),
                due_after: due_after(action.due),
                expire_at: None,
                action: Some(NewAction { name: action.name, pack: pack.clone(), generation: self.generation }),
            })
            .collect()
    }

    /// The id of what is emitted in this place, the same on every run: receivers tell duplicates by it. A replay is
    /// meant to emit again, so its messages are others than its parent's, and the same on every run of its own.
    fn id(&self, position: u32) -> MessageId {
        let mut digest = Sha256::new()
            .chain_update(self.event.id.as_bytes())
            .chain_update(self.event.generation.0.to_be_bytes())
            .chain_update(position.to_be_bytes());
        if let Some(work_item) = self.beside {
            digest.update(work_item.as_bytes());
        }
        let mut entropy = [0; 10];
        entropy.copy_from_slice(&digest.finalize()[..10]);
        MessageId::new(self.event.received_at, entropy)
    }

    /// The id of an action with a key, whatever emits it: a second one with the key is the first one, and is not
    /// stored.
    fn id_of_key(&self, key: &str) -> MessageId {
        let (namespace, pack) = (self.event.namespace.as_str(), self.event.pack.as_str());
        let digest = Sha256::new()
            .chain_update("action")
            // Names have no zero byte.
            .chain_update(namespace)
            .chain_update([0])
            .chain_update(pack)
            .chain_update([0])
            .chain_update(key)
            .finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        MessageId::from_bytes(bytes)
    }
}

/// How long after it is stored, as far as that is what was said.
fn due_after(due: Due) -> Option<Duration> {
    match due {
        Due::Now => Some(Duration::ZERO),
        Due::After(delay) => Some(delay),
        Due::At(_) => None,
    }
}

/// When, by this runtime's clock.
fn due_at(due: Due, now: Timestamp) -> Timestamp {
    match due {
        Due::Now => now,
        Due::After(delay) => now + delay,
        Due::At(at) => at,
    }
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

    fn emitter(event: &Event, beside: Option<WorkItemId>) -> Emitter<'_> {
        Emitter { event, generation: GenerationNumber(5), beside }
    }

    fn act(key: Option<&str>) -> EmittedAction {
        EmittedAction {
            name: "remind".to_owned(),
            body: Bytes::from_static(b"body"),
            idempotency_key: key.map(str::to_owned),
            due: Due::Now,
        }
    }

    // GST-6
    #[test]
    fn an_action_goes_to_its_packs_flow_for_the_generation_that_emitted_it() {
        let event = event(1);
        let [action] = &emitter(&event, None).actions(vec![act(None)], 0, RECEIVED)[..] else { panic!("one") };
        assert_eq!(action.destination.as_str(), "flow:github");
        let NewAction { name, pack, generation } = action.action.clone().unwrap();
        assert_eq!((name.as_str(), pack.as_str(), generation), ("remind", "github", GenerationNumber(5)));
    }

    // GST-5
    #[test]
    fn actions_have_places_behind_the_messages_and_one_key_is_one_action() {
        let (one, two) = (event(1), event(2));
        let ids = |event: &Event, key| -> Vec<MessageId> {
            let emitter = emitter(event, None);
            let mut all = emitter.messages(vec![emit(Due::Now)], RECEIVED);
            all.extend(emitter.actions(vec![act(key), act(None)], 1, RECEIVED));
            all.into_iter().map(|message| message.id).collect()
        };
        let without = ids(&one, None);
        assert_eq!(without, ids(&one, None));
        assert!(without[0] != without[1] && without[1] != without[2] && without[0] != without[2]);
        assert_ne!(without[1], ids(&two, None)[1]);
        assert_eq!(ids(&one, Some("k"))[1], ids(&two, Some("k"))[1], "whatever event brings it about");
        assert_ne!(ids(&one, Some("k"))[1], ids(&one, Some("l"))[1]);
        let elsewhere = Event { namespace: "other".parse().unwrap(), ..event(1) };
        assert_ne!(ids(&one, Some("k"))[1], ids(&elsewhere, Some("k"))[1], "but not another tenant's");
    }

    // GST-5
    #[test]
    fn a_second_run_makes_messages_with_the_same_ids_and_no_two_share_one() {
        let emitted = || vec![emit(Due::Now), emit(Due::Now)];
        let ids = |event: &Event, now| emitter(event, None).messages(emitted(), now).into_iter().map(|new| new.id);
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
            emitter(&event(1), replay).messages(emitted(), RECEIVED).into_iter().map(|new| new.id).collect()
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
        let event = event(1);
        let messages =
            emitter(&event, None).messages(vec![emit(Due::Now), emit(Due::After(hour)), emit(Due::At(at))], now);
        assert_eq!(messages.iter().map(|new| new.due_at).collect::<Vec<_>>(), [now, now + hour, at]);
    }
}
