//! What is too late to be sent: the lease or the message's time ends between the admission and the call.

use super::*;

/// An owner that is stopped when it asks for the time for the `number`th time since its admission, and goes on when it
/// is let.
struct Stopped {
    /// The task of each look so far.
    looks: Mutex<Vec<Option<tokio::task::Id>>>,
    number: usize,
    reached: watch::Sender<bool>,
    goes_on: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Stopped {
    fn at(number: usize) -> (Arc<Self>, std::sync::mpsc::Sender<()>) {
        let (let_go, goes_on) = std::sync::mpsc::channel();
        let (looks, reached) = (Mutex::default(), watch::Sender::new(false));
        (Arc::new(Self { looks, number, reached, goes_on: Mutex::new(goes_on) }), let_go)
    }

    /// Its lease ends, for all that it knows, after [`LEASE`].
    fn reliance(self: &Arc<Self>, clock: Arc<dyn Clock>) -> Reliance {
        let until = clock.monotonic() + LEASE;
        self.reliance_until(until, clock)
    }

    fn reliance_until(self: &Arc<Self>, until: Duration, clock: Arc<dyn Clock>) -> Reliance {
        let stopped = Arc::clone(self);
        let ask = move || {
            let mut looks = stopped.looks.lock().unwrap();
            looks.push(tokio::task::try_id());
            let number = looks.len() - 1;
            drop(looks);
            if number == stopped.number {
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

/// The tasks of the looks at whether a message of this body may still be sent. It is not, if its time ends at any of
/// them; it is sent when none is left.
async fn looks_before_sending(body: &'static [u8]) -> Vec<Option<tokio::task::Id>> {
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
                return stopped.looks.lock().unwrap().clone();
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
    // A connection does not ask for a body of nothing, but looks all the same.
    for body in [b"{}".as_slice(), b""] {
        let looks = looks_before_sending(body).await;
        assert!(looks.len() >= 3, "when the bodies have come, before the call, and before it is written: {looks:?}");
        // How often the call looks depends on how often it is woken up; the last look is the connection's.
        assert_ne!(looks[looks.len() - 1], looks[looks.len() - 2], "body {body:?}: {looks:?}");
    }
}
