//! The store does not say whether it committed: the sender is told so, and sends again.

use serde_json::json;

use super::client::request;
use super::fixture::{Setup, World, delivery};
use crate::store::testing::Loss;

// ADM-3, ADM-5
#[tokio::test]
async fn a_delivery_in_doubt_is_a_503_and_sent_again_it_is_stored_once() {
    for loss in Loss::ALL {
        let world = World::start(Setup::default()).await;
        let sent = delivery("d-1", br#"{"repository": {"id": 1}}"#);
        world.store.lose_answer(loss);
        let doubtful = world.send(&sent).await;
        assert_eq!((doubtful.status, doubtful.code().as_str()), (503, "unknown"), "{loss:?}");
        assert!((1..=30).contains(&doubtful.retry_after()));
        assert_eq!(world.answers(503, "store_unknown"), 1);
        let stored = world.events().await.len();
        assert_eq!(stored, usize::from(loss == Loss::AfterCommit));

        let again = world.send(&sent).await;
        assert_eq!((again.status, &again.json()["duplicate"]), (202, &json!(stored == 1)), "{loss:?}");
        assert_eq!(world.events().await.len(), 1);
        world.store.assert_counted().await;
    }
}

#[tokio::test]
async fn in_doubt_a_delivery_without_a_key_may_count_twice_and_the_answer_says_so() {
    let world = World::start(Setup::default()).await;
    let sent = request("POST", "/in/acme/plain", &[], b"body");
    world.store.lose_answer(Loss::AfterCommit);
    let doubtful = world.send(&sent).await;
    let message = doubtful.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("without one it may count twice"), "{message}");
    assert_eq!(world.send(&sent).await.status, 202);
    assert_eq!(world.events().await.len(), 2);
}
