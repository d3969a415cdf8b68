//! The timeline with a real store, a real publisher and a real receiver on loopback; time is the test's to move.
//!
//! That something is *not* published is shown by a barrier: a message of the same shard that is due later and arrives.

mod due;
mod lanes;
mod ownership;
mod receiver;
mod recovery;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use self::receiver::Receiver;
use super::*;
use crate::env::{self, Clock, ManualClock, SeededEntropy};
use crate::model::destination::{Destination, LaneLimits};
use crate::model::ids::{EventId, LeaseToken, MessageId, ReceiptId, WorkItemId};
use crate::model::message::{MessageEntry, MessageState, NewMessage, UncertainPolicy};
use crate::model::pack::GenerationNumber;
use crate::model::retry::RetryPolicy;
use crate::model::time::Timestamp;
use crate::model::work_item::WorkType;
use crate::publish::PublishOptions;
use crate::secrets::Secrets;
use crate::store::{ClaimRequest, Delivery, Disposition, Finish, Finished, LeaseTime, NewEvent, StoreOptions};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// Nothing takes this long: a test that waits for longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

/// A store with one shard, a receiver, and destinations `ok`, `hold`, `fail` and whatever a test adds.
struct World {
    directory: Arc<TempDir>,
    clock: Arc<ManualClock>,
    store: Store,
    receiver: Receiver,
    destinations: Destinations,
    ids: AtomicU64,
}

/// A timeline that runs, and what it takes to stop it.
struct Running {
    timeline: Timeline,
    publisher: Publisher,
    clock: Arc<ManualClock>,
    stop: CancellationToken,
}

fn env_of(clock: &Arc<ManualClock>) -> Env {
    Env { clock: Arc::clone(clock) as _, entropy: Arc::new(SeededEntropy::new(1)) }
}

impl World {
    async fn new() -> Self {
        let directory = Arc::new(TempDir::new().unwrap());
        let clock = Arc::new(ManualClock::at(START));
        let options = StoreOptions {
            data: directory.path().join("data"),
            database_url: None,
            lease_time: LeaseTime::Runtime,
            shards: 1,
            queue_requests_max: 4_096,
            queue_bytes_max: 64 << 20,
            readers: 2,
            read_timeout: Duration::from_secs(30),
        };
        let store = Store::open(options, env_of(&clock)).await.unwrap();
        store.ensure_namespaces(&["acme".parse().unwrap()], START).await.unwrap();
        let component = Bytes::from_static(b"\0asm");
        store.install_pack(&"github".parse().unwrap(), [1; 32], "[pack]".to_owned(), component, START).await.unwrap();
        let receiver = Receiver::start(Arc::clone(&clock)).await;
        let mut world =
            Self { directory, clock, store, receiver, destinations: Destinations::new(), ids: AtomicU64::new(1) };
        for name in ["ok", "hold", "fail"] {
            world.add(name, name, |_| {});
        }
        world
    }

