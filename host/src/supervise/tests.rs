//! The supervisor: what refuses a start, what readiness says, and that one pack's trouble is its own.

mod gates;
mod preview;
mod retention;
mod rollout;
mod verify;
mod versions;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;

use super::{SuperviseError, SuperviseOptions, SuperviseParts, Supervisor};
use crate::execute::testing::{Harness, manifest};
use crate::execute::{NoopFlow, Unconnected};
use crate::guest::{Ceilings, GuestHost, GuestOptions, PackFile};
use crate::intake::RouteTable;
use crate::model::pack::{FailedHeadPolicy, GenerationNumber, Manifest};
use crate::model::work_item::WorkState;
use crate::store::testing::{namespace, pack};

fn options() -> SuperviseOptions {
    SuperviseOptions { namespaces: vec![namespace()], ..SuperviseOptions::default() }
}

fn parts(harness: &Harness) -> SuperviseParts {
    let guests = GuestOptions {
        cache: harness.directory().join("cache"),
        instances_max: 4,
        long_calls_max: 1,
        memory_bytes_max: 64 * 1024 * 1024,
        ceilings: Ceilings::NONE,
        compilations_max: 1,
        compilation_time_max: Duration::from_secs(120),
    };
    SuperviseParts {
        store: harness.store.clone(),
        guests: GuestHost::start(guests, harness.env.clone()).unwrap(),
        routes: RouteTable::empty(),
        env: harness.env.clone(),
        caller: Arc::new(Unconnected),
        guest_runtime: Handle::current(),
    }
}

/// What the harness has installed is no component: it is not to be served.
async fn nothing_is_active(harness: &Harness) {
    harness.store.activate(&pack(), None, None, harness.now()).await.unwrap();
}

/// A pack file whose component is none.
fn unloadable(name: &str, route: &str) -> PackFile {
    let mut manifest = Manifest { name: name.parse().unwrap(), ..manifest(FailedHeadPolicy::DEFAULT) };
    manifest.routes[0].path = route.parse().unwrap();
    let manifest_text = format!(
        "name = \"{name}\"\nversion = \"1.0.0\"\n[build]\nkind = \"rust\"\n[[routes]]\npath = \"{route}\"\nverify = \"plain\"\n"
    );
    PackFile {
        manifest,
        manifest_text,
        component: Bytes::from_static(b"not a component"),
        digest: [u8::try_from(name.len()).unwrap(); 32],
    }
}

#[tokio::test]
async fn packs_that_want_the_same_route_refuse_the_start_before_anything_is_installed() {
    let harness = Harness::new().await;
    let before = harness.store.serving_generations().await.unwrap().len();
    let packs = vec![unloadable("one", "same"), unloadable("other", "same")];
    let refused = Supervisor::start(options(), packs, parts(&harness)).await.err().unwrap();
    assert!(matches!(&refused, SuperviseError::Conflict(conflict) if conflict.path == "same"), "{refused}");
    assert_eq!(harness.store.serving_generations().await.unwrap().len(), before);
}

#[tokio::test]
async fn a_pack_that_is_given_twice_refuses_the_start() {
    let harness = Harness::new().await;
    let packs = vec![unloadable("one", "a"), unloadable("one", "b")];
    let refused = Supervisor::start(options(), packs, parts(&harness)).await.err().unwrap();
    assert!(matches!(refused, SuperviseError::GivenTwice(_)), "{refused}");
}

// GST-6
#[tokio::test]
async fn a_pack_that_cannot_be_loaded_is_named_by_readiness_and_stops_nobody_else() {
    let harness = Harness::new().await;
    nothing_is_active(&harness).await;
    let supervisor = Supervisor::start(options(), vec![unloadable("broken", "b")], parts(&harness)).await.unwrap();
    assert_eq!(supervisor.readiness().reasons, ["generation 1 of pack `broken` is still being loaded"]);
    while supervisor.readiness().reasons[0].ends_with("is still being loaded") {
        tokio::task::yield_now().await;
    }
    let reasons = supervisor.readiness().reasons;
    assert!(reasons[0].starts_with("generation 1 of pack `broken` could not be loaded: "), "{reasons:?}");

    let native = Arc::new(NoopFlow::new(Arc::new(manifest(FailedHeadPolicy::DEFAULT))));
    supervisor.loaded(&pack(), harness.generation, native);
    let [id] = harness.enqueue(["a"]).await;
    while harness.detail(id).await.state != WorkState::Done {
        tokio::task::yield_now().await;
    }
    supervisor.drain().await;
}

