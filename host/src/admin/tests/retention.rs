//! Retention, as operators see it.

use super::*;
use crate::model::retention::DAY;
use crate::store::testing::done;

// RET-5
#[tokio::test]
async fn what_is_past_its_time_and_what_was_removed_is_said() {
    let desk = Desk::open(None).await;
    for key in ["one", "two"] {
        desk.shared.deliver(key, None).await;
        let item = desk.shared.claim(1).await.pop().unwrap();
        desk.shared.finish(&item, done(vec![])).await;
    }
    let said = async || desk.get("/api/v1/retention").await.json().unwrap();
    let before = said().await;
    assert_eq!(before["days"], serde_json::json!({"events": 30, "messages": 20, "failed": null}));
    let kept = serde_json::json!({"past": 0, "oldest": "2030-01-01T00:00:00.000Z"});
    assert_eq!((&before["kept"]["events"], &before["phase"]), (&kept, &"waiting".into()));
    desk.shared.advance(31 * DAY);
    assert_eq!(said().await["kept"]["events"]["past"], 2);
    while desk.keeper.progress().last.is_none() {
        desk.keeper.tick().await;
    }
    let after = said().await;
    let removed = serde_json::json!({"events": 1, "work_items": 1, "messages": 0});
    assert_eq!((&after["phase"], &after["removed"]), (&"resting".into(), &removed));
    assert_eq!(after["last_pass"], serde_json::json!({"looked": 2, "removed": removed}));
    assert_eq!(after["kept"]["events"]["past"], 1, "the newest stays");
}

// RET-5
#[tokio::test]
async fn what_is_not_there_may_have_been_removed_and_that_is_said() {
    let desk = Desk::open(None).await;
    for (path, what, days) in [
        ("events/evt_", "event evt_", "30 days (retention.events_days)"),
        ("work-items/wi_", "work item wi_", "30 days (retention.events_days)"),
        ("messages/msg_", "message msg_", "20 days (retention.messages_days)"),
    ] {
        let id = "01".repeat(16);
        let answer = desk.get(&format!("/api/v1/{path}{id}")).await;
        let said = format!("there is no {what}{id}: it never was, or it was removed; what has ended is kept {days}");
        assert_eq!(answer.status.as_u16(), 404);
        assert_eq!(answer.json().unwrap()["error"]["message"], said.as_str());
    }
}
