//! A store for the tests of every module that needs one: a real database in a temporary directory, with the tenant
//! `acme` and the pack `github`, and time that the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::engine::readers::Reader;
pub(crate) use super::writer::loss::Loss;
use super::{
    ClaimRequest, Delivery, Disposition, Enqueued, Finish, Finished, Installed, Installing, LeaseTime, NewEvent,
    Patience, PeekRequest, Store, StoreOptions,
};
use crate::env::{Env, ManualClock, SeededEntropy};
use crate::model::event::Header;
use crate::model::ids::{EventId, LeaseToken, MessageId, ReceiptId, RuntimeId, WorkItemId};
use crate::model::message::{NewAction, NewMessage};
use crate::model::names::{DestinationName, Namespace, PackName};
use crate::model::pack::{self, GenerationNumber};
use crate::model::queue::{QueueClass, QueueClasses};
use crate::model::reading::RunRecord;
use crate::model::time::Timestamp;
use crate::model::work_item::{ClaimedWorkItem, WorkType};

/// When tests begin.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// How long claims and shards are leased.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// The route that deliveries come in by.
pub(crate) const ROUTE: &str = "push";
/// The first generation of the pack.
pub(crate) const GENERATION: GenerationNumber = GenerationNumber(1);

/// A store with a tenant and the first generation of a pack.
pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) env: Env,
    /// Moves the time of `env`, unless that is the machine's.
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) directory: TempDir,
    pub(super) options: StoreOptions,
    /// How many runtimes there have been over this database. Each has chance and ids of its own.
    runtimes: Arc<AtomicU64>,
    ids: AtomicU64,
}

pub(crate) fn namespace() -> Namespace {
    "acme".parse().unwrap()
}

pub(crate) fn pack() -> PackName {
    "github".parse().unwrap()
}

/// Longer than a host's: the machine may be at many tests. Nobody vanishes.
const PATIENCE: Patience = Patience {
    lock_wait: Duration::from_secs(5),
    attempt: Duration::from_secs(60),
    attempts: Duration::from_secs(120),
    idle: None,
};

/// The options of a store in `directory`.
pub(crate) fn options(directory: &TempDir) -> StoreOptions {
    StoreOptions {
        data: directory.path().join("data"),
        database_url: None,
        lease_time: LeaseTime::Runtime,
        shards: 2,
        queue_requests_max: 4_096,
        queue_bytes_max: 64 * 1024 * 1024,
        readers: 2,
        read_timeout: Duration::from_secs(30),
        patience: PATIENCE,
    }
}

/// Time as `clock` says, and chance that is the same every time.
pub(crate) fn env(clock: &Arc<ManualClock>) -> Env {
    env_of(clock, 1)
}

/// As [`env`], for one of many runtimes: each has chance of its own.
fn env_of(clock: &Arc<ManualClock>, runtime: u64) -> Env {
    Env { clock: Arc::clone(clock) as _, entropy: Arc::new(SeededEntropy::new(runtime)) }
}

