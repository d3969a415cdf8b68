use forebay_sdk::Due;
use forebay_sdk::testing::{TestHost, event};
use serde_json::{Value, json};

use super::*;

fn stripe(kind: &str, object: Value) -> Event {
    let mut event = event(
        &[],
        json!({ "id": "evt_1", "type": kind, "created": 1_700_000_000, "data": { "object": object } }).to_string(),
    );
    event.delivery_key = "evt_1".to_owned();
    event
}

fn invoice() -> Event {
    let invoice =
        json!({ "id": "in_1", "customer": "cus_1", "amount_due": 4_200, "currency": "eur", "attempt_count": 2 });
    stripe("invoice.payment_failed", invoice)
}

#[test]
fn a_payment_is_a_line_of_the_ledger_under_stripes_own_id() {
    let intent = json!({ "id": "pi_1", "customer": null, "amount_received": 1_999, "currency": "usd" });
    let output = TestHost::new().flow::<Stripe>(&stripe("payment_intent.succeeded", intent)).unwrap().unwrap();
    let [message] = &output.messages[..] else { panic!("{output:?}") };
    assert_eq!(message.destination, "ledger");
    assert_eq!(message.idempotency_key.as_deref(), Some("evt_1"));
    assert_eq!(message.ordering_key.as_deref(), Some("pi_1"));
    let sent: Value = serde_json::from_slice(&message.body).unwrap();
    assert_eq!((&sent["kind"], &sent["amount"], &sent["customer"]), (&json!("payment"), &json!(1_999), &Value::Null));
}

#[test]
fn a_refund_says_whether_it_is_the_whole_charge() {
    let charge =
        json!({ "id": "ch_1", "customer": "cus_1", "amount_refunded": 500, "currency": "usd", "refunded": false });
    let output = TestHost::new().flow::<Stripe>(&stripe("charge.refunded", charge)).unwrap().unwrap();
    let sent: Value = serde_json::from_slice(&output.messages[0].body).unwrap();
    assert_eq!((&sent["kind"], &sent["whole"]), (&json!("refund"), &json!(false)));
}

#[test]
fn an_uncollected_invoice_is_told_at_once_and_again_when_the_grace_is_over() {
    let output = TestHost::new().setting("grace_days", "3").flow::<Stripe>(&invoice()).unwrap().unwrap();
    let [now, again] = &output.messages[..] else { panic!("{output:?}") };
    assert_eq!((now.due, again.due), (Due::Now, Due::After(3 * DAY)));
    assert_ne!(now.idempotency_key, again.idempotency_key);
    assert_eq!(again.expire_at, Some(invoice().received_at + 33 * DAY));
}

#[test]
fn a_setting_that_is_no_number_is_named() {
    let failure = TestHost::new().setting("grace_days", "a week").flow::<Stripe>(&invoice()).unwrap_err();
    assert!(matches!(failure, Failure::Other(reason) if reason.contains("grace_days")));
}

#[test]
fn the_rest_is_ignored_and_what_does_not_fit_is_invalid() {
    let prepared = Stripe::prepare(&stripe("customer.created", json!({}))).unwrap();
    assert!(matches!(prepared, Prepared::Ignore { reason } if reason.contains("customer.created")));
    let hollow = Stripe::prepare(&stripe("charge.refunded", json!({ "id": "ch_1" })));
    assert!(matches!(hollow, Err(Failure::InvalidInput(_))));
}
