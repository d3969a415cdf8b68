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
    assert_eq!(store.beat(second, LEASE, START).await.unwrap(), [second]);
    assert_eq!(store.beat(first, LEASE, START).await.unwrap(), [first, second]);
    assert_eq!(store.beat(third, LEASE, START + LEASE / 2).await.unwrap(), [first, second, third]);

    store.leave(first, START + LEASE / 2).await.unwrap();
    assert_eq!(store.beat(third, LEASE, START + LEASE / 2).await.unwrap(), [second, third]);
    // The second one has been silent for as long as its word counts.
    assert_eq!(store.beat(third, LEASE, START + LEASE).await.unwrap(), [third]);
    // It was not dead, as it turns out.
    assert_eq!(store.beat(second, LEASE, START + LEASE).await.unwrap(), [second, third]);
    // Who is silent for long is forgotten, and may come again all the same.
    let later = START + LEASE * 100;
    assert_eq!(store.beat(third, LEASE, later).await.unwrap(), [third]);
    assert_eq!(store.beat(second, LEASE, later).await.unwrap(), [second, third]);
}
