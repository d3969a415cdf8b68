//! Deliveries: what they become, once and only once.

use std::task::Poll;

use super::*;

async fn enqueue(fixture: &Fixture, events: Vec<NewEvent>) -> Enqueued {
    fixture.store.enqueue(fixture.delivery(events)).await.unwrap()
}

async fn counts(fixture: &Fixture) -> (u64, u64) {
    let events = fixture.store.list_events(&EventFilter::default(), page(1_000)).await.unwrap().items.len();
    let work_items = fixture.store.count_rows().await.unwrap().work_items.values().sum();
    (events as u64, work_items)
}

fn page<Id>(limit: u32) -> PageRequest<Id> {
    PageRequest { after: None, limit }
}

// MAT-1
#[tokio::test]
async fn a_delivery_is_stored_whole() {
    let fixture = start().await;
    let event = fixture.event("d-1", Some("repo-1"), "{\"n\":1.5}");
    let (id, work_item_id) = (event.id, event.work_item_id);
    let delivery = fixture.delivery(vec![event]);
    let receipt_id = delivery.receipt_id;
    let headers = delivery.headers.clone();
    fixture.store.enqueue(delivery).await.unwrap();

    let events = fixture.store.load_events(&[id]).await.unwrap();
    let [stored] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(stored.id, id);
    assert_eq!(stored.receipt_id, receipt_id);
    assert_eq!((&stored.namespace, &stored.pack), (&namespace(), &pack()));
    assert_eq!(stored.generation, GenerationNumber(1));
    assert_eq!(stored.source_key.as_deref(), Some("repo-1"));
    assert_eq!(stored.delivery_key, "d-1");
    assert_eq!(stored.payload_digest, digest(b"{\"n\":1.5}"));
    assert_eq!(stored.headers, headers);
    assert_eq!(&stored.body[..], b"{\"n\":1.5}");
    assert_eq!(stored.received_at, START);

    let work_item = fixture.store.work_item(work_item_id).await.unwrap().unwrap();
    assert_eq!(work_item.event_id, id);
    assert_eq!((work_item.state, work_item.attempt, work_item.failures), (WorkState::Ready, 0, 0));
    assert_eq!(work_item.source_key.as_deref(), Some("repo-1"));
}

// ADM-5
#[tokio::test]
async fn the_same_delivery_twice_is_one_event() {
    let fixture = start().await;
    let delivery = fixture.delivery(vec![fixture.event("d-1", None, "body")]);
    let (receipt_id, events) = (delivery.receipt_id, vec![delivery.events[0].id]);
    fixture.store.enqueue(delivery).await.unwrap();
    for _ in 0..2 {
        let again = enqueue(&fixture, vec![fixture.event("d-1", None, "body")]).await;
        assert_eq!(again, Enqueued::Duplicate { receipt_id, events: events.clone() });
    }
    assert_eq!(counts(&fixture).await, (1, 1));
}

#[tokio::test]
async fn a_bodys_size_is_known_without_it() {
    let fixture = start().await;
    let events = ["", "four", &"x".repeat(100_000)].map(|body| fixture.event(&body.len().to_string(), None, body));
    let ids = events.each_ref().map(|event| event.id);
    enqueue(&fixture, events.to_vec()).await;
    let unknown = EventId::new(START, [9; 10]);
    let sizes = fixture.store.event_sizes(&[ids[0], ids[1], ids[2], unknown]).await.unwrap();
    assert_eq!(sizes, [(ids[0], 0), (ids[1], 4), (ids[2], 100_000)].into());
}

// ADM-5
#[tokio::test]
async fn the_same_key_with_another_payload_changes_nothing() {
    let fixture = start().await;
    let (event_id, _) = fixture.deliver("d-1", None).await;
    let other = enqueue(&fixture, vec![fixture.event("d-2", None, "x"), fixture.event("d-1", None, "other")]).await;
    assert_eq!(other, Enqueued::Conflict { event_id });
    assert_eq!(counts(&fixture).await, (1, 1));
    assert_eq!(&fixture.store.load_events(&[event_id]).await.unwrap()[0].body[..], b"d-1");
}

// ADM-5
#[tokio::test]
async fn a_delivery_that_contradicts_itself_is_not_stored() {
    let fixture = start().await;
    let first = fixture.event("d-1", None, "one");
    let first_id = first.id;
    let answer = enqueue(&fixture, vec![first, fixture.event("d-1", None, "two")]).await;
    assert_eq!(answer, Enqueued::Conflict { event_id: first_id });
    assert_eq!(counts(&fixture).await, (0, 0));
}

// ADM-5
#[tokio::test]
async fn a_redelivery_after_an_upgrade_is_still_the_same_event() {
    let fixture = start().await;
    let (event_id, _) = fixture.deliver("d-1", Some("repo")).await;
    let upgraded = fixture.install(2).await;
    let mut again = fixture.delivery(vec![fixture.event("d-1", Some("repo-by-new-rules"), "d-1")]);
    again.generation = upgraded.number;
    let answer = fixture.store.enqueue(again).await.unwrap();
    assert!(matches!(answer, Enqueued::Duplicate { events, .. } if events == [event_id]));
}

