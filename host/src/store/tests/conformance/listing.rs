//! What operators see.

use super::*;

async fn all_events(fixture: &Fixture, filter: &EventFilter, limit: u32) -> Vec<EventSummary> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = fixture.store.list_events(filter, PageRequest { after, limit }).await.unwrap();
        assert!(page.items.len() <= limit as usize);
        found.extend(page.items);
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

async fn all_messages(fixture: &Fixture, filter: &MessageFilter, limit: u32) -> Vec<MessageId> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = fixture.store.list_messages(filter, PageRequest { after, limit }).await.unwrap();
        found.extend(page.items.iter().map(|summary| summary.entry.id));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

#[tokio::test]
async fn events_are_listed_newest_first_page_by_page() {
    let fixture = start().await;
    assert!(all_events(&fixture, &EventFilter::default(), 10).await.is_empty());
    let mut expected = Vec::new();
    for n in 0..25 {
        expected.insert(0, fixture.deliver(&format!("d-{n}"), Some("repo")).await.0);
    }
    for limit in [1, 7, 25, 1_000] {
        let listed = all_events(&fixture, &EventFilter::default(), limit).await;
        assert_eq!(listed.iter().map(|event| event.id).collect::<Vec<_>>(), expected, "{limit}");
    }
    let newest = &all_events(&fixture, &EventFilter::default(), 1_000).await[0];
    assert_eq!((newest.delivery_key.as_str(), newest.source_key.as_deref()), ("d-24", Some("repo")));
    assert_eq!((newest.body_bytes, newest.state, newest.attempt), (4, WorkState::Blocked, 0));
}

#[tokio::test]
async fn events_are_found_by_tenant_pack_route_and_state() {
    let fixture = start().await;
    fixture.store.ensure_namespaces(&["umbrella".parse().unwrap()], START).await.unwrap();
    let (dead, _) = fixture.deliver("dead", None).await;
    let item = fixture.claim(1).await.pop().unwrap();
    fixture.finish(&item, Disposition::Dead { failure: failure(), leaves_lane: true }).await;
    let (plain, _) = fixture.deliver("plain", None).await;
    let mut other = fixture.delivery(vec![fixture.event("other", None, "body")]);
    other.namespace = "umbrella".parse().unwrap();
    other.route = "issues".parse().unwrap();
    let other_id = other.events[0].id;
    fixture.store.enqueue(other).await.unwrap();

    let umbrella = EventFilter { namespace: Some("umbrella".parse().unwrap()), ..EventFilter::default() };
    let route = EventFilter { route: Some("push".parse().unwrap()), ..EventFilter::default() };
    let pack = EventFilter { pack: Some("gitlab".parse().unwrap()), ..EventFilter::default() };
    let state = |state| EventFilter { state: Some(state), ..EventFilter::default() };
    let dead_elsewhere = EventFilter { state: Some(WorkState::Dead), ..umbrella.clone() };
    for (filter, expected) in [
        (umbrella, vec![other_id]),
        (route, vec![plain, dead]),
        (pack, vec![]),
        (state(WorkState::Dead), vec![dead]),
        (state(WorkState::Ready), vec![other_id, plain]),
        (state(WorkState::Done), vec![]),
        (dead_elsewhere, vec![]),
    ] {
        for limit in [1, 100] {
            let found = all_events(&fixture, &filter, limit).await;
            assert_eq!(found.iter().map(|event| event.id).collect::<Vec<_>>(), expected, "{filter:?}");
        }
    }
}

// CLM-7
#[tokio::test]
async fn an_event_of_which_several_actions_are_dead_is_listed_once_however_pages_fall() {
    let fixture = start().await;
    let (mut events, mut messages) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let ids = fixture.emit((0..3).map(|_| fixture.action("remind", START)).collect()).await;
        let first = fixture.store.message(ids[0]).await.unwrap().unwrap().summary.entry;
        let shard = fixture.store.shard_of(&first.namespace, &first.destination);
        let lease = super::publishing::acquire(&fixture, shard.0).await;
        for id in &ids {
            super::publishing::admit(&fixture, lease, *id, 1).await;
            super::publishing::record(&fixture, lease, *id, 1, crate::model::message::AfterAttempt::HandedOff).await;
        }
        fixture.store.release_shard(lease).await.unwrap();
        events.insert(0, first.event_id);
        messages.extend(ids);
    }
    let work_types = vec![WorkType::WorkflowActionApply];
    let claimed = fixture.store.claim(ClaimRequest { work_types, ..fixture.request(16) }).await.unwrap();
    assert_eq!(claimed.len(), messages.len());
    for item in &claimed {
        let dead = Disposition::Dead { failure: failure(), leaves_lane: true };
        assert_eq!(fixture.finish(item, dead).await, Finished::Applied);
    }
    let dead = EventFilter { state: Some(WorkState::Dead), ..EventFilter::default() };
    for limit in [1, 2, 3, 4, 5, 9, 100] {
        let listed = all_events(&fixture, &dead, limit).await;
        assert_eq!(listed.iter().map(|event| event.id).collect::<Vec<_>>(), events, "{limit}");
        let mut listed = all_messages(&fixture, &MessageFilter::default(), limit).await;
        listed.reverse();
        assert_eq!(listed, messages, "{limit}");
    }
}

