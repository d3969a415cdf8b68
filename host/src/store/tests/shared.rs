//! Many runtimes over one database: each row has one owner, conflicts converge, and no clock but the database's counts.

use futures_util::future::join_all;

use super::*;
use crate::model::message::{AfterAttempt, NewMessage};
use crate::model::retention::{DAY, Keep};
use crate::store::engine::dialect::is_conflict;
use crate::store::engine::sequences::Sequences;
use crate::store::engine::values::values;
use crate::store::upkeep::transaction::in_transaction;
use crate::store::work::materialize;
use crate::store::writer::unit::{Terms, Unit};

mod silence;

pub(super) async fn begin(lease_time: LeaseTime) -> Fixture {
    Fixture::with(|options| {
        options.database_url = Some(mariadb::create_database());
        options.lease_time = lease_time;
    })
    .await
}

// CLM-1
#[tokio::test]
async fn two_runtimes_never_own_the_same_row() {
    let first = Arc::new(begin(LeaseTime::Runtime).await);
    let second = Arc::new(first.beside(7).await);
    let events = (0..300).map(|n| first.event(&format!("d-{n}"), None, "body")).collect();
    first.store.enqueue(first.delivery(events)).await.unwrap();
    let claims = (0..40).map(|n| {
        let runtime = if n % 2 == 0 { Arc::clone(&first) } else { Arc::clone(&second) };
        async move { runtime.claim(10).await }
    });
    let mut owned: Vec<WorkItemId> = join_all(claims).await.iter().flat_map(|items| ids(items)).collect();
    while let items = first.claim(CLAIM_ROWS_MAX).await
        && !items.is_empty()
    {
        owned.extend(ids(&items));
    }
    assert_eq!(owned.len(), 300);
    owned.sort_unstable();
    owned.dedup();
    assert_eq!(owned.len(), 300);
    first.store.assert_counted().await;
}

// MAT-3, MAT-4, ADM-5
#[tokio::test]
async fn the_same_deliveries_through_two_runtimes_are_one_event_each() {
    let first = begin(LeaseTime::Runtime).await;
    let second = first.beside(7).await;
    let deliver = |runtime: &Fixture, n: u32| {
        let event = runtime.event(&format!("d-{}", n % 30), Some(&format!("repo-{}", n % 7)), format!("{}", n % 30));
        let delivery = runtime.delivery(vec![event]);
        let store = runtime.store.clone();
        async move { store.enqueue(delivery).await.unwrap() }
    };
    let calls = (0..240).map(|n| deliver(if n % 2 == 0 { &first } else { &second }, n / 2));
    let answers = join_all(calls).await;
    let stored = answers.iter().filter(|answer| matches!(answer, Enqueued::Stored { .. })).count();
    assert_eq!((stored, answers.len()), (30, 240));
    let stats = first.store.stats().await.unwrap();
    first.assert_counted().await;
    assert_eq!(stats.work_items.values().sum::<u64>(), 30);
    assert_eq!(stats.work_items[&WorkState::Ready], 7, "one head a lane");
}