// MAT-4
#[tokio::test]
async fn the_same_key_and_rules_with_another_source_is_another_delivery() {
    let fixture = start().await;
    let (event_id, _) = fixture.deliver("d-1", Some("repo-1")).await;
    let answer = enqueue(&fixture, vec![fixture.event("d-1", Some("repo-2"), "d-1")]).await;
    assert_eq!(answer, Enqueued::Conflict { event_id });
}

// ADM-6
#[tokio::test]
async fn many_events_of_one_delivery_keep_their_order() {
    let fixture = start().await;
    let events: Vec<_> = (0..200).map(|n| fixture.event(&format!("d-{n}"), None, n.to_string())).collect();
    let expected: Vec<_> = events.iter().map(|event| event.id).collect();
    let work_items: Vec<_> = events.iter().map(|event| event.work_item_id).collect();
    assert_eq!(enqueue(&fixture, events).await, Enqueued::Stored { events: expected });
    let claimed = [fixture.claim(128).await, fixture.claim(128).await].concat();
    assert_eq!(ids(&claimed), work_items);
}

// MAT-3, MAT-4
#[tokio::test]
async fn many_identical_deliveries_at_once_are_one_event() {
    let fixture = Arc::new(start().await);
    let mut calls = Vec::new();
    for _ in 0..64 {
        let fixture = Arc::clone(&fixture);
        let delivery = fixture.delivery(vec![fixture.event("d-1", Some("repo"), "body")]);
        calls.push(crate::env::spawn("test", async move { fixture.store.enqueue(delivery).await.unwrap() }));
    }
    let mut stored = Vec::new();
    let mut duplicates = Vec::new();
    for call in calls {
        match call.await.unwrap() {
            Enqueued::Stored { events } => stored.push(events),
            Enqueued::Duplicate { events, .. } => duplicates.push(events),
            Enqueued::Conflict { event_id } => panic!("{event_id}"),
        }
    }
    assert_eq!(stored.len(), 1);
    assert_eq!(duplicates, vec![stored[0].clone(); 63]);
    assert_eq!(counts(&fixture).await, (1, 1));
}

// MAT-5
#[tokio::test]
async fn a_delivery_of_which_one_event_is_known_brings_the_others() {
    let fixture = start().await;
    let (known, _) = fixture.deliver("d-40", None).await;
    let events: Vec<_> = (0..89)
        .map(|n| {
            let key = format!("d-{n}");
            fixture.event(&key, None, &key)
        })
        .collect();
    let mut expected: Vec<_> = events.iter().map(|event| event.id).collect();
    expected[40] = known;
    assert_eq!(enqueue(&fixture, events).await, Enqueued::Stored { events: expected });
    assert_eq!(counts(&fixture).await, (89, 89));
}

// MAT-6
#[tokio::test]
async fn an_event_without_its_work_item_gets_it() {
    let fixture = start().await;
    let (event_id, lost) = fixture.deliver("d-1", Some("repo")).await;
    let mut tampering = Tampering::with(&fixture).await;
    tampering.execute("DELETE FROM work_item").await;
    tampering.execute("DELETE FROM lane").await;
    tampering.execute("DELETE FROM work_item_counter").await;
    assert!(fixture.claim(1).await.is_empty());

    let again = fixture.event("d-1", Some("repo"), "d-1");
    let repaired = again.work_item_id;
    assert!(matches!(enqueue(&fixture, vec![again]).await, Enqueued::Duplicate { events, .. } if events == [event_id]));
    let claimed = fixture.claim(1).await;
    assert_eq!(ids(&claimed), [repaired]);
    assert_eq!(claimed[0].event_id, event_id);
    assert!(fixture.store.work_item(lost).await.unwrap().is_none());
}

// MAT-2
#[tokio::test]
async fn what_is_not_installed_is_refused() {
    let fixture = start().await;
    let delivery = || fixture.delivery(vec![fixture.event("d-1", None, "body")]);
    let strange = Delivery { namespace: "nobody".parse().unwrap(), ..delivery() };
    let unknown = Delivery { generation: GenerationNumber(7), ..delivery() };
    for delivery in [strange, unknown] {
        assert!(matches!(fixture.store.enqueue(delivery).await, Err(StoreError::Refused(_))));
    }
    assert_eq!(counts(&fixture).await, (0, 0));
}

