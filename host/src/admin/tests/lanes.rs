//! Lanes, gates, shards, and why a message waits, on a host that owns no shard.

use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};

use super::{Desk, NOW, shown};
use crate::admin::health::timeline_trouble;
use crate::admin::wire;
use crate::model::ids::MessageId;
use crate::model::message::AfterAttempt;
use crate::store::testing::LEASE;
use crate::store::{AdmissionRequest, CheckpointRow, OutcomeRecord, ShardId};
use crate::timeline::{AfterTrouble, ShardTrouble};

impl Desk {
    async fn json(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", shown(&answer));
        answer.json().unwrap()
    }

    /// A message that is due.
    async fn due(&self) -> MessageId {
        self.shared.emit(vec![self.shared.message("crm", NOW)]).await[0]
    }

    /// Ends an attempt of a message.
    async fn end(&self, id: MessageId, after: AfterAttempt) {
        self.end_as(id, after, false).await;
    }

    /// Ends an attempt with an unknown outcome.
    async fn end_unknown(&self, id: MessageId, after: AfterAttempt) {
        self.end_as(id, after, true).await;
    }

    async fn end_as(&self, id: MessageId, after: AfterAttempt, uncertain: bool) {
        let lease = self.store.acquire_shard(ShardId(0), self.shared.runtime(), LEASE, NOW).await.unwrap().unwrap();
        self.store.admit(lease, vec![AdmissionRequest { id, generation: 1 }], NOW).await.unwrap();
        let error = Some("it answered 400".to_owned());
        let (attempt, spared, status) = (1, false, Some(400));
        let record = OutcomeRecord { id, generation: 1, attempt, after, uncertain, spared, status, error };
        assert_eq!(self.store.record_outcomes(lease, vec![record], NOW).await.unwrap(), [true]);
        self.store.release_shard(lease).await.unwrap();
    }

    async fn why(&self, id: MessageId) -> Value {
        self.json(&format!("/api/v1/messages/{id}/why")).await
    }
}

// LAN-3, OBS-4
#[tokio::test]
async fn a_gate_is_set_seen_and_said_to_be_the_reason() {
    let desk = Desk::open(None).await;
    let id = desk.due().await;
    let namespace = desk.store.message_entries(&[id]).await.unwrap()[0].namespace.clone();
    let why = desk.why(id).await;
    assert_eq!((&why["reason"], &why["state"]), (&json!("recovering"), &json!("scheduled")));
    let pause = json!({"destination": "crm", "gate": "paused", "reason": "maintenance"});
    assert_eq!(desk.post("/api/v1/lanes/gate", &pause.to_string()).await.status, 200);
    let why = desk.why(id).await;
    assert_eq!(why["reason"], json!("lane_paused"));
    assert!(why["advice"].as_str().unwrap().contains(&format!("forebay lane resume {namespace}/crm")), "{why}");
    let close = json!({"destination": "crm", "namespace": namespace.as_str(), "gate": "closed"});
    assert_eq!(desk.post("/api/v1/lanes/gate", &close.to_string()).await.status, 200);
    assert_eq!(desk.why(id).await["reason"], json!("lane_closed"), "the stricter one counts");
    let lanes = desk.json("/api/v1/lanes?destination=crm").await;
    assert_eq!((lanes["gates"].as_array().unwrap().len(), &lanes["elsewhere"]), (2, &json!([0])));
    assert_eq!(lanes["gates"][0]["reason"], json!("maintenance"));
    assert_eq!(desk.json("/api/v1/lanes?destination=other").await["gates"], json!([]));
    let open = json!({"destination": "crm", "gate": "open"});
    assert_eq!(desk.post("/api/v1/lanes/gate", &open.to_string()).await.status, 200);
    assert_eq!(desk.json("/api/v1/lanes").await["gates"], json!([]));
    for wrong in ["{}", r#"{"destination":"crm","gate":"ajar"}"#, r#"{"destination":"C R M","gate":"open"}"#] {
        assert_eq!(desk.post("/api/v1/lanes/gate", wrong).await.status, 400, "{wrong}");
    }
}

