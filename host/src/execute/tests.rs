//! Executions over a real store, with native flows that fail, hang and panic where a test wants it.

mod bodies;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::sync::Semaphore;

use super::testing::{Harness, Step, manifest, succeed};
use super::{ExecuteOptions, Executors, Renewed};
use crate::guest::{Due, EmittedMessage, FlowOutput};
use crate::model::failure::FailureClass;
use crate::model::message::MessageState;
use crate::model::pack::{Coalescing, FailedHeadPolicy, GuestLimits, HeadPolicy, Manifest};
use crate::model::retry::RetryPolicy;
use crate::model::work_item::WorkState;
use crate::store::Tampering;
use crate::store::testing::Loss;

const LEASE: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_millis(20);

fn message(due: Due) -> EmittedMessage {
    EmittedMessage {
        destination: "sink".parse().unwrap(),
        body: Bytes::from_static(b"out"),
        content_type: "text/plain".to_owned(),
        headers: Vec::new(),
        ordering_key: None,
        idempotency_key: None,
        due,
        expire_at: None,
    }
}

fn emit_one() -> Step {
    Step::Succeed(FlowOutput { note: Some("sent".to_owned()), messages: vec![message(Due::Now)], actions: Vec::new() })
}

async fn run_all(harness: &Harness, executors: &Executors) -> usize {
    let claimed = harness.claim_into(executors, executors.slots()).await;
    executors.idle().await;
    claimed
}

#[tokio::test]
async fn an_event_is_prepared_run_and_finished_with_its_messages() {
    let harness = Harness::new().await;
    harness.load(|event, _| if event.body == "in" { emit_one() } else { Step::Ignore });
    let [emits, ignored] = harness.enqueue(["in", "other"]).await;
    let executors = harness.executors(4);
    assert_eq!(run_all(&harness, &executors).await, 2);

    let emits = harness.detail(emits).await;
    assert_eq!((emits.state, emits.ignored, emits.note.as_deref()), (WorkState::Done, false, Some("sent")));
    let ignored = harness.detail(ignored).await;
    assert_eq!(
        (ignored.state, ignored.ignored, ignored.note.as_deref()),
        (WorkState::Done, true, Some("of no interest"))
    );
    let sent = harness.store.event(emits.event_id).await.unwrap().unwrap().messages;
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].entry.state, MessageState::Scheduled);
    assert_eq!(sent[0].entry.due_at, harness.now());
    assert_eq!(executors.vitals().finishes(), 2);
}

// SCH-4
#[tokio::test]
async fn a_flow_sees_an_event_only_after_its_row_is_claimed() {
    let harness = Harness::new().await;
    let seen = Arc::new(AtomicU32::new(0));
    let (count, data) = (Arc::clone(&seen), harness.directory().join("data"));
    harness.load(move |event, attempt| {
        // As the flow would, if it could see the queue; over a connection that nobody else waits for.
        let id: String = event.id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let claimed = format!(
            "SELECT count(*) FROM work_item WHERE event_id = X'{id}' AND state = 3 AND attempt = {attempt} \
             AND lease_token IS NOT NULL"
        );
        let data = data.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let looking = async move { Tampering::in_directory(&data).await.count(&claimed).await };
        assert_eq!(std::thread::spawn(move || runtime.block_on(looking)).join().unwrap(), 1);
        count.fetch_add(1, Ordering::SeqCst);
        succeed()
    });
    harness.enqueue(["a", "b", "c"]).await;
    let (mine, other) = (harness.executors(2), harness.executors(8));
    assert_eq!(harness.claim_into(&mine, 2).await, 2);
    assert_eq!(harness.claim_into(&other, 8).await, 1, "what is claimed is invisible to others");
    mine.idle().await;
    other.idle().await;
    assert_eq!(seen.load(Ordering::SeqCst), 3 * 2, "prepare and run, once for each event");
}

// SCH-5
#[tokio::test]
async fn a_panic_costs_its_own_row_one_attempt_and_nothing_else() {
    let harness = Harness::new().await;
    harness.load(|event, attempt| if event.body == "bad" && attempt == 1 { Step::Panic } else { succeed() });
    let [bad, good] = harness.enqueue(["bad", "good"]).await;
    let executors = harness.executors(2);
    run_all(&harness, &executors).await;

    assert_eq!(harness.detail(good).await.state, WorkState::Done);
    let failed = harness.detail(bad).await;
    assert_eq!((failed.state, failed.failures, failed.attempt), (WorkState::Delayed, 1, 1));
    assert_eq!(failed.failure.unwrap().class, FailureClass::Host);
    assert_eq!(executors.free(), 2, "its slot is back");

    harness.clock.advance(Duration::from_secs(2));
    assert_eq!(run_all(&harness, &executors).await, 1);
    let done = harness.detail(bad).await;
    assert_eq!((done.state, done.failures, done.attempt), (WorkState::Done, 1, 2));
}

