//! Transactions of two runtimes that meet over one row, in both orders: a third one holds the row until they stand in
//! line. What must never happen is that an item waits for nobody, or passes somebody.

use std::future::Future;
use std::pin::pin;

use futures_util::future::join;

use super::*;
use crate::model::pack::Coalescing;
use crate::store::engine::values::values;

/// Connections of this database that wait for a lock.
const WAITING: &str = "\
    SELECT count(*) FROM information_schema.innodb_trx AS trx JOIN information_schema.processlist AS process \
    ON process.id = trx.trx_mysql_thread_id WHERE process.db = DATABASE() AND trx.trx_state = 'LOCK WAIT'";

/// How those who wait see others.
const ISOLATION: &str = "\
    SELECT trx.trx_isolation_level FROM information_schema.innodb_trx AS trx JOIN information_schema.processlist AS process \
    ON process.id = trx.trx_mysql_thread_id WHERE process.db = DATABASE() AND trx.trx_state = 'LOCK WAIT'";

/// Looks that follow one another faster than this, from whatever connection, are told what the first one saw.
const TRX_CACHE: Duration = Duration::from_millis(110);

/// Held by the test that looks.
static LOOKING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Longer than anybody stands in line here, however loaded the machine is: nobody loses his place by a timeout.
const LOCK_WAIT: Duration = Duration::from_secs(120);

/// Two runtimes over one database.
async fn two() -> (Fixture, Fixture) {
    two_with(LOCK_WAIT).await
}

/// Two, of which the second waits so long for a lock.
async fn two_with(lock_wait: Duration) -> (Fixture, Fixture) {
    let first = Fixture::with(|options| {
        options.database_url = Some(mariadb::create_database());
        let (attempt, attempts) = (LOCK_WAIT * 2, LOCK_WAIT * 4);
        options.patience = Patience { lock_wait: LOCK_WAIT, attempt, attempts, idle: None };
    })
    .await;
    let second = first.beside_with(7, |options| options.patience.lock_wait = lock_wait).await;
    (first, second)
}

/// How often a transaction of either lost against another one.
fn conflicts(first: &Fixture, second: &Fixture) -> u64 {
    first.store.attempts_and_conflicts().1 + second.store.attempts_and_conflicts().1
}

/// Holds the rows that `held` selects.
async fn hold(holder: &mut Tampering, held: &str) {
    holder.connection().begin().await.unwrap();
    holder.count(&format!("SELECT count(*) FROM ({held} FOR UPDATE) AS held")).await;
}

/// Does `one` while the rows that `held` selects are held: it has to wait for them. Returns how the one who waits sees
/// others, too.
async fn waits_for<A>(fixture: &Fixture, held: &str, one: impl Future<Output = A>) -> (A, String) {
    let mut holder = Tampering::with(fixture).await;
    let mut watcher = Tampering::with(fixture).await;
    hold(&mut holder, held).await;
    let mut one = pin!(one);
    let seen = async {
        loop {
            let _alone = LOOKING.lock().await;
            crate::env::sleep(TRX_CACHE).await;
            let isolation: Option<String> = watcher.connection().read_optional(ISOLATION, values![]).await.unwrap();
            if let Some(isolation) = isolation {
                return isolation;
            }
        }
    };
    let isolation = tokio::select! {
        biased;
        _ = &mut one => panic!("it has to wait"),
        isolation = seen => isolation,
    };
    holder.let_go().await;
    (one.await, isolation)
}

