//! The publisher against a real store and a real destination.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{Semaphore, watch};

use super::*;
use crate::env::Clock;
use crate::model::destination::LaneLimits;
use crate::model::ids::RuntimeId;
use crate::model::message::{MessageState, NewMessage, TooLate, UncertainPolicy};
use crate::model::retry::RetryPolicy;
use crate::outbound::sink::{Answer, Received, Sink};
use crate::store::testing::{self, LEASE, Loss, START, namespace};
use crate::store::{Cancelled, MessageDetail, OutcomeRecord, ShardId};

mod outcomes;
mod reliance;

const RETRY: RetryPolicy =
    RetryPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(60), failures_max: 3 };

/// A store that owns its one shard, and a publisher with one destination, `sink`.
struct Fixture {
    shared: testing::Fixture,
    store: Store,
    publisher: Publisher,
    lease: ShardLease,
}

fn destination(sink: &Sink) -> Destination {
    let url = format!("http://{}/hook", sink.address).parse().unwrap();
    let limits = LaneLimits { messages: 64, bytes: 1 << 20 };
    Destination { retry: RETRY, limits, ..Destination::new("sink".parse().unwrap(), url) }
}

/// A destination that answers each call with this once it gets a permit.
async fn held(response: &str) -> (Sink, Arc<Semaphore>) {
    let permits = Arc::new(Semaphore::new(0));
    let answer = Answer::Held(Arc::clone(&permits), format!("HTTP/1.1 {response}\r\ncontent-length: 0\r\n\r\n"));
    (Sink::start(move |_| answer.clone()).await, permits)
}

fn options(in_flight_max: usize) -> PublishOptions {
    PublishOptions {
        in_flight_max,
        in_flight_bytes_max: 64 << 20,
        response_bytes_max: 4_096,
        allow_networks: vec!["127.0.0.0/8".to_owned()],
        ca_file: None,
        deny_addresses: Vec::new(),
        idle_connections_max: 64,
        idle_timeout: Duration::from_secs(60),
    }
}

impl Fixture {
    async fn new(sink: &Sink) -> Self {
        Self::with(destination(sink), options(64)).await
    }

    async fn with(destination: Destination, options: PublishOptions) -> Self {
        Self::with_all(vec![destination], options).await
    }

    async fn with_all(destinations: Vec<Destination>, options: PublishOptions) -> Self {
        let shared = testing::Fixture::starting_at(START).await;
        let store = shared.store.clone();
        let lease = store.acquire_shard(ShardId(0), shared.runtime(), LEASE, START).await.unwrap().unwrap();
        let secrets = shared.directory.path().join("secrets");
        std::fs::create_dir(&secrets).unwrap();
        let secrets = Secrets::open(&secrets, shared.env.clone()).unwrap();
        let destinations: Destinations = destinations.into_iter().collect();
        let publisher = Publisher::start(options, &destinations, store.clone(), secrets, shared.env.clone()).unwrap();
        Self { shared, store, publisher, lease }
    }

    /// Has a flow emit `count` messages to `sink` that are due, and claims them.
    async fn emit(&self, count: usize) -> Vec<ClaimedMessage> {
        self.emit_to("sink", count).await
    }

    async fn emit_to(&self, destination: &str, count: usize) -> Vec<ClaimedMessage> {
        let messages: Vec<NewMessage> = (0..count).map(|_| self.shared.message(destination, START)).collect();
        let claimed = messages.iter().map(claimed).collect();
        self.shared.emit(messages).await;
        claimed
    }

    /// Publishes a batch; the settlements of all of it, none of them twice.
    async fn publish(&self, batch: Vec<ClaimedMessage>) -> BTreeMap<MessageId, Settled> {
        let mut settled = self.begin(batch);
        self.publisher.drain().await;
        collect(&mut settled)
    }

    fn begin(&self, batch: Vec<ClaimedMessage>) -> mpsc::Receiver<Settlement> {
        let (settled_in, settled) = mpsc::channel(batch.len().max(1));
        self.publisher.publish(self.lease, self.relied_on(), self.placed(batch), self.latest(START), settled_in);
        settled
    }

