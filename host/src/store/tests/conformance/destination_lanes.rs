//! Gates of lanes, and what operators do about messages that are dead or uncertain.

use super::publishing::{acquire, admit, record, scheduled};
use super::*;
use crate::model::destination_lane::Gate;
use crate::model::message::{AfterAttempt, NewMessage};
use crate::store::{GateChange, GateRow, Redriven, Resolution, Resolved, SetBy};

const NOW: Timestamp = START;

fn change(destination: &str, namespace: Option<&str>, gate: Gate, by: SetBy) -> GateChange {
    GateChange {
        destination: destination.parse().unwrap(),
        namespace: namespace.map(|namespace| namespace.parse().unwrap()),
        gate,
        reason: Some(format!("{by:?}")),
        by,
        now: NOW,
    }
}

async fn gates(fixture: &Fixture) -> Vec<(String, Option<String>, Gate, Option<String>)> {
    let words = |row: GateRow| {
        (row.destination.to_string(), row.namespace.map(|namespace| namespace.to_string()), row.gate, row.reason)
    };
    fixture.store.gates().await.unwrap().into_iter().map(words).collect()
}

// LAN-3
#[tokio::test]
async fn a_gate_is_there_for_everybody_until_it_is_opened() {
    let fixture = start().await;
    let mut changes = fixture.store.subscribe_gates();
    let set = async |destination, namespace, gate, by| {
        fixture.store.set_gate(change(destination, namespace, gate, by)).await.unwrap();
    };
    let row = |namespace: Option<&str>, gate, by: &str| {
        ("sink".to_owned(), namespace.map(str::to_owned), gate, Some(by.to_owned()))
    };
    set("sink", None, Gate::Paused, SetBy::Operator).await;
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    set("sink", Some("acme"), Gate::Closed, SetBy::Operator).await;
    set("sink", Some("acme"), Gate::Paused, SetBy::Destination).await;
    set("sink", Some("umbrella"), Gate::Paused, SetBy::Destination).await;
    let all = [
        row(None, Gate::Paused, "Operator"),
        row(Some("acme"), Gate::Closed, "Operator"),
        row(Some("umbrella"), Gate::Paused, "Destination"),
    ];
    assert_eq!(gates(&fixture).await, all, "what a destination says does not undo what an operator set");

    set("sink", Some("acme"), Gate::Open, SetBy::Operator).await;
    set("sink", None, Gate::Closed, SetBy::Operator).await;
    assert_eq!(gates(&fixture).await, [row(None, Gate::Closed, "Operator"), all[2].clone()]);
    set("other", None, Gate::Open, SetBy::Operator).await;
    set("sink", None, Gate::Open, SetBy::Operator).await;
    assert_eq!(gates(&fixture).await, [], "to open the destination opens every tenant's lanes");
    assert!(changes.has_changed().unwrap());
}

// LAN-3
#[tokio::test]
async fn a_dead_message_is_sent_again_in_a_new_generation_with_its_key() {
    let fixture = start().await;
    let (id, lease) = scheduled(&fixture).await;
    let key = fixture.store.message(id).await.unwrap().unwrap().payload.idempotency_key;
    let redrive = async |id| fixture.store.redrive(vec![id], fixture.now()).await.unwrap().remove(0);
    assert_eq!(redrive(id).await, Redriven::NotDead(MessageState::Scheduled));
    assert_eq!(redrive(MessageId::from_bytes([9; 16])).await, Redriven::NotFound);
    admit(&fixture, lease, id, 1).await;
    record(&fixture, lease, id, 1, AfterAttempt::Dead).await;
    let end = fixture.store.feed_end(lease.shard).await.unwrap();
    assert_eq!(redrive(id).await, Redriven::Redriven { generation: 2 });

    let message = fixture.store.message(id).await.unwrap().unwrap();
    let entry = &message.summary.entry;
    assert_eq!((entry.state, entry.generation, entry.attempt), (MessageState::Scheduled, 2, 0));
    assert_eq!((entry.seq, entry.place, message.summary.finished_at), (end + 1, end + 1, None));
    assert_eq!(message.payload.idempotency_key, key);
    fixture.store.assert_counted().await;
    assert_eq!(admit(&fixture, lease, id, 2).await, Admission::Admitted { attempt: 1 });
}

// TL-3
#[tokio::test]
async fn a_dead_message_that_is_of_no_more_use_is_not_sent_again() {
    let fixture = start().await;
    let over = NOW + Duration::from_secs(1);
    let message = NewMessage { expire_at: Some(over), ..fixture.message("sink", NOW) };
    fixture.emit(vec![message.clone()]).await;
    let lease = acquire(&fixture, super::publishing::shard(&fixture)).await;
    admit(&fixture, lease, message.id, 1).await;
    record(&fixture, lease, message.id, 1, AfterAttempt::Dead).await;
    fixture.advance(Duration::from_secs(1));
    assert_eq!(fixture.store.redrive(vec![message.id], fixture.now()).await.unwrap(), [Redriven::Expired(over)]);
}

// TL-6, LAN-4
#[tokio::test]
async fn an_uncertain_message_is_settled_by_an_operator_and_keeps_its_place() {
    for (resolution, state) in [
        (Resolution::Retry, MessageState::RetryWait),
        (Resolution::Published, MessageState::Published),
        (Resolution::Dead, MessageState::Dead),
    ] {
        let fixture = start().await;
        let (id, lease) = scheduled(&fixture).await;
        let place = fixture.store.message_entries(&[id]).await.unwrap()[0].place;
        let resolve = async || fixture.store.resolve(id, resolution, fixture.now()).await.unwrap();
        assert_eq!(resolve().await, Resolved::NotUncertain(MessageState::Scheduled));
        admit(&fixture, lease, id, 1).await;
        record(&fixture, lease, id, 1, AfterAttempt::Uncertain).await;
        assert_eq!(resolve().await, Resolved::Resolved);
        let entry = fixture.store.message_entries(&[id]).await.unwrap().remove(0);
        assert_eq!((entry.state, entry.generation, entry.attempt, entry.place), (state, 1, 1, place));
        assert!(entry.seq > place, "the feed tells of it");
        fixture.store.assert_counted().await;
    }
}
