//! Runtimes that say that they are there.

use super::*;

// TL-7
#[tokio::test]
async fn runtimes_learn_of_each_other_until_they_leave_or_are_silent() {
    let fixture = start().await;
    let store = &fixture.store;
    let mut runtimes = [fixture.runtime(), fixture.runtime(), fixture.runtime()];
    runtimes.sort_unstable();
    let [first, second, third] = runtimes;
    assert_eq!(store.beat(second, LEASE, START).await.unwrap().live, [second]);
    assert_eq!(store.beat(first, LEASE, START).await.unwrap().live, [first, second]);
    assert_eq!(store.beat(third, LEASE, START + LEASE / 2).await.unwrap().live, [first, second, third]);

    store.leave(first, START + LEASE / 2).await.unwrap();
    assert_eq!(store.beat(third, LEASE, START + LEASE / 2).await.unwrap().live, [second, third]);
    // The second one has been silent for as long as its word counts.
    assert_eq!(store.beat(third, LEASE, START + LEASE).await.unwrap().live, [third]);
    // It was not dead, as it turns out.
    assert_eq!(store.beat(second, LEASE, START + LEASE).await.unwrap().live, [second, third]);
    // Who is silent for long is forgotten, and may come again all the same.
    let later = START + LEASE * 100;
    assert_eq!(store.beat(third, LEASE, later).await.unwrap().live, [third]);
    assert_eq!(store.beat(second, LEASE, later).await.unwrap().live, [second, third]);
}

// TL-7
#[tokio::test]
async fn a_runtime_that_withdraws_from_a_shard_is_told_of_until_that_is_over() {
    let fixture = start().await;
    let store = &fixture.store;
    let [first, second] = [fixture.runtime(), fixture.runtime()];
    let shard = ShardId(1);
    store.withdraw(shard, first, LEASE, "the disk is broken".to_owned(), START).await.unwrap();
    assert_eq!(store.beat(second, LEASE, START).await.unwrap().withdrawn, [(shard, first)]);
    let [withdrawal] = store.withdrawals().await.unwrap().try_into().unwrap();
    assert_eq!((withdrawal.shard, withdrawal.runtime, withdrawal.until), (shard, first, START + LEASE));
    assert_eq!(withdrawal.reason, "the disk is broken");
    // Again, for longer.
    store.withdraw(shard, first, LEASE * 2, "still".to_owned(), START).await.unwrap();
    assert_eq!(store.beat(second, LEASE, START + LEASE).await.unwrap().withdrawn, [(shard, first)]);
    assert_eq!(store.beat(second, LEASE, START + LEASE * 2).await.unwrap().withdrawn, []);
    assert_eq!(store.withdrawals().await.unwrap(), []);
}