    /// With a place for each, of which there are enough.
    fn placed(&self, batch: Vec<ClaimedMessage>) -> Vec<(ClaimedMessage, Place)> {
        let seat = self.publisher.seat(self.lease.shard);
        let placed = |message: ClaimedMessage| {
            let place = seat.take(&message.destination, message.bytes, false).expect("there is a place");
            (message, place)
        };
        batch.into_iter().map(placed).collect()
    }

    /// The latest that it can be, read now.
    fn latest(&self, then: Timestamp) -> Latest {
        Latest::at(then, self.shared.env.clock.monotonic())
    }

    fn relied_on(&self) -> Reliance {
        Reliance::new(|| Duration::MAX, Arc::clone(&self.shared.env.clock))
    }

    /// Publishes one message; what became of it.
    async fn publish_one(&self, message: &ClaimedMessage) -> Settled {
        self.publish(vec![message.clone()]).await[&message.id]
    }

    async fn stored(&self, id: MessageId) -> MessageDetail {
        self.store.message(id).await.unwrap().unwrap()
    }

    async fn state(&self, id: MessageId) -> MessageState {
        self.stored(id).await.summary.entry.state
    }
}

fn claimed(message: &NewMessage) -> ClaimedMessage {
    ClaimedMessage {
        id: message.id,
        generation: 1,
        seq: 1,
        namespace: namespace(),
        destination: message.destination.clone(),
        bytes: 2,
        expire_at: message.expire_at,
    }
}

fn collect(settled: &mut mpsc::Receiver<Settlement>) -> BTreeMap<MessageId, Settled> {
    let mut all = BTreeMap::new();
    while let Ok(settlement) = settled.try_recv() {
        assert_eq!(all.insert(settlement.id, settlement.result), None, "{} settled twice", settlement.id);
    }
    all
}

fn after(settled: Settled) -> AfterAttempt {
    match settled {
        Settled::Outcome { after, .. } => after,
        other => panic!("{other:?}"),
    }
}

// TL-4, TL-5
#[tokio::test]
async fn the_admission_is_durable_before_the_call_and_from_there_a_cancel_comes_too_late() {
    let (mut sink, permits) = held("200 OK").await;
    let fixture = Fixture::new(&sink).await;
    let message = fixture.emit(1).await.remove(0);
    let mut settled = fixture.begin(vec![message.clone()]);

    let received = sink.next().await;
    assert_eq!(received.header("webhook-id"), Some(message.id.to_string().as_str()));
    assert_eq!(fixture.state(message.id).await, MessageState::Publishing);
    let cancelled = fixture.store.cancel(message.id, START).await.unwrap();
    assert_eq!(cancelled, Cancelled::TooLate(TooLate::Stands(MessageState::Publishing)));
    assert!(settled.try_recv().is_err(), "not before its outcome");

    permits.add_permits(1);
    assert_eq!(after(settled.recv().await.unwrap().result), AfterAttempt::Published);
    let stored = fixture.stored(message.id).await;
    assert_eq!((stored.summary.entry.state, stored.status), (MessageState::Published, Some(200)));
}

// TL-5
#[tokio::test]
async fn what_was_cancelled_or_rescheduled_before_is_not_sent() {
    let sink = Sink::start(|_| Answer::status(200)).await;
    let fixture = Fixture::new(&sink).await;
    let batch = fixture.emit(2).await;
    fixture.store.cancel(batch[0].id, START).await.unwrap();
    fixture.store.reschedule(batch[1].id, START).await.unwrap();
    for settled in fixture.publish(batch).await.into_values() {
        assert_eq!(settled, Settled::Moved);
    }
    assert!(!sink.open.has_changed().unwrap(), "nobody ever connected");
}

