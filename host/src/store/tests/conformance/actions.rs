//! Actions: from the message that is due to the WorkItem that applies it, once.

use super::publishing::{acquire, admit, record};
use super::*;
use crate::model::message::{AfterAttempt, NewMessage, TooLate};

const NOW: Timestamp = START;
const APPLY: [WorkType; 1] = [WorkType::WorkflowActionApply];

/// Stores an action, and has its shard owned.
async fn emitted(fixture: &Fixture, action: NewMessage) -> (MessageId, ShardLease) {
    let (id, shard) = (action.id, fixture.store.shard_of(&namespace(), &action.destination));
    fixture.emit(vec![action]).await;
    (id, acquire(fixture, shard.0).await)
}

/// An action that was handed off, and its WorkItem.
async fn handed_off(fixture: &Fixture) -> (MessageId, WorkItemId) {
    let (id, lease) = emitted(fixture, fixture.action("remind", NOW)).await;
    assert_eq!(admit(fixture, lease, id, 1).await, Admission::Admitted { attempt: 1 });
    assert!(record(fixture, lease, id, 1, AfterAttempt::HandedOff).await);
    let action = fixture.store.message(id).await.unwrap().unwrap().action.unwrap();
    (id, action.work_item.unwrap())
}

async fn claim_actions(fixture: &Fixture) -> Vec<ClaimedWorkItem> {
    fixture.store.claim(ClaimRequest { work_types: APPLY.to_vec(), ..fixture.request(8) }).await.unwrap()
}

// TL-4, CLM-4
#[tokio::test]
async fn an_action_is_handed_off_once_and_is_work_of_a_type_of_its_own() {
    let fixture = start().await;
    let (id, lease) = emitted(&fixture, fixture.action("remind", NOW)).await;
    assert_eq!(admit(&fixture, lease, id, 1).await, Admission::Admitted { attempt: 1 });
    assert!(claim_actions(&fixture).await.is_empty(), "it is admitted, and no more");
    assert!(record(&fixture, lease, id, 1, AfterAttempt::HandedOff).await);
    assert!(!record(&fixture, lease, id, 1, AfterAttempt::HandedOff).await, "it has been");
    assert_eq!(
        fixture.store.cancel(id, NOW).await.unwrap(),
        Cancelled::TooLate(TooLate::Stands(MessageState::HandedOff))
    );
    let again = fixture.store.reschedule(id, NOW).await.unwrap();
    assert_eq!(again, Rescheduled::TooLate(TooLate::Stands(MessageState::HandedOff)));
    assert_eq!(fixture.store.redrive(vec![id], NOW).await.unwrap(), [Redriven::NotDead(MessageState::HandedOff)]);

    assert!(fixture.claim(8).await.is_empty(), "whoever claims events does not see it");
    assert_eq!(fixture.store.peek(&fixture.look()).await.unwrap().next, []);
    let claimed = claim_actions(&fixture).await;
    let [item] = &claimed[..] else { panic!("{claimed:?}") };
    assert_eq!((item.work_type, item.generation), (WorkType::WorkflowActionApply, crate::store::testing::GENERATION));
    let detail = fixture.store.message(id).await.unwrap().unwrap();
    assert_eq!(detail.summary.finished_at, Some(NOW));
    let action = detail.action.unwrap();
    assert_eq!((action.name.as_str(), action.pack, action.work_item), ("remind", pack(), Some(item.id)));
    let input = &fixture.store.load_actions(&[item.id]).await.unwrap()[&item.id];
    assert_eq!((input.id, input.name.as_str(), input.body.as_ref(), input.due_at), (id, "remind", &b"{}"[..], NOW));
    assert!(fixture.store.action_sizes(&[item.id]).await.unwrap()[&item.id] > 0);
    let event = fixture.store.event(item.event_id).await.unwrap().unwrap();
    assert_eq!(event.work_items.iter().map(|item| item.action).collect::<Vec<_>>(), [None, Some(id)]);
    fixture.assert_counted().await;
}

// TL-4, TL-7
#[tokio::test]
async fn whoever_lost_the_shard_or_the_attempt_hands_nothing_off() {
    let fixture = start().await;
    let (id, lease) = emitted(&fixture, fixture.action("remind", NOW)).await;
    assert!(!record(&fixture, lease, id, 0, AfterAttempt::HandedOff).await, "it was not admitted");
    admit(&fixture, lease, id, 1).await;
    assert!(!record(&fixture, lease, id, 2, AfterAttempt::HandedOff).await, "another attempt");
    fixture.advance(LEASE + LEASE);
    let next = acquire(&fixture, lease.shard.0).await;
    assert!(!record(&fixture, lease, id, 1, AfterAttempt::HandedOff).await, "another owner's shard");
    assert!(claim_actions(&fixture).await.is_empty());
    // The next owner finds it admitted, and certainly not handed off.
    assert!(record(&fixture, next, id, 1, AfterAttempt::RetryAt(fixture.now())).await);
    assert_eq!(admit(&fixture, next, id, 1).await, Admission::Admitted { attempt: 2 });
    assert!(record(&fixture, next, id, 2, AfterAttempt::HandedOff).await);
    assert_eq!(claim_actions(&fixture).await.len(), 1);
    fixture.assert_counted().await;
}