// COA-1
#[tokio::test]
async fn a_slot_goes_on_with_the_latest_of_its_source() {
    let harness = Harness::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    let mut coalescing = manifest(FailedHeadPolicy::DEFAULT);
    coalescing.routes[0].coalescing = Coalescing::LatestBySource;
    let mut starts = harness.load_under(coalescing, move |event, _| {
        if event.body == "first" { Step::Wait(Arc::clone(&waiting)) } else { succeed() }
    });
    let [first] = harness.enqueue_coalescing("repo", ["first"]).await;
    let executors = harness.executors(1);
    harness.claim_into(&executors, 1).await;
    starts.recv().await.unwrap();
    let later = harness.enqueue_coalescing("repo", ["second", "third", "latest"]).await;
    gate.add_permits(1);
    executors.idle().await;
    assert_eq!(executors.free(), 1);
    let latest = harness.detail(later[2]).await;
    assert_eq!(
        (harness.detail(first).await.state, latest.state, latest.ignored),
        (WorkState::Done, WorkState::Done, false)
    );
    for superseded in &later[..2] {
        let row = harness.detail(*superseded).await;
        assert_eq!(
            (row.state, row.attempt, row.note),
            (WorkState::Done, 0, Some(format!("superseded by {}", later[2])))
        );
    }
}

// GST-2
#[tokio::test]
async fn a_flow_that_hangs_ends_at_its_deadline_and_its_neighbours_notice_nothing() {
    let harness = Harness::new().await;
    let limits = GuestLimits { deadline: SOON, ..GuestLimits::DEFAULT };
    let impatient = Manifest { limits, ..manifest(FailedHeadPolicy::DEFAULT) };
    harness.load_under(impatient, |event, _| if event.body == "hang" { Step::Hang } else { succeed() });
    let [hangs, good] = harness.enqueue(["hang", "good"]).await;
    run_all(&harness, &harness.executors(2)).await;

    assert_eq!(harness.detail(good).await.state, WorkState::Done);
    let failed = harness.detail(hangs).await;
    assert_eq!((failed.state, failed.failures), (WorkState::Delayed, 1));
    assert_eq!(failed.failure.unwrap().class, FailureClass::Deadline);
}

// GST-2
#[tokio::test]
async fn the_hosts_deadline_caps_the_manifests() {
    let harness = Harness::new().await;
    harness.load(|_, _| Step::Hang);
    let [hangs] = harness.enqueue(["hang"]).await;
    let options = ExecuteOptions { slots: 1, deadline_max: SOON, ..ExecuteOptions::default() };
    run_all(&harness, &Executors::new(harness.parts(options))).await;
    assert_eq!(harness.detail(hangs).await.failure.unwrap().class, FailureClass::Deadline);
}

// CLM-6
#[tokio::test]
async fn a_lease_that_is_not_confirmed_in_time_ends_the_execution_without_a_trace() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|_, attempt| if attempt == 1 { Step::Hang } else { succeed() });
    let [id] = harness.enqueue(["a"]).await;
    let executors = harness.executors(1);
    harness.claim_into(&executors, 1).await;
    starts.recv().await.unwrap();

    harness.clock.advance(LEASE);
    assert_eq!(executors.lease_keeper().tick(harness.now()).await, Renewed::Nothing);
    executors.idle().await;
    let row = harness.detail(id).await;
    assert_eq!((row.state, row.failures), (WorkState::Processing, 0), "nothing was recorded");

    harness.clock.advance(Duration::from_secs(1));
    assert_eq!(run_all(&harness, &executors).await, 1, "it is reclaimed like any stale row");
    let row = harness.detail(id).await;
    assert_eq!((row.state, row.attempt, row.failures), (WorkState::Done, 2, 0));
}