// MAT-3, MAT-5, MAT-6
#[tokio::test]
async fn a_waiter_with_an_old_snapshot_converges_on_what_a_winner_repaired() {
    // At its first attempt it believes what it sees, and finds out; at the next one it asks what is there now.
    for attempts in [&[0, 1][..], &[1]] {
        let winner = begin(LeaseTime::Runtime).await;
        winner.deliver("d-45", Some("repo-0")).await;
        let mut waiter = Tampering::with(&winner).await;
        for table in ["work_item", "lane", "work_item_counter"] {
            waiter.execute(&format!("DELETE FROM {table}")).await;
        }
        // The waiter sees an Event that has no WorkItem, and goes on seeing that.
        let mut connection = waiter.connection();
        connection.begin().await.unwrap();
        let seen: i64 = connection.read_one("SELECT count(*) FROM work_item", values![]).await.unwrap();
        assert_eq!(seen, 0);
        let repaired = winner.delivery(vec![winner.event("d-45", Some("repo-0"), "d-45")]);
        assert!(matches!(winner.store.enqueue(repaired).await.unwrap(), Enqueued::Duplicate { .. }));

        let events =
            (0..89).map(|n| winner.event(&format!("d-{n}"), Some(&format!("repo-{}", n % 5)), format!("d-{n}")));
        let delivery = winner.delivery(events.collect());
        let last = attempts.len() - 1;
        let mut sequences = Sequences::default();
        let mut supply = Tampering::with(&winner).await;
        sequences.stock(&mut supply.connection(), 100).await.unwrap();
        let terms = Terms { shard_count: 2, stripe: 3, database_now: None };
        for attempt in &attempts[..last] {
            let mut unit = Unit::new(connection, sequences.clone(), terms.clone(), *attempt);
            let lost = materialize::apply(&mut unit, vec![delivery.clone()]).await.unwrap_err();
            assert!(is_conflict(&lost), "{lost}");
            connection = unit.connection;
            connection.rollback().await.unwrap();
            connection.begin().await.unwrap();
        }
        let mut unit = Unit::new(connection, sequences, terms, attempts[last]);
        let answers = materialize::apply(&mut unit, vec![delivery]).await.unwrap();
        assert!(matches!(&answers[0], Ok(Enqueued::Stored { events }) if events.len() == 89), "{answers:?}");
        unit.write_counters().await.unwrap();
        unit.connection.commit().await.unwrap();
        assert_eq!(supply.count("SELECT count(*) FROM event").await, 89, "{attempts:?}");
        assert_eq!(supply.count("SELECT count(*) FROM work_item").await, 89, "{attempts:?}");
        winner.store.close().await;
    }
}

// RPL-1
#[tokio::test]
async fn two_runtimes_that_replay_the_same_row_make_one_child() {
    let first = begin(LeaseTime::Runtime).await;
    let second = first.beside(7).await;
    for round in 0..20 {
        let (_, parent) = first.deliver(&format!("d-{round}"), Some("repo")).await;
        let item = first.claim(1).await.pop().unwrap();
        first.finish(&item, Disposition::Dead { failure: failure(), leaves_lane: false }).await;
        let replay = |runtime: &Fixture| {
            let (store, now) = (runtime.store.clone(), runtime.now());
            let child = WorkItemId::new(now, runtime.entropy());
            async move { store.replay(parent, child, now).await.unwrap() }
        };
        let (one, other) = tokio::join!(replay(&first), replay(&second));
        let (Replayed::Replayed(child) | Replayed::Already(child), _) = (one, other) else {
            panic!("{one:?} {other:?}")
        };
        let expected = [Replayed::Replayed(child), Replayed::Already(child)];
        assert!([one, other] == expected || [other, one] == expected, "{one:?} {other:?}");
        let item = second.claim(10).await.pop().unwrap();
        assert_eq!(item.id, child);
        second.finish(&item, done(vec![])).await;
    }
    first.store.assert_counted().await;
    assert_eq!(first.store.stats().await.unwrap().work_items[&WorkState::Done], 20);
}

// RET-5: they meet over the same events and messages, over receipts with events of both, and over deliveries.
#[tokio::test]
async fn two_runtimes_that_remove_at_once_remove_everything_once() {
    const EVENTS: u64 = 240;
    let first = begin(LeaseTime::Runtime).await;
    let second = first.beside(0).await;
    for receipt in 0..EVENTS / 8 {
        let event = |n| first.event(&format!("d-{receipt}-{n}"), None, "body");
        first.store.enqueue(first.delivery((0..8).map(event).collect())).await.unwrap();
    }
    let mut messages = 0;
    while let Some(item) = first.claim(1).await.pop() {
        let message = first.message("sink", first.now());
        messages += 1;
        let id = message.id;
        assert_eq!(first.finish(&item, done(vec![message])).await, Finished::Applied);
        assert_eq!(first.store.cancel(id, first.now()).await.unwrap(), Cancelled::Cancelled);
    }
    first.emit(vec![first.message("sink", first.now())]).await;
    let keep = Keep::of_days(30, 30, None);
    for runtime in [&first, &second] {
        runtime.advance(31 * DAY);
    }
    let clear = async |runtime: &Fixture| {
        let mut removed = Removed::default();
        for shelf in Shelf::ALL {
            let mut from = None;
            loop {
                let retired = runtime.store.retire(shelf, &keep, from, runtime.now()).await.unwrap();
                removed += retired.removed;
                from = retired.next;
                if from.is_none() {
                    break;
                }
            }
        }
        removed
    };
    let deliver = async || {
        for n in 0..40 {
            first.enqueue(vec![first.event(&format!("new-{n}"), None, "body")]).await;
        }
    };
    let (mut one, other, ()) = tokio::join!(clear(&first), clear(&second), deliver());
    one += other;
    // What one held when the other looked may be left.
    one += clear(&first).await;
    one += clear(&second).await;
    assert_eq!(one, Removed { events: EVENTS, work_items: EVENTS, messages });
    let mut tampering = Tampering::with(&first).await;
    for (table, rows) in [("event", 41), ("work_item", 41), ("receipt", 41), ("message", 1), ("message_payload", 1)] {
        assert_eq!(tampering.count(&format!("SELECT count(*) FROM {table}")).await, rows, "{table}");
    }
    tampering.close().await;
    first.store.assert_counted().await;
}