// OBS-4
#[tokio::test]
async fn what_is_not_due_or_has_ended_says_so() {
    let desk = Desk::open(None).await;
    let later = desk.shared.emit(vec![desk.shared.message("crm", NOW + Duration::from_secs(60))]).await[0];
    let why = desk.why(later).await;
    assert_eq!(why["reason"], Value::Null);
    assert!(why["explanation"].as_str().unwrap().starts_with("It is not due before 2030-01-01T00:01:00"), "{why}");
    let dead = desk.due().await;
    desk.end(dead, AfterAttempt::Dead).await;
    let why = desk.why(dead).await;
    assert_eq!(why["explanation"], json!("It was given up: it answered 400."));
    assert!(why["advice"].as_str().unwrap().contains("forebay message redrive"));
}

// LAN-3
#[tokio::test]
async fn dead_messages_are_sent_again_one_or_all_of_a_lane() {
    let desk = Desk::open(None).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let id = desk.due().await;
        desk.end(id, AfterAttempt::Dead).await;
        ids.push(id);
    }
    let namespace = desk.store.message_entries(&ids).await.unwrap()[0].namespace.to_string();
    let one = desk.post(&format!("/api/v1/messages/{}/redrive", ids[0]), "").await;
    let one: Value = one.json().unwrap();
    assert_eq!((&one["state"], &one["generation"]), (&json!("scheduled"), &json!(2)));
    let again = desk.post(&format!("/api/v1/messages/{}/redrive", ids[0]), "").await;
    assert_eq!(again.status, 409, "{}", shown(&again));
    let lane = json!({"namespace": namespace, "destination": "crm"}).to_string();
    let all: Value = desk.post("/api/v1/lanes/redrive", &lane).await.json().unwrap();
    assert_eq!(all, json!({"redriven": 2, "expired": 0, "next": null}));
    let all: Value = desk.post("/api/v1/lanes/redrive", &lane).await.json().unwrap();
    assert_eq!(all["redriven"], json!(0));
}