#[tokio::test]
async fn an_action_whose_key_is_known_is_not_stored_again() {
    let fixture = start().await;
    let first = fixture.action("remind", NOW);
    let second = NewMessage { due_at: NOW + LEASE, ..first.clone() };
    fixture.emit(vec![first.clone()]).await;
    fixture.emit(vec![second.clone(), second]).await;
    let stored = fixture.store.message_entries(&[first.id]).await.unwrap();
    assert_eq!(stored.iter().map(|entry| entry.due_at).collect::<Vec<_>>(), [NOW]);
    fixture.assert_counted().await;
}

// RPL-1
#[tokio::test]
async fn an_action_that_ended_badly_is_found_and_applied_again_as_one_child() {
    let fixture = start().await;
    let (id, work_item) = handed_off(&fixture).await;
    let item = claim_actions(&fixture).await.remove(0);
    assert_eq!(item.id, work_item);
    let dead = Disposition::Dead { failure: failure(), leaves_lane: true };
    assert_eq!(fixture.finish(&item, dead).await, Finished::Applied);
    let filter = EventFilter { state: Some(WorkState::Dead), ..EventFilter::default() };
    let listed = fixture.store.list_events(&filter, PageRequest { after: None, limit: 10 }).await.unwrap();
    assert_eq!(listed.items.iter().map(|event| event.id).collect::<Vec<_>>(), [item.event_id]);

    let child = fixture.replay_first(work_item).await;
    assert_eq!(fixture.replay(work_item).await, Replayed::Already(child));
    let claimed = claim_actions(&fixture).await;
    assert_eq!(claimed.iter().map(|item| item.id).collect::<Vec<_>>(), [child]);
    assert_eq!(fixture.store.load_actions(&[child]).await.unwrap()[&child].id, id);
    let message = fixture.store.message(id).await.unwrap().unwrap();
    assert_eq!(message.action.unwrap().work_item, Some(work_item), "what it was handed off as stays");
    fixture.assert_counted().await;
}

// GST-6
#[tokio::test]
async fn an_action_keeps_its_generation_until_it_has_run_or_was_drained() {
    let fixture = start().await;
    let shard = fixture.store.shard_of(&namespace(), &fixture.action("later", NOW).destination);
    let (moved, ended) = (fixture.action("later", NOW + LEASE), fixture.action("later", NOW + LEASE));
    fixture.emit(vec![moved.clone(), ended.clone()]).await;
    let second = fixture.install(2).await.number;
    let serving = async || {
        let serving = fixture.store.serving_generations().await.unwrap();
        serving.iter().map(|serving| serving.number.0).collect::<Vec<_>>()
    };
    assert_eq!(serving().await, [1, 2], "actions wait for it");
    let statuses = fixture.store.list_generations(None).await.unwrap();
    assert_eq!(statuses.iter().map(|status| status.actions).collect::<Vec<_>>(), [0, 2]);

    let first = crate::store::testing::GENERATION;
    fixture.store.cancel(ended.id, NOW).await.unwrap();
    let drained = fixture.store.drain_generation(&pack(), first, DrainTarget::Generation(second), NOW).await.unwrap();
    assert_eq!((drained.rows, drained.left), (1, 0));
    assert_eq!(serving().await, [2]);
    let lease = acquire(&fixture, shard.0).await;
    admit(&fixture, lease, moved.id, 1).await;
    assert!(record(&fixture, lease, moved.id, 1, AfterAttempt::HandedOff).await);
    assert!(claim_actions(&fixture).await.is_empty(), "it is the second generation's now");
    let request = ClaimRequest { generations: vec![second], work_types: APPLY.to_vec(), ..fixture.request(8) };
    assert_eq!(fixture.store.claim(request).await.unwrap().len(), 1);

    let over = fixture.action("later", NOW + LEASE);
    fixture.emit(vec![over.clone()]).await;
    let drained = fixture.store.drain_generation(&pack(), first, DrainTarget::DeadLetter, NOW).await.unwrap();
    assert_eq!((drained.rows, drained.left), (1, 0));
    assert_eq!(fixture.message_state(over.id).await, MessageState::Dead);
    fixture.assert_counted().await;
}