// CLM-5: a lease is measured by the database's clock, whatever the runtimes' own say.
#[tokio::test]
async fn no_skewed_clock_steals_a_lease() {
    let first = begin(LeaseTime::Database).await;
    let (_, id) = first.deliver("d-1", None).await;
    let late = first.beside(-30_000).await;
    let early = first.beside(3_600_000).await;
    let claimed = late.claim(1).await;
    assert_eq!(ids(&claimed), [id]);
    assert_eq!(claimed[0].lease_until, late.now() + LEASE, "the owner is told by its own clock");
    for thief in [&early, &first, &late] {
        assert!(thief.claim(10).await.is_empty());
    }
    let shard = ShardId(0);
    let lease = late.store.acquire_shard(shard, late.runtime(), LEASE, late.now()).await.unwrap().unwrap();
    assert_eq!(lease.until, late.now() + LEASE);
    assert!(early.store.acquire_shard(shard, early.runtime(), LEASE, early.now()).await.unwrap().is_none());
    assert_eq!(late.finish(&claimed[0], done(vec![])).await, Finished::Applied);
}

#[tokio::test]
async fn pages_end_although_runtimes_leave_gaps_between_their_numbers() {
    let first = begin(LeaseTime::Runtime).await;
    let second = first.beside(7).await;
    let (oldest, _) = first.deliver("d-1", None).await;
    let mut tampering = Tampering::with(&first).await;
    tampering.execute("UPDATE sequence SET last = last + 1000000").await;
    tampering.close().await;
    let (newest, _) = second.deliver("d-2", None).await;
    for (route, expected) in [(None, vec![newest, oldest]), (Some("no-such-route".parse().unwrap()), vec![])] {
        let filter = EventFilter { route, ..EventFilter::default() };
        let (mut found, mut after) = (Vec::new(), None);
        for page in 0.. {
            assert!(page < 4, "pages do not end");
            let listed = first.store.list_events(&filter, PageRequest { after, limit: 1 }).await.unwrap();
            found.extend(listed.items.iter().map(|item| item.id));
            after = listed.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected);
    }
}

// RDY-3
#[tokio::test]
async fn a_server_is_examined_while_it_is_used() {
    let runtime = begin(LeaseTime::Runtime).await;
    runtime.deliver("d-1", None).await;
    let url = runtime.options.database_url.as_ref();
    let directory = TempDir::new().unwrap();
    let examined = examine(directory.path(), url, &Env::system()).await.unwrap();
    let Examined::Found(found) = examined else { panic!("{examined:?}") };
    assert_eq!((found.schema.applied.as_slice(), found.contents.shards), (&[][..], 2));
    assert_eq!(found.contents.coverage, CoverageGap::default());
    let server = found.server.unwrap();
    assert!(server.version.contains("MariaDB"), "{server:?}");
    assert_eq!(server.packet_bytes, 64 * 1024 * 1024);
    assert_eq!(server.behaviour, Some(Behaviour { shares_locks: true, ends_idle_transactions: true }));
    assert!(server.clock_ahead_ms.abs() < 1_000, "it is the same machine's: {server:?}");

    let empty = mariadb::create_database();
    let Examined::Found(found) = examine(directory.path(), Some(&empty), &Env::system()).await.unwrap() else {
        panic!()
    };
    assert_eq!((found.schema.from, found.contents.shards, found.server.unwrap().behaviour), (0, 0, None));
    assert!(!found.schema.applied.is_empty());
    let again = examine(directory.path(), Some(&empty), &Env::system()).await.unwrap();
    assert!(matches!(again, Examined::Found(found) if found.schema.from == 0), "looking creates nothing");
}

