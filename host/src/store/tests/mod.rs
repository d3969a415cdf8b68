//! The store's tests: on real databases, with time that the test moves. What a store must do stands once, in
//! `conformance`, and is tried on each engine; the rest is about one of them.

mod lifecycle;
mod mariadb;
mod on_mariadb;
mod on_sqlite;
mod shared;
pub(super) mod tamper;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use self::tamper::Tampering;
use super::*;
use crate::env::{Env, ManualClock, SeededEntropy};
use crate::model::event::Header;
use crate::model::failure::{Failure, FailureClass};
use crate::model::ids::{EventId, LeaseToken, MessageId, ReceiptId, RuntimeId, WorkItemId};
use crate::model::message::{MessageState, NewMessage};
use crate::model::names::{Namespace, PackName};
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;
use crate::model::work_item::{ClaimedWorkItem, WorkState, WorkType};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const LEASE: Duration = Duration::from_secs(30);

/// A store with a namespace `acme` and a pack `github` in its first generation.
struct Fixture {
    store: Store,
    options: StoreOptions,
    directory: Arc<TempDir>,
    clock: Arc<ManualClock>,
    ids: AtomicU64,
}

fn options(directory: &TempDir) -> StoreOptions {
    StoreOptions {
        data: directory.path().join("data"),
        database_url: None,
        lease_time: LeaseTime::Runtime,
        shards: 2,
        queue_requests_max: 1_024,
        queue_bytes_max: 16 * 1024 * 1024,
        readers: 2,
        read_timeout: Duration::from_secs(30),
    }
}

fn env(clock: &Arc<ManualClock>) -> Env {
    Env { clock: Arc::clone(clock) as _, entropy: Arc::new(SeededEntropy::new(1)) }
}

fn namespace() -> Namespace {
    "acme".parse().unwrap()
}

fn pack() -> PackName {
    "github".parse().unwrap()
}

fn digest(body: &[u8]) -> [u8; 32] {
    Sha256::digest(body).into()
}

fn failure() -> Failure {
    Failure::new(FailureClass::Trap, "unreachable")
}

impl Fixture {
    /// On the embedded database.
    async fn new() -> Self {
        Self::begin(None, |_| {}).await
    }

    /// On a server's database, or on the embedded one.
    async fn begin(database_url: Option<DatabaseUrl>, adjust: impl FnOnce(&mut StoreOptions)) -> Self {
        let directory = Arc::new(TempDir::new().unwrap());
        let mut options = options(&directory);
        options.database_url = database_url;
        adjust(&mut options);
        let clock = Arc::new(ManualClock::at(START));
        let store = Store::open(options.clone(), env(&clock)).await.unwrap();
        store.ensure_namespaces(&[namespace()], START).await.unwrap();
        let fixture = Self { store, options, directory, clock, ids: AtomicU64::new(1) };
        assert_eq!(fixture.install(1).await, Installed { number: GenerationNumber(1), new: true });
        fixture
    }

    fn now(&self) -> Timestamp {
        crate::env::Clock::now(&*self.clock)
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn install(&self, digest: u8) -> Installed {
        let component = Bytes::from_static(b"\0asm");
        self.store.install_pack(&pack(), [digest; 32], "[pack]".to_owned(), component, self.now()).await.unwrap()
    }

    fn entropy(&self) -> [u8; 10] {
        let mut entropy = [0; 10];
        entropy[2..].copy_from_slice(&self.ids.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        entropy
    }

    fn event(&self, key: &str, source: Option<&str>, body: &str) -> NewEvent {
        NewEvent {
            id: EventId::new(self.now(), self.entropy()),
            work_item_id: WorkItemId::new(self.now(), self.entropy()),
            delivery_key: key.to_owned(),
            source_key: source.map(str::to_owned),
            payload_digest: digest(body.as_bytes()),
            body: Bytes::copy_from_slice(body.as_bytes()),
        }
    }

    fn delivery(&self, events: Vec<NewEvent>) -> Delivery {
        Delivery {
            receipt_id: ReceiptId::new(self.now(), self.entropy()),
            namespace: namespace(),
            pack: pack(),
            generation: GenerationNumber(1),
            route: "push".parse().unwrap(),
            content_type: "application/json".to_owned(),
            headers: vec![Header { name: "x-github-event".to_owned(), value: Bytes::from_static(b"push") }],
            received_at: self.now(),
            events,
        }
    }

    /// Delivers one event that must be new.
    async fn deliver(&self, key: &str, source: Option<&str>) -> (EventId, WorkItemId) {
        let event = self.event(key, source, key);
        let ids = (event.id, event.work_item_id);
        let answer = self.store.enqueue(self.delivery(vec![event])).await.unwrap();
        assert_eq!(answer, Enqueued::Stored { events: vec![ids.0] });
        ids
    }

    fn request(&self, rows_max: u32) -> ClaimRequest {
        ClaimRequest {
            pack: pack(),
            generations: vec![GenerationNumber(1)],
            work_types: vec![WorkType::ConnectorEvent],
            rows_max,
            stale_only: false,
            lease: LeaseToken::new(self.now(), self.entropy()),
            lease_duration: LEASE,
            now: self.now(),
        }
    }

    async fn claim(&self, rows_max: u32) -> Vec<ClaimedWorkItem> {
        self.store.claim(self.request(rows_max)).await.unwrap()
    }

    async fn finish(&self, item: &ClaimedWorkItem, disposition: Disposition) -> Finished {
        self.store.finish(self.ending(item, disposition)).await.unwrap()
    }

    fn ending(&self, item: &ClaimedWorkItem, disposition: Disposition) -> Finish {
        Finish { work_item_id: item.id, lease: item.lease, epoch: item.epoch, disposition, now: self.now() }
    }

    async fn state(&self, id: WorkItemId) -> WorkState {
        self.store.work_item(id).await.unwrap().unwrap().state
    }

    fn message(&self, destination: &str, due_at: Timestamp) -> NewMessage {
        NewMessage {
            id: MessageId::new(self.now(), self.entropy()),
            destination: destination.parse().unwrap(),
            body: Bytes::from_static(b"{}"),
            content_type: "application/json".to_owned(),
            headers: vec![Header { name: "x-kind".to_owned(), value: Bytes::from_static(b"reminder") }],
            ordering_key: None,
            idempotency_key: None,
            due_at,
            expire_at: None,
        }
    }

    /// Has a flow emit these messages.
    async fn emit(&self, messages: Vec<NewMessage>) {
        self.deliver(&format!("emit-{}", self.ids.load(Ordering::Relaxed)), None).await;
        let item = self.claim(1).await.pop().unwrap();
        assert_eq!(self.finish(&item, done(messages)).await, Finished::Applied);
    }

    async fn message_state(&self, id: MessageId) -> MessageState {
        self.store.message(id).await.unwrap().unwrap().summary.entry.state
    }

    fn runtime(&self) -> RuntimeId {
        RuntimeId::new(self.now(), self.entropy())
    }

    /// Closes the store and opens it again.
    async fn reopen(mut self) -> Self {
        self.store.close().await;
        self.store = Store::open(self.options.clone(), env(&self.clock)).await.unwrap();
        self
    }
}

fn done(messages: Vec<NewMessage>) -> Disposition {
    Disposition::Done { note: None, ignored: false, messages }
}

fn ids(items: &[ClaimedWorkItem]) -> Vec<WorkItemId> {
    items.iter().map(|item| item.id).collect()
}
