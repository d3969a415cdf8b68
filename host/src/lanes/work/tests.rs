use rand::rngs::{StdRng, SysRng};
use rand::{RngExt, SeedableRng, TryRng};

use super::*;

const KIB: usize = 1_024;

const fn share(weight: u32, turn_max: usize) -> WorkShare {
    WorkShare {
        weight,
        queue: Amount::of(1_000, KIB),
        turn: Amount::of(turn_max, KIB),
        turn_time: Duration::from_secs(1),
        reserve: Amount::of(100, KIB),
    }
}

fn plan(shares: [WorkShare; CLASSES]) -> WorkPlan {
    WorkPlan::new(shares, Amount::of(8_000, KIB)).unwrap()
}

fn refused(adjust: impl FnOnce(&mut [WorkShare; CLASSES])) -> String {
    let mut shares = [share(1, 64); CLASSES];
    adjust(&mut shares);
    WorkPlan::new(shares, Amount::of(800, KIB)).unwrap_err().to_string()
}

// WRK-3
#[test]
fn a_plan_that_starves_a_class_or_sells_more_than_there_is_is_refused() {
    let of = |class: WorkClass| class as usize;
    let starved = |class: WorkClass, adjust: fn(&mut WorkShare)| refused(|shares| adjust(&mut shares[of(class)]));
    assert_eq!(
        starved(WorkClass::OutcomeAndControl, |share| share.weight = 0),
        "work class outcome_and_control is starved: its weight is 0"
    );
    assert_eq!(
        starved(WorkClass::SourceApply, |share| share.turn.records = 0),
        "work class source_apply is starved: its turn is 0"
    );
    assert_eq!(
        starved(WorkClass::SourceApply, |share| share.turn.bytes = 0),
        "work class source_apply is starved: its turn is 0"
    );
    assert_eq!(
        starved(WorkClass::Gc, |share| share.turn_time = Duration::ZERO),
        "work class gc is starved: its turn is 0"
    );
    assert_eq!(
        starved(WorkClass::Expiry, |share| share.queue.bytes = 0),
        "work class expiry is starved: its queue is 0"
    );
    assert_eq!(
        starved(WorkClass::LeaseFence, |share| share.reserve.records = 0),
        "work class lease_fence is starved: its reserve is 0"
    );
    assert_eq!(
        starved(WorkClass::OutcomeAndControl, |share| share.queue.records = 99),
        "work class outcome_and_control has a reserve of 100 records and a queue of 99"
    );
    assert_eq!(
        starved(WorkClass::DueScheduler, |share| share.reserve.records += 1),
        "the reserves of the work classes are 801 records together, and a shard may hold 800"
    );
    assert_eq!(
        starved(WorkClass::DueScheduler, |share| share.reserve.bytes += 1),
        "the reserves of the work classes are 819201 bytes together, and a shard may hold 819200",
        "there being room for records makes up for nothing"
    );
    let mut shares = [share(1, 64); CLASSES];
    for class in [WorkClass::Query, WorkClass::Checkpoint] {
        shares[of(class)].reserve = Amount::default();
    }
    assert!(WorkPlan::new(shares, Amount::of(600, KIB)).is_ok(), "questions and checkpoints have none");
}

// WRK-2
#[test]
fn what_is_kept_for_a_class_is_lent_to_nobody_in_any_dimension() {
    // Seven others keep 100 of 1,000 each, and the queue takes all that there is.
    let mut shares = [share(1, 64); CLASSES];
    let due = WorkClass::DueScheduler;
    shares[due as usize].queue = Amount::of(1_000, KIB);
    let whole = Amount { records: 1_000, bytes: 900 * KIB };
    let plan = WorkPlan::new(shares, whole).unwrap();
    let room = |held| plan.room(due, held);
    assert_eq!(room(Amount::default()), Amount { records: 300, bytes: 200 * KIB });
    assert_eq!(room(Amount { records: 299, bytes: 0 }), Amount { records: 1, bytes: 200 * KIB });
    assert_eq!(room(Amount { records: 0, bytes: 200 * KIB }), Amount { records: 300, bytes: 0 });
    assert_eq!(room(Amount { records: 400, bytes: 400 * KIB }), Amount::default());
    // Where its queue is shorter than what there is for it, that counts.
    shares[due as usize].queue = Amount::of(150, KIB);
    let plan = WorkPlan::new(shares, whole).unwrap();
    assert_eq!(plan.room(due, Amount::of(50, KIB)), Amount::of(100, KIB));
    // Whatever it takes, what is kept for the others is there.
    for class in WorkClass::ALL.into_iter().filter(|class| *class != due) {
        assert!(plan.room(class, Amount::default()).records >= plan.share(class).reserve.records, "{class:?}");
    }
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
        let mut work = [false; CLASSES];
        let mut waited: [Option<u64>; CLASSES] = [None; CLASSES];
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
            let done = random.random_range(1..=plan.share(class).turn.records);
            round.did(class, Amount::of(done, KIB));
            for other in WorkClass::ALL.into_iter().filter(|other| *other != class) {
                let Some(records) = &mut waited[other as usize] else { continue };
                *records += done as u64;
                assert!(*records <= plan.bound(other), "{other:?} waited for {records} of {}", plan.bound(other));
                assert!(round.longest_wait(other) >= *records, "and it is seen");
            }
            waited[class as usize] = None;
            work[class as usize] = class == WorkClass::DueScheduler || random.random_bool(0.5);
        }
        for class in WorkClass::ALL {
            assert!(round.longest_wait(class) <= plan.bound(class), "{class:?}");
        }
    }
}

