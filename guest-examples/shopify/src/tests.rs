use forebay_sdk::testing::{TestHost, event};
use serde_json::{Value, json};

use super::*;

fn shopify(topic: &str, body: Value) -> Event {
    let headers = [("x-shopify-topic", topic), ("x-shopify-shop-domain", "boards.example")];
    event(&headers, body.to_string())
}

fn order(lines: Value) -> Value {
    json!({ "id": 7, "line_items": lines })
}

fn sent(event: &Event) -> (String, Value) {
    let output = TestHost::new().flow::<Shopify>(event).unwrap().unwrap();
    let [message] = &output.messages[..] else { panic!("{output:?}") };
    (message.destination.clone(), serde_json::from_slice(&message.body).unwrap())
}

#[test]
fn an_order_is_picked_without_what_is_not_shipped() {
    let lines = json!([
        { "sku": "B-1", "quantity": 2, "requires_shipping": true },
        { "sku": null, "quantity": 1, "requires_shipping": false },
    ]);
    let (destination, body) = sent(&shopify("orders/create", order(lines)));
    assert_eq!(destination, "fulfilment");
    assert_eq!(body["pick"], json!([{ "sku": "B-1", "quantity": 2 }]));
    assert_eq!(body["paid"], false);
}

#[test]
fn an_order_of_nothing_to_ship_is_ignored() {
    let lines = json!([{ "sku": "GIFT", "quantity": 1, "requires_shipping": false }]);
    assert!(TestHost::new().flow::<Shopify>(&shopify("orders/paid", order(lines))).unwrap().is_none());
}

#[test]
fn a_cancellation_follows_its_order() {
    let event = shopify("orders/cancelled", json!({ "id": 7, "cancel_reason": "customer" }));
    let output = TestHost::new().flow::<Shopify>(&event).unwrap().unwrap();
    assert_eq!(output.messages[0].ordering_key.as_deref(), Some("boards.example/orders/7"));
    assert_eq!(output.messages[0].idempotency_key.as_deref(), Some("delivery-1"));
}

#[test]
fn a_price_stays_the_text_that_it_is() {
    let product =
        json!({ "id": 9, "title": "Board", "status": "draft", "variants": [{ "sku": "B-1", "price": "19.90" }] });
    let (destination, body) = sent(&shopify("products/update", product));
    assert_eq!((destination.as_str(), &body["listed"]), ("catalogue", &json!(false)));
    assert_eq!(body["variants"][0]["price"], "19.90");
}

#[test]
fn what_is_not_shopifys_is_invalid_and_the_rest_ignored() {
    assert!(matches!(Shopify::prepare(&event(&[], "{}")), Err(Failure::InvalidInput(_))));
    assert!(matches!(Shopify::prepare(&shopify("orders/create", json!({}))), Err(Failure::InvalidInput(_))));
    let prepared = Shopify::prepare(&shopify("carts/update", json!({}))).unwrap();
    assert!(matches!(prepared, Prepared::Ignore { reason } if reason.contains("carts/update")));
}
