//! Generations that come and go while the host serves, with real guests.

use bytes::Bytes;

use super::*;
use crate::guest::tests::example;
use crate::intake::RouteTable;
use crate::model::names::PackName;
use crate::store::testing::Fixture;
use crate::store::{Delivery, DrainTarget, Enqueued, NewEvent};
use crate::supervise::{Arrival, RolloutError, Switch};

/// One runtime: a store, guests and a supervisor.
pub(super) struct Runtime {
    pub(super) shared: Fixture,
    pub(super) supervisor: Supervisor,
    guests: GuestHost,
}

pub(super) fn hostile() -> PackName {
    "hostile".parse().unwrap()
}

/// The example in another version, whose file is another.
pub(super) fn version(number: u32) -> Bytes {
    changed(|text| text.replace("0.1.0", &format!("0.1.{number}")))
}

pub(super) fn changed(change: impl FnOnce(String) -> String) -> Bytes {
    let pack = example("hostile");
    PackFile::encode(&change(pack.manifest_text), &pack.component).unwrap().into()
}

impl Runtime {
    pub(super) async fn start(shared: Fixture) -> Self {
        Self::start_with(shared, Vec::new()).await
    }

    async fn start_with(shared: Fixture, packs: Vec<PackFile>) -> Self {
        shared.store.activate(&pack(), None, None, shared.now()).await.unwrap();
        let guests = GuestOptions {
            cache: shared.directory.path().join("cache"),
            instances_max: 4,
            long_calls_max: 1,
            memory_bytes_max: 64 * 1024 * 1024,
            ceilings: Ceilings::NONE,
            compilations_max: 1,
            compilation_time_max: Duration::from_secs(120),
        };
        let guests = GuestHost::start(guests, shared.env.clone()).unwrap();
        let parts = SuperviseParts {
            store: shared.store.clone(),
            guests: guests.clone(),
            routes: RouteTable::empty(),
            env: shared.env.clone(),
            caller: Arc::new(crate::execute::Unconnected),
            guest_runtime: Handle::current(),
        };
        let supervisor = Supervisor::start(options(), packs, parts).await.unwrap();
        Self { shared, supervisor, guests }
    }

    pub(super) async fn install(&self, file: Bytes) -> Result<Arrival, RolloutError> {
        let leave = self.supervisor.begin_upload()?;
        self.supervisor.install(file, &leave).await
    }

    pub(super) async fn roll_out(&self, file: Bytes) -> Switch {
        let number = self.install(file).await.unwrap().installed.number;
        self.supervisor.activate(&hostile(), number, None).await.unwrap()
    }

    async fn active(&self) -> Option<u32> {
        let serving = self.shared.store.serving_generations().await.unwrap();
        serving.into_iter().find(|serving| serving.active && serving.pack == hostile()).map(|serving| serving.number.0)
    }