// GST-6, RPL-1
#[tokio::test]
async fn a_generation_that_a_replay_brings_back_is_loaded_again() {
    let harness = Harness::new().await;
    nothing_is_active(&harness).await;
    let supervisor = Supervisor::idle(options(), parts(&harness));
    supervisor.reconcile().await.unwrap();
    assert!(supervisor.readiness().ready, "nothing refers to it");
    harness.enqueue(["a"]).await;
    for _ in 0..2 {
        supervisor.serve_generation(&pack(), harness.generation);
        supervisor.reconcile().await.unwrap();
        // What the harness has installed is no component: that it was tried shows in the readiness.
        while supervisor.readiness().reasons[0].ends_with("is still being loaded") {
            tokio::task::yield_now().await;
        }
        assert!(supervisor.readiness().reasons[0].contains("could not be loaded"));
    }
    supervisor.drain().await;
}

#[tokio::test]
async fn readiness_follows_the_store_and_the_shutdown() {
    let harness = Harness::new().await;
    nothing_is_active(&harness).await;
    let supervisor = Supervisor::start(options(), Vec::new(), parts(&harness)).await.unwrap();
    supervisor.tick().await;
    assert!(supervisor.readiness().ready);
    harness.store.close().await;
    supervisor.tick().await;
    assert!(supervisor.readiness().reasons[0].starts_with("the store does not answer: "));
    supervisor.drain().await;
    assert_eq!(supervisor.readiness().reasons[0], "the host is shutting down");
}

// GST-6
#[tokio::test]
async fn a_generation_that_is_loaded_later_joins_the_same_pool() {
    let harness = Harness::new().await;
    let supervisor = Supervisor::idle(options(), parts(&harness));
    let native = || Arc::new(NoopFlow::new(Arc::new(manifest(FailedHeadPolicy::DEFAULT))));
    supervisor.loaded(&pack(), GenerationNumber(7), native());
    assert!(supervisor.state().pools.is_empty(), "nothing of the store is confirmed");
    let [id] = harness.enqueue(["a"]).await;
    supervisor.tick().await;
    assert_eq!(harness.detail(id).await.state, WorkState::Ready, "its own generation is not loaded");
    supervisor.loaded(&pack(), harness.generation, native());
    assert_eq!(supervisor.state().pools.len(), 1);
    while harness.detail(id).await.state != WorkState::Done {
        tokio::task::yield_now().await;
    }
    supervisor.drain().await;
}

#[tokio::test]
async fn a_runtime_without_workers_is_ready_and_leaves_the_queue_to_others() {
    let harness = Harness::new().await;
    let mut options = options();
    options.execute.slots = 0;
    let supervisor = Supervisor::idle(options.clone(), parts(&harness));
    let native = || Arc::new(NoopFlow::new(Arc::new(manifest(FailedHeadPolicy::DEFAULT))));
    supervisor.loaded(&pack(), harness.generation, native());
    let [id] = harness.enqueue(["a"]).await;
    supervisor.look_after_pools().await;
    assert!(supervisor.state().pools.is_empty(), "nobody looks at the queue");
    assert!(supervisor.readiness().ready, "{:?}", supervisor.readiness());

    options.execute.slots = 1;
    let other = Supervisor::idle(options, parts(&harness));
    other.loaded(&pack(), harness.generation, native());
    other.confirm().await;
    while harness.detail(id).await.state != WorkState::Done {
        tokio::task::yield_now().await;
    }
    other.drain().await;
    supervisor.drain().await;
}
