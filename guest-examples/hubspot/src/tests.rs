use forebay_sdk::testing::{TestHost, event};

use super::*;

fn change(kind: &str, id: u64) -> Event {
    let body = json!({
        "eventId": 1, "subscriptionId": 2, "portalId": 3, "appId": 4, "occurredAt": 1_700_000_000_000_i64,
        "subscriptionType": kind, "attemptNumber": 0, "objectId": id, "propertyName": "lifecyclestage",
    });
    event(&[], body.to_string())
}

fn sent(output: &Output) -> Value {
    serde_json::from_slice(&output.messages[0].body).unwrap()
}

/// A HubSpot that has contact 501 only.
fn provider(reader: &str, request: &HttpRequest) -> HttpResponse {
    assert_eq!((reader, request.method.as_str()), ("contacts", "POST"));
    let asked: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(asked["properties"], json!(["email", "lastname"]));
    let found = asked["inputs"].as_array().unwrap().contains(&json!({ "id": "501" }));
    let contact = json!({ "id": "501", "properties": { "email": "ada@example.com" }, "archived": false });
    let results = if found { vec![contact] } else { Vec::new() };
    HttpResponse::json_body(if found { 200 } else { 207 }, &json!({ "results": results })).unwrap()
}

fn host() -> TestHost {
    TestHost::new().setting("properties", "email, lastname").provider(provider)
}

#[test]
fn a_change_is_told_with_the_contact_as_it_is() {
    let output = host().flow::<HubSpot>(&change("contact.propertyChange", 501)).unwrap().unwrap();
    let sent = sent(&output);
    assert_eq!(sent["properties"], json!({ "email": "ada@example.com" }));
    assert_eq!((&sent["state"], &sent["why"]), (&json!("present"), &json!("propertyChange lifecyclestage")));
    assert_eq!(output.messages[0].ordering_key.as_deref(), Some("501"));
}

#[test]
fn a_contact_that_is_not_there_is_gone() {
    let output = host().flow::<HubSpot>(&change("contact.propertyChange", 502)).unwrap().unwrap();
    assert_eq!(sent(&output)["state"], "gone");
}

#[test]
fn a_deleted_contact_is_not_read() {
    let output = TestHost::new().flow::<HubSpot>(&change("contact.deletion", 501)).unwrap().unwrap();
    assert_eq!(sent(&output)["state"], "gone");
}

#[test]
fn a_deal_is_of_no_interest() {
    assert_eq!(TestHost::new().flow::<HubSpot>(&change("deal.creation", 1)).unwrap(), None);
}