// CLM-6
#[tokio::test]
async fn work_ends_with_its_lease_while_a_renewal_waits_for_its_answer() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|_, _| Step::Hang);
    let [id] = harness.enqueue(["a"]).await;
    let executors = harness.executors(1);
    harness.claim_into(&executors, 1).await;
    starts.recv().await.unwrap();
    let mut lock = harness.tampering().await;
    lock.execute("BEGIN IMMEDIATE").await;

    harness.clock.advance(LEASE - SOON);
    let keeper = executors.lease_keeper();
    let mut renewal = pin!(keeper.tick(harness.now()));
    assert_eq!(renewal.as_mut().now_or_never(), None, "the database is locked");
    harness.clock.advance(SOON);
    tokio::select! {
        biased;
        () = executors.idle() => {}
        renewed = &mut renewal => panic!("the work outlived its lease: {renewed:?}"),
    }
    assert_eq!(renewal.await, Renewed::Failed);
    lock.execute("ROLLBACK").await;
    let row = harness.detail(id).await;
    assert_eq!((row.state, row.failures), (WorkState::Processing, 0), "nothing was recorded");
}

// CLM-6
#[tokio::test]
async fn renewed_leases_outlast_their_first_end() {
    let harness = Harness::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    let mut starts = harness.load(move |_, _| Step::Wait(Arc::clone(&waiting)));
    let ids = harness.enqueue(["a", "b"]).await;
    let executors = harness.executors(2);
    harness.claim_into(&executors, 2).await;
    for _ in ids {
        starts.recv().await.unwrap();
    }
    let keeper = executors.lease_keeper();
    for _ in 0..5 {
        harness.clock.advance(LEASE * 2 / 3);
        assert_eq!(keeper.tick(harness.now()).await, Renewed::Rows { kept: 2, lost: 0 }, "both, with one request");
    }
    gate.add_permits(2);
    executors.idle().await;
    for id in ids {
        let row = harness.detail(id).await;
        assert_eq!((row.state, row.attempt), (WorkState::Done, 1));
    }
}

// CLM-5, CLM-6
#[tokio::test]
async fn a_row_that_somebody_else_reclaimed_is_dropped_at_the_next_renewal() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|_, attempt| if attempt == 1 { Step::Hang } else { emit_one() });
    let [id] = harness.enqueue(["a"]).await;
    let loser = harness.suspended_executors(1);
    harness.claim_into(&loser, 1).await;
    starts.recv().await.unwrap();
    harness.clock.advance(LEASE + Duration::from_secs(1));
    let winner = harness.executors(1);
    assert_eq!(run_all(&harness, &winner).await, 1);

    assert_eq!(loser.lease_keeper().tick(harness.now()).await, Renewed::Rows { kept: 0, lost: 1 });
    loser.idle().await;
    let row = harness.detail(id).await;
    assert_eq!((row.state, row.attempt, row.failures), (WorkState::Done, 2, 0));
}

// CLM-5
#[tokio::test]
async fn the_result_of_a_lost_lease_is_not_applied() {
    let harness = Harness::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    let mut starts =
        harness.load(move |_, attempt| if attempt == 1 { Step::Wait(Arc::clone(&waiting)) } else { emit_one() });
    let [id] = harness.enqueue(["a"]).await;
    let loser = harness.suspended_executors(1);
    harness.claim_into(&loser, 1).await;
    starts.recv().await.unwrap();
    harness.clock.advance(LEASE + Duration::from_secs(1));
    run_all(&harness, &harness.executors(1)).await;

    gate.add_permits(1);
    loser.idle().await;
    let row = harness.detail(id).await;
    assert_eq!((row.state, row.attempt, row.note.as_deref()), (WorkState::Done, 2, Some("sent")));
    assert_eq!(loser.vitals().finishes(), 0);
    assert_eq!(harness.store.event(row.event_id).await.unwrap().unwrap().messages.len(), 1);
}

// CLM-5
#[tokio::test]
async fn an_outcome_whose_answer_got_lost_is_recorded_once() {
    for loss in Loss::ALL {
        let harness = Harness::new().await;
        let store = harness.store.clone();
        harness.load(move |_, _| {
            // The next transaction is the finish.
            store.lose_answer(loss);
            emit_one()
        });
        let [first, next, last] = harness.enqueue_in_lane("pr-1", ["first", "next", "last"]).await;
        let executors = harness.executors(1);
        assert_eq!(run_all(&harness, &executors).await, 1);

        let row = harness.detail(first).await;
        assert_eq!((row.state, row.attempt, row.failures), (WorkState::Done, 1, 0), "{loss:?}");
        assert_eq!(harness.store.event(row.event_id).await.unwrap().unwrap().messages.len(), 1, "{loss:?}");
        assert_eq!(harness.detail(next).await.state, WorkState::Ready, "{loss:?}");
        assert_eq!(harness.detail(last).await.state, WorkState::Blocked, "{loss:?}: the lane moved on by one");
        harness.store.assert_counted().await;
        assert_eq!(executors.vitals().finishes(), 1, "{loss:?}");
    }
}

