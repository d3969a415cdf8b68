//! The drain budget, shared by runtimes over one database.

use super::*;

/// More than any budget here.
const SLOTS: u32 = 8;
const BUDGET: u32 = 5;

struct Runtime {
    harness: Harness,
    executors: Executors,
    scheduler: CentralClaimScheduler,
    /// Lets rows end.
    gate: Arc<Semaphore>,
}

impl Runtime {
    fn over(harness: Harness) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let waiting = Arc::clone(&gate);
        harness.load(move |_, _| Step::Wait(Arc::clone(&waiting)));
        let executors = harness.executors(SLOTS);
        let budget = ClaimOptions { max_processing_rows: NonZeroU32::new(BUDGET), ..patient() };
        let scheduler = scheduler(&harness, &executors, budget);
        Self { harness, executors, scheduler, gate }
    }

    async fn pair() -> [Self; 2] {
        let first = Harness::on_server().await;
        let second = first.beside().await;
        [Self::over(first), Self::over(second)]
    }

    async fn tick(&mut self) -> Tick {
        self.scheduler.tick(self.harness.now()).await
    }

    fn rows(&self) -> u32 {
        self.executors.rows_in_work()
    }

    async fn finish_all(&self) {
        self.gate.add_permits(self.rows() as usize);
        self.executors.idle().await;
    }
}

const NOTHING_LEFT: Tick = Tick::Denied(Denial::BudgetShared);

// PRS-2
#[tokio::test]
async fn two_runtimes_share_one_budget_and_together_use_all_of_it() {
    let [mut first, mut second] = Runtime::pair().await;
    first.harness.enqueue(["event"; 3]).await;
    assert_eq!(first.tick().await, Tick::Drained { rows: 3 });
    first.harness.enqueue(["event"; 20]).await;
    // Slots are free on both sides, and take nothing of it.
    assert_eq!(second.tick().await, Tick::Full { rows: BUDGET - 3 });
    assert_eq!((first.tick().await, second.tick().await), (NOTHING_LEFT, NOTHING_LEFT));

    first.finish_all().await;
    assert_eq!(second.tick().await, Tick::Full { rows: 3 }, "what one gives back the other may take, up to all");
    assert_eq!((second.rows(), second.tick().await), (BUDGET, Tick::Denied(Denial::BudgetSpent)));
    assert_eq!(first.tick().await, NOTHING_LEFT);
}

// PRS-2
#[tokio::test]
async fn runtimes_that_count_at_the_same_moment_exceed_the_budget_by_a_batch_at_most() {
    let [mut first, mut second] = Runtime::pair().await;
    first.harness.enqueue(["event"; 100]).await;
    for _ in 0..4 {
        tokio::join!(first.tick(), second.tick());
        let together = first.rows() + second.rows();
        assert!((BUDGET..=2 * BUDGET).contains(&together), "{together} rows");
        assert!(first.rows() <= BUDGET && second.rows() <= BUDGET);
        // Whatever it is, nobody adds to it.
        tokio::join!(first.tick(), second.tick());
        assert_eq!(first.rows() + second.rows(), together);
        tokio::join!(first.finish_all(), second.finish_all());
    }
}

// PRS-2, CLM-5
#[tokio::test]
async fn what_a_dead_runtime_left_is_taken_over_although_it_spends_the_budget() {
    let [mut dead, mut heir] = Runtime::pair().await;
    dead.harness.enqueue(["event"; 20]).await;
    assert_eq!(dead.tick().await, Tick::Full { rows: BUDGET });
    assert_eq!(heir.tick().await, NOTHING_LEFT);
    heir.harness.clock.advance(heir.executors.lease() + Duration::from_secs(1));
    let reason = StaleOnlyReason::BudgetShared;
    assert_eq!(heir.tick().await, Tick::StaleOnly { rows: BUDGET, reason });
    assert_eq!(heir.tick().await, Tick::Denied(Denial::BudgetSpent));
}
