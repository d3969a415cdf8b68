//! A pack whose generations are built for two versions of the contract, of which neither fits the other.

use bytes::Bytes;

use super::rollout::{Runtime, changed, hostile, version};
use super::*;
use crate::guest::tests::{example, of_the_next_version};
use crate::store::testing::Fixture;

/// Events of each generation, delivered in turns.
const EVENTS: u32 = 16;

/// The example with another component, as another version of the pack.
fn with_component(number: u32, component: &[u8]) -> Bytes {
    let text = example("hostile").manifest_text.replace("0.1.0", &format!("0.1.{number}"));
    PackFile::encode(&text, component).unwrap().into()
}

// GST-6
#[tokio::test(flavor = "multi_thread")]
async fn a_generation_for_another_version_of_the_contract_is_loaded_over_the_first_and_rolled_back() {
    let runtime = Runtime::start(Fixture::new().await).await;
    runtime.roll_out(version(1)).await;
    runtime.works(1, "before").await;
    let switch = runtime.roll_out(with_component(2, &of_the_next_version())).await;
    assert_eq!(switch.active, Some(GenerationNumber(2)));

    // What came in under either is worked off at the same time, each by its own.
    let mut delivered = Vec::new();
    for number in 0..EVENTS {
        for generation in [1, 2] {
            let text = format!("{number} of {generation}");
            let body = format!(r#"{{"do":"note","text":"{text}"}}"#);
            let event = runtime.shared.event(&text, None, &body);
            delivered.push((
                event.id,
                event.work_item_id,
                generation,
                if generation == 1 { text } else { body.clone() },
            ));
            runtime.deliver(generation, event).await;
        }
    }
    for (event, id, generation, note) in delivered {
        while runtime.shared.store.work_item(id).await.unwrap().unwrap().state != WorkState::Done {
            tokio::task::yield_now().await;
        }
        let detail = runtime.shared.store.event(event).await.unwrap().unwrap();
        assert_eq!(detail.work_items[0].note.as_deref(), Some(note.as_str()));
        assert_eq!(detail.messages.len(), usize::from(generation == 2), "only the second's emits");
    }

    // What each did comes out the same again; a rollback crosses the versions like any other.
    let leave = runtime.supervisor.begin_upload().unwrap();
    let verified = runtime.supervisor.verify_last(Some(hostile()), 100, &leave).await.unwrap();
    assert_eq!((verified.same, verified.differing, verified.unknown), (u64::from(2 * EVENTS) + 1, 0, 0));
    drop(leave);
    let back = runtime.supervisor.rollback(&hostile(), None).await.unwrap();
    assert_eq!((back.active, back.previous), (Some(GenerationNumber(1)), Some(GenerationNumber(2))));
    runtime.works(1, "after the rollback").await;
    runtime.works(2, "admitted just before it").await;
    runtime.supervisor.drain().await;
}

// GST-6
#[tokio::test(flavor = "multi_thread")]
async fn one_for_a_version_that_is_not_served_or_for_two_at_once_is_refused_and_the_old_one_goes_on() {
    let runtime = Runtime::start(Fixture::new().await).await;
    runtime.roll_out(with_component(1, &of_the_next_version())).await;
    let importing = |name: &str| {
        let text = format!(r#"(component (import "{name}" (instance (export "write" (func)))))"#);
        wat::parse_str(text).unwrap()
    };
    let mixed = r#"(component
        (import "forebay:connector/log@0.1.0" (instance (export "write" (func))))
        (import "forebay:connector/clock@0.2.0" (instance (export "now" (func)))))"#;
    for (component, reason) in [
        (importing("forebay:connector/log@0.3.0"), "wanted is version 0.3.0, offered is 0.1.0 or 0.2.0"),
        (wat::parse_str(mixed).unwrap(), "is built for two versions of the contract"),
    ] {
        let error = runtime.install(with_component(2, &component)).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    // The manifest's rules are the host's own, whatever the component was built for.
    let undeclared = changed(|text| text.replace(r#"imports = ["log", "clock", "random"]"#, "imports = []"));
    let undeclared = PackFile::parse(&undeclared).unwrap().manifest_text;
    let undeclared = PackFile::encode(&undeclared, &of_the_next_version()).unwrap();
    let error = runtime.install(undeclared.into()).await.unwrap_err().to_string();
    assert!(error.contains("imports `forebay:connector/log@0.2.0`, which pack.toml does not declare"), "{error}");
    runtime.works(1, "goes on").await;
    runtime.supervisor.drain().await;
}
