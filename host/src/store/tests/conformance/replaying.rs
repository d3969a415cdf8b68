//! Running again what has ended.

use super::*;

fn dead(leaves_lane: bool) -> Disposition {
    Disposition::Dead { failure: failure(), leaves_lane }
}

// RPL-1
#[tokio::test]
async fn what_has_ended_runs_again_as_one_child_on_the_same_event() {
    for ending in [done(vec![]), dead(true)] {
        let fixture = start().await;
        let (event_id, parent) = fixture.deliver("d-1", None).await;
        fixture.end_next(ending).await;
        let before = fixture.store.event(event_id).await.unwrap().unwrap().event;
        fixture.advance(Duration::from_secs(60));

        let child = fixture.replay_first(parent).await;
        assert_eq!(fixture.replay(parent).await, Replayed::Already(child));
        let detail = fixture.store.event(event_id).await.unwrap().unwrap();
        assert_eq!(format!("{before:?}"), format!("{:?}", detail.event), "the event is not written");
        let [first, second] = detail.work_items.as_slice() else { panic!("{detail:?}") };
        assert_eq!((first.id, first.replayed_at, first.replay_of), (parent, Some(fixture.now()), None));
        assert_eq!((second.id, second.replayed_at, second.replay_of), (child, None, Some(parent)));
        assert_eq!((second.state, second.attempt, second.failures), (WorkState::Ready, 0, 0));
        assert_eq!((&second.pack, second.generation), (&first.pack, first.generation));

        let claimed = fixture.end_next(done(vec![fixture.message("sink", START)])).await;
        assert_eq!((claimed.id, claimed.event_id, claimed.replay), (child, event_id, true));
        assert_eq!(fixture.state(child).await, WorkState::Done);
        assert_eq!(fixture.replay(parent).await, Replayed::Already(child));
        fixture.assert_counted().await;
    }
}

// RPL-1
#[tokio::test]
async fn a_child_can_be_replayed_in_its_turn() {
    let fixture = start().await;
    let (event_id, first) = fixture.deliver("d-1", None).await;
    let mut chain = vec![first];
    for _ in 0..4 {
        fixture.end_next(done(vec![])).await;
        fixture.advance(Duration::from_secs(1));
        chain.push(fixture.replay_first(chain[chain.len() - 1]).await);
    }
    let items = fixture.store.event(event_id).await.unwrap().unwrap().work_items;
    assert_eq!(items.iter().map(|item| item.id).collect::<Vec<_>>(), chain);
    for pair in chain.windows(2) {
        assert_eq!(fixture.replay(pair[0]).await, Replayed::Already(pair[1]));
    }
    assert_eq!(fixture.replay(chain[4]).await, Replayed::NotFinished(WorkState::Ready));
    fixture.assert_counted().await;
}

// RPL-1
#[tokio::test]
async fn what_has_not_ended_is_not_replayed() {
    let fixture = start().await;
    let (_, head) = fixture.deliver("d-1", Some("repo")).await;
    let (_, next) = fixture.deliver("d-2", Some("repo")).await;
    assert_eq!(fixture.replay(head).await, Replayed::NotFinished(WorkState::Ready));
    assert_eq!(fixture.replay(next).await, Replayed::NotFinished(WorkState::Blocked));
    let item = fixture.claim(1).await.pop().unwrap();
    assert_eq!(fixture.replay(head).await, Replayed::NotFinished(WorkState::Processing));
    let run_after = fixture.now() + Duration::from_secs(5);
    fixture.finish(&item, Disposition::Retry { failure: failure(), run_after, leaves_lane: false }).await;
    assert_eq!(fixture.replay(head).await, Replayed::NotFinished(WorkState::Delayed));
    assert_eq!(fixture.replay(WorkItemId::from_bytes([9; 16])).await, Replayed::NotFound);
    assert_eq!(fixture.store.count_rows().await.unwrap().work_items.values().sum::<u64>(), 2);
}

// RPL-2
#[tokio::test]
async fn an_event_that_the_older_protocol_replayed_gets_no_second_child() {
    let fixture = start().await;
    let (_, parent) = fixture.deliver("d-1", None).await;
    fixture.end_next(dead(true)).await;
    let mut older = Tampering::with(&fixture).await;
    older.execute("UPDATE event SET replayed_at = 42").await;
    assert_eq!(fixture.replay(parent).await, Replayed::Fenced(Timestamp::from_millis(42)));
    assert_eq!(older.count("SELECT count(*) FROM work_item").await, 1);
    assert_eq!(older.count("SELECT count(*) FROM work_item WHERE replayed_at IS NOT NULL").await, 0);
    assert_eq!(older.count("SELECT replayed_at FROM event").await, 42, "the fence is only read");
}

