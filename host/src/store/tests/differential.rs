//! The same history on both engines at once: after each step both must show the same.
//!
//! A seed decides the history. Its steps name rows by their places in lists, so that any part of a history is one too:
//! what shows a difference is cut down to the steps that it takes before it is printed.
//!
//! `FOREBAY_DIFFERENTIAL_HISTORIES` and `FOREBAY_DIFFERENTIAL_STEPS` say how many histories of how many steps are
//! tried, and `FOREBAY_DIFFERENTIAL_SEED` with which seed they begin.

mod side;
mod step;

use rand::SeedableRng;
use rand::rngs::StdRng;

use self::side::Side;
use self::step::Step;
use super::*;

/// Between two steps. Which of two rows that come in the same millisecond is first is a matter of chance where several
/// writers store them.
const TICK: Duration = Duration::from_millis(1);
/// How many steps between two looks at everything; what is most often looked at is compared after each.
const LOOK_AT_ALL: usize = 40;
/// How often a shorter history is tried before the shortest that was found is printed.
const SHRINK_TRIES_MAX: usize = 200;

/// Where two engines differ.
#[derive(Debug)]
struct Difference {
    /// After how many steps.
    steps: usize,
    what: String,
}

/// Plays a history on both engines, up to the first difference.
async fn play(history: &[Step]) -> Result<(), Difference> {
    let mut sqlite = Side::begin(Fixture::new().await).await;
    let mut mariadb = Side::begin(Fixture::on_server().await).await;
    let mut result = Ok(());
    for (number, step) in history.iter().enumerate() {
        let (left, right) = (sqlite.apply(step).await, mariadb.apply(step).await);
        result = same(number, "the outcome", &left, &right);
        if result.is_ok() {
            let all = number % LOOK_AT_ALL == LOOK_AT_ALL - 1 || number + 1 == history.len();
            let (left, right) = (sqlite.view(all).await, mariadb.view(all).await);
            assert_eq!(left.len(), right.len());
            let mut views = left.iter().zip(&right);
            result = views.try_for_each(|((what, left), (_, right))| same(number, what, left, right));
        }
        if result.is_err() {
            break;
        }
        sqlite.fixture.advance(TICK);
        mariadb.fixture.advance(TICK);
    }
    for side in [sqlite, mariadb] {
        side.fixture.assert_counted().await;
        side.fixture.store.close().await;
    }
    result
}

fn same(number: usize, what: &str, left: &str, right: &str) -> Result<(), Difference> {
    if left == right {
        return Ok(());
    }
    Err(Difference { steps: number + 1, what: format!("{what}:\n  SQLite:  {left}\n  MariaDB: {right}") })
}

/// The fewest steps that were found to show a difference, and that difference.
async fn shrink(mut history: Vec<Step>, mut difference: Difference) -> (Vec<Step>, Difference) {
    history.truncate(difference.steps);
    let (mut tries, mut part) = (0, history.len() / 2);
    while part > 0 {
        let mut first = 0;
        while first < history.len() && tries < SHRINK_TRIES_MAX {
            let mut shorter = history.clone();
            shorter.drain(first..(first + part).min(history.len()));
            tries += 1;
            match play(&shorter).await {
                Ok(()) => first += part,
                Err(found) => {
                    shorter.truncate(found.steps);
                    (history, difference) = (shorter, found);
                }
            }
        }
        part /= 2;
    }
    (history, difference)
}

fn number_from_environment(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}"))
}

// ADM-5, MAT-1, CLM-1, CLM-3, CLM-5, CLM-7, CLM-8, COA-1, RPL-1, STA-1, RET-2, RET-3: on one engine as on the other.
#[tokio::test]
async fn both_engines_show_the_same_after_every_step() {
    let histories = number_from_environment("FOREBAY_DIFFERENTIAL_HISTORIES", 2);
    let steps = number_from_environment("FOREBAY_DIFFERENTIAL_STEPS", 300);
    let first = number_from_environment("FOREBAY_DIFFERENTIAL_SEED", 1);
    for seed in first..first + histories {
        let mut random = StdRng::seed_from_u64(seed);
        let history: Vec<Step> = (0..steps).map(|_| Step::any(&mut random)).collect();
        if let Err(difference) = play(&history).await {
            let (history, difference) = shrink(history, difference).await;
            let steps: Vec<String> = history.iter().map(|step| format!("  {step:?}")).collect();
            panic!("seed {seed}: after\n{}\nthey differ in {}", steps.join("\n"), difference.what);
        }
    }
}

/// What a history must come by, so that the comparison is about something.
const OUTCOMES: [&str; 24] = [
    "Stored",
    "Duplicate",
    "Conflict",
    "Applied",
    "LeaseLost",
    "Continued",
    "reclaimed: true",
    "replay: true",
    "NotFinished",
    "Replayed",
    "Already",
    "Admitted",
    "Moved",
    "Fenced",
    "TooLate",
    "Cancelled",
    "Rescheduled",
    "Redriven",
    "NotDead",
    "Resolved",
    "NotUncertain",
    "Overtaken",
    "Drained",
    "Retired Removed { events: 1,",
];
/// The steps in which it must, and how many are taken between two looks at whether it has.
const STEPS_MAX: usize = 20_000;
const LOOK_AT_OUTCOMES: usize = 1_000;

#[tokio::test]
async fn histories_come_by_every_outcome() {
    let mut random = StdRng::seed_from_u64(1);
    let mut side = Side::begin(Fixture::new().await).await;
    let mut outcomes = String::new();
    let mut missing = OUTCOMES.to_vec();
    for number in 1..=STEPS_MAX {
        let step = Step::any(&mut random);
        outcomes += &side.apply(&step).await;
        side.fixture.advance(TICK);
        if number % LOOK_AT_OUTCOMES == 0 {
            missing.retain(|outcome| !outcomes.contains(outcome));
            outcomes.clear();
            if missing.is_empty() {
                return;
            }
        }
    }
    panic!("no step came to {missing:?}: {:?}", side.fixture.store.stats().await.unwrap());
}