// CLM-7
#[tokio::test]
async fn failures_back_off_and_end_with_the_budget() {
    let harness = Harness::new().await;
    harness.load(|_, _| Step::Fail(FailureClass::Trap));
    let [id] = harness.enqueue(["a"]).await;
    let retry = RetryPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(4), failures_max: 4 };
    let options = ExecuteOptions { slots: 1, retry, ..ExecuteOptions::default() };
    let executors = Executors::new(harness.parts(options));
    for failures in 1..retry.failures_max {
        assert_eq!(run_all(&harness, &executors).await, 1);
        let row = harness.detail(id).await;
        assert_eq!((row.state, row.failures), (WorkState::Delayed, failures));
        assert!(row.run_after > harness.now());
        assert_eq!(run_all(&harness, &executors).await, 0, "not before its time");
        harness.clock.advance(retry.max);
    }
    assert_eq!(run_all(&harness, &executors).await, 1);
    let row = harness.detail(id).await;
    assert_eq!((row.state, row.failures, row.attempt), (WorkState::Dead, 4, 4));
    assert_eq!(row.failure.unwrap().message, "as scripted");
    harness.clock.advance(Duration::from_secs(3_600));
    assert_eq!(run_all(&harness, &executors).await, 0);
}

// CLM-7
#[tokio::test]
async fn what_cannot_succeed_spends_no_more_attempts() {
    let harness = Harness::new().await;
    harness.load(|_, _| Step::Fail(FailureClass::InvalidInput));
    let [id] = harness.enqueue(["a"]).await;
    run_all(&harness, &harness.executors(1)).await;
    let row = harness.detail(id).await;
    assert_eq!((row.state, row.failures), (WorkState::Dead, 1));
}

// CLM-3, CLM-8
#[tokio::test]
async fn a_retrying_head_blocks_its_lane_and_a_dead_one_lets_it_go() {
    let harness = Harness::new().await;
    harness.load(|event, _| if event.body == "bad" { Step::Fail(FailureClass::Trap) } else { succeed() });
    let [bad, next] = harness.enqueue_in_lane("pr-1", ["bad", "next"]).await;
    let [elsewhere] = harness.enqueue_in_lane("pr-2", ["elsewhere"]).await;
    let retry = RetryPolicy { failures_max: 2, ..ExecuteOptions::default().retry };
    let executors = Executors::new(harness.parts(ExecuteOptions { slots: 4, retry, ..ExecuteOptions::default() }));

    assert_eq!(run_all(&harness, &executors).await, 2, "the two heads");
    assert_eq!(harness.detail(elsewhere).await.state, WorkState::Done);
    assert_eq!(harness.detail(bad).await.state, WorkState::Delayed);
    assert_eq!(run_all(&harness, &executors).await, 0);
    assert_eq!(harness.detail(next).await.state, WorkState::Blocked);

    harness.clock.advance(Duration::from_secs(2));
    assert_eq!(run_all(&harness, &executors).await, 1);
    assert_eq!(harness.detail(bad).await.state, WorkState::Dead);
    assert_eq!(run_all(&harness, &executors).await, 1);
    assert_eq!(harness.detail(next).await.state, WorkState::Done);
}

// CLM-8
#[tokio::test]
async fn the_route_may_let_successors_pass_a_retrying_head() {
    let harness = Harness::new().await;
    let passing = manifest(FailedHeadPolicy { retrying: HeadPolicy::Skip, dead: HeadPolicy::Skip });
    harness.load_under(
        passing,
        |event, _| {
            if event.body == "bad" { Step::Fail(FailureClass::Trap) } else { succeed() }
        },
    );
    let [bad, next] = harness.enqueue_in_lane("pr-1", ["bad", "next"]).await;
    let executors = harness.executors(4);
    assert_eq!(run_all(&harness, &executors).await, 1);
    assert_eq!(run_all(&harness, &executors).await, 1);
    assert_eq!(harness.detail(bad).await.state, WorkState::Delayed);
    assert_eq!(harness.detail(next).await.state, WorkState::Done);
}

