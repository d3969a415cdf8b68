//! What comes of an attempt: answers of the store that are lost, retries, uncertainty, an operator's part.

use super::*;

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
        let (mut sink, permits) = held(&format!("{status} Said")).await;
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
        let (mut sink, permits) = held("410 Gone").await;
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