#[tokio::test]
async fn a_page_looks_at_a_bounded_number_of_rows() {
    let fixture = start().await;
    let rows = SCAN_ROWS_MAX as usize + 1_500;
    for first in (0..rows).step_by(1_000) {
        let events = (first..(first + 1_000).min(rows)).map(|n| fixture.event(&n.to_string(), None, "")).collect();
        fixture.store.enqueue(fixture.delivery(events)).await.unwrap();
    }
    let items = fixture.claim(1).await;
    fixture.finish(&items[0], done(vec![])).await;
    // The only one is at the far end of the listing.
    let filter = EventFilter { state: Some(WorkState::Done), ..EventFilter::default() };
    let page = fixture.store.list_events(&filter, PageRequest { after: None, limit: 10 }).await.unwrap();
    assert!(page.items.is_empty());
    assert!(page.next.is_some());
    assert_eq!(all_events(&fixture, &filter, 10).await.len(), 1);
}

#[tokio::test]
async fn an_event_is_shown_with_what_became_of_it() {
    let fixture = start().await;
    let (id, work_item_id) = fixture.deliver("d-1", Some("repo")).await;
    let item = fixture.claim(1).await.pop().unwrap();
    let messages = vec![fixture.message("sink", START), fixture.message("audit", START)];
    let emitted: Vec<_> = messages.iter().map(|message| message.id).collect();
    let disposition = Disposition::Done {
        note: Some("two mails".to_owned()),
        ignored: false,
        messages,
        record: crate::model::reading::RunRecord::none(),
    };
    fixture.finish(&item, disposition).await;

    let detail = fixture.store.event(id).await.unwrap().unwrap();
    assert_eq!(detail.event.id, id);
    let [work_item] = detail.work_items.as_slice() else { panic!("{detail:?}") };
    assert_eq!((work_item.id, work_item.state), (work_item_id, WorkState::Done));
    assert_eq!((work_item.note.as_deref(), work_item.ignored), (Some("two mails"), false));
    assert_eq!(work_item.finished_at, Some(START));
    assert_eq!(detail.messages.iter().map(|message| message.entry.id).collect::<Vec<_>>(), emitted);
    assert_eq!(detail.messages[0].entry.bytes, 2 + 6 + 8, "body, name and value of the header");
    assert!(fixture.store.event(EventId::from_bytes([9; 16])).await.unwrap().is_none());
    assert!(fixture.store.work_item(WorkItemId::from_bytes([9; 16])).await.unwrap().is_none());
    assert!(fixture.store.message(MessageId::from_bytes([9; 16])).await.unwrap().is_none());
}

#[tokio::test]
async fn messages_are_listed_and_found() {
    let fixture = start().await;
    let messages: Vec<_> = (0..7).map(|n| fixture.message(if n % 2 == 0 { "sink" } else { "audit" }, START)).collect();
    let mut newest_first: Vec<_> = messages.iter().map(|message| message.id).collect();
    newest_first.reverse();
    fixture.emit(messages).await;
    fixture.store.cancel(newest_first[3], START).await.unwrap();
    let event_id = fixture.store.message(newest_first[0]).await.unwrap().unwrap().summary.entry.event_id;

    let every = |step: usize, first: usize| newest_first.iter().copied().skip(first).step_by(step).collect::<Vec<_>>();
    for (filter, expected) in [
        (MessageFilter::default(), newest_first.clone()),
        (MessageFilter { destination: Some("sink".parse().unwrap()), ..MessageFilter::default() }, every(2, 0)),
        (MessageFilter { destination: Some("audit".parse().unwrap()), ..MessageFilter::default() }, every(2, 1)),
        (MessageFilter { namespace: Some(namespace()), ..MessageFilter::default() }, newest_first.clone()),
        (MessageFilter { namespace: Some("nobody".parse().unwrap()), ..MessageFilter::default() }, vec![]),
        (MessageFilter { state: Some(MessageState::Cancelled), ..MessageFilter::default() }, vec![newest_first[3]]),
        (MessageFilter { state: Some(MessageState::Dead), ..MessageFilter::default() }, vec![]),
        (MessageFilter { event_id: Some(event_id), ..MessageFilter::default() }, newest_first.clone()),
        (MessageFilter { event_id: Some(EventId::from_bytes([9; 16])), ..MessageFilter::default() }, vec![]),
    ] {
        for limit in [1, 3, 100] {
            assert_eq!(all_messages(&fixture, &filter, limit).await, expected, "{filter:?}");
        }
    }
}