#[tokio::test]
async fn a_drain_lets_work_end_and_releases_what_does_not() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|event, _| if event.body == "hang" { Step::Hang } else { succeed() });
    let [hangs, good] = harness.enqueue(["hang", "good"]).await;
    let executors = harness.executors(2);
    harness.claim_into(&executors, 2).await;
    starts.recv().await.unwrap();
    starts.recv().await.unwrap();
    while executors.rows_in_work() > 1 {
        executors.freed().await;
    }
    executors.drain(SOON).await;

    assert_eq!(executors.free(), 2);
    assert_eq!(harness.detail(good).await.state, WorkState::Done);
    let released = harness.detail(hangs).await;
    assert_eq!((released.state, released.failures), (WorkState::Ready, 0), "as if it had not been claimed");
    assert_eq!(executors.vitals().finishes(), 1, "what goes back is not finished");
}

#[tokio::test]
async fn a_generation_that_is_no_longer_there_gives_its_rows_back() {
    let harness = Harness::new().await;
    let [id] = harness.enqueue(["a"]).await;
    let executors = harness.executors(1);
    assert_eq!(harness.claim_for(&executors, vec![harness.generation], 1).await, 1);
    executors.idle().await;
    let row = harness.detail(id).await;
    assert_eq!((row.state, row.failures), (WorkState::Ready, 0));
}

// CLM-7
#[tokio::test]
async fn an_event_that_cannot_be_read_fails_and_its_neighbours_go_on() {
    let harness = Harness::new().await;
    harness.load(|_, _| succeed());
    let [before] = harness.enqueue(["before"]).await;
    let [unreadable] = harness.enqueue(["unreadable"]).await;
    let [after] = harness.enqueue(["after"]).await;
    harness.tampering().await.execute("UPDATE receipt SET headers = x'09' WHERE ordinal = 2").await;
    let retry = RetryPolicy { failures_max: 2, ..ExecuteOptions::default().retry };
    let executors = Executors::new(harness.parts(ExecuteOptions { slots: 4, retry, ..ExecuteOptions::default() }));

    assert_eq!(run_all(&harness, &executors).await, 3, "one batch");
    for neighbour in [before, after] {
        let row = harness.detail(neighbour).await;
        assert_eq!((row.state, row.attempt), (WorkState::Done, 1));
    }
    let row = harness.detail(unreadable).await;
    assert_eq!((row.state, row.failures), (WorkState::Delayed, 1));
    let failure = row.failure.unwrap();
    assert_eq!((failure.class, failure.message.as_str()), (FailureClass::Host, "the event's row cannot be read"));

    harness.clock.advance(Duration::from_secs(2));
    assert_eq!(run_all(&harness, &executors).await, 1);
    assert_eq!(harness.detail(unreadable).await.state, WorkState::Dead, "visible, and in nobody's way");
}

// GST-4, CLM-7: what the database cannot hold is a failure of the run that made it, and spends its budget.
#[tokio::test]
async fn an_outcome_that_cannot_be_stored_is_a_failure() {
    let harness = Harness::new().await;
    let emitted = |content_type: &str| {
        let message = EmittedMessage {
            destination: "sink".parse().unwrap(),
            body: Bytes::from_static(b"body"),
            content_type: content_type.to_owned(),
            headers: Vec::new(),
            ordering_key: None,
            idempotency_key: None,
            due: Due::Now,
            expire_at: None,
        };
        FlowOutput { messages: vec![message], ..FlowOutput::NOTHING }
    };
    harness
        .load(move |event, _| Step::Succeed(emitted(if event.body == "bad" { "text/refused" } else { "text/plain" })));
    let mut tampering = harness.tampering().await;
    tampering
        .execute(
            "CREATE TRIGGER refused BEFORE INSERT ON message_payload WHEN NEW.content_type = 'text/refused' \
             BEGIN SELECT RAISE(ABORT, 'it does not fit'); END",
        )
        .await;
    let [bad, good] = harness.enqueue(["bad", "good"]).await;
    let executors = harness.executors(2);
    assert_eq!(run_all(&harness, &executors).await, 2);
    assert_eq!(harness.detail(good).await.state, WorkState::Done);
    let failed = harness.detail(bad).await;
    assert_eq!((failed.state, failed.attempt, failed.failures), (WorkState::Delayed, 1, 1));
    let failure = failed.failure.unwrap();
    assert_eq!(failure.class, FailureClass::Host);
    assert!(failure.message.contains("cannot be stored"), "{failure}");
    harness.store.assert_counted().await;
}
