//! Trusted time: an interval in which the present certainly lies, or the reason why there is none.
//!
//! Between two samples of the wall clock, time comes from the monotonic clock, which nobody sets. A sample that does
//! not fit what the monotonic clock foretold is a jump: from then on the clock is gated until the new time has held for
//! a while, so that a clock which is set forward and back again publishes nothing early.
//!
//! Where runtimes share a database, its clock is the wall clock: all of them then mean the same time. How long it took
//! to ask is how little is known about when it was so. Alone, a runtime looks at its own system's clock.
//!
//! ```text
//!   earliest = sample.earliest + elapsed - divergence
//!   latest   = sample.latest   + elapsed + divergence       divergence = elapsed x DRIFT
//! ```

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::env::{self, Clock, Env};
use crate::model::time::Timestamp;
use crate::store::{DatabaseTime, Store};

/// How often the wall clock is looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(200);
/// A sample says nothing any more after this.
const SAMPLE_AGE_MAX: Duration = Duration::from_secs(10);
/// A sample of the system's clock whose reading took so long that it is too wide is taken again, this often at the
/// most.
const SAMPLE_TRIES_MAX: u32 = 3;
/// By how much wall and monotonic time may diverge, in millionths: what Linux slews a clock by at the most,
/// <https://man7.org/linux/man-pages/man2/adjtimex.2.html> (`ADJ_FREQUENCY`).
const DRIFT_MILLIONTHS: u128 = 500;
/// A sample that lies further than this outside of what was foretold is a jump.
const STEP_MAX: Duration = Duration::from_millis(5);
/// Looks are also judged by one of so long ago, at least: what is off by little at each of them is off by much by then.
const REFERENCE_AGE: Duration = Duration::from_secs(60);
/// How long the time must have run evenly before it is trusted, from the first sample and from every jump on.
const STABILIZATION: Duration = Duration::from_millis(500);
/// The wall clock is read in whole milliseconds.
const WALL_RESOLUTION: Duration = Duration::from_millis(1);

/// The present lies in here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interval {
    pub earliest: Timestamp,
    pub latest: Timestamp,
    /// The monotonic time of which this is said.
    pub at: Duration,
}

/// Why time is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gated {
    /// It cannot be told closely enough, or was not told for too long.
    Uncertain,
    /// It has begun, or jumped, too short a while ago. It is trusted from this monotonic time on.
    Stabilizing { until: Duration },
}

/// Where looks at the wall clock come from.
#[derive(Debug, Clone)]
pub(super) enum TimeSource {
    /// The system's clock, looked at whenever the last look is old enough.
    System,
    /// The database's, as [`watch_database`] last saw it; `None` before it did.
    Database(watch::Receiver<Option<Sample>>),
}

/// One look at a clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample(Interval);

/// A clock that says how far it can be trusted.
#[derive(Debug)]
pub(super) struct TrustedClock {
    source: TimeSource,
    width_max: Duration,
    anchor: Option<Anchor>,
    /// What it was told by when it was last trusted.
    trusted: Option<Sample>,
}

/// What time is told by.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    sample: Sample,
    /// What looks are judged by beside the one before them, and what they will be judged by once that is old enough.
    references: [Sample; 2],
    stable_from: Duration,
}

/// Looks at the database's clock every so often until `stop` is cancelled. A look that fails leaves the last one
/// standing, which grows old.
pub(super) async fn watch_database(
    store: Store,
    env: Env,
    samples: watch::Sender<Option<Sample>>,
    stop: CancellationToken,
) {
    let mut failing = false;
    while !stop.is_cancelled() {
        match store.database_time(&*env.clock).await {
            Ok(time) => {
                failing = false;
                samples.send_replace(Some(Sample::of(time)));
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "the database's clock cannot be read now");
                }
            }
        }
        tokio::select! {
            () = env::sleep(SAMPLE_EVERY) => {}
            () = stop.cancelled() => {}
        }
    }
}

impl TrustedClock {
    /// A clock that is gated while its interval is wider than `width_max`.
    pub(super) fn new(source: TimeSource, width_max: Duration) -> Self {
        Self { source, width_max, anchor: None, trusted: None }
    }

    /// The present, from a fresh look if there is one or the last one is old enough.
    pub(super) fn read(&mut self, clock: &dyn Clock) -> Result<Interval, Gated> {
        let sample = match &mut self.source {
            TimeSource::System => self.is_due(clock.monotonic()).then(|| self.sample(clock)),
            TimeSource::Database(samples) if samples.has_changed().unwrap_or(false) => *samples.borrow_and_update(),
            TimeSource::Database(_) => None,
        };
        if let Some(sample) = sample {
            self.observe(sample);
        }
        let interval = self.interval(clock.monotonic());
        if interval.is_ok() {
            self.trusted = self.anchor.map(|anchor| anchor.sample);
        }
        interval
    }

