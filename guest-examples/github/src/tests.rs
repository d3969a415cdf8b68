use forebay_sdk::Due;
use forebay_sdk::testing::{TestHost, event};
use serde_json::{Value, json};

use super::*;

fn github(kind: &str, body: Value) -> Event {
    let mut event = event(&[("x-github-event", kind)], body.to_string());
    event.source_key = Some("octo/hello".to_owned());
    event
}

fn flow(kind: &str, body: Value) -> Option<Output> {
    TestHost::new().flow::<GitHub>(&github(kind, body)).unwrap()
}

fn pull_request(action: &str) -> Value {
    json!({
        "action": action,
        "pull_request": { "number": 7, "title": "Fix it", "html_url": "https://github.example/octo/hello/pull/7" },
        "repository": { "full_name": "octo/hello" },
        "sender": { "login": "octocat" },
    })
}

#[test]
fn a_push_becomes_one_notification_in_the_order_of_its_repository() {
    let body = json!({
        "ref": "refs/heads/main",
        "after": "6113728f27ae82c7b1a177c8d03f9e96e0adf246",
        "commits": [{ "id": "a" }, { "id": "b" }],
        "repository": { "full_name": "octo/hello" },
        "sender": { "login": "octocat" },
    });
    let output = flow("push", body).unwrap();
    let [message] = &output.messages[..] else { panic!("{output:?}") };
    assert_eq!(message.destination, "notifications");
    assert_eq!(message.ordering_key.as_deref(), Some("octo/hello"));
    assert_eq!(message.idempotency_key.as_deref(), Some("delivery-1"));
    let sent: Value = serde_json::from_slice(&message.body).unwrap();
    assert_eq!(sent["kind"], "push");
    assert_eq!(sent["ref"], "refs/heads/main");
    assert_eq!(sent["commits"], 2);
}

#[test]
fn a_pull_request_that_opens_becomes_a_reminder_too() {
    for action in ["opened", "reopened"] {
        let output = flow("pull_request", pull_request(action)).unwrap();
        let [now, reminder] = &output.messages[..] else { panic!("{output:?}") };
        assert_eq!(now.due, Due::Now);
        assert_eq!(reminder.due, Due::After(Duration::from_secs(86_400)));
        assert_ne!(now.idempotency_key, reminder.idempotency_key);
        assert_ne!(now.ordering_key, reminder.ordering_key);
    }
    assert_eq!(flow("pull_request", pull_request("closed")).unwrap().messages.len(), 1);
}

#[test]
fn the_reminders_delay_is_a_setting() {
    let event = github("pull_request", pull_request("opened"));
    let set = |value: &str| TestHost::new().setting("reminder_delay_seconds", value).flow::<GitHub>(&event);
    assert_eq!(set("5").unwrap().unwrap().messages[1].due, Due::After(Duration::from_secs(5)));
    assert!(matches!(set("soon"), Err(Failure::Other(reason)) if reason.contains("reminder_delay_seconds")));
}

#[test]
fn an_issue_becomes_a_notification() {
    let body = json!({
        "action": "edited",
        "issue": { "number": 1, "title": "Broken", "html_url": "https://github.example/octo/hello/issues/1" },
        "repository": { "full_name": "octo/hello" },
        "sender": { "login": "octocat" },
    });
    let output = flow("issues", body).unwrap();
    assert_eq!(output.note.as_deref(), Some("issue 1 edited"));
    assert_eq!(output.messages.len(), 1);
}

#[test]
fn a_ping_is_noted_and_sent_to_nobody() {
    let output = flow("ping", json!({ "zen": "Keep it logically awesome." })).unwrap();
    assert_eq!(output.note.as_deref(), Some("the webhook works: Keep it logically awesome."));
    assert!(output.messages.is_empty());
}

#[test]
fn the_rest_is_ignored_with_a_reason() {
    let prepared = GitHub::prepare(&github("star", json!({}))).unwrap();
    assert!(matches!(prepared, Prepared::Ignore { reason } if reason == "`star` is not handled"));
}

#[test]
fn what_is_not_githubs_is_invalid_input() {
    let unnamed = GitHub::prepare(&event(&[], "{}"));
    assert!(matches!(unnamed, Err(Failure::InvalidInput(_))));
    let empty = GitHub::prepare(&github("push", json!({})));
    assert!(matches!(empty, Err(Failure::InvalidInput(_))));
}
