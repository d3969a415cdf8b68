//! Requests that the database cannot hold, together with others that it can.

use super::*;

/// More than a text of a database server has room for.
const TOO_LONG: usize = 70_000;

/// How often somebody comes again who was told that the store did not do it now.
const ROUNDS_MAX: usize = 3;

fn too_long() -> String {
    "x".repeat(TOO_LONG)
}

/// The embedded database has room for any text: it is told of the bound.
async fn bound(tampering: &mut Tampering) {
    if tampering.connection().engine() != Engine::Sqlite {
        return;
    }
    for table in ["receipt", "message_payload"] {
        let refusal = "WHEN length(NEW.content_type) > 65535 BEGIN SELECT RAISE(ABORT, 'it is too long'); END";
        tampering.execute(&format!("CREATE TRIGGER bound_{table} BEFORE INSERT ON {table} {refusal}")).await;
    }
}

/// Calls all at once, and those again that were told to come again. Returns what each came to, and how many had to come
/// again.
async fn call_all<A: Send + 'static, F>(
    calls: Vec<Arc<dyn Fn() -> F + Send + Sync>>,
) -> (Vec<Result<A, StoreError>>, usize)
where
    F: Future<Output = Result<A, StoreError>> + Send + 'static,
{
    let mut answers: Vec<Option<Result<A, StoreError>>> = calls.iter().map(|_| None).collect();
    let mut again = 0;
    for round in 0..ROUNDS_MAX {
        let unanswered = |answer: &Option<Result<A, StoreError>>| match answer {
            None | Some(Err(StoreError::Unavailable(_))) => true,
            Some(_) => false,
        };
        let missing: Vec<usize> = (0..calls.len()).filter(|n| unanswered(&answers[*n])).collect();
        again += if round > 0 { missing.len() } else { 0 };
        let tasks: Vec<_> = missing.iter().map(|n| (*n, crate::env::spawn("test", calls[*n]()))).collect();
        for (n, task) in tasks {
            answers[n] = Some(task.await.unwrap());
        }
    }
    (answers.into_iter().map(Option::unwrap).collect(), again)
}

// MAT-5, ADM-4: one that cannot be stored is told so, and its neighbours are stored.
#[tokio::test]
async fn a_delivery_that_cannot_be_stored_hurts_no_neighbour() {
    let fixture = Arc::new(start().await);
    fixture.deliver("d-0", Some("repo")).await;
    let mut tampering = Tampering::with(&fixture).await;
    bound(&mut tampering).await;
    let calls = (1..=40).map(|n| {
        let mut delivery = fixture.delivery(vec![fixture.event(&format!("d-{n}"), Some("repo"), "body")]);
        if n == 17 {
            delivery.content_type = too_long();
        }
        let fixture = Arc::clone(&fixture);
        Arc::new(move || {
            let (fixture, delivery) = (Arc::clone(&fixture), delivery.clone());
            async move { fixture.store.enqueue(delivery).await }
        }) as Arc<dyn Fn() -> _ + Send + Sync>
    });
    let calls = calls.collect();
    let before = fixture.store.attempts_and_conflicts().0;
    tampering.hold_deliveries().await;
    let first = fixture.store.enqueue(fixture.delivery(vec![fixture.event("first", None, "body")]));
    let holding = async {
        while fixture.store.waiting_deliveries() < 40 {
            tokio::task::yield_now().await;
        }
        tampering.let_go().await;
    };
    let rest = async {
        fixture.store.is_at_work_since(before).await;
        call_all(calls).await
    };
    let (first, (answers, again), ()) = tokio::join!(first, rest, holding);
    first.unwrap();
    for (n, answer) in (1..).zip(&answers) {
        match n {
            17 => assert!(matches!(answer, Err(StoreError::Unstorable(_))), "{answer:?}"),
            _ => assert!(matches!(answer, Ok(Enqueued::Stored { .. })), "{n}: {answer:?}"),
        }
    }
    let transactions = fixture.store.attempts_and_conflicts().0 - before;
    if tampering.connection().engine() != Engine::Sqlite {
        assert_eq!(again, 0, "nobody else noticed");
    }
    assert!(transactions <= 2 * 2 * 6 + 4, "it was found by halves: {transactions}");
    assert_eq!(tampering.count("SELECT count(*) FROM event").await, 41);
    tampering.close().await;
    fixture.assert_counted().await;
}

