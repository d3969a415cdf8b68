//! What the tests of claim, execute and supervise share: a real store with one installed pack, and flows that do what a
//! test wants.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::{ClaimTimes, ExecuteOptions, ExecutorParts, Executors, Flow, Generations, SERVED_WORK_TYPES, Unconnected};
use crate::env::{Env, ManualClock};
use crate::guest::{FlowOutput, Prepared};
use crate::lanes::{Layout, Shape};
use crate::model::event::Event;
use crate::model::failure::{Failure, FailureClass};
use crate::model::ids::{EventId, WorkItemId};
use crate::model::message::DueAction;
use crate::model::pack::{
    Answer, Coalescing, FailedHeadPolicy, GenerationNumber, GuestLimits, KeyRule, Manifest, Ordering, QueueClassRule,
    Route,
};
use crate::model::queue::QueueClass;
use crate::model::reading::Reading;
use crate::model::time::Timestamp;
use crate::model::verification::Verification;
use crate::store::testing::{Fixture, GENERATION, ROUTE, START, pack};
use crate::store::{ClaimRequest, Delivery, Enqueued, NewEvent, Store, Tampering, WorkItemDetail};

/// A store, the generations that are loaded, and time that stands still unless a test moves it.
pub(crate) struct Harness {
    pub(crate) store: Store,
    pub(crate) env: Env,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) generations: Generations,
    pub(crate) generation: GenerationNumber,
    shared: Fixture,
}

/// What a scripted flow does with an event.
pub(crate) enum Step {
    Succeed(FlowOutput),
    Ignore,
    Fail(FailureClass),
    Panic,
    Hang,
    /// Succeeds once the semaphore has a permit, which it uses up.
    Wait(Arc<Semaphore>),
}

type Script = Box<dyn Fn(&Event, u32) -> Step + Send + Sync>;

/// A flow that follows a script, and tells of every event whose `run` begins.
pub(crate) struct ScriptedFlow {
    manifest: Arc<Manifest>,
    script: Script,
    started: mpsc::UnboundedSender<EventId>,
}

pub(crate) fn succeed() -> Step {
    Step::Succeed(FlowOutput::NOTHING)
}

/// A manifest with the route of the deliveries, ordered by source where an event has a source key.
pub(crate) fn manifest(failed_head: FailedHeadPolicy) -> Manifest {
    Manifest {
        name: pack(),
        version: "1".to_owned(),
        imports: Vec::new(),
        limits: GuestLimits::DEFAULT,
        routes: vec![Route {
            path: ROUTE.parse().unwrap(),
            verification: Verification::Plain,
            event_list: None,
            delivery_key: None,
            source_key: None,
            ordering: Ordering::Source,
            coalescing: Coalescing::None,
            failed_head,
            queue_class: QueueClassRule::DEFAULT,
            keep_headers: Vec::new(),
            answer: Answer::Receipt,
            handshake: None,
        }],
        readers: Vec::new(),
        destinations: vec!["sink".parse().unwrap()],
        settings: std::collections::BTreeMap::new(),
    }
}

/// A manifest whose route gives events of all queue classes.
pub(crate) fn mixed_manifest() -> Manifest {
    let mut manifest = manifest(FailedHeadPolicy::DEFAULT);
    manifest.routes[0].queue_class = QueueClassRule::ByValue {
        place: KeyRule::Header(http::HeaderName::from_static("x-kind")),
        classes: QueueClass::ALL.map(|class| (class.as_str().to_owned(), class)).into(),
        otherwise: QueueClass::Default,
    };
    manifest
}

impl Harness {
    pub(crate) async fn new() -> Self {
        Self::over(Fixture::starting_at(START).await)
    }

    /// A harness whose time passes by itself; its `clock` moves nothing.
    pub(crate) async fn with_system_clock() -> Self {
        Self::over(Fixture::with_system_clock().await)
    }

    /// A harness over a database that other runtimes can share.
    pub(crate) async fn on_server() -> Self {
        Self::over(Fixture::on_server().await)
    }

    /// Another runtime over the same database, with nothing loaded.
    pub(crate) async fn beside(&self) -> Self {
        Self::over(self.shared.beside(7).await)
    }

    fn over(shared: Fixture) -> Self {
        let (store, env, clock) = (shared.store.clone(), shared.env.clone(), Arc::clone(&shared.clock));
        Self { store, env, clock, generations: Generations::default(), generation: GENERATION, shared }
    }

