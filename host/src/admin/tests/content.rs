//! The contents of answers.

use std::time::Duration;

use bytes::Bytes;
use expect_test::expect;
use serde_json::{Value, json};

use super::{Desk, NOW, shown};
use crate::admin::{BODY_SHOWN_BYTES_MAX, Stage};
use crate::model::event::Header;
use crate::model::failure::{Failure, FailureClass};
use crate::model::ids::{EventId, MessageId};
use crate::model::message::NewMessage;
use crate::model::reading::RunRecord;
use crate::store::testing::LEASE;
use crate::store::{AdmissionRequest, Disposition, Enqueued, Finished, ShardId};

impl Desk {
    /// A delivery of one event about one repository, durable.
    async fn deliver(&self, key: &str, body: &[u8]) -> EventId {
        let mut delivery = self.shared.delivery(vec![self.shared.event(key, Some("repository-1"), body)]);
        let credential = Header { name: "authorization".to_owned(), value: Bytes::from_static(b"Bearer hunter2") };
        delivery.headers.push(credential);
        match self.store.enqueue(delivery).await.unwrap() {
            Enqueued::Stored { events } => events[0],
            other => panic!("{other:?}"),
        }
    }

    /// Runs an event that emits one message, due in a minute.
    async fn emit(&self) -> (EventId, MessageId) {
        let event = self.deliver("delivery-1", b"{\"ref\":\"main\"}").await;
        let claimed = self.shared.claim(1).await.remove(0);
        let message = NewMessage {
            body: Bytes::from_static(b"\xff\x00"),
            content_type: "application/octet-stream".to_owned(),
            headers: Vec::new(),
            ..self.shared.message("crm", NOW + Duration::from_secs(60))
        };
        let id = message.id;
        let note = Some("one commit".to_owned());
        let done = Disposition::Done { note, ignored: false, messages: vec![message], record: RunRecord::none() };
        assert_eq!(self.shared.finish(&claimed, done).await, Finished::Applied);
        (event, id)
    }

    /// Publish Admission of a message.
    async fn admit(&self, id: MessageId) {
        let lease = self.store.acquire_shard(ShardId(0), self.shared.runtime(), LEASE, NOW).await.unwrap().unwrap();
        let generation = self.store.message_entries(&[id]).await.unwrap()[0].generation;
        self.store.admit(lease, vec![AdmissionRequest { id, generation }], NOW).await.unwrap();
    }
}

async fn json_of(desk: &Desk, path: &str) -> Value {
    let answer = desk.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", shown(&answer));
    answer.json().unwrap()
}