/// Does `one`, then `other`, while the rows that `held` selects are held: both have to wait for them, in this order.
async fn in_line<A, B>(
    fixture: &Fixture,
    held: &str,
    one: impl Future<Output = A>,
    other: impl Future<Output = B>,
) -> (A, B) {
    let mut holder = Tampering::with(fixture).await;
    let mut watcher = Tampering::with(fixture).await;
    hold(&mut holder, held).await;
    let (mut one, mut other) = (pin!(one), pin!(other));
    let mut waiting = 0;
    let mut until = async |count: i64, watcher: &mut Tampering| {
        while waiting < count {
            let _alone = LOOKING.lock().await;
            crate::env::sleep(TRX_CACHE).await;
            waiting = watcher.count(WAITING).await;
        }
    };
    tokio::select! {
        biased;
        _ = &mut one => panic!("it has to wait"),
        () = until(1, &mut watcher) => {}
    }
    tokio::select! {
        biased;
        _ = join(&mut one, &mut other) => panic!("they have to wait"),
        () = until(2, &mut watcher) => {}
    }
    holder.let_go().await;
    join(one, other).await
}

// CLM-3: "the lane looks busy, wait" and "nobody waits, done".
#[tokio::test]
async fn an_enqueue_and_a_finish_meet_over_a_lane() {
    for enqueue_first in [true, false] {
        let (first, second) = two().await;
        first.deliver("d-1", Some("repo")).await;
        let item = first.claim(1).await.pop().unwrap();
        let event = second.event("d-2", Some("repo"), "d-2");
        let next = event.work_item_id;
        let enqueue = second.store.enqueue(second.delivery(vec![event]));
        let finish = first.finish(&item, done(vec![]));
        let held = "SELECT id FROM lane";
        let finished = if enqueue_first {
            in_line(&first, held, enqueue, finish).await.1
        } else {
            in_line(&first, held, finish, enqueue).await.0
        };
        assert_eq!(finished, Finished::Applied);
        assert_eq!(first.state(next).await, WorkState::Ready, "enqueue first: {enqueue_first}");
        first.assert_counted().await;
    }
}

// CLM-3: the successor in two lanes, of which each is let go on by another runtime.
#[tokio::test]
async fn two_finishes_meet_over_their_common_successor() {
    let (first, second) = two().await;
    first.deliver("d-1", Some("repo")).await;
    first.deliver_strictly("strict", "d-2", None).await;
    let both = first.deliver_strictly("strict", "d-3", Some("repo")).await;
    let items = first.claim(10).await;
    assert_eq!(items.len(), 2);
    let held = "SELECT ordinal FROM work_item WHERE state = 0";
    let finishes = (first.finish(&items[0], done(vec![])), second.finish(&items[1], done(vec![])));
    let finished = in_line(&first, held, finishes.0, finishes.1).await;
    assert_eq!(finished, (Finished::Applied, Finished::Applied));
    assert_eq!(first.state(both).await, WorkState::Ready);
    first.assert_counted().await;
}

// CLM-5: whoever comes first has it.
#[tokio::test]
async fn a_finish_and_a_reclaim_meet_over_a_row() {
    for finish_first in [true, false] {
        let (first, second) = two().await;
        let (_, head) = first.deliver("d-1", Some("repo")).await;
        let (_, next) = first.deliver("d-2", Some("repo")).await;
        let item = first.claim(1).await.pop().unwrap();
        first.advance(LEASE * 2);
        second.advance(LEASE * 2);
        let held = "SELECT ordinal FROM work_item WHERE state = 3";
        let (finish, reclaim) = (first.finish(&item, done(vec![])), second.claim(1));
        let (finished, claimed) = if finish_first {
            in_line(&first, held, finish, reclaim).await
        } else {
            let (claimed, finished) = in_line(&first, held, reclaim, finish).await;
            (finished, claimed)
        };
        match finished {
            Finished::Applied => {
                assert!(!ids(&claimed).contains(&head));
                assert_ne!(first.state(next).await, WorkState::Blocked);
            }
            Finished::Continued(_) => panic!("nobody asked for a successor"),
            Finished::LeaseLost => {
                assert_eq!(ids(&claimed), [head]);
                assert_eq!(first.state(next).await, WorkState::Blocked);
            }
        }
        first.assert_counted().await;
    }
}