// WRK-1
#[test]
fn the_lease_comes_first_and_pays_for_it() {
    let mut round = WorkRound::new(plan([share(1, 64); CLASSES]));
    let always = |_: WorkClass| true;
    assert_eq!(round.next(always), Some(WorkClass::LeaseFence));
    round.did(WorkClass::LeaseFence, Amount::of(64, KIB));
    assert_ne!(round.next(always), Some(WorkClass::LeaseFence), "it owes what it was given before the others");
    round.did(WorkClass::OutcomeAndControl, Amount::of(64, KIB));
    let mut done = [0; CLASSES];
    for _ in 0..100 * CLASSES {
        let class = round.next(always).unwrap();
        round.did(class, Amount::of(64, KIB));
        done[class as usize] += 1;
    }
    assert!(done.iter().all(|turns| (99..=101).contains(turns)), "first, and no more often than others: {done:?}");
}

// WRK-1
#[test]
fn a_turn_that_does_more_than_it_may_is_told_and_owed_and_stops_nobody() {
    let mut round = WorkRound::new(plan([share(1, 64); CLASSES]));
    let (due, outcomes) = (WorkClass::DueScheduler, WorkClass::OutcomeAndControl);
    let ready = |class: WorkClass| class == due || class == outcomes;
    let mut done = [0_usize; CLASSES];
    let mut turns_of_due = 0;
    for _ in 0..1_000 {
        let class = round.next(ready).unwrap();
        turns_of_due += usize::from(class == due);
        let records = if class == due && turns_of_due % 10 == 0 { 1_000 } else { 64 };
        assert_eq!(round.did(class, Amount::of(records, KIB)), records <= 64);
        done[class as usize] += records;
    }
    assert!(done[due as usize].abs_diff(done[outcomes as usize]) <= 1_000 + 64, "it has no more for it: {done:?}");
    assert!(round.longest_wait(outcomes) > round.plan().bound(outcomes), "and the wait of the others is seen");
    assert!(!round.did(due, Amount::of(usize::MAX, KIB)), "however much that is");
    assert!(round.did(outcomes, Amount { records: 1, bytes: 64 * KIB }));
    assert!(!round.did(outcomes, Amount { records: 1, bytes: 64 * KIB + 1 }), "few records make up for no bytes");
}

// WRK-1
#[test]
fn classes_that_always_have_work_share_by_weight() {
    let weights = [2, 4, 2, 1, 2, 1, 1, 1];
    let plan = plan(weights.map(|weight| share(weight, 100)));
    let mut round = WorkRound::new(plan);
    let mut done = [0_usize; CLASSES];
    for turn in 0..200_000 {
        let class = round.next(|_| true).unwrap();
        let records = 1 + turn * 7 % 100;
        round.did(class, Amount::of(records, KIB));
        done[class as usize] += records;
    }
    for (records, weight) in done.into_iter().zip(weights) {
        let share = records as f64 / f64::from(weight);
        let first = done[1] as f64 / f64::from(weights[1]);
        assert!((share / first - 1.0).abs() < 0.01, "{done:?}");
    }
}

// WRK-1
#[test]
fn a_class_without_work_gathers_no_credit() {
    let mut round = WorkRound::new(plan([share(1, 64); CLASSES]));
    for _ in 0..1_000 {
        assert_eq!(round.next(|class| class == WorkClass::DueScheduler), Some(WorkClass::DueScheduler));
        round.did(WorkClass::DueScheduler, Amount::of(64, KIB));
    }
    assert_eq!(round.credit[WorkClass::SourceApply as usize], 0);
    assert_eq!(round.next(|_| false), None);
}