// TL-4, TL-7
#[tokio::test]
async fn an_owner_that_lost_its_shard_sends_nothing_and_records_nothing() {
    let (mut sink, permits) = held("200 OK").await;
    let fixture = Fixture::new(&sink).await;
    let batch = fixture.emit(2).await;
    let mut under_way = fixture.begin(vec![batch[0].clone()]);
    sink.next().await;

    let successor = RuntimeId::new(START, [2; 10]);
    let later = START + LEASE;
    fixture.store.acquire_shard(ShardId(0), successor, LEASE, later).await.unwrap().unwrap();
    let mut too_late = fixture.begin(vec![batch[1].clone()]);
    assert_eq!(too_late.recv().await.unwrap().result, Settled::Fenced);

    permits.add_permits(1);
    assert_eq!(under_way.recv().await.unwrap().result, Settled::Unrecorded);
    assert_eq!(fixture.state(batch[0].id).await, MessageState::Publishing, "the successor's to settle");
    assert!(sink.received.try_recv().is_err(), "the second was never sent");
}

#[tokio::test]
async fn without_the_store_nothing_is_sent() {
    let sink = Sink::start(|_| Answer::status(200)).await;
    let fixture = Fixture::new(&sink).await;
    let message = fixture.emit(1).await.remove(0);
    fixture.store.close().await;
    assert_eq!(fixture.publish_one(&message).await, Settled::NotAdmitted);
    assert!(!sink.open.has_changed().unwrap(), "nobody ever connected");
}

#[tokio::test]
async fn an_outcome_that_cannot_be_recorded_is_not_claimed_to_be() {
    let (mut sink, permits) = held("200 OK").await;
    let fixture = Fixture::new(&sink).await;
    let mut settled = fixture.begin(fixture.emit(1).await);
    sink.next().await;
    fixture.store.close().await;
    permits.add_permits(1);
    assert_eq!(settled.recv().await.unwrap().result, Settled::Unrecorded);
}

#[tokio::test]
async fn a_message_to_a_destination_that_is_not_configured_waits() {
    let sink = Sink::start(|_| Answer::status(200)).await;
    let fixture = Fixture::new(&sink).await;
    let mut message = fixture.emit(1).await.remove(0);
    message.destination = "gone".parse().unwrap();
    assert_eq!(fixture.publish_one(&message).await, Settled::Recalled, "which says nothing about the store");
}

// LAN-5: the publisher follows before the shards do.
#[tokio::test]
async fn what_waits_for_its_admission_is_recalled_when_its_destination_goes() {
    let sink = Sink::start(|_| Answer::status(200)).await;
    let fixture = Fixture::with(destination(&sink), options(64)).await;
    let calls = fixture.publisher.engine.line.hold_calls().await;
    let mut settled = fixture.begin(fixture.emit(2).await);
    fixture.publisher.follow(&Destinations::new()).unwrap();
    drop(calls);
    fixture.publisher.drain().await;
    assert_eq!(collect(&mut settled).into_values().collect::<Vec<_>>(), [Settled::Recalled; 2]);
    assert!(!sink.open.has_changed().unwrap(), "nobody ever connected");
}

// TL-4, LAN-3
#[tokio::test]
async fn what_is_called_back_before_its_admission_is_as_it_was_and_its_place_is_free() {
    let sink = Sink::start(|_| Answer::status(200)).await;
    // All calls of the store are others'.
    let fixture = Fixture::with(destination(&sink), options(64)).await;
    let calls = fixture.publisher.engine.line.hold_calls().await;
    let batch = fixture.emit(5).await;
    let mut settled = fixture.begin(batch.clone());
    // Of another lease, or where nobody is meant, nothing is called back.
    fixture.publisher.recall(ShardLease { epoch: fixture.lease.epoch + 1, ..fixture.lease }, |_| true);
    fixture.publisher.recall(fixture.lease, |_| false);
    fixture.publisher.recall_late(fixture.lease);
    assert!(settled.try_recv().is_err());
    fixture.publisher.recall(fixture.lease, |message| message.id == batch[2].id);
    assert_eq!(settled.recv().await.unwrap().id, batch[2].id);
    // And what has waited for too long goes back by itself.
    fixture.shared.advance(CLAIM_WAIT_MAX + Duration::from_millis(1));
    fixture.publisher.recall_late(fixture.lease);
    for _ in 0..4 {
        assert_eq!(settled.recv().await.unwrap().result, Settled::Recalled);
    }
    assert_eq!(fixture.publisher.entrance.in_flight(), 0);
    drop(calls);
    fixture.publisher.drain().await;
    for message in &batch {
        let entry = fixture.stored(message.id).await.summary.entry;
        assert_eq!((entry.state, entry.attempt), (MessageState::Scheduled, 0));
    }
    assert!(!sink.open.has_changed().unwrap(), "nobody ever connected");
}