/// A success that emits these messages.
pub(crate) fn done(messages: Vec<NewMessage>) -> Disposition {
    Disposition::Done { note: None, ignored: false, messages, record: RunRecord::none() }
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A store with other options.
    pub(crate) async fn with(adjust: impl FnOnce(&mut StoreOptions)) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        Self::in_env(env(&clock), clock, adjust).await
    }

    /// A store with one shard, where it is `now`.
    pub(crate) async fn starting_at(now: Timestamp) -> Self {
        let clock = Arc::new(ManualClock::at(now));
        Self::in_env(env(&clock), clock, |options| options.shards = 1).await
    }

    /// A store with one shard whose time passes by itself.
    pub(crate) async fn with_system_clock() -> Self {
        let clock = Arc::new(ManualClock::at(START));
        Self::in_env(Env::system(), clock, |options| options.shards = 1).await
    }

    /// A store on a server, whose database other runtimes can share.
    pub(crate) async fn on_server() -> Self {
        Self::with(|options| options.database_url = Some(super::tests::mariadb::create_database())).await
    }

    async fn in_env(env: Env, clock: Arc<ManualClock>, adjust: impl FnOnce(&mut StoreOptions)) -> Self {
        let directory = TempDir::new().unwrap();
        let mut options = options(&directory);
        adjust(&mut options);
        let store = Store::open(options.clone(), env.clone()).await.unwrap();
        store.ensure_namespaces(&[namespace()], env.now()).await.unwrap();
        let (runtimes, ids) = (Arc::new(AtomicU64::new(1)), AtomicU64::new(1));
        let fixture = Self { store, env, clock, directory, options, runtimes, ids };
        assert_eq!(fixture.install(1).await, Installed { number: GENERATION, new: true });
        fixture
    }

    /// Another runtime over the same database, whose clock is off by `skew_ms`.
    pub(crate) async fn beside(&self, skew_ms: i64) -> Self {
        self.beside_with(skew_ms, |_| {}).await
    }

    /// As [`Fixture::beside`], with other options.
    pub(crate) async fn beside_with(&self, skew_ms: i64, adjust: impl FnOnce(&mut StoreOptions)) -> Self {
        let directory = TempDir::new().unwrap();
        let mut options = StoreOptions { data: directory.path().join("data"), ..self.options.clone() };
        adjust(&mut options);
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(self.now().as_millis() + skew_ms)));
        let runtime = self.next_runtime();
        let env = env_of(&clock, runtime);
        let store = Store::open(options.clone(), env.clone()).await.unwrap();
        let (runtimes, ids) = (Arc::clone(&self.runtimes), AtomicU64::new(runtime << 40));
        Self { store, env, clock, directory, options, runtimes, ids }
    }

    /// The number of one more runtime over this database.
    fn next_runtime(&self) -> u64 {
        self.runtimes.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Opens the store again that was closed: as another process, by the same clock.
    pub(crate) async fn open_again(&mut self) {
        self.env = env_of(&self.clock, self.next_runtime());
        self.store = Store::open(self.options.clone(), self.env.clone()).await.unwrap();
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.env.now()
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Makes the generation with this digest the active one.
    pub(crate) async fn install(&self, digest: u8) -> Installed {
        let component = Bytes::from_static(b"\0asm");
        let (manifest, now) = ("[pack]".to_owned(), self.now());
        self.store.install_pack(&pack(), [digest; 32], manifest, component, Installing::Active, now).await.unwrap()
    }

    /// The random part of an identifier, another one each time.
    pub(crate) fn entropy(&self) -> [u8; 10] {
        let mut entropy = [0; 10];
        entropy[2..].copy_from_slice(&self.ids.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        entropy
    }

    pub(crate) fn runtime(&self) -> RuntimeId {
        RuntimeId::new(self.now(), self.entropy())
    }

    pub(crate) fn event(&self, key: &str, source: Option<&str>, body: impl AsRef<[u8]>) -> NewEvent {
        NewEvent {
            id: EventId::new(self.now(), self.entropy()),
            work_item_id: WorkItemId::new(self.now(), self.entropy()),
            delivery_key: key.to_owned(),
            source_key: source.map(str::to_owned),
            queue_class: QueueClass::Default,
            payload_digest: Sha256::digest(body.as_ref()).into(),
            body: Bytes::copy_from_slice(body.as_ref()),
        }
    }

    pub(crate) fn delivery(&self, events: Vec<NewEvent>) -> Delivery {
        Delivery {
            receipt_id: ReceiptId::new(self.now(), self.entropy()),
            namespace: namespace(),
            pack: pack(),
            generation: GENERATION,
            route: ROUTE.parse().unwrap(),
            content_type: "application/json".to_owned(),
            headers: vec![Header { name: "x-github-event".to_owned(), value: Bytes::from_static(b"push") }],
            received_at: self.now(),
            ordering: pack::Ordering::Source,
            coalescing: pack::Coalescing::None,
            events,
        }
    }

    /// Stores events that must be new.
    pub(crate) async fn enqueue(&self, events: Vec<NewEvent>) {
        let ids = events.iter().map(|event| event.id).collect();
        let answer = self.store.enqueue(self.delivery(events)).await.unwrap();
        assert_eq!(answer, Enqueued::Stored { events: ids });
    }

    /// Delivers one event that must be new.
    pub(crate) async fn deliver(&self, key: &str, source: Option<&str>) -> (EventId, WorkItemId) {
        let event = self.event(key, source, key);
        let ids = (event.id, event.work_item_id);
        self.enqueue(vec![event]).await;
        ids
    }

    pub(crate) fn request(&self, rows_max: u32) -> ClaimRequest {
        ClaimRequest {
            pack: pack(),
            generations: vec![GENERATION],
            work_types: vec![WorkType::ConnectorEvent],
            classes: QueueClasses::ALL,
            preference: QueueClasses::NONE,
            only: None,
            rows_max,
            stale_only: false,
            lease: LeaseToken::new(self.now(), self.entropy()),
            lease_duration: LEASE,
            now: self.now(),
        }
    }

    /// A look at who is next.
    pub(crate) fn look(&self) -> PeekRequest {
        PeekRequest { pack: pack(), work_types: vec![WorkType::ConnectorEvent], rows_max: 10, now: self.now() }
    }

    pub(crate) async fn claim(&self, rows_max: u32) -> Vec<ClaimedWorkItem> {
        self.store.claim(self.request(rows_max)).await.unwrap()
    }

    pub(crate) fn ending(&self, item: &ClaimedWorkItem, disposition: Disposition) -> Finish {
        Finish {
            work_item_id: item.id,
            lease: item.lease,
            epoch: item.epoch,
            disposition,
            successor: None,
            now: self.now(),
        }
    }

    pub(crate) async fn finish(&self, item: &ClaimedWorkItem, disposition: Disposition) -> Finished {
        self.store.finish(self.ending(item, disposition)).await.unwrap()
    }

    pub(crate) fn message(&self, destination: &str, due_at: Timestamp) -> NewMessage {
        NewMessage {
            id: MessageId::new(self.now(), self.entropy()),
            destination: destination.parse().unwrap(),
            body: Bytes::from_static(b"{}"),
            content_type: "application/json".to_owned(),
            headers: vec![Header { name: "x-kind".to_owned(), value: Bytes::from_static(b"reminder") }],
            ordering_key: None,
            idempotency_key: None,
            due_at,
            due_after: None,
            expire_at: None,
            action: None,
        }
    }

    /// An action of the pack's first generation.
    pub(crate) fn action(&self, name: &str, due_at: Timestamp) -> NewMessage {
        NewMessage {
            destination: DestinationName::flow_of(&pack()),
            action: Some(NewAction { name: name.to_owned(), pack: pack(), generation: GENERATION }),
            ..self.message("sink", due_at)
        }
    }

    /// Has a flow emit these messages.
    pub(crate) async fn emit(&self, messages: Vec<NewMessage>) -> Vec<MessageId> {
        let ids = messages.iter().map(|message| message.id).collect();
        self.deliver(&format!("emit-{}", self.ids.load(Ordering::Relaxed)), None).await;
        let item = self.claim(1).await.pop().unwrap();
        assert_eq!(self.finish(&item, done(messages)).await, Finished::Applied);
        ids
    }
}

impl Store {
    /// The counters say what the rows say, each of its scope and state.
    pub(crate) async fn assert_counted(&self) {
        assert_eq!(self.miscounts().await.unwrap(), []);
    }

    /// How many deliveries wait for the writer to take them.
    pub(crate) fn waiting_deliveries(&self) -> usize {
        self.writer.waiting_deliveries()
    }

    /// Waits until a transaction was begun after so many.
    pub(crate) async fn is_at_work_since(&self, attempts: u64) {
        while self.attempts_and_conflicts().0 == attempts {
            tokio::task::yield_now().await;
        }
    }

    /// How many other requests wait for the writer to take them.
    pub(crate) fn waiting_controls(&self) -> usize {
        self.writer.waiting_controls()
    }

    /// Takes all connections of the pool of readers, until the answer is dropped.
    pub(crate) async fn hold_readers(&self) -> HeldReaders {
        let mut readers = Vec::new();
        for _ in 0..self.readers.connections() {
            readers.push(self.readers.acquire().await.unwrap());
        }
        HeldReaders { _readers: readers }
    }
}

/// Connections that nobody else gets.
pub(crate) struct HeldReaders {
    _readers: Vec<Reader>,
}