// RPL-1, CLM-3
#[tokio::test]
async fn a_replay_waits_at_the_end_of_its_lane() {
    let fixture = start().await;
    let (_, parent) = fixture.deliver("d-1", Some("repo")).await;
    fixture.end_next(done(vec![])).await;
    let (_, head) = fixture.deliver("d-2", Some("repo")).await;
    let (_, next) = fixture.deliver("d-3", Some("repo")).await;
    let child = fixture.replay_first(parent).await;
    let (_, last) = fixture.deliver("d-4", Some("repo")).await;
    assert_eq!(fixture.state(child).await, WorkState::Blocked);
    let mut order = Vec::new();
    for _ in 0..4 {
        order.push(fixture.end_next(done(vec![])).await.id);
    }
    assert_eq!(order, [head, next, child, last]);
    fixture.assert_counted().await;
}

// RPL-1, CLM-8
#[tokio::test]
async fn a_dead_head_that_is_replayed_holds_nobody_up() {
    let fixture = start().await;
    let (_, parent) = fixture.deliver("d-1", Some("repo")).await;
    fixture.end_next(dead(false)).await;
    let child = fixture.replay_first(parent).await;
    assert_eq!(fixture.state(child).await, WorkState::Ready, "nobody is before it");
    fixture.end_next(dead(false)).await;

    let (_, next) = fixture.deliver("d-2", Some("repo")).await;
    let grandchild = fixture.replay_first(child).await;
    assert_eq!((fixture.state(next).await, fixture.state(grandchild).await), (WorkState::Ready, WorkState::Blocked));
    assert!(!fixture.store.skip_dead(child).await.unwrap(), "it has left its lane");
    let order = [fixture.end_next(done(vec![])).await.id, fixture.end_next(done(vec![])).await.id];
    assert_eq!(order, [next, grandchild]);
    fixture.assert_counted().await;
}

// RPL-1
#[tokio::test]
async fn requests_that_come_together_make_one_child() {
    let fixture = start().await;
    let (_, parent) = fixture.deliver("d-1", Some("repo")).await;
    fixture.end_next(dead(true)).await;
    let answers = futures_util::future::join_all((0..20).map(|_| fixture.replay(parent))).await;
    let made: Vec<_> = answers.iter().filter(|answer| matches!(answer, Replayed::Replayed(_))).collect();
    let [Replayed::Replayed(child)] = made.as_slice() else { panic!("{answers:?}") };
    assert_eq!(answers.iter().filter(|answer| **answer == Replayed::Already(*child)).count(), 19);
    fixture.assert_counted().await;
}

#[tokio::test]
async fn an_event_is_listed_as_dead_until_somebody_replays_it() {
    let fixture = start().await;
    let dead_events = async || {
        let filter = EventFilter { state: Some(WorkState::Dead), ..EventFilter::default() };
        let page = fixture.store.list_events(&filter, PageRequest { after: None, limit: 10 }).await.unwrap();
        page.items.iter().map(|event| event.id).collect::<Vec<_>>()
    };
    let (older, parent) = fixture.deliver("d-1", None).await;
    fixture.end_next(dead(true)).await;
    let (newer, _) = fixture.deliver("d-2", None).await;
    fixture.end_next(dead(true)).await;
    assert_eq!(dead_events().await, [newer, older]);

    let child = fixture.replay_first(parent).await;
    assert_eq!(dead_events().await, [newer]);
    fixture.end_next(dead(true)).await;
    assert_eq!(dead_events().await, [newer, older], "a replay that died is found by its event");
    fixture.replay_first(child).await;
    fixture.end_next(done(vec![])).await;
    assert_eq!(dead_events().await, [newer]);

    let all = fixture.store.list_events(&EventFilter::default(), PageRequest { after: None, limit: 10 }).await.unwrap();
    assert_eq!(all.items.iter().map(|event| event.id).collect::<Vec<_>>(), [newer, older], "each event once");
    assert_eq!((all.items[1].state, all.items[1].replayed_at), (WorkState::Dead, Some(fixture.now())));
}

// RPL-1
#[tokio::test]
async fn replays_are_numbered_on_after_a_restart() {
    let fixture = start().await;
    let (_, first) = fixture.deliver("d-1", None).await;
    fixture.end_next(done(vec![])).await;
    let second = fixture.replay_first(first).await;
    fixture.end_next(done(vec![])).await;
    let fixture = fixture.reopen().await;
    let third = fixture.replay_first(second).await;
    assert_eq!(fixture.end_next(done(vec![])).await.id, third);
    fixture.assert_counted().await;
}