// RDY-1: what a server lets this host do is a capability, and one that is taken away is a gap.
#[tokio::test]
async fn a_user_who_may_not_write_any_more_is_a_confirmed_gap() {
    let owner = begin(LeaseTime::Runtime).await;
    let url = owner.options.database_url.clone().unwrap();
    let database = url.database();
    let user = format!("'{database}'@'localhost'");
    let mut root = Tampering::with(&owner).await;
    root.execute(&format!("CREATE USER {user}")).await;
    let rights = "SELECT, INSERT, DELETE, CREATE, ALTER, DROP, INDEX";
    root.execute(&format!("GRANT {rights} ON `{database}`.* TO {user}")).await;
    let tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()";
    let tables: Vec<String> = root.connection().read_all(tables, values![]).await.unwrap();
    for table in tables {
        // The rights of tables count from the next statement on, those of databases from the next connection on.
        root.execute(&format!("GRANT UPDATE ON `{database}`.`{table}` TO {user}")).await;
    }
    let directory = TempDir::new().unwrap();
    let (data, database_url) = (directory.path().join("data"), Some(url.for_user(database)));
    let options = StoreOptions { data, database_url, ..owner.options.clone() };
    let store = Store::open(options, env(&owner.clock)).await.unwrap();
    assert_eq!(store.confirm_claims().await.unwrap(), None);
    root.execute(&format!("REVOKE UPDATE ON `{database}`.work_item FROM {user}")).await;
    let gap = store.confirm_claims().await.unwrap().unwrap();
    assert_eq!(gap.kind, GapKind::Capability, "{gap:?}");
    root.execute(&format!("GRANT UPDATE ON `{database}`.work_item TO {user}")).await;
    assert_eq!(store.confirm_claims().await.unwrap(), None);
    store.close().await;
}

// RDY-3, MAT-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_beside_deliveries_of_the_same_events_makes_one_work_item_each() {
    let runtime = Arc::new(begin(LeaseTime::Runtime).await);
    let event =
        |runtime: &Fixture, n: u32| runtime.event(&format!("d-{n}"), Some(&format!("repo-{}", n % 5)), format!("{n}"));
    runtime.enqueue((0..200).map(|n| event(&runtime, n)).collect()).await;
    let mut tampering = Tampering::with(&runtime).await;
    for table in ["work_item", "lane", "work_item_counter"] {
        tampering.execute(&format!("DELETE FROM {table}")).await;
    }
    let again = join_all((0..200).rev().map(|n| {
        let delivery = runtime.delivery(vec![event(&runtime, n)]);
        runtime.store.enqueue(delivery)
    }));
    let env = Env::system();
    let data = runtime.directory.path();
    let repair = repair(data, runtime.options.database_url.as_ref(), &env, &no_rules);
    let (answers, repair) = tokio::join!(again, repair);
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Enqueued::Duplicate { .. }))), "{answers:?}");
    assert_eq!(repair.unwrap().coverage.left, 0);
    runtime.assert_counted().await;
    let stats = runtime.store.stats().await.unwrap();
    assert_eq!((stats.work_items[&WorkState::Ready], stats.work_items[&WorkState::Blocked]), (5, 195));
}

// TL-3
#[tokio::test]
async fn the_database_tells_the_time_where_runtimes_share_it() {
    let alone = Fixture::new().await;
    assert!(!alone.store.keeps_time());
    assert!(alone.store.database_time(&*alone.env.clock).await.is_err());

    let shared = begin(LeaseTime::Database).await;
    assert!(shared.store.keeps_time());
    let system = Env::system();
    let before = system.now();
    let time = shared.store.database_time(&*system.clock).await.unwrap();
    assert!(time.asked <= time.answered);
    // The server runs on this machine, by the same clock.
    assert!(before <= time.now && time.now <= system.now(), "{time:?}");
}

