//! Schedulers of runtimes that share a database: nobody tells them of what the others store.

use super::*;

// SCH-3
#[tokio::test]
async fn what_another_runtime_stores_is_found_without_waiting_for_the_poll() {
    let harness = Harness::on_server().await;
    let other = harness.beside().await;
    let mut starts = harness.load(|_, _| succeed());
    let executors = harness.executors(2);
    let scheduler = scheduler(&harness, &executors, patient());
    let stop = CancellationToken::new();
    let running = env::spawn("claim scheduler", scheduler.run(stop.clone()));
    for body in ["a", "b", "c"] {
        // Each finds a scheduler that sleeps, or is about to.
        other.enqueue([body]).await;
        starts.recv().await.unwrap();
        executors.idle().await;
    }
    stop.cancel();
    running.await.unwrap();
}