// LAN-2
#[tokio::test]
async fn a_destination_that_does_not_answer_holds_up_no_other() {
    let (mut tarpit, permits) = held("200 OK").await;
    let sink = Sink::start(|_| Answer::status(200)).await;
    let stuck = Destination { name: "tarpit".parse().unwrap(), ..destination(&tarpit) };
    let fixture = Fixture::with_all(vec![stuck, destination(&sink)], options(128)).await;
    let mut batch = fixture.emit_to("tarpit", 8).await;
    batch.extend(fixture.emit(40).await);
    let mut settled = fixture.begin(batch);
    for _ in 0..8 {
        tarpit.next().await;
    }
    for _ in 0..40 {
        assert_eq!(after(settled.recv().await.unwrap().result), AfterAttempt::Published);
    }
    assert!(settled.try_recv().is_err(), "the others are still waiting for their answer");
    permits.add_permits(8);
    fixture.publisher.drain().await;
    assert_eq!(collect(&mut settled).len(), 8);
}

// TL-4, TL-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_settles_once_and_as_it_is_stored_whatever_goes_wrong() {
    for seed in 0..4 {
        storm(seed).await;
    }
}

async fn storm(seed: u64) {
    const BATCHES: usize = 8;
    const BATCH: usize = 32;
    let count = AtomicUsize::new(0);
    let answer = move |_: &Received| match count.fetch_add(1, Ordering::Relaxed) as u64 * 7 + seed {
        number if number.is_multiple_of(5) => Answer::status(500),
        number if number.is_multiple_of(7) => Answer::Close,
        number if number.is_multiple_of(11) => Answer::status(404),
        _ => Answer::status(200),
    };
    let sink = Sink::start(answer).await;
    let fixture = Fixture::with(destination(&sink), options(2 * BATCHES * BATCH)).await;
    let mut chance = StdRng::seed_from_u64(seed);
    let takeover = chance.random_range(0..BATCHES * 2);
    let mut all = Vec::new();
    let mut channels = Vec::new();
    for number in 0..BATCHES {
        let batch = fixture.emit(BATCH).await;
        channels.push(fixture.begin(batch.clone()));
        let victim = batch[chance.random_range(0..BATCH)].id;
        fixture.store.cancel(victim, START).await.unwrap();
        if number == takeover {
            let successor = RuntimeId::new(START, [2; 10]);
            let later = START + LEASE;
            fixture.store.acquire_shard(ShardId(0), successor, LEASE, later).await.unwrap().unwrap();
        }
        all.extend(batch);
    }
    fixture.publisher.drain().await;
    let settled: BTreeMap<MessageId, Settled> = channels.iter_mut().flat_map(collect).collect();
    assert_eq!(settled.len(), all.len(), "seed {seed}: every message settles");
    for message in &all {
        let state = fixture.state(message.id).await;
        let agrees = match settled[&message.id] {
            Settled::Outcome { after, .. } => state == after.state(),
            Settled::Moved => state == MessageState::Cancelled,
            Settled::Unrecorded => state == MessageState::Publishing,
            Settled::Fenced | Settled::TooLate | Settled::NotAdmitted | Settled::Recalled => {
                matches!(state, MessageState::Scheduled | MessageState::Cancelled)
            }
        };
        assert!(agrees, "seed {seed}: {} is {state:?} and settled as {:?}", message.id, settled[&message.id]);
    }
}
