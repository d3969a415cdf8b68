//! Generations: installed in chunks, activated under the pack's row, drained to one another.

use super::rollout::large;
use super::*;
use crate::model::generation::GenerationStage;
use crate::model::names::PackName;

const FIRST: GenerationNumber = GenerationNumber(1);
const SECOND: GenerationNumber = GenerationNumber(2);

// GST-6
#[tokio::test]
async fn a_component_of_many_chunks_reads_back_as_it_was() {
    let fixture = start().await;
    for (digest, bytes) in [(2, 0), (3, 1), (4, 1024 * 1024), (5, 5 * 1024 * 1024 + 17)] {
        let component = large(bytes);
        let installed = fixture.stage(digest, component.clone()).await;
        let stored = fixture.store.generation(&pack(), installed.number).await.unwrap().unwrap();
        assert_eq!(stored.component_bytes, u64::from(bytes));
        assert!(fixture.store.component(&stored).await.unwrap() == component, "{bytes}");
    }
}

// GST-6
#[tokio::test]
async fn an_installation_changes_nothing_until_it_is_activated() {
    let fixture = start().await;
    assert_eq!(fixture.stage(2, large(10)).await, Installed { number: SECOND, new: true });
    assert_eq!(fixture.stages().await, [(2, "staged", 0), (1, "active", 0)]);
    assert_eq!(fixture.stage(2, large(10)).await, Installed { number: SECOND, new: false });
    fixture.deliver("d-1", None).await;
    assert_eq!(fixture.activate(SECOND).await, Activated::Activated { previous: Some(FIRST) });
    assert_eq!(fixture.activate(SECOND).await, Activated::Already);
    assert_eq!(fixture.stages().await, [(2, "active", 0), (1, "draining", 1)]);
    // Events admitted under N finish on N.
    let item = fixture.claim_on(FIRST).await.pop().unwrap();
    fixture.finish(&item, done(vec![])).await;
    assert_eq!(fixture.stages().await, [(2, "active", 0), (1, "retired", 0)]);
}

// GST-6
#[tokio::test]
async fn an_activation_names_a_generation_that_is_there_and_what_it_replaces() {
    let fixture = start().await;
    fixture.stage(2, large(10)).await;
    assert_eq!(fixture.activate(GenerationNumber(9)).await, Activated::NotFound);
    let now = fixture.now();
    let unknown: PackName = "unknown".parse().unwrap();
    assert_eq!(fixture.store.activate(&unknown, None, None, now).await.unwrap(), Activated::NotFound);
    let overtaken = fixture.store.activate(&pack(), Some(SECOND), Some(SECOND), now).await.unwrap();
    assert_eq!(overtaken, Activated::Overtaken { active: Some(FIRST) });
    let deactivated = fixture.store.activate(&pack(), None, None, now).await.unwrap();
    assert_eq!(deactivated, Activated::Activated { previous: Some(FIRST) });
    assert!(fixture.store.serving_generations().await.unwrap().is_empty());
    assert_eq!(fixture.activate(FIRST).await, Activated::Activated { previous: None });
}

// MAT-2
#[tokio::test]
async fn activations_and_deliveries_at_once_lose_nothing() {
    let fixture = start().await;
    fixture.stage(2, large(10)).await;
    let deliveries = (0..40).map(|number| {
        let event = fixture.event(&format!("d-{number}"), Some("s"), "body");
        let generation = GenerationNumber(1 + number % 2);
        let delivery = Delivery { generation, ..fixture.delivery(vec![event]) };
        fixture.store.enqueue(delivery)
    });
    let activations = (0..20).map(|number| fixture.activate(GenerationNumber(1 + number % 2)));
    let (stored, activated) =
        tokio::join!(futures_util::future::join_all(deliveries), futures_util::future::join_all(activations));
    assert!(stored.into_iter().all(|answer| matches!(answer, Ok(Enqueued::Stored { .. }))));
    assert!(activated.iter().all(|answer| *answer != Activated::NotFound));
    assert_eq!(fixture.stages().await.iter().map(|(_, _, unfinished)| unfinished).sum::<u64>(), 40);
    fixture.assert_counted().await;
}

