//! Owners that have no index of their own: a checkpoint and what followed, or SQL alone.

use std::path::Path;

use super::*;
use crate::model::destination_lane::Gate;
use crate::model::message::AfterAttempt;
use crate::store::{Admission, AdmissionRequest, Cancelled, OutcomeRecord, ShardLease};
use crate::timeline::fuse::{self, Side};

pub(super) const SHARD: ShardId = ShardId(0);
const HOUR: Duration = Duration::from_secs(3_600);

pub(super) fn shard_path(world: &World) -> PathBuf {
    world.shared.directory.path().join("timeline/shard-00000")
}

pub(super) async fn make_checkpoint(running: &Running) -> CheckpointRow {
    match running.timeline.checkpoint(SHARD).await {
        Asked::Made(row) => row,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn view(running: &Running) -> ShardView {
    loop {
        if let Some((view, _)) = running.timeline.look().await.pop() {
            return view;
        }
        // It has just begun again.
        running.until_active().await;
    }
}

/// Messages that are due in an hour, in the index.
async fn indexed(world: &mut World, count: usize) -> Vec<MessageId> {
    let due_at = world.now() + HOUR;
    let ids = world.emit((0..count).map(|_| world.message("ok", due_at)).collect()).await;
    world.barrier().await;
    ids
}

/// Lets the hour pass, and takes what arrives; nothing arrives beside it.
async fn everything_arrives(world: &mut World, running: &Running, mut ids: Vec<MessageId>) {
    running.advance(HOUR);
    ids.sort();
    assert_eq!(world.receiver.next_sorted(ids.len()).await, ids);
    world.barrier().await;
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_without_an_index_goes_on_from_the_newest_checkpoint_and_reads_only_what_followed() {
    let mut world = World::new().await;
    let running = world.start().await;
    let mut ids = indexed(&mut world, 1_000).await;
    let made = make_checkpoint(&running).await;
    assert!(made.applied >= 1_000, "{made:?}");
    // What follows: messages, and one command about a message that is in the checkpoint.
    ids.extend(indexed(&mut world, 20).await);
    let cancelled = ids.swap_remove(7);
    world.store.cancel(cancelled, world.now()).await.unwrap();
    running.stop().await;
    std::fs::remove_dir_all(shard_path(&world)).unwrap();

    let running = world.start().await;
    let view = view(&running).await;
    assert_eq!((view.restored, view.pending), (RestoredFrom::Checkpoint, 1_019));
    assert!(view.rows_read <= 30, "{} rows were read", view.rows_read);
    everything_arrives(&mut world, &running, ids).await;
    assert_eq!(world.entry(cancelled).await.state, MessageState::Cancelled);
    running.stop().await;
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_met_lanes_by_what_had_ended_is_gone_on_with_and_so_is_its_checkpoint() {
    let mut world = World::new().await;
    world.add("keyed", "ok", |destination| destination.ordering = Ordering::Exact);
    let of_key =
        |key: &str, due_at| NewMessage { ordering_key: Some(key.to_owned()), ..world.message("keyed", due_at) };
    let due_at = world.now() + HOUR;
    let running = world.start().await;
    running.stop().await;
    // All of it is in the first page of the feed: keys of which nothing is left, and one of which something is.
    let gone = world.emit(vec![of_key("a", due_at), of_key("b", due_at)]).await;
    for id in gone {
        assert_eq!(world.store.cancel(id, world.now()).await.unwrap(), Cancelled::Cancelled);
    }
    let left = world.emit(vec![of_key("c", due_at)]).await;
    for folder_is_lost in [false, true, false] {
        if folder_is_lost {
            std::fs::remove_dir_all(shard_path(&world)).unwrap();
        }
        let running = world.start().await;
        world.barrier().await;
        let expected = if folder_is_lost { RestoredFrom::Checkpoint } else { RestoredFrom::Here };
        assert_eq!(view(&running).await.restored, expected);
        make_checkpoint(&running).await;
        running.stop().await;
    }
    let running = world.start().await;
    everything_arrives(&mut world, &running, left).await;
    running.stop().await;
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_without_index_and_checkpoint_builds_from_sql_alone() {
    let mut world = World::new().await;
    let running = world.start().await;
    let ids = indexed(&mut world, 1_000).await;
    make_checkpoint(&running).await;
    running.stop().await;
    std::fs::remove_dir_all(shard_path(&world)).unwrap();
    std::fs::remove_dir_all(&world.checkpoints).unwrap();

    let running = world.start().await;
    let view = view(&running).await;
    assert_eq!((view.restored, view.pending), (RestoredFrom::Store, 1_000));
    assert!(view.rows_read >= 1_000, "{} rows were read", view.rows_read);
    everything_arrives(&mut world, &running, ids).await;
    running.stop().await;
}

/// Every file of the newest checkpoint, in the folder that checkpoints are kept in.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn a_torn_checkpoint_is_refused_and_sql_is_used_instead() {
    let mut world = World::new().await;
    let running = world.start().await;
    let ids = indexed(&mut world, 200).await;
    make_checkpoint(&running).await;
    running.stop().await;
    std::fs::remove_dir_all(shard_path(&world)).unwrap();
    for file in files_below(&world.checkpoints).iter().filter(|file| file.extension().is_some_and(|it| it == "file")) {
        let mut bytes = std::fs::read(file).unwrap();
        let middle = bytes.len() / 2;
        if let Some(byte) = bytes.get_mut(middle) {
            *byte ^= 0x10;
        }
        std::fs::write(file, bytes).unwrap();
    }
    let running = world.start().await;
    assert_eq!(view(&running).await.restored, RestoredFrom::Store);
    everything_arrives(&mut world, &running, ids).await;
    running.stop().await;
}

/// What another owner of the shard did, after the checkpoint.
struct Interlude {
    published: MessageId,
    /// Failed, and not to be tried again for an hour.
    retried: MessageId,
    /// In one ordered lane: nobody knows what became of the first.
    line: Vec<MessageId>,
}

/// Messages of all kinds, due in ten seconds, of which the index has been told.
async fn prepare(world: &mut World) -> Interlude {
    let due_at = world.now() + 10 * SECOND;
    let ordered = |world: &World| NewMessage { ordering_key: Some("one".to_owned()), ..world.message("line", due_at) };
    let line = world.emit((0..3).map(|_| ordered(world)).collect()).await;
    let published = world.emit_one("ok", due_at).await;
    let retried = world.emit_one("ok", due_at).await;
    world.barrier().await;
    Interlude { published, retried, line }
}

/// Another owner, on another machine, attempts what is due and dies.
async fn another_owner(world: &World, what: &Interlude) {
    world.clock.advance(2 * LEASE);
    let runtime = world.shared.runtime();
    let lease: ShardLease = world.store.acquire_shard(SHARD, runtime, SECOND, world.now()).await.unwrap().unwrap();
    let ids = [what.published, what.retried, what.line[0]];
    let requests = ids.iter().map(|id| AdmissionRequest { id: *id, generation: 1 }).collect();
    let admissions = world.store.admit(lease, requests, world.now()).await.unwrap();
    assert!(admissions.iter().all(|admission| *admission == Admission::Admitted { attempt: 1 }), "{admissions:?}");
    let afters = [AfterAttempt::Published, AfterAttempt::RetryAt(world.now() + HOUR), AfterAttempt::Uncertain];
    let outcomes = ids.into_iter().zip(afters).map(|(id, after)| OutcomeRecord {
        id,
        generation: 1,
        attempt: 1,
        after,
        uncertain: after == AfterAttempt::Uncertain,
        spared: false,
        status: None,
        error: None,
    });
    let counted = world.store.record_outcomes(lease, outcomes.collect(), world.now()).await.unwrap();
    assert_eq!(counted, [true; 3]);
    world.store.release_shard(lease).await.unwrap();
}

// TL-2, TL-4, LAN-4
#[tokio::test(flavor = "multi_thread")]
async fn outcomes_that_other_owners_recorded_after_the_checkpoint_are_brought_in() {
    let mut world = World::new().await;
    world.add("line", "ok", |destination| destination.ordering = Ordering::Exact);
    let running = world.start().await;
    let what = prepare(&mut world).await;
    let later = indexed(&mut world, 500).await;
    make_checkpoint(&running).await;
    running.stop().await;
    another_owner(&world, &what).await;
    std::fs::remove_dir_all(shard_path(&world)).unwrap();

    let running = world.start().await;
    // The ended one is gone from its line, the others stand where their rows say.
    let is_known = async || {
        let view = view(&running).await;
        assert_eq!(view.restored, RestoredFrom::Checkpoint);
        assert!(view.rows_read <= 20, "{} rows were read", view.rows_read);
        view.pending == 500 + 1 + 3
    };
    until(is_known).await;
    goes_on_after(&mut world, &running, what, later).await;
    running.stop().await;
}

/// The head of the ordered lane holds those behind it, and the retry waits for its time.
async fn goes_on_after(world: &mut World, running: &Running, what: Interlude, later: Vec<MessageId>) {
    world.barrier().await;
    world.store.resolve(what.line[0], crate::model::message::Resolution::Published, world.now()).await.unwrap();
    assert_eq!([world.receiver.next().await, world.receiver.next().await], what.line[1..]);
    let mut rest = later;
    rest.push(what.retried);
    everything_arrives(world, running, rest).await;
    world.until_state(what.retried, MessageState::Published).await;
    assert_eq!(world.entry(what.retried).await.attempt, 2);
    assert_eq!(world.entry(what.published).await.attempt, 1, "it is not sent again");
}

// TL-2, TL-6
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_under_way_at_the_checkpoint_ends_as_its_row_says() {
    let mut world = World::new().await;
    let running = world.start().await;
    let id = world.emit_one("hold", world.now()).await;
    world.receiver.until_held(1).await;
    make_checkpoint(&running).await;
    world.receiver.let_go();
    assert_eq!(world.receiver.next().await, id);
    world.until_state(id, MessageState::Published).await;
    running.stop().await;
    std::fs::remove_dir_all(shard_path(&world)).unwrap();

    let running = world.start().await;
    let view = view(&running).await;
    assert_eq!((view.restored, view.pending, view.in_flight), (RestoredFrom::Checkpoint, 0, 0));
    world.barrier().await;
    assert_eq!(world.entry(id).await.attempt, 1);
    running.stop().await;
}

/// Whether the actor crashed while it went on from a checkpoint.
async fn crash_while_restoring(batches: usize, side: Side) -> bool {
    let mut world = World::new().await;
    world.add("line", "ok", |destination| destination.ordering = Ordering::Exact);
    let running = world.start().await;
    let what = prepare(&mut world).await;
    make_checkpoint(&running).await;
    running.stop().await;
    another_owner(&world, &what).await;
    std::fs::remove_dir_all(shard_path(&world)).unwrap();

    fuse::lay(&shard_path(&world), batches, side);
    let running = world.start_on("timeline", Arc::clone(&world.clock), 16).await;
    let brought_in = async {
        running.until_active().await;
        until(async || view(&running).await.pending == 1 + 3).await;
    };
    tokio::select! {
        () = brought_in => {}
        () = running.timeline.stopped() => {}
    }
    let crashed = !fuse::remove(&shard_path(&world));
    running.stop().await;

    world.clock.advance(2 * LEASE);
    let running = world.start().await;
    world.barrier().await;
    let context = format!("{side:?} batch {batches}");
    assert_eq!(world.entry(what.retried).await.attempt, 1, "{context}: its time has not come");
    assert_eq!(world.entry(what.published).await.attempt, 1, "{context}");
    world.store.resolve(what.line[0], crate::model::message::Resolution::Published, world.now()).await.unwrap();
    assert_eq!([world.receiver.next().await, world.receiver.next().await], what.line[1..], "{context}");
    everything_arrives(&mut world, &running, vec![what.retried]).await;
    running.stop().await;
    crashed
}

// TL-2, TL-6
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_batch_of_a_restoration_loses_nothing() {
    for side in [Side::Before, Side::After] {
        let mut batches = 0;
        while crash_while_restoring(batches, side).await {
            batches += 1;
            assert!(batches < 32, "the restoration ends");
        }
        assert!(batches >= 2, "only {batches} batches were crashed at");
    }
}

// WRK-1
#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_are_made_by_themselves_while_anything_changes() {
    let mut world = World::new().await;
    world.every = Some(60 * SECOND);
    let running = world.start().await;
    indexed(&mut world, 10).await;
    // The outcome of what was sent to see that it is there is in it too.
    let is_settled = async || view(&running).await.in_flight == 0;
    until(is_settled).await;
    assert_eq!(world.store.checkpoints_of(SHARD).await.unwrap(), []);
    let count = async |count: usize| {
        until(async || {
            running.timeline.wake();
            world.store.checkpoints_of(SHARD).await.unwrap().len() == count
        })
        .await;
    };
    running.advance(60 * SECOND);
    count(1).await;
    // Nothing changes: time passes, and there is no further one, which an operator's shows by its number.
    running.advance(60 * SECOND);
    view(&running).await;
    running.advance(60 * SECOND);
    view(&running).await;
    let asked = make_checkpoint(&running).await;
    assert_eq!(asked.number, 2);
    indexed(&mut world, 10).await;
    until(is_settled).await;
    running.advance(60 * SECOND);
    until(async || {
        running.timeline.wake();
        world.store.checkpoints_of(SHARD).await.unwrap()[0].number == 3
    })
    .await;
    assert_eq!(world.store.checkpoints_of(SHARD).await.unwrap().len(), 2, "as many as are kept");
    running.stop().await;
}

// TL-1, TL-2
#[tokio::test(flavor = "multi_thread")]
async fn a_byte_that_is_wrong_anywhere_in_the_index_loses_nothing_and_sends_nothing_early() {
    let mut world = World::new().await;
    let running = world.start().await;
    let ids = indexed(&mut world, 300).await;
    running.stop().await;
    let mut torn = 0;
    for round in 0..12_usize {
        let mut files = files_below(&shard_path(&world));
        files.retain(|file| {
            let name = file.file_name().unwrap().to_str().unwrap();
            name.ends_with(".sst") || name.ends_with(".log") || name.starts_with("MANIFEST") || name == "CURRENT"
        });
        files.retain(|file| std::fs::metadata(file).unwrap().len() > 0);
        let file = &files[round % files.len()];
        let mut bytes = std::fs::read(file).unwrap();
        let at = bytes.len() * (round * 5 % 12) / 12;
        bytes[at] ^= 0x04;
        std::fs::write(file, bytes).unwrap();

        let running = world.start().await;
        let view = view(&running).await;
        assert_eq!(view.pending, 300, "{} at {at}", file.display());
        torn += usize::from(view.restored == RestoredFrom::Store);
        world.barrier().await;
        running.stop().await;
    }
    assert!(torn > 0, "none of the wrong bytes was found");
    let folder = world.shared.directory.path().join("timeline");
    let aside = std::fs::read_dir(folder)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().contains(".torn-"));
    assert!((1..=2).contains(&aside.count()), "what was torn is kept, the newest of it");
    let running = world.start().await;
    running.advance(HOUR);
    // What is wrong in it yet is found now: the shard begins again, and its clock has to be trusted anew.
    let mut arrived = Vec::new();
    until(async || {
        running.advance(SECOND / 10);
        while let Ok((id, _)) = world.receiver.received.try_recv() {
            arrived.push(id);
        }
        arrived.len() >= ids.len()
    })
    .await;
    arrived.sort();
    assert_eq!(arrived, ids);
    running.stop().await;
}

/// A runtime that acquires the shard and dies before it opens an index, or never hears that it has acquired it.
async fn acquire_and_die(world: &World) {
    let runtime = world.shared.runtime();
    let lease = world.store.acquire_shard(SHARD, runtime, SECOND, world.now()).await.unwrap();
    assert!(lease.is_some());
    world.clock.advance(2 * LEASE);
}

// TL-2
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_died_before_it_opened_the_index_costs_nothing() {
    let mut world = World::new().await;
    let running = world.start().await;
    let mut ids = indexed(&mut world, 1_000).await;
    running.stop().await;
    acquire_and_die(&world).await;
    acquire_and_die(&world).await;
    ids.extend(indexed_later(&world, 3).await);

    let running = world.start().await;
    let view = view(&running).await;
    assert_eq!((view.restored, view.pending), (RestoredFrom::Here, 1_003));
    assert!(view.rows_read <= 10, "{} rows were read", view.rows_read);
    everything_arrives(&mut world, &running, ids).await;
    running.stop().await;
}

/// Messages that are due in an hour, and that nobody has read yet.
async fn indexed_later(world: &World, count: usize) -> Vec<MessageId> {
    let due_at = world.now() + HOUR;
    world.emit((0..count).map(|_| world.message("ok", due_at)).collect()).await
}

// TL-2, TL-4, LAN-4
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_comes_back_finds_its_index_and_what_others_recorded_since() {
    let mut world = World::new().await;
    world.add("line", "ok", |destination| destination.ordering = Ordering::Exact);
    let running = world.start().await;
    let what = prepare(&mut world).await;
    let later = indexed(&mut world, 500).await;
    running.stop().await;
    another_owner(&world, &what).await;

    let running = world.start().await;
    let is_known = async || {
        let view = view(&running).await;
        assert_eq!(view.restored, RestoredFrom::Here);
        assert!(view.rows_read <= 20, "{} rows were read", view.rows_read);
        view.pending == 500 + 1 + 3
    };
    until(is_known).await;
    goes_on_after(&mut world, &running, what, later).await;
    running.stop().await;
}

// TL-2, LAN-2
#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_and_paused_is_not_looked_at_before_others_are_served() {
    let mut world = World::new().await;
    world.add("shut", "ok", |_| {});
    world.set_gate("shut", None, Gate::Paused).await;
    let running = world.start().await;
    let paused = world.emit((0..700).map(|_| world.message("shut", world.now())).collect()).await;
    world.barrier().await;
    until(async || view(&running).await.in_flight == 0).await;
    running.stop().await;
    // After a stop in good order there is nothing to look for, and after another owner, what is served.
    for others in [false, true] {
        if others {
            acquire_and_die(&world).await;
        }
        let running = world.start().await;
        world.barrier().await;
        let view = view(&running).await;
        assert_eq!((view.restored, view.pending), (RestoredFrom::Here, 700));
        assert!(view.rows_read <= 20, "{} rows were read", view.rows_read);
        until(async || self::view(&running).await.in_flight == 0).await;
        running.stop().await;
    }
    acquire_and_die(&world).await;
    let running = world.start().await;
    world.set_gate("shut", None, Gate::Open).await;
    let mut paused = paused;
    paused.sort();
    assert_eq!(world.receiver.next_sorted(700).await, paused, "page by page, all of them");
    world.barrier().await;
    running.stop().await;
}
