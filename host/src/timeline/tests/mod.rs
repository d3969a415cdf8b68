//! The timeline with a real store, a real publisher and a real receiver on loopback; time is the test's to move.
//!
//! That something is *not* published is shown by a barrier: a message of the same shard that is due later and arrives.

mod actions;
mod capacity;
mod checkpoints;
mod crash;
mod destinations;
mod due;
mod expiry;
mod gates;
mod lanes;
mod ownership;
mod panics;
mod placement;
mod places;
mod receiver;
mod recovery;
mod trimming;
mod why;
mod work;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::receiver::Receiver;
use super::*;
use crate::env::{self, Clock, ManualClock};
use crate::model::destination::{Destination, LaneLimits};
use crate::model::destination_lane::Ordering;
use crate::model::ids::MessageId;
use crate::model::message::{AfterAttempt, MessageEntry, MessageState, NewMessage, UncertainPolicy};
use crate::model::retry::RetryPolicy;
use crate::model::time::Timestamp;
use crate::publish::PublishOptions;
use crate::secrets::Secrets;
use crate::store::testing::{Fixture, START, env as env_of};
use crate::store::{Admission, AdmissionRequest, OutcomeRecord};
use crate::supervise::{DestinationBook, DestinationParts};

/// Nothing takes this long: a test that waits for longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

/// A store, of one shard unless it is shared, a receiver, and destinations `ok`, `hold`, `fail` and whatever a test
/// adds.
struct World {
    shared: Fixture,
    clock: Arc<ManualClock>,
    store: Store,
    receiver: Receiver,
    destinations: Destinations,
    weights: BTreeMap<Namespace, u32>,
    /// Where checkpoints are kept, and how often they are made.
    checkpoints: PathBuf,
    every: Option<Duration>,
    floors: Floors,
    in_flight_max: usize,
}

/// A timeline that runs, and what it takes to stop it.
struct Running {
    timeline: Timeline,
    publisher: Publisher,
    clock: Arc<ManualClock>,
    stop: CancellationToken,
}

/// Panics of an actor in a row, after which it is not opened again.
const PANICS_MAX: u32 = 4;

/// How long a barrier waits, in real time, before a little time passes.
const BARRIER_LOOK: Duration = Duration::from_millis(500);

impl World {
    async fn new() -> Self {
        Self::over(Fixture::starting_at(START).await).await
    }

    /// A receiver and destinations of its own, over a store that may be shared.
    async fn over(shared: Fixture) -> Self {
        let (clock, store) = (Arc::clone(&shared.clock), shared.store.clone());
        let receiver = Receiver::start(Arc::clone(&clock)).await;
        let checkpoints = shared.directory.path().join("checkpoints");
        let (destinations, weights) = (Destinations::new(), BTreeMap::new());
        let mut world = Self {
            shared,
            clock,
            store,
            receiver,
            destinations,
            weights,
            checkpoints,
            every: None,
            floors: Floors::default(),
            in_flight_max: 1_024,
        };
        for name in ["ok", "hold", "fail"] {
            world.add(name, name, |_| {});
        }
        world
    }

    /// Configures a destination `name` that the receiver answers as `path`.
    fn add(&mut self, name: &str, path: &str, adjust: impl FnOnce(&mut Destination)) {
        let url = format!("http://{}/{path}", self.receiver.address).parse().unwrap();
        let mut destination = Destination {
            deadline: Duration::from_secs(120),
            retry: RetryPolicy { initial: SECOND, max: 60 * SECOND, failures_max: 100 },
            limits: LaneLimits { messages: 16, bytes: 1 << 20 },
            ..Destination::new(name.parse().unwrap(), url)
        };
        adjust(&mut destination);
        self.destinations.insert(destination);
    }

    /// The destinations of a runtime: those of the world, and those that the store has.
    async fn book(&self, secrets: Secrets) -> DestinationBook {
        let read = |name: &DestinationName, document: &str| {
            let document = serde_json::from_str(document).map_err(|error| vec![error.to_string()])?;
            crate::config::destination(
                name.as_str(),
                &document,
                crate::config::InFlightMax { messages: 1_024, bytes: 64 << 20 },
            )
        };
        let parts = DestinationParts {
            configured: self.destinations.clone(),
            namespaces: vec![crate::store::testing::namespace()],
            read: Arc::new(read),
            ordering: Arc::new(|document| crate::config::ordering(&serde_json::from_str(document).ok()?)),
            advise: Arc::new(|_| None),
            secrets,
            store: self.store.clone(),
        };
        DestinationBook::open(parts).await.unwrap()
    }

