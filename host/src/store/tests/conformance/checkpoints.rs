//! Which checkpoints of a shard count, who says so, and what is told of attempts of which nobody knows what they did.

use super::publishing::{acquire, admit, record, scheduled};
use super::*;
use crate::model::message::AfterAttempt;

fn checkpoint(lease: &ShardLease, number: u64) -> CheckpointRow {
    let (shard, epoch) = (lease.shard, lease.epoch);
    CheckpointRow { shard, epoch, number, applied: 70 + number, bytes: 1 << 33, digest: [7; 32], created_at: START }
}

fn names(rows: &[CheckpointRow]) -> Vec<(u64, u64)> {
    rows.iter().map(|row| (row.epoch, row.number)).collect()
}

// TL-2, TL-7
#[tokio::test]
async fn the_newest_checkpoints_of_a_shard_count_and_only_its_owner_adds_to_them() {
    let fixture = start().await;
    let store = &fixture.store;
    let (old, other) = (acquire(&fixture, 0).await, acquire(&fixture, 1).await);
    for number in 1..=3 {
        store.keep_checkpoint(old, checkpoint(&old, number), 2).await.unwrap().unwrap();
    }
    assert_eq!(names(&store.checkpoints_of(old.shard).await.unwrap()), [(1, 3), (1, 2)]);
    let again = store.keep_checkpoint(old, checkpoint(&old, 3), 2).await.unwrap().unwrap();
    assert_eq!(names(&again), [(1, 3), (1, 2)], "the same one once more is the same one");
    store.keep_checkpoint(other, checkpoint(&other, 1), 2).await.unwrap().unwrap();

    fixture.advance(LEASE);
    let new = acquire(&fixture, 0).await;
    assert_eq!(store.keep_checkpoint(old, checkpoint(&old, 4), 2).await.unwrap(), None);
    let kept = store.keep_checkpoint(new, checkpoint(&new, 1), 2).await.unwrap().unwrap();
    assert_eq!(names(&kept), [(2, 1), (1, 3)]);
    assert_eq!(kept[0], checkpoint(&new, 1), "it is told as it was recorded");

    assert!(!store.forget_checkpoints(old).await.unwrap());
    assert!(store.forget_checkpoints(new).await.unwrap());
    let left: Vec<ShardId> = store.checkpoints().await.unwrap().iter().map(|row| row.shard).collect();
    assert_eq!(left, [other.shard]);
}

// TL-2
#[tokio::test]
async fn a_store_has_one_identity_and_another_store_another() {
    let (first, second) = (start().await, start().await);
    let identity = first.store.identity().await.unwrap();
    assert_eq!(first.store.identity().await.unwrap(), identity);
    assert_ne!(second.store.identity().await.unwrap(), identity);
}

// TL-6
#[tokio::test]
async fn attempts_of_which_nobody_knows_what_they_did_are_counted_over_all_generations() {
    let fixture = start().await;
    let (id, lease) = scheduled(&fixture).await;
    let count = async || fixture.store.message(id).await.unwrap().unwrap().uncertain_attempts;
    admit(&fixture, lease, id, 1).await;
    record(&fixture, lease, id, 1, AfterAttempt::RetryAt(START)).await;
    assert_eq!(count().await, 0);
    admit(&fixture, lease, id, 1).await;
    record(&fixture, lease, id, 2, AfterAttempt::Uncertain).await;
    assert_eq!(count().await, 1);
    fixture.store.resolve(id, Resolution::Retry, START).await.unwrap();
    admit(&fixture, lease, id, 1).await;
    record(&fixture, lease, id, 3, AfterAttempt::Dead).await;
    fixture.store.redrive(vec![id], START).await.unwrap();
    assert_eq!(count().await, 1, "it is the same message");
}