    /// The earliest that it can be by what was last trusted, carried forward by the monotonic clock; before anything
    /// was, by what was seen first. For what must be told while the clock is gated: never by another clock.
    pub(super) fn reckoned(&mut self, clock: &dyn Clock) -> Timestamp {
        match self.read(clock) {
            Ok(interval) => interval.earliest,
            Err(_) => {
                let sample = self.trusted.or(self.anchor.map(|anchor| anchor.sample));
                sample.map_or(Timestamp::from_millis(0), |sample| sample.after(clock.monotonic()).earliest)
            }
        }
    }

    /// Whether it was trusted at its last look, and still may be.
    pub(super) fn is_trusted(&self, monotonic: Duration) -> bool {
        self.interval(monotonic).is_ok()
    }

    /// Whether the system's clock is to be looked at.
    fn is_due(&self, now: Duration) -> bool {
        self.anchor.is_none_or(|Anchor { sample, stable_from, .. }| {
            let is_unconfirmed = sample.0.at < stable_from && now >= stable_from;
            is_unconfirmed || now.saturating_sub(sample.0.at) >= SAMPLE_EVERY
        })
    }

    /// Reads the wall clock between two readings of the monotonic one: how far these lie apart is how little is known
    /// about when the wall clock was read.
    fn sample(&self, clock: &dyn Clock) -> Sample {
        let mut tries = 1;
        loop {
            let before = clock.monotonic();
            let wall = clock.now();
            let at = clock.monotonic();
            let took = at.saturating_sub(before);
            if took <= self.width_max / 2 || tries == SAMPLE_TRIES_MAX {
                return Sample::between(before, wall, at);
            }
            tries += 1;
        }
    }

    fn observe(&mut self, sample: Sample) {
        let begins = Anchor { sample, references: [sample; 2], stable_from: sample.0.at + STABILIZATION };
        let anchor = match self.anchor {
            None => begins,
            Some(anchor) => {
                let foretold = anchor.sample.after(sample.0.at);
                if !sample.follows(&anchor.sample) || !sample.follows(&anchor.references[0]) {
                    let by = sample.0.earliest.as_millis() - foretold.earliest.as_millis();
                    tracing::warn!(by_ms = by, "the clock has jumped: nothing is published until it runs evenly");
                    begins
                } else if sample.width() > self.width_max {
                    // It says less than the one before, and does not contradict it.
                    return;
                } else if sample.0.at.saturating_sub(anchor.references[1].0.at) >= REFERENCE_AGE {
                    Anchor { sample, references: [anchor.references[1], sample], ..anchor }
                } else {
                    Anchor { sample, ..anchor }
                }
            }
        };
        self.anchor = Some(anchor);
    }

    fn interval(&self, now: Duration) -> Result<Interval, Gated> {
        let Some(anchor) = self.anchor else { return Err(Gated::Uncertain) };
        if now < anchor.stable_from {
            return Err(Gated::Stabilizing { until: anchor.stable_from });
        }
        let interval = anchor.sample.after(now);
        let is_old = now.saturating_sub(anchor.sample.0.at) > SAMPLE_AGE_MAX;
        if is_old || interval.latest.since(interval.earliest) > self.width_max {
            return Err(Gated::Uncertain);
        }
        // The end of a stabilization is believed after a look at that end, not on the strength of earlier ones.
        if anchor.sample.0.at < anchor.stable_from {
            return Err(Gated::Stabilizing { until: now + SAMPLE_EVERY });
        }
        Ok(interval)
    }
}

impl Sample {
    /// What the database said.
    fn of(time: DatabaseTime) -> Self {
        Self::between(time.asked, time.now, time.answered)
    }

    /// The wall clock showed `wall` at some monotonic time between `before` and `at`.
    fn between(before: Duration, wall: Timestamp, at: Duration) -> Self {
        let took = at.saturating_sub(before);
        Self(Interval { earliest: wall, latest: wall + WALL_RESOLUTION + took, at })
    }

    fn width(&self) -> Duration {
        self.0.latest.since(self.0.earliest)
    }

    /// Whether it lies where `earlier` foretold.
    fn follows(&self, earlier: &Sample) -> bool {
        let foretold = earlier.after(self.0.at);
        self.0.earliest <= foretold.latest + STEP_MAX && self.0.latest >= foretold.earliest - STEP_MAX
    }

    /// What it says about the monotonic time `now`; rounded outwards.
    fn after(&self, now: Duration) -> Interval {
        let elapsed = now.saturating_sub(self.0.at).as_nanos();
        let divergence = elapsed * DRIFT_MILLIONTHS / 1_000_000;
        let whole = |nanos: u128| i64::try_from(nanos).unwrap_or(i64::MAX / 2);
        let earliest = whole((elapsed - divergence) / 1_000_000);
        let latest = whole((elapsed + divergence).div_ceil(1_000_000));
        Interval {
            earliest: Timestamp::from_millis(self.0.earliest.as_millis().saturating_add(earliest)),
            latest: Timestamp::from_millis(self.0.latest.as_millis().saturating_add(latest)),
            at: now,
        }
    }
}

#[cfg(test)]
mod tests;