// CLM-1: a row has one owner, also where two claims carry the same token.
#[tokio::test]
async fn two_claims_with_one_token_meet_over_a_row() {
    let (first, second) = two().await;
    first.deliver("d-1", None).await;
    let lease = first.request(1).lease;
    let held = "SELECT ordinal FROM work_item";
    let [one, other] = [&first, &second].map(|runtime| ClaimRequest { lease, ..runtime.request(1) });
    let (won, lost) = in_line(&first, held, first.store.claim(one), second.store.claim(other)).await;
    assert_eq!((won.unwrap().len(), lost.unwrap().len()), (1, 0));
    first.assert_counted().await;
}

// CLM-1: one who took some rows does not own others with them that carry its token.
#[tokio::test]
async fn a_claim_that_reads_back_more_than_it_took_takes_nothing() {
    let (first, second) = two().await;
    for key in ["d-1", "d-2"] {
        first.deliver(key, None).await;
    }
    let lease = first.request(1).lease;
    let held = "SELECT ordinal FROM work_item";
    let both = ClaimRequest { lease, ..second.request(2) };
    let one = ClaimRequest { lease, ..first.request(1) };
    let (won, lost) = in_line(&first, held, first.store.claim(one), second.store.claim(both)).await;
    assert_eq!(won.unwrap().len(), 1);
    assert!(lost.is_err(), "{lost:?}");
    let stats = first.store.stats().await.unwrap().work_items;
    assert_eq!((stats[&WorkState::Processing], stats[&WorkState::Ready]), (1, 1));
    first.assert_counted().await;
    assert_eq!(second.claim(2).await.len(), 1, "with a token of its own");
}

// CLM-3: of two that find a lane empty, one is its head.
#[tokio::test]
async fn two_enqueues_meet_over_an_empty_lane() {
    let (first, second) = two().await;
    first.deliver("d-0", Some("repo")).await;
    first.end_next(done(vec![])).await;
    let deliver = |runtime: &Fixture, key: &str| {
        let delivery = runtime.delivery(vec![runtime.event(key, Some("repo"), key)]);
        let store = runtime.store.clone();
        async move { store.enqueue(delivery).await.unwrap() }
    };
    in_line(&first, "SELECT id FROM lane", deliver(&first, "d-1"), deliver(&second, "d-2")).await;
    let claimed = first.claim(10).await;
    assert_eq!(claimed.len(), 1);
    first.finish(&claimed[0], done(vec![])).await;
    assert_eq!(first.claim(10).await.len(), 1);
    first.assert_counted().await;
}

/// A delivery of one event that is a generation of its source's projection, and its work item.
fn generation(fixture: &Fixture, key: &str) -> (WorkItemId, Delivery) {
    let event = fixture.event(key, Some("repo"), key);
    let id = event.work_item_id;
    let delivery = fixture.delivery(vec![event]);
    let (route, ordering) = ("projected".parse().unwrap(), Ordering::None);
    (id, Delivery { route, ordering, coalescing: Coalescing::SourceProjection, ..delivery })
}

async fn projection(fixture: &Fixture, id: WorkItemId) -> ProjectionPart {
    fixture.store.work_item(id).await.unwrap().unwrap().projection.unwrap()
}

