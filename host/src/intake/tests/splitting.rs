//! Requests that carry many events.

use serde_json::json;

use super::client::request;
use super::fixture::{Setup, World, plain_route};
use crate::model::event::Event;
use crate::model::pack::{EventList, KeyRule, Ordering, Route};

fn pointer(text: &str) -> Option<KeyRule> {
    Some(KeyRule::Pointer(text.to_owned()))
}

/// A route whose requests carry up to three events each.
fn batch_route(delivery_key: Option<KeyRule>) -> Route {
    Route {
        event_list: Some(EventList { pointer: "/events".to_owned(), events_max: 3 }),
        delivery_key,
        source_key: pointer("/repo"),
        ordering: Ordering::Delivery,
        ..plain_route("batch")
    }
}

async fn world(delivery_key: Option<KeyRule>) -> World {
    World::start(Setup { routes: vec![batch_route(delivery_key)], ..Setup::default() }).await
}

async fn send(world: &World, body: &str) -> (u16, serde_json::Value) {
    let reply = world.send(&request("POST", "/in/acme/batch", &[("x-id", "r-1")], body.as_bytes())).await;
    (reply.status, reply.json())
}

async fn oldest_first(world: &World) -> Vec<Event> {
    let mut events = world.events().await;
    events.reverse();
    events
}

// ADM-6
#[tokio::test]
async fn each_element_is_an_event_of_its_own_in_payload_order() {
    let world = world(pointer("/id")).await;
    let body = r#"{"events":[{"id":"a","repo":1, "n":1e21},{"id":"b"},{"id":"c","repo":2}]}"#;
    let (status, answer) = send(&world, body).await;
    assert_eq!((status, &answer["duplicate"]), (202, &json!(false)));
    let events = oldest_first(&world).await;
    let ids: Vec<String> = events.iter().map(|event| event.id.to_string()).collect();
    assert_eq!(answer["events"], json!(ids), "all of them, in payload order");
    let keys: Vec<_> = events.iter().map(|event| (event.delivery_key.as_str(), event.source_key.as_deref())).collect();
    assert_eq!(keys, [("a", Some("1")), ("b", None), ("c", Some("2"))]);
    assert_eq!(events[0].body.as_ref(), br#"{"id":"a","repo":1, "n":1e21}"#);
    assert!(events.iter().all(|event| event.receipt_id == events[0].receipt_id));
    assert_eq!(world.metric("forebay_intake_unordered_total"), 1.0);

    // Sent again, in part or with others, an event stays the one that it is.
    let (status, answer) = send(&world, r#"{"events":[{"id":"d"},{"id":"b"}]}"#).await;
    assert_eq!((status, &answer["events"][1]), (202, &json!(ids[1])));
    let (status, answer) = send(&world, body).await;
    assert_eq!((status, &answer["events"], &answer["duplicate"]), (202, &json!(ids), &json!(true)));
    assert_eq!(world.events().await.len(), 4);
}

// ADM-6
#[tokio::test]
async fn all_events_of_a_request_are_taken_or_none() {
    let world = world(pointer("/id")).await;
    assert_eq!(send(&world, r#"{"events":[{"id":"a"}]}"#).await.0, 202);
    for (body, status, code) in [
        (r#"{"events":[{"id":"b"},{"n":1}]}"#, 400, "delivery_key_missing"),
        (r#"{"events":[{"id":"b"},{"id":"a","other":1}]}"#, 409, "conflict"),
        (r#"{"events":[{"id":"b"},{"id":"b","other":1}]}"#, 409, "conflict"),
        (r#"{"events":[{"id":"b"},{"id":"c"},{"id":"d"},{"id":"e"}]}"#, 413, "too_many_events"),
        (r#"{"events":[]}"#, 400, "event_list_missing"),
        (r#"[{"id":"b"}]"#, 400, "event_list_missing"),
        (r#"{"events":[{"id":"b"}"#, 400, "event_list_missing"),
    ] {
        let (answered, answer) = send(&world, body).await;
        assert_eq!((answered, &answer["error"]["code"]), (status, &json!(code)), "{body}");
        assert_eq!(world.events().await.len(), 1, "{body}");
    }
}

// ADM-5, ADM-6: what names the request names each of its events, with its position.
#[tokio::test]
async fn events_that_a_header_names_have_keys_of_their_own() {
    let world = world(Some(KeyRule::Header("x-id".parse().unwrap()))).await;
    let body = r#"{"events":[{"repo":1},{"repo":1}]}"#;
    assert_eq!(send(&world, body).await.0, 202);
    assert_eq!(send(&world, body).await.1["duplicate"], true);
    let keys: Vec<_> = oldest_first(&world).await.into_iter().map(|event| event.delivery_key).collect();
    assert_eq!(keys, ["r-1#0", "r-1#1"]);
}
