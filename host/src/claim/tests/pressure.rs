//! What presses on the host, and what the scheduler makes of it.

use super::*;
use crate::claim::{HostPressure, Level};

fn with(adjust: impl FnOnce(&mut HostPressure)) -> HostPressure {
    let mut host = HostPressure::default();
    adjust(&mut host);
    host
}

// PRS-3
#[tokio::test]
async fn what_is_tight_makes_batches_small_and_what_is_exhausted_leaves_the_queue_alone() {
    let harness = Harness::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    harness.load(move |_, _| Step::Wait(Arc::clone(&waiting)));
    harness.enqueue(["event"; 40]).await;
    let executors = harness.executors(16);
    let handle = SchedulerHandle::default();
    let mut scheduler = scheduler_behind(&handle, &harness, &executors, patient());
    for (host, denial) in [
        (with(|host| host.memory = Level::Exhausted), Denial::Memory),
        (with(|host| host.disk = Level::Exhausted), Denial::Disk),
    ] {
        handle.measured(host);
        assert_eq!(scheduler.tick(harness.now()).await, Tick::Denied(denial));
    }
    assert_eq!(executors.vitals().claims(), 0, "the queue was not touched");
    handle.measured(with(|host| host.pool = Level::Exhausted));
    let stale_only = Tick::StaleOnly { rows: 0, reason: StaleOnlyReason::Pool };
    assert_eq!(scheduler.tick(harness.now()).await, stale_only);
    handle.measured(with(|host| host.pool = Level::Tight));
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Full { rows: 4 });
    handle.measured(HostPressure::default());
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Full { rows: 12 });
    gate.add_permits(16);
    executors.idle().await;
}

// PRS-3
#[tokio::test]
async fn no_more_is_claimed_than_guests_could_take_up() {
    let harness = Harness::new().await;
    harness.load(|_, _| succeed());
    harness.enqueue(["event"; 20]).await;
    let executors = harness.executors(8);
    let options = patient();
    let calls = options.calls_waiting.clone();
    let mut scheduler = scheduler(&harness, &executors, options);
    let mut waiting: Vec<_> = (0..8).map(|_| calls.enter()).collect();
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Denied(Denial::Guests));
    waiting.truncate(5);
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Full { rows: 3 });
    executors.idle().await;
    drop(waiting);
    assert_eq!(scheduler.tick(harness.now()).await, Tick::Full { rows: 8 });
    executors.idle().await;
}

// PRS-3: a scheduler that something pressed on goes on when it is told that it does so no more.
#[tokio::test]
async fn relief_is_told() {
    let harness = Harness::new().await;
    let mut starts = harness.load(|_, _| succeed());
    let executors = harness.executors(2);
    let handle = SchedulerHandle::default();
    handle.measured(with(|host| host.disk = Level::Exhausted));
    let stop = CancellationToken::new();
    let scheduler = scheduler_behind(&handle, &harness, &executors, patient());
    let running = env::spawn("claim scheduler", scheduler.run(stop.clone()));
    harness.enqueue(["event"]).await;
    tokio::task::yield_now().await;
    assert_eq!(executors.vitals().claims(), 0);
    handle.measured(HostPressure::default());
    starts.recv().await.unwrap();
    stop.cancel();
    running.await.unwrap();
}