    /// Delivers an event under a generation, and waits until it is done.
    pub(super) async fn works(&self, generation: u32, key: &str) {
        self.ends(generation, key, r#"{"do":"note","text":"fine"}"#, WorkState::Done).await;
    }

    /// Delivers an event that is of no use, and waits until it is dead.
    pub(super) async fn dies(&self, generation: u32, key: &str, body: &str) {
        self.ends(generation, key, body, WorkState::Dead).await;
    }

    async fn ends(&self, generation: u32, key: &str, body: &str, state: WorkState) {
        let event = self.shared.event(key, None, body);
        let id = event.work_item_id;
        self.deliver(generation, event).await;
        while self.shared.store.work_item(id).await.unwrap().unwrap().state != state {
            tokio::task::yield_now().await;
        }
    }

    pub(super) async fn deliver(&self, generation: u32, event: NewEvent) {
        let delivery = Delivery {
            pack: hostile(),
            generation: GenerationNumber(generation),
            route: "hostile".parse().unwrap(),
            ..self.shared.delivery(vec![event])
        };
        let stored = self.shared.store.enqueue(delivery).await;
        assert!(matches!(stored, Ok(Enqueued::Stored { .. })), "{stored:?}");
    }

    /// Lets time pass until nothing lingers.
    async fn rest(&self) {
        self.supervisor.tick().await;
        self.shared.advance(options().linger);
        self.supervisor.tick().await;
    }
}

fn shown(switch: &Switch) -> (Option<u32>, Option<u32>) {
    (switch.active.map(|number| number.0), switch.previous.map(|number| number.0))
}

// GST-6
#[tokio::test(flavor = "multi_thread")]
async fn generations_change_while_the_pack_serves_and_retire_when_nothing_refers_to_them() {
    let runtime = Runtime::start(Fixture::new().await).await;
    for number in 1..=6 {
        let switch = runtime.roll_out(version(number)).await;
        assert_eq!(shown(&switch), (Some(number), (number > 1).then(|| number - 1)));
        runtime.works(number, &format!("under-{number}")).await;
        // What is admitted just before the routes change ends on the older one.
        runtime.works(number.saturating_sub(1).max(1), &format!("late-{number}")).await;
    }
    runtime.rest().await;
    while runtime.guests.holdings().generations > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(runtime.supervisor.shared.generations.all(), [(hostile(), GenerationNumber(6))]);
    assert_eq!(runtime.guests.holdings().instances, 0);
    assert!(runtime.supervisor.readiness().ready, "{:?}", runtime.supervisor.readiness());
    // A retired one comes back for work that refers to it.
    runtime.works(2, "replayed").await;
    runtime.supervisor.drain().await;
}

// GST-6
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_is_an_activation_of_an_older_generation() {
    let runtime = Runtime::start(Fixture::new().await).await;
    for number in 1..=3 {
        runtime.roll_out(version(number)).await;
    }
    let never_active = runtime.install(version(4)).await.unwrap();
    assert_eq!(never_active.installed.number, GenerationNumber(4));
    let back = async |to: Option<u32>| runtime.supervisor.rollback(&hostile(), to.map(GenerationNumber)).await;
    assert_eq!(shown(&back(None).await.unwrap()), (Some(2), Some(3)));
    runtime.works(2, "after the rollback").await;
    assert_eq!(shown(&back(None).await.unwrap()), (Some(1), Some(2)));
    let refused = back(None).await.unwrap_err().to_string();
    assert!(refused.ends_with("there is none to go back to"), "{refused}");
    assert_eq!(shown(&back(Some(3)).await.unwrap()), (Some(3), Some(1)));
    runtime.supervisor.drain().await;
}

// GST-6
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_serve_is_refused_and_the_old_one_goes_on() {
    let runtime = Runtime::start(Fixture::new().await).await;
    runtime.roll_out(version(1)).await;
    let too_much_memory = changed(|text| text.replace("memory_mib = 16", "memory_mib = 512"));
    let no_component = PackFile::encode(&example("hostile").manifest_text, b"not a component").unwrap();
    let refused = [
        (too_much_memory, "asks for 536870912 bytes of memory"),
        (no_component.into(), "this is not WebAssembly"),
        (Bytes::from_static(b"PK\x03\x04"), "it is a zip file"),
    ];
    for (file, reason) in refused {
        let error = runtime.install(file).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!(runtime.shared.store.list_generations(Some(&hostile())).await.unwrap().len(), 1, "nothing is stored");

    // Another host, which allows more, installed it: this one does not activate what it cannot load.
    let pack = PackFile::parse(&changed(|text| text.replace("memory_mib = 16", "memory_mib = 512"))).unwrap();
    let staged = runtime.supervisor.stage(pack, crate::store::Installing::Staged).await.unwrap();
    let error = runtime.supervisor.activate(&hostile(), staged.installed.number, None).await.unwrap_err();
    assert!(matches!(&error, RolloutError::Refused(reason) if reason.contains("cannot serve")), "{error}");
    assert_eq!(runtime.active().await, Some(1));
    runtime.works(1, "goes on").await;
    runtime.supervisor.drain().await;
}

// GST-6
#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_another_pack_has_is_refused_at_the_activation() {
    let runtime = Runtime::start(Fixture::new().await).await;
    runtime.roll_out(version(1)).await;
    let other = runtime.install(changed(|text| text.replace("name = \"hostile\"", "name = \"other\""))).await.unwrap();
    let error = runtime.supervisor.activate(&other.pack, other.installed.number, None).await.unwrap_err();
    assert!(matches!(&error, RolloutError::Refused(reason) if reason.contains("both declare the route")), "{error}");
    runtime.supervisor.deactivate(&hostile()).await.unwrap();
    runtime.supervisor.activate(&other.pack, other.installed.number, None).await.unwrap();
    runtime.supervisor.drain().await;
}

// GST-6
#[tokio::test(flavor = "multi_thread")]
async fn a_given_file_is_activated_when_it_is_new_and_left_alone_when_it_was_rolled_back() {
    let parse = |number| PackFile::parse(&version(number)).unwrap();
    let runtime = Runtime::start_with(Fixture::new().await, vec![parse(1)]).await;
    assert_eq!(runtime.active().await, Some(1));
    runtime.supervisor.drain().await;

    let runtime = Runtime::start_with(runtime.shared, vec![parse(2)]).await;
    while runtime.active().await != Some(2) {
        tokio::task::yield_now().await;
    }
    runtime.supervisor.rollback(&hostile(), None).await.unwrap();
    runtime.supervisor.drain().await;

    let runtime = Runtime::start_with(runtime.shared, vec![parse(2)]).await;
    runtime.works(1, "on what was gone back to").await;
    assert_eq!(runtime.active().await, Some(1));
    runtime.supervisor.drain().await;
}

// GST-6
#[tokio::test(flavor = "multi_thread")]
async fn work_of_a_generation_that_cannot_be_loaded_is_drained_to_one_that_declares_its_routes() {
    let runtime = Runtime::start(Fixture::new().await).await;
    let dead = PackFile::parse(&changed(|text| text.replace("memory_mib = 16", "memory_mib = 512"))).unwrap();
    runtime.supervisor.stage(dead, crate::store::Installing::Staged).await.unwrap();
    let event = runtime.shared.event("stuck", None, r#"{"do":"note","text":"fine"}"#);
    let id = event.work_item_id;
    runtime.deliver(1, event).await;
    runtime.roll_out(changed(|text| text.replace("path = \"hostile\"", "path = \"renamed\""))).await;
    runtime.roll_out(version(3)).await;
    let drain = async |to| runtime.supervisor.drain_generation(&hostile(), GenerationNumber(1), to).await;
    let to = |number| DrainTarget::Generation(GenerationNumber(number));
    let refused = drain(to(2)).await.unwrap_err().to_string();
    assert!(refused.contains("does not declare `hostile`, which generation 1 does"), "{refused}");
    assert!(matches!(drain(to(1)).await, Err(RolloutError::Conflict(_))));
    assert!(matches!(drain(to(9)).await, Err(RolloutError::NotFound(_))));
    let drained = drain(to(3)).await.unwrap();
    assert_eq!((drained.rows, drained.left), (1, 0));
    while runtime.shared.store.work_item(id).await.unwrap().unwrap().state != WorkState::Done {
        tokio::task::yield_now().await;
    }
    runtime.supervisor.drain().await;
}

// GST-6, MAT-2
#[tokio::test(flavor = "multi_thread")]
async fn every_runtime_over_one_database_follows_an_activation() {
    let shared = Fixture::on_server().await;
    let beside = shared.beside(0).await;
    let (first, second) = (Runtime::start(shared).await, Runtime::start(beside).await);
    for number in 1..=3 {
        first.roll_out(version(number)).await;
        second.supervisor.tick().await;
        let loaded = || second.supervisor.shared.generations.get(&hostile(), GenerationNumber(number)).is_some();
        while !loaded() {
            tokio::task::yield_now().await;
        }
        assert_eq!(second.supervisor.state().open, [(hostile(), GenerationNumber(number))]);
        second.works(number, &format!("d-{number}")).await;
    }
    assert_eq!(shown(&second.supervisor.rollback(&hostile(), None).await.unwrap()), (Some(2), Some(3)));
    first.supervisor.tick().await;
    assert_eq!(first.supervisor.state().open, [(hostile(), GenerationNumber(2))]);
    first.supervisor.drain().await;
    second.supervisor.drain().await;
}