// COA-3: "somebody is active, queue behind" and "nobody is queued, the projection is idle".
#[tokio::test]
async fn a_generation_comes_while_the_active_one_ends() {
    for enqueue_first in [true, false] {
        for queued_before in [true, false] {
            let (first, second) = two().await;
            let (active, delivery) = generation(&first, "d-1");
            first.store.enqueue(delivery).await.unwrap();
            let item = first.claim(1).await.pop().unwrap();
            let mut queued = None;
            if queued_before {
                let (id, delivery) = generation(&first, "d-2");
                first.store.enqueue(delivery).await.unwrap();
                queued = Some(id);
            }
            let (last, delivery) = generation(&second, "d-3");
            let (enqueue, finish) = (second.store.enqueue(delivery), first.finish(&item, done(vec![])));
            let held = "SELECT id FROM lane";
            let finished = if enqueue_first {
                in_line(&first, held, enqueue, finish).await.1
            } else {
                in_line(&first, held, finish, enqueue).await.0
            };
            assert_eq!(finished, Finished::Applied);
            assert_eq!(projection(&first, active).await, ProjectionPart::Ended);
            let case = format!("enqueue first: {enqueue_first}, queued before: {queued_before}");
            let mut order = first.drain().await;
            assert_eq!(order.pop(), Some(last), "{case}");
            // What was queued is superseded if the last one came before it was activated, and runs otherwise.
            let ran = Vec::from_iter(queued.filter(|_| !enqueue_first));
            assert_eq!(order, ran, "{case}");
            assert_eq!(conflicts(&first, &second), 0, "{case}: each waited for its turn");
            first.assert_counted().await;
        }
    }
}

// COA-3: who waits for the line too long comes behind those who wait there by then. What was queued is the active one
// when it comes, and is not superseded.
#[tokio::test]
async fn a_generation_that_waited_too_long_comes_behind_the_end() {
    let (first, second) = two_with(Duration::from_secs(1)).await;
    let (active, delivery) = generation(&first, "d-1");
    first.store.enqueue(delivery).await.unwrap();
    let item = first.claim(1).await.pop().unwrap();
    let (queued, delivery) = generation(&first, "d-2");
    first.store.enqueue(delivery).await.unwrap();
    let (last, delivery) = generation(&second, "d-3");
    let mut holder = Tampering::with(&first).await;
    hold(&mut holder, "SELECT id FROM lane").await;
    let both = join(second.store.enqueue(delivery), first.finish(&item, done(vec![])));
    let given_up_twice = async {
        // Whenever the first time was, the end stands in line by the second.
        while second.store.attempts_and_conflicts().1 < 2 {
            crate::env::sleep(TRX_CACHE).await;
        }
        holder.let_go().await;
    };
    let ((stored, finished), ()) = join(both, given_up_twice).await;
    assert!(matches!(stored, Ok(Enqueued::Stored { .. })), "{stored:?}");
    assert_eq!(finished, Finished::Applied);
    assert_eq!(projection(&first, active).await, ProjectionPart::Ended);
    assert_eq!(first.drain().await, [queued, last]);
    first.assert_counted().await;
}

// MAT-2: what admits a delivery is held while it is stored. An activation that is under way is waited for, and so is
// one who takes a namespace away.
#[tokio::test]
async fn a_delivery_waits_for_whoever_has_its_pack_or_its_namespace() {
    let (first, second) = two().await;
    for (held, key) in [("SELECT name FROM pack", "d-1"), ("SELECT name FROM namespace", "d-2")] {
        let delivery = second.delivery(vec![second.event(key, None, key)]);
        let (answer, _) = waits_for(&first, held, second.store.enqueue(delivery)).await;
        assert!(matches!(answer, Ok(Enqueued::Stored { .. })), "{held}: {answer:?}");
    }
}