    /// Where the store is; gone with the harness.
    pub(crate) fn directory(&self) -> &Path {
        self.shared.directory.path()
    }

    /// A second connection to the database, behind the store's back.
    pub(crate) async fn tampering(&self) -> Tampering {
        Tampering::in_directory(&self.directory().join("data")).await
    }

    /// Installs another generation: what is enqueued and loaded from here on is of it.
    pub(crate) async fn install_next_generation(&mut self) {
        self.generation = self.shared.install(u8::try_from(self.generation.0 + 1).unwrap()).await.number;
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.env.now()
    }

    /// Loads a flow that follows `script`. Returns where it tells of the events that it runs.
    pub(crate) fn load(
        &self,
        script: impl Fn(&Event, u32) -> Step + Send + Sync + 'static,
    ) -> mpsc::UnboundedReceiver<EventId> {
        self.load_under(manifest(FailedHeadPolicy::DEFAULT), script)
    }

    pub(crate) fn load_under(
        &self,
        manifest: Manifest,
        script: impl Fn(&Event, u32) -> Step + Send + Sync + 'static,
    ) -> mpsc::UnboundedReceiver<EventId> {
        let (started, starts) = mpsc::unbounded_channel();
        let flow = ScriptedFlow { manifest: Arc::new(manifest), script: Box::new(script), started };
        self.generations.insert(pack(), self.generation, Arc::new(flow));
        starts
    }

    pub(crate) fn parts(&self, options: ExecuteOptions) -> ExecutorParts {
        ExecutorParts {
            pack: pack(),
            options,
            store: self.store.clone(),
            generations: self.generations.clone(),
            env: self.env.clone(),
            caller: Arc::new(Unconnected),
            runtime: Handle::current(),
        }
    }

    pub(crate) fn executors(&self, slots: u32) -> Executors {
        Executors::new(self.parts(ExecuteOptions { slots, ..ExecuteOptions::default() }))
    }

    /// Enqueues one event for each body, with no order among them.
    pub(crate) async fn enqueue<const N: usize>(&self, bodies: [&str; N]) -> [WorkItemId; N] {
        self.enqueue_events(bodies.map(|body| (None, body))).await
    }

    /// Enqueues one event for each body, in the lane of `source_key`.
    pub(crate) async fn enqueue_in_lane<const N: usize>(&self, source_key: &str, bodies: [&str; N]) -> [WorkItemId; N] {
        self.enqueue_events(bodies.map(|body| (Some(source_key.to_owned()), body))).await
    }

    /// Enqueues one event for each body, in the lane of `source_key`, of which the latest is all that matters.
    pub(crate) async fn enqueue_coalescing<const N: usize>(
        &self,
        source_key: &str,
        bodies: [&str; N],
    ) -> [WorkItemId; N] {
        let events = bodies.map(|body| {
            let event = self.shared.event("", Some(source_key), body);
            NewEvent { delivery_key: event.id.to_string(), ..event }
        });
        let ids = events.each_ref().map(|event| event.work_item_id);
        let delivery = self.shared.delivery(events.to_vec());
        let coalescing = Coalescing::LatestBySource;
        self.store.enqueue(Delivery { generation: self.generation, coalescing, ..delivery }).await.unwrap();
        ids
    }

    /// Enqueues events of this class, with no order among them.
    pub(crate) async fn enqueue_of(&self, queue_class: QueueClass, count: usize) -> Vec<WorkItemId> {
        let event = || {
            let event = self.shared.event("", None, "event");
            NewEvent { delivery_key: event.id.to_string(), queue_class, ..event }
        };
        let events: Vec<NewEvent> = std::iter::repeat_with(event).take(count).collect();
        let ids = events.iter().map(|event| event.work_item_id).collect();
        self.store_events(events).await;
        ids
    }

    async fn enqueue_events<const N: usize>(&self, events: [(Option<String>, &str); N]) -> [WorkItemId; N] {
        let events = events.map(|(source_key, body)| {
            let event = self.shared.event("", source_key.as_deref(), body);
            NewEvent { delivery_key: event.id.to_string(), ..event }
        });
        let ids = events.each_ref().map(|event| event.work_item_id);
        self.store_events(events.to_vec()).await;
        ids
    }

