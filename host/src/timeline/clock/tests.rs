use rand::rngs::{StdRng, SysRng};
use rand::{RngExt, SeedableRng, TryRng};

use super::*;
use crate::env::ManualClock;

const WIDTH_MAX: Duration = Duration::from_millis(100);
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn stable() -> (ManualClock, TrustedClock) {
    let clock = ManualClock::at(START);
    let mut trusted = TrustedClock::new(TimeSource::System, WIDTH_MAX);
    assert!(matches!(trusted.read(&clock), Err(Gated::Stabilizing { .. })));
    clock.advance(STABILIZATION);
    assert!(trusted.read(&clock).is_ok());
    (clock, trusted)
}

// TL-3
#[test]
fn the_present_lies_in_the_interval_and_the_interval_is_narrow() {
    let (clock, mut trusted) = stable();
    for _ in 0..1_000 {
        clock.advance(Duration::from_millis(7));
        let interval = trusted.read(&clock).unwrap();
        assert!(interval.earliest <= clock.now() && clock.now() < interval.latest);
        assert!(interval.latest.since(interval.earliest) <= Duration::from_millis(4), "{interval:?}");
    }
}

// TL-3
#[test]
fn a_jump_gates_the_clock_until_it_has_run_evenly() {
    for by in [-3_600_000, -50, 50, 3_600_000] {
        let (clock, mut trusted) = stable();
        clock.jump_to(Timestamp::from_millis(clock.now().as_millis() + by));
        clock.advance(SAMPLE_EVERY);
        assert!(matches!(trusted.read(&clock), Err(Gated::Stabilizing { .. })), "{by}");
        clock.advance(STABILIZATION - Duration::from_millis(1));
        assert!(trusted.read(&clock).is_err(), "{by}");
        clock.advance(Duration::from_millis(1));
        let interval = trusted.read(&clock).unwrap();
        assert!(interval.earliest <= clock.now() && clock.now() < interval.latest, "{by}");
    }
}

// TL-3
#[test]
fn a_clock_that_runs_too_fast_or_too_slowly_is_not_followed_however_small_its_steps() {
    for by in [-4, 4] {
        let (clock, mut trusted) = stable();
        let (mut truth, mut gated) = (clock.now(), false);
        // Two in a hundred: each step is one that a look alone would pass.
        for _ in 0..600 {
            truth = truth + SAMPLE_EVERY;
            clock.jump_to(Timestamp::from_millis(clock.now().as_millis() + by));
            clock.advance(SAMPLE_EVERY);
            match trusted.read(&clock) {
                Ok(Interval { earliest, .. }) if !gated => {
                    let off = earliest.as_millis().abs_diff(truth.as_millis());
                    assert!(off <= 50, "{off} ms off, and followed");
                }
                Ok(_) => {}
                Err(_) => gated = true,
            }
        }
        assert!(gated);
    }
}

// TL-3
#[test]
fn a_clock_that_is_slewed_as_slowly_as_clocks_are_is_followed() {
    let (clock, mut trusted) = stable();
    for round in 0..6_000 {
        // 400 millionths.
        clock.jump_to(Timestamp::from_millis(clock.now().as_millis() + i64::from(round % 25 == 0) * 2));
        clock.advance(SAMPLE_EVERY);
        let interval = trusted.read(&clock).unwrap_or_else(|gated| panic!("{gated:?} at {round}"));
        assert!(interval.earliest <= clock.now() && clock.now() < interval.latest);
    }
}

// TL-3
#[test]
fn between_two_samples_a_jump_is_not_followed() {
    let (clock, mut trusted) = stable();
    let before = clock.now();
    clock.jump_to(before + Duration::from_secs(3_600));
    clock.advance(SAMPLE_EVERY / 2);
    let interval = trusted.read(&clock).unwrap();
    assert!(interval.earliest <= before + SAMPLE_EVERY / 2);
}

// TL-3
#[test]
fn a_clock_that_is_set_forward_and_back_is_never_ahead_of_true_time() {
    let seed = SysRng.try_next_u64().unwrap();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let clock = ManualClock::at(START);
    let mut trusted = TrustedClock::new(TimeSource::System, WIDTH_MAX);
    let mut truth = START;
    for _ in 0..5_000 {
        let step = Duration::from_millis(random.random_range(1..400));
        truth = truth + step;
        clock.advance(step);
        // Wrong by up to a day, for less than it takes to be trusted again.
        if random.random_bool(0.05) {
            clock.jump_to(truth + Duration::from_secs(random.random_range(1..86_400)));
            let _ = trusted.read(&clock);
            let wrong_for = Duration::from_millis(random.random_range(1..STABILIZATION.as_millis() as u64 - 1));
            truth = truth + wrong_for;
            clock.advance(wrong_for);
            if let Ok(interval) = trusted.read(&clock) {
                assert!(interval.earliest <= truth);
            }
            clock.jump_to(truth);
        }
        if let Ok(interval) = trusted.read(&clock) {
            assert!(interval.earliest <= truth, "{interval:?} at {truth:?}");
        }
    }
}

// TL-3
#[test]
fn a_wide_interval_gates_the_clock() {
    let clock = ManualClock::at(START);
    let mut trusted = TrustedClock::new(TimeSource::System, Duration::from_micros(500));
    let _ = trusted.read(&clock);
    clock.advance(STABILIZATION);
    assert_eq!(trusted.read(&clock), Err(Gated::Uncertain), "a millisecond's resolution is wider than that");
}

