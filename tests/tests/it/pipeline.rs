//! From the signed webhook to the signed message, with guests that behave and guests that do not.

use forebay_tests::world::{World, event_ids, signed};
use forebay_tests::{cases, received, wait};
use http::StatusCode;
use serde_json::{Value, json};

/// What the github pack makes of an event.
enum Expected {
    /// It sends this many messages at once, and this many later.
    Sends { now: usize, later: usize },
    /// It notes it, and sends nothing.
    Notes,
    /// It ignores it.
    Ignores,
}

fn expected(event: &str, body: &Value) -> Expected {
    match event {
        "push" | "issues" => Expected::Sends { now: 1, later: 0 },
        "pull_request" if body["action"] == "opened" => Expected::Sends { now: 1, later: 1 },
        "pull_request" => Expected::Sends { now: 1, later: 0 },
        "ping" => Expected::Notes,
        _ => Expected::Ignores,
    }
}

// ADM-3, MAT-1, GST-1, TL-4
#[tokio::test(flavor = "multi_thread")]
async fn every_real_github_event_goes_all_the_way() -> anyhow::Result<()> {
    let mut world = World::start(&["github"]).await?;
    let mut delivered = Vec::new();
    for case in cases::github() {
        let answer = world.deliver(&signed(format!("case-{}", case.event), &case.event, case.body.clone())).await?;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}: {:?}", case.event, answer.body);
        let ids = event_ids(&answer)?;
        assert_eq!(ids.len(), 1, "{}", case.event);
        delivered.push((case, ids[0].clone()));
    }
    world.settle().await?;
    let arrived = received::messages(&world.sink);
    let mut sent_now = 0;
    for (case, id) in &delivered {
        let detail = world.admin().event(id).await?;
        let body: Value = serde_json::from_slice(&case.body)?;
        let (now, later, ignored) = match expected(&case.event, &body) {
            Expected::Sends { now, later } => (now, later, false),
            Expected::Notes => (0, 0, false),
            Expected::Ignores => (0, 0, true),
        };
        let item = &detail["work_items"][0];
        assert_eq!((item["state"].as_str(), item["attempt"].as_u64()), (Some("done"), Some(1)), "{detail}");
        assert_eq!(item["ignored"], ignored, "{detail}");
        assert!(item["note"].as_str().is_some_and(|note| !note.is_empty()), "{detail}");
        let messages = detail["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let in_state = |state: &str| messages.iter().filter(|message| message["state"] == state).count();
        assert_eq!((in_state("published"), in_state("scheduled")), (now, later), "{detail}");
        sent_now += now;
    }
    assert_eq!(arrived.len(), sent_now, "what arrived is not what was sent");
    assert!(world.stop().await?.success());
    Ok(())
}

// ADM-5
#[tokio::test(flavor = "multi_thread")]
async fn fifty_identical_deliveries_at_once_are_one_event_and_one_message() -> anyhow::Result<()> {
    let world = World::start(&["github"]).await?;
    let delivery = signed("the-same", "push", cases::github_body("push"));
    let answers = futures_util::future::join_all((0..50).map(|_| world.deliver(&delivery))).await;
    let mut fresh = 0;
    for answer in answers {
        let answer = answer?;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{:?}", answer.body);
        fresh += usize::from(answer.json()?["duplicate"] == false);
    }
    assert_eq!(fresh, 1);
    let other = world.deliver(&signed("the-same", "push", "{}")).await?;
    assert_eq!(other.status, StatusCode::CONFLICT, "{:?}", other.body);
    world.settle().await?;
    assert_eq!(world.admin().events().await?.len(), 1);
    assert_eq!(received::messages(&world.sink).len(), 1);
    Ok(())
}

// ADM-4
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_right_is_refused_and_leaves_nothing() -> anyhow::Result<()> {
    let world = World::start(&["github"]).await?;
    let right = signed("right", "ping", r#"{"zen":"Design for failure."}"#);
    let mut forged = right.clone();
    forged.signature.replace_range(7..9, if forged.signature[7..9] == *"00" { "11" } else { "00" });
    let mut altered = right.clone();
    altered.body = "{}".into();
    for wrong in [&forged, &altered] {
        assert_eq!(world.deliver(wrong).await?.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(world.deliver_to("nowhere", &right).await?.status, StatusCode::NOT_FOUND);
    let large = signed("large", "push", "x".repeat(26 * 1024 * 1024));
    // The answer may come before the body has been sent, and the connection be closed under it.
    if let Ok(answer) = world.deliver(&large).await {
        assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    }
    assert!(world.admin().events().await?.is_empty());
    assert_eq!(world.deliver(&right).await?.status, StatusCode::ACCEPTED);
    Ok(())
}

/// A deed of the hostile guest, the class that its failure must have, and what its author must be told.
fn deeds() -> Vec<(Value, &'static str, &'static str)> {
    vec![
        (json!({ "do": "loop" }), "out_of_fuel", "fuel"),
        (json!({ "do": "allocate" }), "memory", "memory"),
        (json!({ "do": "panic", "message": "the author's own words" }), "panic", "the author's own words"),
        (json!({ "do": "return", "bytes": 1_000_000 }), "bad_output", "bytes"),
        (json!({ "do": "return", "bytes": 100_000_000 }), "memory", "memory"),
        (json!({ "do": "recurse" }), "trap", "stack"),
        (json!({ "do": "reject", "reason": "not for me" }), "rejected", "not for me"),
        (json!({ "do": "emit", "count": 9, "destination": "sink" }), "bad_output", "8"),
        (json!({ "do": "emit", "count": 1, "destination": "elsewhere" }), "bad_output", "elsewhere"),
    ]
}

// GST-2, GST-3, SCH-5
#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_misbehaves_fails_alone_and_its_author_is_told() -> anyhow::Result<()> {
    let world = World::start(&["github", "hostile"]).await?;
    let mut bad = Vec::new();
    for (deed, class, words) in deeds() {
        let answer = world.deliver_to("hostile", &signed("", "deed", deed.to_string())).await?;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{deed}: {:?}", answer.body);
        bad.push((deed, class, words, event_ids(&answer)?.remove(0)));
    }
    // A gigabyte of log text: what is over the limit is cut, and the event is done.
    let flood = json!({ "do": "log", "lines": 16_384, "bytes": 65_536 });
    let flood = event_ids(&world.deliver_to("hostile", &signed("", "deed", flood.to_string())).await?)?.remove(0);

    let good = world.deliver(&signed("good", "push", cases::github_body("push"))).await?;
    let good = event_ids(&good)?.remove(0);
    let published = |detail: &Value| detail["messages"][0]["state"] == "published";
    wait::until("the other pack's event goes through", async || world.admin().event(&good).await, published).await?;
    world.settle().await?;
    for (deed, class, words, event) in &bad {
        let item = world.admin().event(event).await?["work_items"][0].clone();
        assert_eq!(item["state"], "dead", "{deed}: {item}");
        assert_eq!(item["failure"]["class"], *class, "{deed}: {item}");
        let message = item["failure"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{deed}: {item}");
    }
    let item = world.admin().event(&flood).await?["work_items"][0].clone();
    assert!(item["state"] == "done" || item["failure"]["class"] == "deadline", "{item}");
    let log = std::fs::metadata(&world.site.host.log)?.len();
    assert!(log < 1_000_000, "the guest's flood reached the host's log: {log} bytes");
    Ok(())
}