    /// Configures a destination `name` that the receiver answers as `path`.
    fn add(&mut self, name: &str, path: &str, adjust: impl FnOnce(&mut Destination)) {
        let mut destination = Destination {
            name: name.parse().unwrap(),
            url: format!("http://{}/{path}", self.receiver.address).parse().unwrap(),
            secret: None,
            deadline: Duration::from_secs(120),
            retry: RetryPolicy { initial: SECOND, max: 60 * SECOND, failures_max: 100 },
            uncertain: UncertainPolicy::Retry,
            limits: LaneLimits { messages: 16, bytes: 1 << 20 },
            weight: 1,
        };
        adjust(&mut destination);
        self.destinations.insert(destination.name.clone(), destination);
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn entropy(&self) -> [u8; 10] {
        let mut entropy = [0; 10];
        entropy[2..].copy_from_slice(&self.ids.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        entropy
    }

    /// A runtime's timeline, whose clock is its own.
    async fn start_on(&self, folder: &str, clock: Arc<ManualClock>, claimed_max: usize) -> Running {
        let secrets_directory = self.directory.path().join("secrets");
        std::fs::create_dir_all(&secrets_directory).unwrap();
        let env = env_of(&clock);
        let destinations = Arc::new(self.destinations.clone());
        let options = PublishOptions {
            in_flight_max: 1_024,
            response_bytes_max: 1_024,
            allow_networks: vec!["127.0.0.0/8".to_owned()],
            deny_addresses: Vec::new(),
            idle_connections_max: 8,
            idle_timeout: PATIENCE,
        };
        let secrets = Secrets::open(&secrets_directory, env.clone()).unwrap();
        let publisher =
            Publisher::start(options, Arc::clone(&destinations), self.store.clone(), secrets, env.clone()).unwrap();
        let options = TimelineOptions {
            directory: self.directory.path().join(folder),
            lease: LEASE,
            poll: Duration::from_millis(20),
            claimed_max,
            memory_bytes: 8 << 20,
            clock_uncertainty_max: Duration::from_millis(100),
        };
        let runtime = RuntimeId::new(self.now(), self.entropy());
        let stop = CancellationToken::new();
        let store = self.store.clone();
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
        NewMessage {
            id: MessageId::new(self.now(), self.entropy()),
            destination: destination.parse().unwrap(),
            body: Bytes::from_static(b"{}"),
            content_type: "application/json".to_owned(),
            headers: Vec::new(),
            ordering_key: None,
            idempotency_key: None,
            due_at,
            expire_at: None,
        }
    }

    /// Has a flow emit these messages.
    async fn emit(&self, messages: Vec<NewMessage>) -> Vec<MessageId> {
        let ids = messages.iter().map(|message| message.id).collect();
        let now = self.now();
        let event = NewEvent {
            id: EventId::new(now, self.entropy()),
            work_item_id: WorkItemId::new(now, self.entropy()),
            delivery_key: format!("delivery-{}", self.ids.load(Ordering::Relaxed)),
            source_key: None,
            payload_digest: [0; 32],
            body: Bytes::from_static(b"{}"),
        };
        let delivery = Delivery {
            receipt_id: ReceiptId::new(now, self.entropy()),
            namespace: "acme".parse().unwrap(),
            pack: "github".parse().unwrap(),
            generation: GenerationNumber(1),
            route: "push".parse().unwrap(),
            content_type: "application/json".to_owned(),
            headers: Vec::new(),
            received_at: now,
            events: vec![event],
        };
        self.store.enqueue(delivery).await.unwrap();
        let request = ClaimRequest {
            pack: "github".parse().unwrap(),
            generations: vec![GenerationNumber(1)],
            work_types: vec![WorkType::ConnectorEvent],
            rows_max: 1,
            stale_only: false,
            lease: LeaseToken::new(now, self.entropy()),
            lease_duration: PATIENCE,
            now,
        };
        let item = self.store.claim(request).await.unwrap().pop().unwrap();
        let disposition = Disposition::Done { note: None, ignored: false, messages };
        let finish = Finish { work_item_id: item.id, lease: item.lease, epoch: item.epoch, disposition, now };
        assert_eq!(self.store.finish(finish).await.unwrap(), Finished::Applied);
        ids
    }

    /// Emits one message.
    async fn emit_one(&self, destination: &str, due_at: Timestamp) -> MessageId {
        self.emit(vec![self.message(destination, due_at)]).await[0]
    }

    /// Emits a message that is due now and waits for it to arrive, and for nothing else to arrive before it.
    async fn barrier(&mut self) {
        let barrier = self.emit_one("ok", self.now()).await;
        assert_eq!(self.receiver.next().await, barrier, "something else was published");
    }

    async fn entry(&self, id: MessageId) -> MessageEntry {
        self.store.message_entries(&[id]).await.unwrap().pop().unwrap()
    }

    async fn until_state(&self, id: MessageId, state: MessageState) {
        until(async || self.entry(id).await.state == state).await;
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