// CLM-3: whoever takes the last numbers of a block finds some for each row's two lanes.
#[tokio::test]
async fn there_are_numbers_for_both_lanes_of_every_row() {
    let fixture = begin(LeaseTime::Runtime).await;
    let mut supply = Tampering::with(&fixture).await;
    let mut sequences = Sequences::default();
    sequences.stock(&mut supply.connection(), 1).await.unwrap();
    // All but eight.
    for _ in 0..16_384 - 8 {
        sequences.lane();
    }
    sequences.stock(&mut supply.connection(), 8).await.unwrap();
    let lanes: std::collections::BTreeSet<i64> = (0..16).map(|_| sequences.lane()).collect();
    assert_eq!(lanes.len(), 16);
}

// TL-3
#[tokio::test]
async fn what_is_due_after_a_while_is_so_by_the_databases_clock_whatever_a_runtimes_own_says() {
    const HOUR: Duration = Duration::from_secs(3_600);
    // Its clock is years behind.
    let runtime = begin(LeaseTime::Database).await;
    let wall = Env::system();
    assert!(runtime.now() + 24 * HOUR < wall.now());
    let is_now = |told: Timestamp, before: Timestamp| assert!(before <= told && told <= wall.now(), "{told:?}");

    let before = wall.now();
    let delayed = NewMessage { due_after: Some(HOUR), ..runtime.message("sink", runtime.now() + HOUR) };
    let at = NewMessage { due_after: None, ..runtime.message("sink", before) };
    let ids = runtime.emit(vec![delayed, at]).await;
    let entry = async |id| runtime.store.message_entries(&[id]).await.unwrap().remove(0);
    let stored = entry(ids[0]).await;
    is_now(stored.due_at - HOUR, before);
    assert_eq!((stored.eligible_at, entry(ids[1]).await.due_at), (stored.due_at, before));

    let before = wall.now();
    runtime.store.delay(ids[0], 2 * HOUR, runtime.now()).await.unwrap();
    is_now(entry(ids[0]).await.due_at - 2 * HOUR, before);

    for (after, message) in [(AfterAttempt::Uncertain, ids[0]), (AfterAttempt::Dead, ids[1])] {
        let generation = entry(message).await.generation;
        let mut admitted = 0;
        for shard in [ShardId(0), ShardId(1)] {
            let owner = runtime.runtime();
            let lease = runtime.store.acquire_shard(shard, owner, LEASE, runtime.now()).await.unwrap().unwrap();
            let request = vec![AdmissionRequest { id: message, generation }];
            if let [Admission::Admitted { attempt }] = runtime.store.admit(lease, request, before).await.unwrap()[..] {
                let (uncertain, spared, status, error) = (false, false, None, None);
                let outcome =
                    OutcomeRecord { id: message, generation, attempt, after, uncertain, spared, status, error };
                assert_eq!(runtime.store.record_outcomes(lease, vec![outcome], before).await.unwrap(), [true]);
                admitted += 1;
            }
            runtime.store.release_shard(lease).await.unwrap();
        }
        assert_eq!(admitted, 1, "in its own shard");
    }
    let before = wall.now();
    runtime.store.resolve(ids[0], Resolution::Retry, runtime.now()).await.unwrap();
    is_now(entry(ids[0]).await.eligible_at, before);
    runtime.store.redrive(vec![ids[1]], runtime.now()).await.unwrap();
    is_now(entry(ids[1]).await.eligible_at, before);
}

#[tokio::test]
async fn a_repair_that_loses_is_done_again_and_what_it_wrote_is_undone() {
    let fixture = begin(LeaseTime::Runtime).await;
    let mut repairer = Tampering::with(&fixture).await;
    let write = "INSERT INTO namespace (name, created_at) VALUES ('repaired', 0)";
    // What the server says of a deadlock.
    let lose = "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'";
    let mut attempts = 0;
    let mut sequences = Sequences::default();
    let repair = async |unit: &mut Unit<'_>| {
        attempts += 1;
        unit.connection.run(write).await?;
        if attempts < 3 { unit.connection.run(lose).await } else { Ok(()) }
    };
    in_transaction(&mut repairer.connection(), &mut sequences, repair).await.unwrap();
    assert_eq!(attempts, 3);
    assert_eq!(repairer.count("SELECT count(*) FROM namespace WHERE name = 'repaired'").await, 1);

    let always = async |unit: &mut Unit<'_>| unit.connection.run(lose).await;
    let lost = in_transaction(&mut repairer.connection(), &mut sequences, always).await.unwrap_err();
    assert!(matches!(lost, StoreError::Unavailable(_)), "{lost}");
}