// GST-6
#[tokio::test]
async fn work_that_waits_is_moved_and_keeps_its_place() {
    let fixture = start().await;
    let (_, head) = fixture.deliver("a-1", Some("a")).await;
    let (_, next) = fixture.deliver("a-2", Some("a")).await;
    let (_, running) = fixture.deliver("b-1", None).await;
    let claimed = fixture.claim(10).await;
    let released = claimed.iter().find(|item| item.id == head).unwrap();
    fixture.finish(released, Disposition::Release).await;
    fixture.stage(2, large(10)).await;
    fixture.activate(SECOND).await;

    assert_eq!(
        fixture.drain_generation(FIRST, DrainTarget::Generation(SECOND)).await,
        (2, 1),
        "what runs is left alone"
    );
    fixture.assert_counted().await;
    assert_eq!(ids(&fixture.claim_on(FIRST).await), []);
    let moved = fixture.claim_on(SECOND).await;
    assert_eq!(ids(&moved), [head]);
    fixture.finish(&moved[0], done(vec![])).await;
    assert_eq!(ids(&fixture.claim_on(SECOND).await), [next]);
    let running = claimed.into_iter().find(|item| item.id == running).unwrap();
    assert_eq!(fixture.finish(&running, done(vec![])).await, Finished::Applied);
    assert_eq!(fixture.stages().await, [(2, "active", 1), (1, "retired", 0)]);
    fixture.assert_counted().await;
}

// CLM-5, GST-6
#[tokio::test]
async fn work_whose_lease_has_run_out_is_moved_and_fenced() {
    let fixture = start().await;
    fixture.deliver("d-1", None).await;
    let lost = fixture.claim(1).await.pop().unwrap();
    fixture.stage(2, large(10)).await;
    assert_eq!(fixture.drain_generation(FIRST, DrainTarget::Generation(SECOND)).await, (0, 1));
    fixture.advance(LEASE * 2);
    assert_eq!(fixture.drain_generation(FIRST, DrainTarget::Generation(SECOND)).await, (1, 0));
    let again = fixture.claim_on(SECOND).await.pop().unwrap();
    assert!(again.id == lost.id && again.epoch > lost.epoch && again.reclaimed);
    assert_eq!(fixture.finish(&lost, done(vec![])).await, Finished::LeaseLost);
    assert_eq!(fixture.finish(&again, done(vec![])).await, Finished::Applied);
    fixture.assert_counted().await;
}

// CLM-8, GST-6
#[tokio::test]
async fn work_that_ends_as_dead_while_it_waits_in_one_lane_lets_the_other_go_on_too() {
    let fixture = start().await;
    fixture.stage(2, large(10)).await;
    fixture.deliver_strictly("strict", "s-1", Some("a")).await;
    // The head of its source's lane, and behind the first in that of the route.
    fixture.deliver_strictly("strict", "s-2", Some("b")).await;
    let (fresh, delivery) = fixture.strictly("strict", "s-3", Some("b"));
    fixture.store.enqueue(Delivery { generation: SECOND, ..delivery }).await.unwrap();

    assert_eq!(fixture.drain_generation(FIRST, DrainTarget::DeadLetter).await, (2, 0));
    assert_eq!(ids(&fixture.claim_on(SECOND).await), [fresh]);
    fixture.assert_counted().await;
}

// CLM-8, GST-6
#[tokio::test]
async fn work_that_ends_as_dead_lets_its_lanes_go_on_and_can_be_replayed() {
    let fixture = start().await;
    fixture.stage(2, large(10)).await;
    let mut old = Vec::new();
    for key in ["a-1", "a-2", "a-3"] {
        old.push(fixture.deliver(key, Some("a")).await.1);
    }
    let event = fixture.event("a-4", Some("a"), "body");
    let fresh = event.work_item_id;
    let delivery = Delivery { generation: SECOND, ..fixture.delivery(vec![event]) };
    fixture.store.enqueue(delivery).await.unwrap();

    assert_eq!(fixture.drain_generation(FIRST, DrainTarget::DeadLetter).await, (3, 0));
    fixture.assert_counted().await;
    for id in &old {
        let detail = fixture.store.work_item(*id).await.unwrap().unwrap();
        assert_eq!((detail.state, detail.failures), (WorkState::Dead, 0));
        assert!(detail.failure.unwrap().message.contains("drained generation 1"));
    }
    assert_eq!(ids(&fixture.claim_on(SECOND).await), [fresh]);
    fixture.replay_first(old[1]).await;
    fixture.assert_counted().await;
}