// MAT-5: in one transaction, and so for every neighbour of a delivery that is refused, known or contradicted.
#[tokio::test]
async fn neighbours_do_not_hurt_one_another() {
    let fixture = Arc::new(start().await);
    fixture.deliver("known", None).await;
    let mut deliveries = Vec::new();
    for n in 0..30 {
        let key = format!("d-{n}");
        deliveries.push(fixture.delivery(vec![fixture.event(&key, Some("repo"), &key)]));
    }
    let mut strange = fixture.delivery(vec![fixture.event("strange", None, "body")]);
    strange.namespace = "nobody".parse().unwrap();
    deliveries.insert(10, strange);
    deliveries.insert(20, fixture.delivery(vec![fixture.event("known", None, "other")]));
    let before = fixture.store.attempts_and_conflicts().0;
    let mut tampering = Tampering::with(&fixture).await;
    tampering.hold_deliveries().await;
    // It waits, and the others for it.
    let (store, first) = (fixture.store.clone(), fixture.delivery(vec![fixture.event("first", None, "body")]));
    let first = crate::env::spawn("test", async move { store.enqueue(first).await });
    fixture.store.is_at_work_since(before).await;
    let calls: Vec<_> = deliveries
        .into_iter()
        .map(|delivery| {
            let fixture = Arc::clone(&fixture);
            crate::env::spawn("test", async move { fixture.store.enqueue(delivery).await })
        })
        .collect();
    while fixture.store.waiting_deliveries() < 32 {
        tokio::task::yield_now().await;
    }
    tampering.let_go().await;
    first.await.unwrap().unwrap();
    let mut stored = 0;
    for (index, call) in calls.into_iter().enumerate() {
        match (index, call.await.unwrap()) {
            (10, answer) => assert!(matches!(answer, Err(StoreError::Refused(_)))),
            (20, answer) => assert!(matches!(answer, Ok(Enqueued::Conflict { .. }))),
            (_, answer) => stored += usize::from(matches!(answer, Ok(Enqueued::Stored { .. }))),
        }
    }
    assert_eq!(stored, 30);
    let transactions = fixture.store.attempts_and_conflicts().0 - before;
    assert_eq!(transactions, 2, "they came together");
}

async fn poll_once<F: Future + Unpin>(call: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(std::pin::Pin::new(&mut *call).poll(context))).await
}

/// Makes deliveries with bodies of `length` until one is refused at once. The writer is held up meanwhile.
async fn refused_queue(fixture: &Fixture, length: usize) -> &'static str {
    let mut tampering = Tampering::with(fixture).await;
    tampering.hold_deliveries().await;
    let body = "x".repeat(length);
    let mut waiting = Vec::new();
    loop {
        let key = format!("{length}-{}", waiting.len());
        let delivery = fixture.delivery(vec![fixture.event(&key, None, &body)]);
        let mut call = Box::pin(fixture.store.enqueue(delivery));
        match poll_once(&mut call).await {
            Poll::Pending => waiting.push(call),
            Poll::Ready(Err(StoreError::Busy { queue })) => return queue,
            Poll::Ready(other) => panic!("{other:?}"),
        }
    }
}

// ADM-2
#[tokio::test]
async fn a_full_queue_is_said_at_once() {
    let few = start_with(|options| options.queue_requests_max = 4).await;
    assert_eq!(refused_queue(&few, 1).await, "requests");
    let small = start_with(|options| options.queue_bytes_max = 1_000).await;
    assert_eq!(refused_queue(&small, 600).await, "bytes");
}

// WRK-2
#[tokio::test]
async fn what_takes_work_off_gets_through_while_deliveries_are_refused() {
    let fixture = start_with(|options| options.queue_requests_max = 4).await;
    fixture.deliver("claimed", None).await;
    let item = fixture.claim(1).await.pop().unwrap();
    let message = fixture.message("sink", START);
    let mut tampering = Tampering::with(&fixture).await;
    tampering.hold_deliveries().await;
    let mut waiting = Vec::new();
    loop {
        let delivery = fixture.delivery(vec![fixture.event(&waiting.len().to_string(), None, "body")]);
        let mut call = Box::pin(fixture.store.enqueue(delivery));
        match poll_once(&mut call).await {
            Poll::Pending => waiting.push(call),
            Poll::Ready(refused) => break assert!(matches!(refused, Err(StoreError::Busy { .. })), "{refused:?}"),
        }
    }
    let finish = || fixture.store.finish(fixture.ending(&item, done(vec![message.clone()])));
    let mut finished = Box::pin(finish());
    assert!(poll_once(&mut finished).await.is_pending(), "it is not refused");
    tampering.let_go().await;
    // Whoever waited for the lock for too long is told to try again.
    let mut answer = finished.await;
    while let Err(StoreError::Unavailable(_)) = answer {
        answer = finish().await;
    }
    assert_eq!(answer.unwrap(), Finished::Applied);
    assert_eq!(fixture.store.cancel(message.id, START).await.unwrap(), Cancelled::Cancelled);
}

// ADM-2
#[tokio::test]
async fn a_delivery_larger_than_the_queue_may_have_it_for_itself() {
    let fixture = start_with(|options| options.queue_bytes_max = 1_000).await;
    let event = fixture.event("d-1", None, "y".repeat(2_000));
    let answer = fixture.store.enqueue(fixture.delivery(vec![event])).await.unwrap();
    assert!(matches!(answer, Enqueued::Stored { .. }));
}