#[tokio::test]
async fn events_are_listed_newest_first_and_page_by_page() {
    let desk = Desk::open(None).await;
    let mut newest_first = Vec::new();
    for number in 0..5 {
        newest_first.insert(0, desk.deliver(&format!("delivery-{number}"), b"{}").await.to_string());
    }
    let mut seen = Vec::new();
    let mut path = "/api/v1/events?limit=2&namespace=acme&pack=github&route=push".to_owned();
    loop {
        let page = json_of(&desk, &path).await;
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        seen.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => path = format!("/api/v1/events?limit=2&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, newest_first);
    assert_eq!(json_of(&desk, "/api/v1/events?state=blocked").await["items"].as_array().unwrap().len(), 4);
    assert_eq!(json_of(&desk, "/api/v1/events?namespace=globex").await, json!({"items": [], "next": null}));
}

#[tokio::test]
async fn an_event_shows_what_became_of_it() {
    let desk = Desk::open(None).await;
    let (event, message) = desk.emit().await;
    let shown = json_of(&desk, &format!("/api/v1/events/{event}")).await;
    assert_eq!(shown["id"], event.to_string());
    assert_eq!(shown["received_at"], "2030-01-01T00:00:00.000Z");
    assert_eq!(
        shown["body"],
        json!({"encoding": "utf-8", "data": "{\"ref\":\"main\"}", "bytes": 14, "truncated": false})
    );
    let headers = json!([{"name": "x-github-event", "value": "push"}, {"name": "authorization", "value": null}]);
    assert_eq!(shown["headers"], headers, "what is a credential by its name is not shown");
    assert_eq!(shown["work_items"][0]["state"], "done");
    assert_eq!(shown["work_items"][0]["note"], "one commit");
    assert_eq!(shown["messages"][0]["id"], message.to_string());

    let item = shown["work_items"][0]["id"].as_str().unwrap();
    assert_eq!(json_of(&desk, &format!("/api/v1/work-items/{item}")).await, shown["work_items"][0]);
    let listed = json_of(&desk, &format!("/api/v1/messages?event={event}&destination=crm&state=scheduled")).await;
    assert_eq!(listed["items"], shown["messages"]);
    let detail = json_of(&desk, &format!("/api/v1/messages/{message}")).await;
    assert_eq!(detail["body"], json!({"encoding": "base64", "data": "/wA=", "bytes": 2, "truncated": false}));
    assert_eq!(detail["due_at"], "2030-01-01T00:01:00.000Z");
}

#[tokio::test]
async fn a_large_body_is_cut_between_characters() {
    let desk = Desk::open(None).await;
    let body = format!("x{}", "ä".repeat(BODY_SHOWN_BYTES_MAX / 2));
    let event = desk.deliver("delivery-1", body.as_bytes()).await;
    let shown = &json_of(&desk, &format!("/api/v1/events/{event}")).await["body"];
    assert_eq!(shown["encoding"], "utf-8");
    assert_eq!(shown["truncated"], true);
    assert_eq!(shown["bytes"], body.len());
    assert_eq!(shown["data"].as_str().unwrap().len(), BODY_SHOWN_BYTES_MAX - 1);
}

// TL-5
#[tokio::test]
async fn a_cancel_is_answered_honestly() {
    let desk = Desk::open(None).await;
    let (_, message) = desk.emit().await;
    let path = format!("/api/v1/messages/{message}/cancel");
    for _ in 0..2 {
        let answer = desk.post(&path, "").await;
        assert_eq!(answer.status, 200, "the second time changes nothing: {}", shown(&answer));
        assert_eq!(answer.json().unwrap()["state"], "cancelled");
    }
    let moved = desk.post(&format!("/api/v1/messages/{message}/reschedule"), r#"{"delay_ms":1}"#).await;
    assert_eq!(moved.status, 409);
    expect![[
        r#"409 {"error":{"code":"too_late","message":"it is too late: the message is cancelled","state":"cancelled"}}"#
    ]]
    .assert_eq(&shown(&moved));
    let unknown = desk.post("/api/v1/messages/msg_00000000000000000000000000000000/cancel", "").await;
    expect![[r#"404 {"error":{"code":"not_found","message":"there is no message msg_00000000000000000000000000000000: it never was, or it was removed; what has ended is kept 20 days (retention.messages_days)"}}"#]]
    .assert_eq(&shown(&unknown));
}

// TL-5
#[tokio::test]
async fn after_publish_admission_it_is_too_late() {
    let desk = Desk::open(None).await;
    let (_, message) = desk.emit().await;
    desk.admit(message).await;
    for (what, body) in [("cancel", ""), ("reschedule", r#"{"due_at":"2030-02-01T00:00:00Z"}"#)] {
        let answer = desk.post(&format!("/api/v1/messages/{message}/{what}"), body).await;
        assert_eq!(answer.status, 409, "{what}");
        assert_eq!(answer.json().unwrap()["error"]["code"], "too_late");
        assert_eq!(answer.json().unwrap()["error"]["state"], "publishing");
    }
}

// TL-5
#[tokio::test]
async fn a_reschedule_moves_the_message() {
    let desk = Desk::open(None).await;
    let (_, message) = desk.emit().await;
    let path = format!("/api/v1/messages/{message}/reschedule");
    let moved = desk.post(&path, r#"{"due_at":"2030-02-01T01:00:00+01:00"}"#).await.json().unwrap();
    assert_eq!(moved["due_at"], "2030-02-01T00:00:00.000Z");
    assert_eq!(moved["generation"], 2);
    let moved = desk.post(&path, r#"{"delay_ms":90000}"#).await.json().unwrap();
    assert_eq!(moved["due_at"], "2030-01-01T00:01:30.000Z");
}

// CLM-8
#[tokio::test]
async fn a_dead_head_can_be_skipped_and_nothing_else() {
    let desk = Desk::open(None).await;
    desk.deliver("delivery-1", b"{}").await;
    desk.deliver("delivery-2", b"{}").await;
    let head = desk.shared.claim(1).await.remove(0);
    let path = format!("/api/v1/work-items/{}/skip", head.id);
    let early = desk.post(&path, "").await;
    expect![[r#"409 {"error":{"code":"not_skippable","message":"the work item is processing: only a dead work item that holds up its lane can be skipped","state":"processing"}}"#]].assert_eq(&shown(&early));
    let failure = Failure::new(FailureClass::Rejected, "not today");
    let dead = Disposition::Dead { failure, leaves_lane: false };
    assert_eq!(desk.shared.finish(&head, dead).await, Finished::Applied);
    let stats = json_of(&desk, "/api/v1/stats").await;
    assert_eq!((&stats["work_items"]["ready"], &stats["work_items"]["blocked"]), (&json!(0), &json!(1)));
    let skipped = desk.post(&path, "").await;
    assert_eq!(skipped.status, 200, "{}", shown(&skipped));
    assert_eq!(skipped.json().unwrap()["failure"], json!({"class": "rejected", "message": "not today"}));
    assert_eq!(json_of(&desk, "/api/v1/stats").await["work_items"]["ready"], 1);
    let unknown = desk.post("/api/v1/work-items/wi_00000000000000000000000000000000/skip", "").await;
    assert_eq!(unknown.status, 404);
}

// RPL-1
#[tokio::test]
async fn a_replay_is_answered_with_the_one_child() {
    let desk = Desk::open(None).await;
    let event = desk.deliver("delivery-1", b"{}").await;
    let item = desk.shared.claim(1).await.remove(0);
    let path = format!("/api/v1/work-items/{}/replay", item.id);
    let early = desk.post(&path, "").await;
    expect![[r#"409 {"error":{"code":"not_finished","message":"the work item is processing: only a work item that is done or dead can be replayed","state":"processing"}}"#]].assert_eq(&shown(&early));
    let failure = Failure::new(FailureClass::Rejected, "not today");
    desk.shared.finish(&item, Disposition::Dead { failure, leaves_lane: true }).await;

    let first = desk.post(&path, "").await.json().unwrap();
    assert_eq!((&first["already"], &first["work_item"]["replay_of"]), (&json!(false), &json!(item.id.to_string())));
    let second = desk.post(&path, "").await.json().unwrap();
    assert_eq!((&second["already"], &second["work_item"]), (&json!(true), &first["work_item"]));
    let detail = json_of(&desk, &format!("/api/v1/events/{event}")).await;
    assert_eq!(detail["work_items"][0]["replayed_at"], "2030-01-01T00:00:00.000Z");
    assert_eq!(detail["work_items"][1], first["work_item"]);
    let unknown = desk.post("/api/v1/work-items/wi_00000000000000000000000000000000/replay", "").await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn statistics_name_every_state_in_order() {
    let desk = Desk::open(None).await;
    desk.emit().await;
    let expected = concat!(
        r#"200 {"work_items":{"ready":0,"delayed":0,"blocked":0,"processing":0,"done":1,"dead":0},"#,
        r#""messages":{"scheduled":1,"publishing":0,"retry_wait":0,"uncertain":0,"published":0,"cancelled":0,"#,
        r#""expired":0,"dead":0,"handed_off":0}}"#
    );
    assert_eq!(shown(&desk.get("/api/v1/stats").await), expected);
    let metrics = desk.get("/metrics").await;
    assert_eq!(metrics.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(text.contains("forebay_work_items{state=\"done\"}"), "{text}");
}

#[tokio::test]
async fn a_host_that_is_not_serving_says_so() {
    let desk = Desk::open(None).await;
    expect![[r#"503 {"ready":false,"reasons":["the host is starting"]}"#]]
        .assert_eq(&shown(&desk.get("/readyz").await));
    desk.stage.send_replace(Stage::Stopping);
    expect![[r#"503 {"ready":false,"reasons":["the host is shutting down"]}"#]]
        .assert_eq(&shown(&desk.get("/readyz").await));
    assert_eq!(desk.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_a_503() {
    let desk = Desk::open(None).await;
    desk.store.close().await;
    let answer = desk.get("/api/v1/stats").await;
    assert_eq!(answer.status, 503, "{}", shown(&answer));
    assert_eq!(answer.headers["retry-after"], "1");
    let readiness = desk.get("/readyz").await.json().unwrap();
    assert!(readiness["reasons"].as_array().unwrap().iter().any(|reason| reason.as_str().unwrap().contains("store")));
    assert_eq!(desk.get("/metrics").await.status, 200, "the rest is still worth having");
}
