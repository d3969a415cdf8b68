//! The example pack in JavaScript: another language under the same contract. Where it was not built, because Node.js is
//! not there, each of these says that it is left out.

use serde_json::json;

use super::*;
use crate::rig::optional;

/// The pack, if it was built.
fn pack() -> Option<PackFile> {
    let file = target_directory().join("packs/js-hello.fpk");
    match std::fs::read(&file) {
        Ok(bytes) => Some(PackFile::parse(&bytes).unwrap()),
        Err(_) => {
            optional::left_out("the example pack in JavaScript is not built (make guests builds it where Node.js is)");
            None
        }
    }
}

async fn load(engine: &Engine, pack: PackFile) -> Arc<LoadedGeneration> {
    engine.host.load(GenerationNumber(1), Arc::new(pack.manifest), pack.component).await.unwrap()
}

fn greeting(body: impl ToString) -> Event {
    event("js-hello", &[], body.to_string())
}

// GST-1, GST-4
#[tokio::test]
async fn a_connector_in_javascript_imports_nothing_but_the_contract() {
    let Some(pack) = pack() else { return };
    let surface = crate::guest::check::check(&pack.component, &pack.manifest.imports).unwrap();
    assert_eq!(surface.imports, ["forebay:connector/diagnostics@0.1.0", "forebay:connector/types@0.1.0"]);
    assert_eq!(surface.exports, ["forebay:connector/flow@0.1.0"]);
}

// GST-1, GST-5
#[tokio::test]
async fn a_connector_in_javascript_runs_and_says_the_same_every_time() {
    let Some(pack) = pack() else { return };
    let engine = Engine::start();
    let generation = load(&engine, pack).await;
    let hello = greeting(json!({ "kind": "greeting", "subject": "wörld" }));
    let output = flow(&generation, &hello).await.unwrap().unwrap();
    assert_eq!(output, FlowOutput { note: Some("hello, wörld".to_owned()), messages: Vec::new(), actions: Vec::new() });
    assert_eq!(flow(&generation, &hello).await.unwrap(), Some(output));
    assert_eq!(flow(&generation, &greeting(json!({ "kind": "farewell" }))).await.unwrap(), None);
}

#[tokio::test]
async fn an_exception_is_shown_with_its_message_and_place() {
    let Some(pack) = pack() else { return };
    let engine = Engine::start();
    let generation = load(&engine, pack).await;
    let thrown = flow(&generation, &greeting("null")).await.unwrap_err();
    assert_eq!(thrown.class, FailureClass::Panic, "{thrown}");
    assert!(thrown.message.contains("TypeError") && thrown.message.contains("src/pack.js:"), "{thrown}");
    let unreadable = flow(&generation, &greeting("{")).await.unwrap_err();
    assert_eq!(unreadable.to_string(), "invalid_input: the body is not JSON");
}

// GST-2, GST-3
#[tokio::test]
async fn an_engine_in_a_guest_is_under_the_same_limits() {
    let Some(pack) = pack() else { return };
    let engine = Engine::start();
    let mut starved = pack.clone();
    starved.manifest.limits.fuel = 20_000;
    let generation = load(&engine, starved).await;
    let hello = greeting(json!({ "kind": "greeting", "subject": "world" }));
    assert_eq!(flow(&generation, &hello).await.unwrap_err().class, FailureClass::OutOfFuel);
    let mut cramped = pack;
    cramped.manifest.limits.memory_bytes = 1024 * 1024;
    let refused =
        engine.host.load(GenerationNumber(1), Arc::new(cramped.manifest), cramped.component).await.unwrap_err();
    assert!(refused.to_string().contains("`limits.memory_mib`"), "{refused}");
}