// MAT-2: and an activation waits for the deliveries that are being stored, which hold their pack's row.
#[tokio::test]
async fn an_activation_waits_for_a_delivery_that_is_being_stored() {
    let (first, second) = two().await;
    first.deliver("d-1", Some("repo")).await;
    // The delivery has its pack, and waits for its lane.
    let mut holder = Tampering::with(&first).await;
    hold(&mut holder, "SELECT id FROM lane").await;
    let delivery = first.delivery(vec![first.event("d-2", Some("repo"), "d-2")]);
    let mut enqueue = pin!(first.store.enqueue(delivery));
    let mut watcher = Tampering::with(&first).await;
    let mut waiting = async |count: i64| {
        loop {
            let _alone = LOOKING.lock().await;
            crate::env::sleep(TRX_CACHE).await;
            if watcher.count(WAITING).await == count {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        _ = &mut enqueue => panic!("it has to wait"),
        () = waiting(1) => {}
    }
    let name = pack();
    let mut activate = pin!(second.store.activate(&name, None, None, second.now()));
    tokio::select! {
        biased;
        _ = join(&mut enqueue, &mut activate) => panic!("both have to wait"),
        () = waiting(2) => {}
    }
    holder.let_go().await;
    let (stored, activated) = join(enqueue, activate).await;
    assert!(matches!(stored, Ok(Enqueued::Stored { .. })), "{stored:?}");
    assert!(matches!(activated, Ok(Activated::Activated { .. })), "{activated:?}");
}

// MAT-7: deliveries see one snapshot, whatever else the store does.
#[tokio::test]
async fn deliveries_keep_the_engines_isolation() {
    let (first, second) = two().await;
    first.deliver("d-1", Some("repo")).await;
    let delivery = second.delivery(vec![second.event("d-2", Some("repo"), "d-2")]);
    let (stored, isolation) = waits_for(&first, "SELECT id FROM lane", second.store.enqueue(delivery)).await;
    assert!(stored.is_ok(), "{stored:?}");
    assert_eq!(isolation, "REPEATABLE READ");
    let (claimed, isolation) = waits_for(&first, "SELECT ordinal FROM work_item", second.claim(1)).await;
    assert_eq!((claimed.len(), isolation.as_str()), (1, "READ COMMITTED"));
}

// COA-3: of two that come at once, one is active and one is queued; of two behind an active one, the later is.
#[tokio::test]
async fn two_generations_come_at_once() {
    for idle in [true, false] {
        let (first, second) = two().await;
        let (earlier, delivery) = generation(&first, "d-0");
        first.store.enqueue(delivery).await.unwrap();
        let item = first.claim(1).await.pop().unwrap();
        if idle {
            first.finish(&item, done(vec![])).await;
        }
        let ((one, left), (other, right)) = (generation(&first, "d-1"), generation(&second, "d-2"));
        let enqueues = (first.store.enqueue(left), second.store.enqueue(right));
        let stored = in_line(&first, "SELECT id FROM lane", enqueues.0, enqueues.1).await;
        assert!(stored.0.is_ok() && stored.1.is_ok(), "{stored:?}");
        if idle {
            assert_eq!(projection(&first, one).await, ProjectionPart::Active);
            assert_eq!(projection(&first, other).await, ProjectionPart::Queued);
            assert_eq!(first.drain().await, [one, other]);
        } else {
            assert_eq!(projection(&first, one).await, ProjectionPart::Ended, "superseded");
            first.finish(&item, done(vec![])).await;
            assert_eq!(first.drain().await, [other]);
        }
        assert_eq!(projection(&first, earlier).await, ProjectionPart::Ended);
        first.assert_counted().await;
    }
}

// CLM-8, RPL-1: a dead head is let go of once, and its replay comes behind those who waited for it.
#[tokio::test]
async fn a_skip_and_a_replay_meet_over_a_dead_head() {
    for skip_first in [true, false] {
        let (first, second) = two().await;
        let head = first.deliver_strictly("strict", "d-1", Some("repo")).await;
        let next = first.deliver_strictly("strict", "d-2", Some("repo")).await;
        first.end_next(Disposition::Dead { failure: failure(), leaves_lane: false }).await;
        let held = "SELECT ordinal FROM work_item WHERE state = 5";
        let (skip, replay) = (first.store.skip_dead(head), second.replay_first(head));
        let child = if skip_first {
            in_line(&first, held, skip, replay).await.1
        } else {
            in_line(&first, held, replay, skip).await.0
        };
        assert_eq!(ids(&first.claim(10).await), [next]);
        assert_eq!(first.state(child).await, WorkState::Blocked);
        first.assert_counted().await;
    }
}
