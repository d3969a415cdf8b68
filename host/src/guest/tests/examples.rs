//! The GitHub connector, from its pack file to what it emits.

use serde_json::{Value, json};

use super::*;

fn pull_request() -> Event {
    let body = json!({
        "action": "opened",
        "pull_request": { "number": 7, "title": "Fix it", "html_url": "https://github.example/octo/hello/pull/7" },
        "repository": { "full_name": "octo/hello" },
        "sender": { "login": "octocat" },
    });
    let mut event = event("github", &[("x-github-event", "pull_request")], body.to_string());
    event.source_key = Some("octo/hello".to_owned());
    event
}

// GST-1, GST-4
#[tokio::test]
async fn a_pull_request_becomes_a_notification_and_a_reminder_after_the_packs_own_delay() {
    let engine = Engine::start();
    let generation = engine
        .load("github", |manifest| {
            manifest.settings.insert("reminder_delay_seconds".to_owned(), "90".to_owned());
        })
        .await;
    let output = flow(&generation, &pull_request()).await.unwrap().unwrap();
    assert_eq!(output.note.as_deref(), Some("pull request 7 opened"));
    let [now, reminder] = &output.messages[..] else { panic!("{output:?}") };
    assert_eq!(now.destination.as_str(), "notifications");
    assert_eq!(now.content_type, "application/json");
    assert_eq!(now.ordering_key.as_deref(), Some("octo/hello"));
    assert_eq!((now.due, reminder.due), (Due::Now, Due::After(Duration::from_secs(90))));
    let body: Value = serde_json::from_slice(&reminder.body).unwrap();
    assert_eq!(body["kind"], "reminder");
}

// GST-5
#[tokio::test]
async fn the_same_event_gives_the_same_output_in_another_engine() {
    let mut outputs = Vec::new();
    for _ in 0..2 {
        let engine = Engine::start();
        let generation = engine.load("github", |_| ()).await;
        outputs.push(flow(&generation, &pull_request()).await.unwrap());
    }
    assert_eq!(outputs[0], outputs[1]);
}

#[tokio::test]
async fn an_event_of_no_interest_is_ignored_with_a_reason() {
    let engine = Engine::start();
    let generation = engine.load("github", |_| ()).await;
    let star = event("github", &[("x-github-event", "star")], "{}");
    let prepared = generation.prepare(&star, 1, deadline(AMPLE)).await.unwrap();
    assert_eq!(prepared, Prepared::Ignore { reason: "`star` is not handled".to_owned() });
}

// GST-1, GST-6
#[tokio::test]
async fn generations_are_called_side_by_side() {
    let engine = Engine::start();
    let (github, hostile) = (engine.load("github", |_| ()).await, engine.load("hostile", |_| ()).await);
    let (wedged, opened) = (event("hostile", &[], r#"{"do":"loop"}"#), pull_request());
    let (wedged, opened) = tokio::join!(flow(&hostile, &wedged), flow(&github, &opened));
    assert_eq!(wedged.unwrap_err().class, FailureClass::OutOfFuel);
    assert_eq!(opened.unwrap().unwrap().messages.len(), 2);
}