// GST-6
#[tokio::test]
async fn chunks_that_no_generation_came_of_are_removed_in_time() {
    let fixture = start().await;
    let orphan =
        crate::store::packs::installing::Chunk { digest: [9; 32], position: 0, bytes: large(10), now: fixture.now() };
    let store = async |chunk| {
        fixture.store.writer.control(|reply| crate::store::writer::Control::StoreChunk(chunk, reply)).await
    };
    store(orphan).await.unwrap();
    let orphans = async || {
        let mut reader = fixture.store.reader().await.unwrap();
        let text = "SELECT count(*) FROM component_chunk WHERE digest = ?";
        reader.connection().read_one::<i64>(text, values![[9_u8; 32]]).await.unwrap()
    };
    fixture.stage(2, large(10)).await;
    assert_eq!(orphans().await, 1, "somebody may still be installing it");
    fixture.advance(Duration::from_secs(2 * 24 * 60 * 60));
    fixture.stage(3, large(11)).await;
    assert_eq!(orphans().await, 0);
    let first = fixture.store.generation(&pack(), FIRST).await.unwrap().unwrap();
    fixture.store.component(&first).await.unwrap();
    assert_eq!(GenerationStage::of(first.active, true, 0), GenerationStage::Active);
}

// CLM-5: a drain takes nothing that a lease holds, to its last millisecond.
#[tokio::test]
async fn a_drain_leaves_a_lease_its_last_millisecond() {
    let fixture = start().await;
    fixture.stage(2, large(10)).await;
    fixture.deliver("d-1", None).await;
    let item = fixture.claim(1).await.pop().unwrap();
    fixture.advance(LEASE);
    assert_eq!(fixture.drain_generation(FIRST, DrainTarget::DeadLetter).await.0, 0);
    fixture.advance(Duration::from_millis(1));
    assert_eq!(fixture.drain_generation(FIRST, DrainTarget::DeadLetter).await, (1, 0));
    assert_eq!(fixture.finish(&item, done(vec![])).await, Finished::LeaseLost);
}

// GST-6, STA-1: work is served, drained and counted anew by its rows, whatever the counters say.
#[tokio::test]
async fn counters_that_are_wrong_keep_no_work_from_being_served() {
    let fixture = start().await;
    fixture.deliver("d-1", None).await;
    fixture.stage(2, large(10)).await;
    let mut tampering = Tampering::with(&fixture).await;
    tampering.execute("UPDATE pack SET active_generation = 2").await;
    tampering.execute("UPDATE work_item_counter SET count = count - 1").await;
    tampering.execute("INSERT INTO message_counter (state, stripe, count) VALUES (7, 3, 5)").await;
    let serving = fixture.store.serving_generations().await.unwrap();
    assert_eq!(serving.iter().map(|serving| serving.number.0).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(fixture.store.miscounts().await.unwrap().len(), 2);

    let found = counters::miscounts(&mut tampering.connection()).await.unwrap();
    let recounted = counters::recount(&mut tampering.connection()).await.unwrap();
    assert_eq!((found.len(), recounted), (2, found));
    fixture.assert_counted().await;
    assert_eq!(counters::recount(&mut tampering.connection()).await.unwrap(), []);

    tampering.execute("UPDATE work_item_counter SET count = count - 1").await;
    assert_eq!(fixture.drain_generation(FIRST, DrainTarget::Generation(SECOND)).await.0, 1);
    assert_eq!(fixture.claim_on(SECOND).await.len(), 1);
    tampering.close().await;
}
