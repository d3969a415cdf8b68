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
use crate::model::destination_lane;
use crate::model::ids::RuntimeId;
use crate::model::message::{MessageState, NewMessage, TooLate, UncertainPolicy};
use crate::model::retry::RetryPolicy;
use crate::outbound::sink::{Answer, Received, Sink};
use crate::store::testing::{self, LEASE, Loss, START, namespace};
use crate::store::{Cancelled, MessageDetail, OutcomeRecord, ShardId};

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
    Destination {
        name: "sink".parse().unwrap(),
        url: format!("http://{}/hook", sink.address).parse().unwrap(),
        secret: None,
        deadline: Duration::from_secs(10),
        retry: RETRY,
        uncertain: UncertainPolicy::Retry,
        retry_statuses: Vec::new(),
        ordering: destination_lane::Ordering::None,
        limits: LaneLimits { messages: 64, bytes: 1 << 20 },
        weight: 1,
    }
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
        self.publisher.publish(self.lease, self.relied_on(), self.placed(batch), START, settled_in);
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
    let permits = Arc::new(Semaphore::new(0));
    let answer = Answer::held(&permits);
    let mut sink = Sink::start(move |_| answer.clone()).await;
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
    let permits = Arc::new(Semaphore::new(0));
    let answer = Answer::held(&permits);
    let mut sink = Sink::start(move |_| answer.clone()).await;
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

/// An owner that is stopped when it asks for the time for the `number`th time since its admission, and goes on when it
/// is let.
struct Stopped {
    asked: AtomicUsize,
    number: usize,
    reached: watch::Sender<bool>,
    goes_on: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Stopped {
    fn at(number: usize) -> (Arc<Self>, std::sync::mpsc::Sender<()>) {
        let (let_go, goes_on) = std::sync::mpsc::channel();
        let (asked, reached) = (AtomicUsize::new(0), watch::Sender::new(false));
        (Arc::new(Self { asked, number, reached, goes_on: Mutex::new(goes_on) }), let_go)
    }

    /// Its lease ends, for all that it knows, after [`LEASE`].
    fn reliance(self: &Arc<Self>, clock: Arc<dyn Clock>) -> Reliance {
        let until = clock.monotonic() + LEASE;
        self.reliance_until(until, clock)
    }

    fn reliance_until(self: &Arc<Self>, until: Duration, clock: Arc<dyn Clock>) -> Reliance {
        let stopped = Arc::clone(self);
        let ask = move || {
            if stopped.asked.fetch_add(1, Ordering::SeqCst) == stopped.number {
                stopped.reached.send_replace(true);
                stopped.goes_on.lock().unwrap().recv().unwrap();
            }
            until
        };
        Reliance::new(ask, clock)
    }
}

// TL-5, TL-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_is_stopped_between_admission_and_call_does_not_send_what_was_cancelled_since() {
    let mut sink = Sink::start(|_| Answer::status(200)).await;
    let fixture = Fixture::new(&sink).await;
    let mut lease = fixture.lease;
    let begin = |lease, reliance, message: &ClaimedMessage| {
        let (settled_in, settled) = mpsc::channel(1);
        let batch = fixture.placed(vec![message.clone()]);
        fixture.publisher.publish(lease, reliance, batch, fixture.shared.env.now(), settled_in);
        settled
    };
    // At each of its looks in turn, until there is none between the admission and the call any more.
    let mut number = 0;
    loop {
        let message = fixture.emit(1).await.remove(0);
        let (stopped, let_go) = Stopped::at(number);
        let mut settled = begin(lease, stopped.reliance(Arc::clone(&fixture.shared.env.clock)), &message);
        let mut reached = stopped.reached.subscribe();
        tokio::select! {
            reached = reached.wait_for(|reached| *reached) => assert!(*reached.unwrap()),
            sent = settled.recv() => {
                assert_eq!(after(sent.unwrap().result), AfterAttempt::Published);
                assert_eq!(sink.next().await.header("webhook-id"), Some(message.id.to_string().as_str()));
                break;
            }
        }
        assert_eq!(fixture.state(message.id).await, MessageState::Publishing, "look {number}");

        fixture.shared.advance(LEASE);
        let now = fixture.shared.env.now();
        let successor = RuntimeId::new(START, [u8::try_from(number).unwrap() + 2; 10]);
        lease = fixture.store.acquire_shard(ShardId(0), successor, LEASE, now).await.unwrap().unwrap();
        let (id, generation, attempt) = (message.id, message.generation, 1);
        let after = AfterAttempt::RetryAt(now + LEASE);
        let outcome = OutcomeRecord {
            id,
            generation,
            attempt,
            after,
            uncertain: false,
            spared: false,
            status: None,
            error: None,
        };
        assert_eq!(fixture.store.record_outcomes(lease, vec![outcome], now).await.unwrap(), [true]);
        assert_eq!(fixture.store.cancel(id, now).await.unwrap(), Cancelled::Cancelled);

        let_go.send(()).unwrap();
        assert_eq!(settled.recv().await.unwrap().result, Settled::Unrecorded, "look {number}");
        assert_eq!(fixture.state(message.id).await, MessageState::Cancelled);
        number += 1;
    }
    assert!(number >= 3, "it looks when the bodies have come, before the call, and before it is written: {number}");
    assert!(sink.received.try_recv().is_err());
}

