//! Verification: what is done is run again, and nothing comes of it.

use super::rollout::{Runtime, hostile, version};
use super::*;
use crate::model::ids::EventId;
use crate::supervise::{Verdict, Verification};

async fn runtime() -> Runtime {
    let runtime = Runtime::start(crate::store::testing::Fixture::new().await).await;
    runtime.roll_out(version(1)).await;
    runtime
}

async fn newest(runtime: &Runtime) -> EventId {
    let page = crate::store::PageRequest { after: None, limit: 1 };
    runtime.shared.store.list_events(&Default::default(), page).await.unwrap().items[0].id
}

fn counts(verification: &Verification) -> [u64; 3] {
    [verification.same, verification.differing, verification.unknown]
}

// GST-5
#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_comes_out_the_same_on_the_generation_that_did_it() {
    let runtime = runtime().await;
    for number in 0..3 {
        runtime.works(1, &format!("d-{number}")).await;
    }
    // Another generation serves; what was done is verified on the one that did it, also once it is retired.
    runtime.roll_out(version(2)).await;
    runtime.works(2, "later").await;
    let before = runtime.shared.store.stats().await.unwrap();
    let leave = runtime.supervisor.begin_upload().unwrap();
    let all = runtime.supervisor.verify_last(Some(hostile()), 100, &leave).await.unwrap();
    assert_eq!((counts(&all), all.named.len(), all.out_of_time), ([4, 0, 0], 0, false));
    let few = runtime.supervisor.verify_last(None, 2, &leave).await.unwrap();
    assert_eq!(counts(&few), [2, 0, 0]);
    let one = runtime.supervisor.verify_event(newest(&runtime).await).await.unwrap().unwrap();
    assert_eq!((counts(&one), one.named[0].generation), ([1, 0, 0], GenerationNumber(2)));
    assert!(matches!(one.named[0].verdict, Verdict::Same));
    assert_eq!(runtime.shared.store.stats().await.unwrap(), before, "nothing came of it");
    assert!(runtime.supervisor.verify_event(EventId::from_bytes([9; 16])).await.unwrap().is_none());
    runtime.supervisor.drain().await;
}

// GST-5
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_done_has_nothing_to_compare() {
    let runtime = runtime().await;
    runtime.dies(1, "rejected", r#"{"do":"reject","reason":"no"}"#).await;
    let verification = runtime.supervisor.verify_event(newest(&runtime).await).await.unwrap().unwrap();
    assert_eq!(counts(&verification), [0, 0, 1]);
    let Verdict::Unknown { reason } = &verification.named[0].verdict else { panic!("{verification:?}") };
    assert_eq!(reason, "it is dead: only a finished run has an output");
    runtime.supervisor.drain().await;
}