    /// Another owner, on another machine, attempts a message, and does not know what became of it.
    async fn attempt_elsewhere(&self, id: MessageId) {
        let runtime = self.shared.runtime();
        let lease = self.store.acquire_shard(checkpoints::SHARD, runtime, SECOND, self.now()).await.unwrap().unwrap();
        let request = AdmissionRequest { id, generation: 1 };
        let admitted = self.store.admit(lease, vec![request], self.now()).await.unwrap();
        assert_eq!(admitted, [Admission::Admitted { attempt: 1 }]);
        let outcome = OutcomeRecord {
            id,
            generation: 1,
            attempt: 1,
            after: AfterAttempt::Uncertain,
            uncertain: true,
            spared: false,
            status: None,
            error: None,
        };
        assert_eq!(self.store.record_outcomes(lease, vec![outcome], self.now()).await.unwrap(), [true]);
        self.store.release_shard(lease).await.unwrap();
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A runtime's timeline, whose clock is its own.
    async fn start_on(&self, folder: &str, clock: Arc<ManualClock>, claimed_max: usize) -> Running {
        let secrets_directory = self.shared.directory.path().join("secrets");
        std::fs::create_dir_all(&secrets_directory).unwrap();
        let env = env_of(&clock);
        let options = PublishOptions {
            in_flight_max: self.in_flight_max,
            in_flight_bytes_max: 64 << 20,
            response_bytes_max: 1_024,
            allow_networks: vec!["127.0.0.0/8".to_owned()],
            ca_file: None,
            deny_addresses: Vec::new(),
            idle_connections_max: 8,
            idle_timeout: PATIENCE,
        };
        let secrets = Secrets::open(&secrets_directory, env.clone()).unwrap();
        let book = self.book(secrets.clone()).await;
        let known = book.subscribe().borrow().clone();
        let publisher = Publisher::start(options, &known, self.store.clone(), secrets, env.clone()).unwrap();
        let options = TimelineOptions {
            directory: self.shared.directory.path().join(folder),
            lease: LEASE,
            poll: Duration::from_millis(20),
            claimed_max,
            memory_bytes: 8 << 20,
            floors: self.floors,
            after_panic: RetryPolicy { initial: Duration::from_millis(2), max: SECOND / 20, failures_max: PANICS_MAX },
            namespace_weights: self.weights.clone(),
            clock_uncertainty_max: Duration::from_millis(100),
            checkpoints: CheckpointOptions {
                place: CheckpointPlace::Folder(self.checkpoints.clone()),
                every: self.every,
                kept: 2,
            },
        };
        let runtime = self.shared.runtime();
        let stop = CancellationToken::new();
        let store = self.store.clone();
        let destinations = book.subscribe();
        env::spawn("destinations", book.follow(publisher.clone(), stop.clone()));
        let timeline =
            Timeline::start(options, runtime, destinations, store, publisher.clone(), env, stop.clone()).await.unwrap();
        Running { timeline, publisher, clock, stop }
    }

    /// This runtime's timeline, once it publishes.
    async fn start(&self) -> Running {
        let running = self.start_on("timeline", Arc::clone(&self.clock), 1_024).await;
        running.until_active().await;
        running
    }

    fn message(&self, destination: &str, due_at: Timestamp) -> NewMessage {
        self.shared.message(destination, due_at)
    }

    /// Has a flow emit these messages.
    async fn emit(&self, messages: Vec<NewMessage>) -> Vec<MessageId> {
        self.shared.emit(messages).await
    }

    /// Emits one message.
    async fn emit_one(&self, destination: &str, due_at: Timestamp) -> MessageId {
        self.emit(vec![self.message(destination, due_at)]).await[0]
    }

    /// Emits a message that is due now and waits for it to arrive, and for nothing else to arrive before it.
    async fn barrier(&mut self) {
        let barrier = self.emit_one("ok", self.now()).await;
        let arrived = loop {
            // A claim that was put off, because a lease was about to end or the store was busy, is made again when time
            // has passed: now and then a little does.
            tokio::select! {
                arrived = self.receiver.next() => break arrived,
                () = env::sleep(BARRIER_LOOK) => self.clock.advance(SECOND / 10),
            }
        };
        assert_eq!(arrived, barrier, "something else was published");
    }

    async fn entry(&self, id: MessageId) -> MessageEntry {
        self.store.message_entries(&[id]).await.unwrap().pop().unwrap()
    }

    async fn until_state(&self, id: MessageId, state: MessageState) {
        // What was put off is done when time has passed: now and then a little does, as for a barrier.
        let mut look = env::deadline(BARRIER_LOOK);
        until(async || {
            if env::has_passed(look) {
                self.clock.advance(SECOND / 10);
                look = env::deadline(BARRIER_LOOK);
            }
            self.entry(id).await.state == state
        })
        .await;
    }
}

impl Running {
    /// Lets time pass.
    fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.timeline.wake();
    }

    async fn until_active(&self) {
        until(async || {
            self.advance(SECOND / 10);
            env::sleep(Duration::from_millis(5)).await;
            self.timeline.is_active()
        })
        .await;
    }

    async fn stop(self) {
        self.stop.cancel();
        self.timeline.stopped().await;
        self.publisher.drain().await;
    }
}

/// Looks again and again until `condition` holds.
async fn until(mut condition: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !condition().await {
            env::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout_at(env::deadline(PATIENCE), wait).await.expect("it comes about in time");
}