// TL-7
#[tokio::test]
async fn an_attempt_that_the_lease_did_not_last_for_is_recorded_as_not_made_while_the_shard_is_ones_own() {
    let sink = Sink::start(|_| Answer::status(200)).await;
    let fixture = Fixture::new(&sink).await;
    let message = fixture.emit(1).await.remove(0);
    let (settled_in, mut settled) = mpsc::channel(1);
    let over = Reliance::new(|| Duration::ZERO, Arc::clone(&fixture.shared.env.clock));
    let batch = fixture.placed(vec![message.clone()]);
    fixture.publisher.publish(fixture.lease, over, batch, START, settled_in);
    assert!(matches!(after(settled.recv().await.unwrap().result), AfterAttempt::RetryAt(_)));
    let stored = fixture.stored(message.id).await;
    assert_eq!((stored.summary.entry.state, stored.uncertain_attempts), (MessageState::RetryWait, 0));
    assert!(!sink.open.has_changed().unwrap(), "nobody ever connected");
}

// TL-3
#[tokio::test]
async fn what_may_have_expired_is_not_sent_and_its_shard_is_told_so() {
    let sink = Sink::start(|_| Answer::status(200)).await;
    let fixture = Fixture::new(&sink).await;
    let mut message = fixture.emit(1).await.remove(0);
    message.expire_at = Some(START);
    assert_eq!(fixture.publish_one(&message).await, Settled::TooLate);
    message.expire_at = Some(START + Duration::from_millis(1));
    assert_eq!(after(fixture.publish_one(&message).await), AfterAttempt::Published);
}

/// How often it is asked whether a message of this body may still be sent, if its time is over after each in turn: it
/// is sent when there is none left.
async fn looks_before_expiry(body: &'static [u8]) -> usize {
    let mut sink = Sink::start(|_| Answer::status(200)).await;
    let fixture = Fixture::new(&sink).await;
    let far = Duration::from_secs(1_000_000);
    let mut number = 0;
    loop {
        let now = fixture.shared.env.now();
        let lasting = NewMessage {
            body: Bytes::from_static(body),
            expire_at: Some(now + LEASE / 2),
            ..fixture.shared.message("sink", now)
        };
        let message = claimed(&lasting);
        fixture.shared.emit(vec![lasting]).await;
        let now = fixture.shared.env.now();
        let lease = fixture.store.renew_shard(fixture.lease, far, now).await.unwrap().unwrap();
        let (stopped, let_go) = Stopped::at(number);
        let (settled_in, mut settled) = mpsc::channel(1);
        let reliance = stopped.reliance_until(far, Arc::clone(&fixture.shared.env.clock));
        fixture.publisher.publish(lease, reliance, fixture.placed(vec![message.clone()]), now, settled_in);
        let mut reached = stopped.reached.subscribe();
        tokio::select! {
            reached = reached.wait_for(|reached| *reached) => assert!(*reached.unwrap()),
            sent = settled.recv() => {
                assert_eq!(after(sent.unwrap().result), AfterAttempt::Published);
                assert_eq!(sink.next().await.header("webhook-id"), Some(message.id.to_string().as_str()));
                assert!(sink.received.try_recv().is_err(), "nothing else was sent");
                return number;
            }
        }
        fixture.shared.advance(LEASE);
        let_go.send(()).unwrap();
        assert_eq!(after(settled.recv().await.unwrap().result), AfterAttempt::Expired, "look {number}");
        assert_eq!(fixture.stored(message.id).await.uncertain_attempts, 0, "look {number}");
        number += 1;
    }
}

