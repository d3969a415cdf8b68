use std::collections::BTreeSet;

use expect_test::expect;
use http_body_util::BodyExt;

use super::*;
use crate::env::SeededEntropy;
use crate::model::time::Timestamp;

async fn text(response: Response<Full<Bytes>>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn event(number: u8) -> EventId {
    EventId::new(Timestamp::from_millis(i64::from(number)), [number; 10])
}

// ADM-4
#[tokio::test]
async fn every_refusal_is_a_typed_error_with_a_reason_of_its_own() {
    let entropy = SeededEntropy::new(1);
    let mut reasons = BTreeSet::new();
    for &refusal in Refusal::ALL {
        assert!(reasons.insert(refusal.reason()), "{refusal:?}");
        let response = refused(refusal, &entropy);
        assert!(response.status().is_client_error() || response.status() == StatusCode::SERVICE_UNAVAILABLE);
        let body: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
        assert!(!body["error"]["code"].as_str().unwrap().is_empty(), "{refusal:?}");
        assert!(body["error"]["message"].as_str().unwrap().ends_with('.'), "{refusal:?}");
    }
}

// ADM-4
#[tokio::test]
async fn all_failed_verifications_look_the_same_from_outside() {
    let entropy = SeededEntropy::new(1);
    let mut bodies = BTreeSet::new();
    for &refusal in Refusal::ALL.iter().filter(|refusal| refusal.status() == StatusCode::UNAUTHORIZED) {
        bodies.insert(text(refused(refusal, &entropy)).await);
    }
    assert_eq!(bodies.len(), 1, "{bodies:?}");
}

// ADM-2
#[test]
fn every_503_says_when_to_come_back_in_whole_seconds_spread_over_all_of_1_to_30() {
    let entropy = SeededEntropy::new(7);
    let mut seen = BTreeSet::new();
    for &refusal in Refusal::ALL {
        for _ in 0..200 {
            let response = refused(refusal, &entropy);
            let value =
                response.headers().get(RETRY_AFTER).map(|value| value.to_str().unwrap().parse::<u16>().unwrap());
            assert_eq!(value.is_some(), response.status() == StatusCode::SERVICE_UNAVAILABLE, "{refusal:?}");
            seen.extend(value);
        }
    }
    assert_eq!(seen, (1..=30).collect());
}

// ADM-3, ADM-5
#[tokio::test]
async fn a_receipt_names_its_events_in_order() {
    let mut taken = Accepted {
        receipt_id: ReceiptId::new(Timestamp::from_millis(5), [5; 10]),
        events: vec![event(1)],
        novelty: Novelty::First,
    };
    expect![[r#"{"receipt":"rcp_00000000000575058505050505050505","events":["evt_00000000000171018101010101010101"],"duplicate":false}"#]]
        .assert_eq(&text(accepted(&taken, &Answer::Receipt)).await);
    taken.events.push(event(2));
    taken.novelty = Novelty::Duplicate;
    expect![[r#"{"receipt":"rcp_00000000000575058505050505050505","events":["evt_00000000000171018101010101010101","evt_00000000000272028202020202020202"],"duplicate":true}"#]]
        .assert_eq(&text(accepted(&taken, &Answer::Receipt)).await);
}

// ADM-3
#[tokio::test]
async fn a_route_may_demand_an_empty_answer_of_its_own_status() {
    let taken = Accepted {
        receipt_id: ReceiptId::new(Timestamp::from_millis(5), [5; 10]),
        events: vec![event(1)],
        novelty: Novelty::First,
    };
    let response = accepted(&taken, &Answer::Empty(StatusCode::NO_CONTENT));
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    assert_eq!(text(response).await, "");
}

// ADM-5
#[tokio::test]
async fn a_conflict_names_the_event_that_has_the_key() {
    let response = conflict(event(3));
    assert_eq!(response.status(), StatusCode::CONFLICT);
    let body: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(body["error"]["code"], "conflict");
    assert_eq!(body["error"]["event"], event(3).to_string());
}