    /// Stores events that must be new, as the generation that is loaded admits them.
    async fn store_events(&self, events: Vec<NewEvent>) {
        let delivery = Delivery { generation: self.generation, ..self.shared.delivery(events) };
        let answer = self.store.enqueue(delivery).await.unwrap();
        assert!(matches!(answer, Enqueued::Stored { .. }), "{answer:?}");
    }

    /// Executors whose clock stands still while the harness' moves, as that of a suspended process does.
    pub(crate) fn suspended_executors(&self, slots: u32) -> Executors {
        let clock = Arc::new(ManualClock::at(self.now()));
        let env = Env { clock, entropy: Arc::clone(&self.env.entropy) };
        let options = ExecuteOptions { slots, ..ExecuteOptions::default() };
        Executors::new(ExecutorParts { env, ..self.parts(options) })
    }

    /// Claims up to `rows_max` rows and puts them to work, as a scheduler does. Returns how many there were.
    pub(crate) async fn claim_into(&self, executors: &Executors, rows_max: u32) -> usize {
        self.claim_for(executors, executors.generations(), rows_max).await
    }

    /// [`Self::claim_into`], for these generations whether or not they are loaded.
    pub(crate) async fn claim_for(
        &self,
        executors: &Executors,
        generations: Vec<GenerationNumber>,
        rows_max: u32,
    ) -> usize {
        // In these tests nobody cares which.
        let layout = Layout::plain(executors.slots());
        let slots = executors.reserve(&layout, Shape::Shared, rows_max).expect("enough slots are free");
        let (now, sent) = (self.now(), self.env.clock.monotonic());
        let request = ClaimRequest {
            generations,
            work_types: SERVED_WORK_TYPES.to_vec(),
            lease_duration: executors.lease(),
            ..self.shared.request(rows_max)
        };
        let claimed = self.store.claim(request).await.unwrap();
        let count = claimed.len();
        executors.dispatch(claimed, slots, ClaimTimes { sent, sent_at: now, answered: sent });
        count
    }

    pub(crate) async fn detail(&self, id: WorkItemId) -> WorkItemDetail {
        self.store.work_item(id).await.unwrap().unwrap()
    }
}

impl Flow for ScriptedFlow {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    fn prepare<'a>(&'a self, event: &'a Event, attempt: u32, _: Instant) -> BoxFuture<'a, Result<Prepared, Failure>> {
        async move {
            match (self.script)(event, attempt) {
                Step::Ignore => Ok(Prepared::Ignore { reason: "of no interest".to_owned() }),
                Step::Succeed(_) | Step::Fail(_) | Step::Panic | Step::Hang | Step::Wait(_) => {
                    Ok(Prepared::Run { state: Bytes::from_static(b"state"), reads: Vec::new() })
                }
            }
        }
        .boxed()
    }

    fn run<'a>(
        &'a self,
        event: &'a Event,
        attempt: u32,
        state: Bytes,
        _: &'a [Reading],
        _: Instant,
    ) -> BoxFuture<'a, Result<FlowOutput, Failure>> {
        async move {
            assert_eq!(state, "state");
            // A test that does not listen has no receiver any more.
            let _ = self.started.send(event.id);
            let nothing = FlowOutput::NOTHING;
            match (self.script)(event, attempt) {
                Step::Succeed(output) => Ok(output),
                Step::Ignore => panic!("an ignored event is not run"),
                Step::Fail(class) => Err(Failure::new(class, "as scripted")),
                Step::Panic => panic!("as scripted"),
                Step::Hang => std::future::pending().await,
                Step::Wait(gate) => {
                    gate.acquire().await.unwrap().forget();
                    Ok(nothing)
                }
            }
        }
        .boxed()
    }

    /// As `run` would, with the action's name for a note.
    fn apply<'a>(
        &'a self,
        event: &'a Event,
        action: &'a DueAction,
        attempt: u32,
        _: Instant,
    ) -> BoxFuture<'a, Result<FlowOutput, Failure>> {
        async move {
            let _ = self.started.send(event.id);
            match (self.script)(event, attempt) {
                Step::Succeed(output) => Ok(FlowOutput { note: Some(action.name.clone()), ..output }),
                Step::Fail(class) => Err(Failure::new(class, "as scripted")),
                Step::Ignore | Step::Panic | Step::Hang | Step::Wait(_) => panic!("no script says so of an action"),
            }
        }
        .boxed()
    }
}