// TL-3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_time_ends_before_it_is_on_the_wire_is_not_sent() {
    // A connection may ask once more than it must: the fewest of a few runs are those that it must.
    let fewest = async |body: &'static [u8]| {
        let mut fewest = usize::MAX;
        for _ in 0..3 {
            fewest = fewest.min(looks_before_expiry(body).await);
        }
        fewest
    };
    let looks = fewest(b"{}").await;
    assert!(looks >= 3, "when the bodies have come, before the call, and before it is written: {looks}");
    // A body of nothing is not asked for, but all the same it is looked before it is written.
    let of_nothing = fewest(b"").await;
    assert!(of_nothing >= looks, "{of_nothing} looks, {looks} with a body");
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
    let permits = Arc::new(Semaphore::new(0));
    let answer = Answer::held(&permits);
    let mut sink = Sink::start(move |_| answer.clone()).await;
    let fixture = Fixture::new(&sink).await;
    let mut settled = fixture.begin(fixture.emit(1).await);
    sink.next().await;
    fixture.store.close().await;
    permits.add_permits(1);
    assert_eq!(settled.recv().await.unwrap().result, Settled::Unrecorded);
}

// TL-4
#[tokio::test]
async fn a_message_whose_admission_got_no_answer_is_sent_once() {
    for loss in Loss::ALL {
        let mut sink = Sink::start(|_| Answer::status(200)).await;
        let fixture = Fixture::new(&sink).await;
        let message = fixture.emit(1).await.remove(0);
        fixture.store.lose_answer(loss);
        assert_eq!(after(fixture.publish_one(&message).await), AfterAttempt::Published, "{loss:?}");
        sink.next().await;
        assert!(sink.received.try_recv().is_err(), "{loss:?}: it was sent twice");
        let entry = fixture.stored(message.id).await.summary.entry;
        assert_eq!((entry.state, entry.attempt), (MessageState::Published, 1), "{loss:?}");
    }
}

// TL-4
#[tokio::test]
async fn an_outcome_that_got_no_answer_is_recorded_once() {
    for (loss, status) in Loss::ALL.into_iter().flat_map(|loss| [200, 500, 404].map(|status| (loss, status))) {
        let permits = Arc::new(Semaphore::new(0));
        let answer = Answer::Held(Arc::clone(&permits), format!("HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n"));
        let mut sink = Sink::start(move |_| answer.clone()).await;
        let fixture = Fixture::new(&sink).await;
        let message = fixture.emit(1).await.remove(0);
        let mut settled = fixture.begin(vec![message.clone()]);
        sink.next().await;
        fixture.store.lose_answer(loss);
        permits.add_permits(1);

        let after = after(settled.recv().await.unwrap().result);
        let stored = fixture.stored(message.id).await;
        let entry = &stored.summary.entry;
        assert_eq!((entry.state, entry.attempt, stored.status), (after.state(), 1, Some(status)), "{loss:?}");
        if let AfterAttempt::RetryAt(at) = after {
            assert_eq!(entry.eligible_at, at, "{loss:?}");
        }
        assert!(sink.received.try_recv().is_err(), "{loss:?}: it was sent twice");
        assert_eq!(fixture.store.count_rows().await.unwrap(), fixture.store.stats().await.unwrap(), "{loss:?}");
    }
}

// TL-6
#[tokio::test]
async fn every_attempt_carries_the_same_id_and_the_last_failure_ends_it() {
    let mut sink = Sink::start(|_| Answer::status(500)).await;
    let fixture = Fixture::new(&sink).await;
    let message = fixture.emit(1).await.remove(0);
    for attempt in 1..=RETRY.failures_max {
        let settled = fixture.publish_one(&message).await;
        assert!(matches!(settled, Settled::Outcome { destination: Verdict::Failed, lane_until: None, .. }));
        let stored = fixture.stored(message.id).await;
        assert_eq!((stored.summary.entry.attempt, stored.status), (attempt, Some(500)));
        match after(settled) {
            AfterAttempt::RetryAt(at) => assert!(at > START && stored.summary.entry.eligible_at == at),
            AfterAttempt::Dead => assert_eq!(attempt, RETRY.failures_max),
            other @ (AfterAttempt::Published
            | AfterAttempt::HandedOff
            | AfterAttempt::Uncertain
            | AfterAttempt::Expired) => panic!("{other:?}"),
        }
        assert_eq!(sink.next().await.header("webhook-id"), Some(message.id.to_string().as_str()));
    }
    assert_eq!(fixture.state(message.id).await, MessageState::Dead);
}

// TL-6
#[tokio::test]
async fn an_unknown_outcome_follows_the_destinations_policy() {
    let sink = Sink::start(|_| Answer::Close).await;
    for (policy, state) in [
        (UncertainPolicy::Retry, MessageState::RetryWait),
        (UncertainPolicy::Hold, MessageState::Uncertain),
        (UncertainPolicy::End, MessageState::Dead),
    ] {
        let fixture = Fixture::with(Destination { uncertain: policy, ..destination(&sink) }, options(64)).await;
        let message = fixture.emit(1).await.remove(0);
        assert_eq!(after(fixture.publish_one(&message).await).state(), state);
        assert_eq!(fixture.state(message.id).await, state);
    }
}

