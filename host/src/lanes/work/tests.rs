use rand::rngs::{StdRng, SysRng};
use rand::{RngExt, SeedableRng, TryRng};

use super::*;

const fn share(weight: u32, turn_max: usize) -> WorkShare {
    WorkShare { weight, queue_max: 1_000, turn_max, reserve: 100 }
}

fn plan(shares: [WorkShare; 6]) -> WorkPlan {
    WorkPlan::new(shares, 5_000).unwrap()
}

fn refused(adjust: impl FnOnce(&mut [WorkShare; 6])) -> String {
    let mut shares = [share(1, 64); 6];
    adjust(&mut shares);
    WorkPlan::new(shares, 600).unwrap_err().to_string()
}

// WRK-3
#[test]
fn a_plan_that_starves_a_class_or_sells_more_than_there_is_is_refused() {
    assert_eq!(refused(|shares| shares[0].weight = 0), "work class outcome_and_control is starved: its weight is 0");
    assert_eq!(refused(|shares| shares[1].turn_max = 0), "work class source_apply is starved: its turn is 0");
    assert_eq!(refused(|shares| shares[2].queue_max = 0), "work class expiry is starved: its queue is 0");
    assert_eq!(refused(|shares| shares[3].reserve = 0), "work class due_scheduler is starved: its reserve is 0");
    assert_eq!(
        refused(|shares| shares[0].queue_max = 99),
        "work class outcome_and_control has a reserve of 100 records and a queue of 99"
    );
    assert_eq!(
        refused(|shares| shares[3].reserve = 101),
        "the reserves of the work classes are 601 records together, and a shard may hold 600"
    );
    let mut shares = [share(1, 64); 6];
    shares[WorkClass::Query as usize].reserve = 0;
    shares[WorkClass::Checkpoint as usize].reserve = 0;
    assert!(WorkPlan::new(shares, 400).is_ok(), "questions and checkpoints have none");
}

// WRK-1, WRK-2
#[test]
fn whoever_has_work_is_given_a_turn_within_its_bound() {
    let seed = SysRng.try_next_u64().unwrap();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..1_000 {
        let plan = plan(std::array::from_fn(|_| share(random.random_range(1..8), random.random_range(1..600))));
        let mut round = WorkRound::new(plan);
        let mut work = [false; 6];
        let mut waited: [Option<u64>; 6] = [None; 6];
        for _ in 0..400 {
            for class in WorkClass::ALL {
                // Ordinary scheduling always has work.
                let has_work = class == WorkClass::DueScheduler || random.random_bool(0.6);
                if has_work && !work[class as usize] && round.credit[class as usize] >= 0 {
                    waited[class as usize] = Some(0);
                }
                work[class as usize] |= has_work;
            }
            let class = round.next(|class| work[class as usize]).unwrap();
            let done = random.random_range(1..=plan.share(class).turn_max);
            round.did(class, done);
            for other in WorkClass::ALL.into_iter().filter(|other| *other != class) {
                let Some(records) = &mut waited[other as usize] else { continue };
                *records += done as u64;
                assert!(*records <= plan.bound(other), "{other:?} waited for {records} of {}", plan.bound(other));
            }
            waited[class as usize] = None;
            work[class as usize] = class == WorkClass::DueScheduler || random.random_bool(0.5);
        }
    }
}

// WRK-1
#[test]
fn classes_that_always_have_work_share_by_weight() {
    let weights = [4, 2, 1, 2, 1, 1];
    let plan = plan(weights.map(|weight| share(weight, 100)));
    let mut round = WorkRound::new(plan);
    let mut done = [0_usize; 6];
    for turn in 0..100_000 {
        let class = round.next(|_| true).unwrap();
        let records = 1 + turn * 7 % 100;
        round.did(class, records);
        done[class as usize] += records;
    }
    for (records, weight) in done.into_iter().zip(weights) {
        let share = records as f64 / f64::from(weight);
        let first = done[0] as f64 / f64::from(weights[0]);
        assert!((share / first - 1.0).abs() < 0.01, "{done:?}");
    }
}

// WRK-1
#[test]
fn a_class_without_work_gathers_no_credit() {
    let mut round = WorkRound::new(plan([share(1, 64); 6]));
    for _ in 0..1_000 {
        assert_eq!(round.next(|class| class == WorkClass::DueScheduler), Some(WorkClass::DueScheduler));
        round.did(WorkClass::DueScheduler, 64);
    }
    assert_eq!(round.credit[WorkClass::SourceApply as usize], 0);
    assert_eq!(round.next(|_| false), None);
}
