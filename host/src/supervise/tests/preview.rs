//! Previews: the past is run again, and nothing comes of it.

use super::rollout::{Runtime, changed, hostile, version};
use super::*;
use crate::guest::Outcome;
use crate::supervise::{Against, RolloutError};

async fn with_events() -> Runtime {
    let runtime = Runtime::start(crate::store::testing::Fixture::new().await).await;
    runtime.roll_out(version(1)).await;
    for number in 0..5 {
        runtime.works(1, &format!("d-{number}")).await;
    }
    runtime
}

// GST-5, GST-6
#[tokio::test(flavor = "multi_thread")]
async fn a_generation_that_does_the_same_shows_no_difference_and_leaves_no_trace() {
    let runtime = with_events().await;
    let before = runtime.shared.store.stats().await.unwrap();
    let leave = runtime.supervisor.begin_upload().unwrap();
    for against in [Against::Active, Against::Recorded, Against::Generation(GenerationNumber(1))] {
        let preview = runtime.supervisor.preview_file(version(2), against, 100, &leave).await.unwrap();
        assert_eq!((preview.events, preview.changed, preview.out_of_time), (5, 0, false));
        assert!(preview.before.fuel > 0 && preview.before.fuel == preview.after.fuel, "{preview:?}");
    }
    let few = runtime.supervisor.preview_file(version(2), Against::Active, 3, &leave).await.unwrap();
    assert_eq!(few.events, 3);
    assert_eq!(runtime.shared.store.stats().await.unwrap(), before);
    assert_eq!(runtime.shared.store.list_generations(Some(&hostile())).await.unwrap().len(), 1);
    assert!(matches!(runtime.supervisor.begin_upload(), Err(RolloutError::Busy)), "one at a time");
    runtime.supervisor.drain().await;
}

// GST-6
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_out_otherwise_is_shown_beside_what_it_was() {
    let runtime = with_events().await;
    let starved = changed(|text| text.replace("fuel = 200_000_000", "fuel = 1_000"));
    let leave = runtime.supervisor.begin_upload().unwrap();
    let renamed = changed(|text| text.replace("path = \"hostile\"", "path = \"renamed\""));
    for (file, reason) in [(starved, "out_of_fuel"), (renamed, "does not declare the route")] {
        let preview = runtime.supervisor.preview_file(file, Against::Active, 100, &leave).await.unwrap();
        assert_eq!((preview.events, preview.changed), (5, 5));
        assert_eq!((preview.before.failures, preview.after.failures), (0, 5));
        let difference = &preview.differences[0];
        assert!(matches!(difference.before, Outcome::Ran(_)), "{difference:?}");
        assert!(matches!(&difference.after, Outcome::Failed(failure) if failure.to_string().contains(reason)));
    }
    runtime.supervisor.drain().await;
}