#[tokio::test]
async fn a_destinations_wish_delays_its_lane_within_the_bounds_of_its_retries() {
    for (wish, delay) in [("30", Duration::from_secs(30)), ("999999", RETRY.max)] {
        let answer = format!("HTTP/1.1 429 No\r\nretry-after: {wish}\r\ncontent-length: 0\r\n\r\n");
        let sink = Sink::start(move |_| Answer::Raw(answer.clone())).await;
        let fixture = Fixture::new(&sink).await;
        let message = fixture.emit(1).await.remove(0);
        let until = START + delay;
        let expected = Settled::Outcome {
            after: AfterAttempt::RetryAt(until),
            lane_until: Some(until),
            destination: Verdict::Busy,
            gone: false,
        };
        assert_eq!(fixture.publish_one(&message).await, expected);
    }
}

#[tokio::test]
async fn a_missing_secret_sends_nothing_and_waits_for_the_operator() {
    let mut sink = Sink::start(|_| Answer::status(200)).await;
    let signed = Destination { secret: Some("signing".parse().unwrap()), ..destination(&sink) };
    let fixture = Fixture::with(signed, options(64)).await;
    let message = fixture.emit(1).await.remove(0);
    assert_eq!(after(fixture.publish_one(&message).await).state(), MessageState::RetryWait);
    assert!(!sink.open.has_changed().unwrap(), "nobody ever connected");

    std::fs::write(fixture.shared.directory.path().join("secrets/signing"), "whsec_b25l\nwhsec_dHdv\n").unwrap();
    fixture.shared.advance(crate::secrets::RECHECK_AFTER);
    assert_eq!(after(fixture.publish_one(&message).await), AfterAttempt::Published);
    let received = sink.next().await;
    assert_eq!(received.header("webhook-signature").unwrap().split(' ').count(), 2, "one for each secret");
}

// LAN-3
#[tokio::test]
async fn what_waits_for_an_operator_has_all_of_its_attempts_left_afterwards() {
    let sink = Sink::start(|_| Answer::status(500)).await;
    let signed = Destination { secret: Some("signing".parse().unwrap()), ..destination(&sink) };
    let fixture = Fixture::with(signed, options(64)).await;
    let message = fixture.emit(1).await.remove(0);
    for _ in 0..2 * RETRY.failures_max {
        let settled = fixture.publish_one(&message).await;
        assert!(matches!(
            settled,
            Settled::Outcome { after: AfterAttempt::RetryAt(_), destination: Verdict::Failed, .. }
        ));
        assert_eq!(fixture.stored(message.id).await.summary.entry.attempt, 0);
    }
    std::fs::write(fixture.shared.directory.path().join("secrets/signing"), "whsec_b25l\n").unwrap();
    fixture.shared.advance(crate::secrets::RECHECK_AFTER);
    for attempt in 1..=RETRY.failures_max {
        let state = after(fixture.publish_one(&message).await).state();
        let expected = if attempt < RETRY.failures_max { MessageState::RetryWait } else { MessageState::Dead };
        let entry = fixture.stored(message.id).await.summary.entry;
        assert_eq!((state, entry.state, entry.attempt), (expected, expected, attempt));
    }
}

// LAN-3, TL-4
#[tokio::test]
async fn an_attempt_that_is_not_counted_is_recorded_once_though_its_answer_was_lost() {
    for loss in Loss::ALL {
        let permits = Arc::new(Semaphore::new(0));
        let answer = Answer::Held(Arc::clone(&permits), "HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n".to_owned());
        let mut sink = Sink::start(move |_| answer.clone()).await;
        let fixture = Fixture::new(&sink).await;
        let message = fixture.emit(1).await.remove(0);
        let mut settled = fixture.begin(vec![message.clone()]);
        sink.next().await;
        fixture.store.lose_answer(loss);
        permits.add_permits(1);
        assert!(matches!(settled.recv().await.unwrap().result, Settled::Outcome { gone: true, .. }), "{loss:?}");
        let entry = fixture.stored(message.id).await.summary.entry;
        assert_eq!((entry.state, entry.attempt), (MessageState::RetryWait, 0), "{loss:?}");
    }
}

#[tokio::test]
async fn a_message_to_a_destination_that_is_not_configured_waits() {
    let sink = Sink::start(|_| Answer::status(200)).await;
    let fixture = Fixture::new(&sink).await;
    let mut message = fixture.emit(1).await.remove(0);
    message.destination = "gone".parse().unwrap();
    assert_eq!(fixture.publish_one(&message).await, Settled::NotAdmitted);
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
    let permits = Arc::new(Semaphore::new(0));
    let answer = Answer::held(&permits);
    let mut tarpit = Sink::start(move |_| answer.clone()).await;
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