// TL-3
#[test]
fn an_old_sample_says_nothing() {
    let (clock, trusted) = stable();
    clock.advance(SAMPLE_AGE_MAX + Duration::from_millis(1));
    assert_eq!(trusted.interval(clock.monotonic()), Err(Gated::Uncertain));
}

/// A database whose clock a test looks at.
struct Database {
    samples: watch::Sender<Option<Sample>>,
    clock: ManualClock,
    trusted: TrustedClock,
}

impl Database {
    fn new() -> Self {
        let (samples, seen) = watch::channel(None);
        let trusted = TrustedClock::new(TimeSource::Database(seen), WIDTH_MAX);
        Self { samples, clock: ManualClock::at(START), trusted }
    }

    /// One that is trusted.
    fn stable() -> Self {
        let mut database = Self::new();
        assert_eq!(database.trusted.read(&database.clock), Err(Gated::Uncertain), "nobody has looked yet");
        for _ in 0..10 {
            database.look(Duration::from_millis(4));
        }
        assert!(database.read().is_ok());
        database
    }

    fn read(&mut self) -> Result<Interval, Gated> {
        self.trusted.read(&self.clock)
    }

    /// Time passes, and the database is asked: it answers half way through `took`.
    fn look(&mut self, took: Duration) {
        self.clock.advance(SAMPLE_EVERY);
        let asked = self.clock.monotonic();
        self.clock.advance(took / 2);
        let now = self.clock.now();
        self.clock.advance(took / 2);
        let time = DatabaseTime { now, asked, answered: self.clock.monotonic() };
        self.samples.send_replace(Some(Sample::of(time)));
        let _ = self.read();
    }

    fn jump(&self, by_millis: i64) {
        self.clock.jump_to(Timestamp::from_millis(self.clock.now().as_millis() + by_millis));
    }
}

// TL-3
#[test]
fn the_round_trip_to_the_database_is_how_uncertain_its_clock_is() {
    let mut database = Database::stable();
    for took in [0, 10, 40, 80] {
        database.look(Duration::from_millis(took));
        let interval = database.read().unwrap();
        assert!(interval.earliest <= database.clock.now() && database.clock.now() < interval.latest, "{took}");
        let width = interval.latest.since(interval.earliest);
        assert_eq!(width, Duration::from_millis(took) + WALL_RESOLUTION);
    }
}

// TL-3
#[test]
fn a_database_whose_clock_jumps_or_fails_over_gates_the_clock() {
    for by in [-3_600_000, -150, 150, 3_600_000] {
        let mut database = Database::stable();
        database.jump(by);
        database.look(Duration::from_millis(4));
        assert!(matches!(database.read(), Err(Gated::Stabilizing { .. })), "{by}");
        database.clock.advance(STABILIZATION);
        assert!(matches!(database.read(), Err(Gated::Stabilizing { .. })), "{by}: nobody has looked since");
        database.look(Duration::from_millis(4));
        let interval = database.read().unwrap();
        assert!(interval.earliest <= database.clock.now() && database.clock.now() < interval.latest, "{by}");
    }
}

// TL-3
#[test]
fn a_slow_answer_of_the_database_neither_helps_nor_harms() {
    let mut database = Database::stable();
    database.look(WIDTH_MAX * 3);
    let interval = database.read().expect("the one before still tells");
    assert!(interval.latest.since(interval.earliest) <= WIDTH_MAX);
    assert!(interval.earliest <= database.clock.now() && database.clock.now() < interval.latest);
    // But what only answers slowly is not trusted for long.
    for _ in 0..50 {
        database.look(WIDTH_MAX * 3);
    }
    assert_eq!(database.read(), Err(Gated::Uncertain));
    database.look(Duration::from_millis(4));
    assert!(database.read().is_ok(), "it went on evenly");
}

// TL-3
#[test]
fn a_database_that_never_answers_quickly_is_never_trusted() {
    let mut database = Database::new();
    for _ in 0..50 {
        database.look(WIDTH_MAX * 2);
        assert!(database.read().is_err());
    }
}

// TL-3
#[test]
fn a_database_that_is_not_reached_for_too_long_gates_the_clock() {
    let mut database = Database::stable();
    database.clock.advance(SAMPLE_AGE_MAX - SAMPLE_EVERY);
    assert!(database.read().is_ok());
    database.clock.advance(2 * SAMPLE_EVERY);
    assert_eq!(database.read(), Err(Gated::Uncertain));
}

// TL-3
#[test]
fn while_it_is_gated_time_is_carried_forward_from_when_it_was_trusted_last() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let manual = ManualClock::at(Timestamp::from_millis(1_700_000_000_000));
    let mut clock = TrustedClock::new(TimeSource::System, Duration::from_millis(100));
    for _ in 0..10 {
        let _ = clock.read(&manual);
        manual.advance(Duration::from_millis(100));
    }
    let trusted = clock.read(&manual).unwrap().earliest;
    for jump in [HOUR, 2 * HOUR] {
        manual.jump_to(manual.now() + jump);
        manual.advance(Duration::from_millis(300));
        assert!(clock.read(&manual).is_err());
    }
    let reckoned = clock.reckoned(&manual);
    assert!(reckoned >= trusted && reckoned <= trusted + Duration::from_millis(600), "{reckoned:?}");
    // What it believes in the end is told again.
    for _ in 0..20 {
        let _ = clock.read(&manual);
        manual.advance(Duration::from_millis(100));
    }
    assert_eq!(clock.reckoned(&manual), clock.read(&manual).unwrap().earliest);
    assert!(clock.reckoned(&manual) > trusted + 2 * HOUR);
}