// TL-6
#[tokio::test]
async fn an_uncertain_message_is_settled_as_an_operator_says() {
    let desk = Desk::open(None).await;
    let id = desk.due().await;
    let resolve = format!("/api/v1/messages/{id}/resolve");
    assert_eq!(desk.post(&resolve, r#"{"as":"published"}"#).await.status, 409);
    desk.end(id, AfterAttempt::Uncertain).await;
    assert!(desk.why(id).await["advice"].as_str().unwrap().contains("forebay message resolve"));
    let too_late = shown(&desk.post(&format!("/api/v1/messages/{id}/cancel"), "").await);
    assert!(too_late.starts_with("409") && too_late.contains("forebay message resolve"), "{too_late}");
    assert_eq!(desk.post(&resolve, r#"{"as":"lost"}"#).await.status, 400);
    let resolved: Value = desk.post(&resolve, r#"{"as":"published"}"#).await.json().unwrap();
    assert_eq!(resolved["state"], json!("published"));
}

// TL-5, TL-6
#[tokio::test]
async fn a_command_to_what_may_have_arrived_is_too_late_and_says_what_to_do() {
    let desk = Desk::open(None).await;
    let id = desk.due().await;
    desk.end_unknown(id, AfterAttempt::RetryAt(NOW + LEASE)).await;
    for (what, body) in [("cancel", ""), ("reschedule", r#"{"delay_ms":1}"#)] {
        let answer = desk.post(&format!("/api/v1/messages/{id}/{what}"), body).await;
        expect![[
            r#"409 {"error":{"code":"too_late","message":"it is too late: the message is retry_wait, and the outcome of an earlier attempt is unknown: ask the receiver, then run `forebay message resolve ID --as retry|published|dead`","state":"retry_wait"}}"#
        ]]
        .assert_eq(&shown(&answer));
    }
    let why = desk.why(id).await;
    assert!(why["advice"].as_str().unwrap().contains(&format!("forebay message resolve {id} --as")), "{why}");
    let resolved = desk.post(&format!("/api/v1/messages/{id}/resolve"), r#"{"as":"dead"}"#).await.json().unwrap();
    assert_eq!((&resolved["state"], &resolved["uncertain_attempts"]), (&json!("dead"), &json!(0)));
}

// TL-7
#[tokio::test]
async fn shards_are_listed_with_their_owners() {
    let desk = Desk::open(None).await;
    let runtime = desk.shared.runtime();
    desk.store.acquire_shard(ShardId(0), runtime, LEASE, NOW).await.unwrap().unwrap();
    let shards = desk.json("/api/v1/shards").await["items"].take();
    assert_eq!(shards[0]["owner"], json!(runtime.to_string()));
    assert_eq!((&shards[0]["shard"], &shards[0]["epoch"], &shards[0]["here"]), (&json!(0), &json!(1), &Value::Null));
    assert_eq!((&shards[0]["checkpoint"], &shards[0]["withdrawn"]), (&Value::Null, &json!([])));
}

// TL-7
#[test]
fn an_actor_that_panicked_is_told_of_with_what_comes_next() {
    let (shard, reason) = (ShardId(3), "no such thing".to_owned());
    let said = |next| wire::Trouble::from(ShardTrouble { shard, panics: 2, reason: reason.clone(), next }).sentence(3);
    let begin = "the actor of shard 3 panicked, 2 times in a row, and ";
    for (next, words) in [
        (AfterTrouble::Opened, "was restarted"),
        (AfterTrouble::OpenedAt(NOW), "is restarted at 2030-01-01T00:00:00.000Z"),
        (AfterTrouble::LeftToOthers, "is left to another host"),
        (AfterTrouble::Down, "stays down until the host is restarted"),
    ] {
        assert_eq!(said(next), format!("{begin}{words}: no such thing"));
    }
    let down = ShardTrouble { shard, panics: 2, reason: reason.clone(), next: AfterTrouble::Down };
    let reasons = timeline_trouble(vec![down], false);
    assert_eq!(reasons[0], said(AfterTrouble::Down), "the host is not ready, and says why");
    assert!(reasons[1].starts_with("the timeline is not publishing"), "{reasons:?}");
    assert!(timeline_trouble(Vec::new(), true).is_empty());
}

// TL-2, TL-7
#[tokio::test]
async fn a_shards_checkpoint_and_who_cannot_open_it_are_shown() {
    let desk = Desk::open(None).await;
    let runtime = desk.shared.runtime();
    let lease = desk.store.acquire_shard(ShardId(0), runtime, LEASE, NOW).await.unwrap().unwrap();
    let (shard, epoch, digest) = (lease.shard, lease.epoch, [7; 32]);
    let row = CheckpointRow { shard, epoch, number: 1, applied: 70, bytes: 4_096, digest, created_at: NOW };
    desk.store.keep_checkpoint(lease, row, 1).await.unwrap().unwrap();
    desk.store.withdraw(ShardId(0), runtime, LEASE, "the disk is broken".to_owned(), NOW).await.unwrap();
    let shards = desk.json("/api/v1/shards").await["items"].take();
    assert_eq!((&shards[0]["checkpoint"]["applied"], &shards[0]["checkpoint"]["bytes"]), (&json!(70), &json!(4_096)));
    assert_eq!(shards[0]["withdrawn"][0]["runtime"], json!(runtime.to_string()));
    assert_eq!(shards[0]["withdrawn"][0]["reason"], json!("the disk is broken"));
    // No timeline runs here, and the other shards do not exist.
    assert_eq!(desk.post("/api/v1/shards/0/checkpoint", "").await.status, 503);
    assert_eq!(desk.post("/api/v1/shards/77/checkpoint", "").await.status, 404);
    assert_eq!(desk.post("/api/v1/shards/x/checkpoint", "").await.status, 404);
}