// GST-4: nor does what a run emits. The row is still its holder's, who can end it otherwise.
#[tokio::test]
async fn a_finish_that_cannot_be_stored_hurts_no_neighbour() {
    let fixture = Arc::new(start().await);
    for n in 0..20 {
        fixture.deliver(&format!("d-{n}"), None).await;
    }
    let items = fixture.claim(20).await;
    let mut tampering = Tampering::with(&fixture).await;
    bound(&mut tampering).await;
    let calls = items.iter().enumerate().map(|(n, item)| {
        let mut message = fixture.message("sink", START);
        if n == 7 {
            message.content_type = too_long();
        }
        let finish = fixture.ending(item, done(vec![message]));
        let fixture = Arc::clone(&fixture);
        Arc::new(move || {
            let (fixture, finish) = (Arc::clone(&fixture), finish.clone());
            async move { fixture.store.finish(finish).await }
        }) as Arc<dyn Fn() -> _ + Send + Sync>
    });
    tampering.hold_deliveries().await;
    let hold = tampering.connection().engine().pick("SELECT 1", "SELECT ordinal FROM work_item FOR UPDATE");
    tampering.count(&format!("SELECT count(*) FROM ({hold}) AS held")).await;
    let calls = calls.collect();
    let before = fixture.store.attempts_and_conflicts().0;
    let rows = vec![(items[0].id, items[0].lease, items[0].epoch)];
    let first = fixture.store.renew(Renewal { rows, lease_duration: LEASE, now: fixture.now() });
    let holding = async {
        while fixture.store.waiting_controls() < 20 {
            tokio::task::yield_now().await;
        }
        tampering.let_go().await;
    };
    let rest = async {
        fixture.store.is_at_work_since(before).await;
        call_all(calls).await
    };
    let (first, (answers, again), ()) = tokio::join!(first, rest, holding);
    assert_eq!(first.unwrap(), [items[0].id]);
    for (n, answer) in answers.iter().enumerate() {
        match n {
            7 => assert!(matches!(answer, Err(StoreError::Unstorable(_))), "{answer:?}"),
            _ => assert_eq!(answer.as_ref().unwrap(), &Finished::Applied, "{n}"),
        }
    }
    if tampering.connection().engine() != Engine::Sqlite {
        assert_eq!(again, 0, "nobody else noticed");
    }
    let retry = Disposition::Retry { failure: failure(), run_after: START, leaves_lane: false };
    assert_eq!(fixture.finish(&items[7], retry).await, Finished::Applied);
    tampering.close().await;
    fixture.assert_counted().await;
}

// TL-2: an assertion that does not hold ends its transaction, and nothing else.
#[tokio::test]
async fn a_transaction_that_panics_is_undone_and_the_store_goes_on() {
    let fixture = start().await;
    let delivery = || fixture.delivery(vec![fixture.event("d-1", None, "body")]);
    fixture.store.lose_answer(Loss::Panic);
    let answer = fixture.store.enqueue(delivery()).await;
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    assert!(matches!(fixture.store.enqueue(delivery()).await, Ok(Enqueued::Stored { .. })), "it had not been stored");
    fixture.emit(vec![fixture.message("sink", START)]).await;
    let shard = fixture.store.shard_of(&namespace(), &"sink".parse().unwrap());
    assert_eq!(
        fixture.store.feed(shard, 0, false, 10).await.unwrap().entries.len(),
        1,
        "nobody waits for what is over"
    );
}
