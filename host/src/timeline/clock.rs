//! Trusted time: an interval in which the present certainly lies, or the reason why there is none.
//!
//! Between two samples of the wall clock, time comes from the monotonic clock, which nobody sets. A sample that does not
//! fit what the monotonic clock foretold is a jump: from then on the clock is gated until the new time has held for a
//! while, so that a clock which is set forward and back again publishes nothing early.
//!
//! ```text
//!   earliest = sample.earliest + elapsed - divergence
//!   latest   = sample.latest   + elapsed + divergence       divergence = elapsed x DRIFT
//! ```

use std::time::Duration;

use crate::env::Clock;
use crate::model::time::Timestamp;

/// How often the wall clock is looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(200);
/// A sample says nothing any more after this.
const SAMPLE_AGE_MAX: Duration = Duration::from_secs(10);
/// A sample whose reading took so long that it is too wide is taken again, this often at the most.
const SAMPLE_TRIES_MAX: u32 = 3;
/// By how much wall and monotonic time may diverge, in millionths: what Linux slews a clock by at the most,
/// <https://man7.org/linux/man-pages/man2/adjtimex.2.html> (`ADJ_FREQUENCY`).
const DRIFT_MILLIONTHS: u128 = 500;
/// A sample that lies further than this outside of what was foretold is a jump.
const STEP_MAX: Duration = Duration::from_millis(5);
/// How long the time must have run evenly before it is trusted, from the first sample and from every jump on.
const STABILIZATION: Duration = Duration::from_millis(500);
/// The wall clock is read in whole milliseconds.
const WALL_RESOLUTION: Duration = Duration::from_millis(1);

/// The present lies in here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interval {
    pub earliest: Timestamp,
    pub latest: Timestamp,
}

/// Why time is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gated {
    /// It cannot be told closely enough, or was not told for too long.
    Uncertain,
    /// It has begun, or jumped, too short a while ago. It is trusted from this monotonic time on.
    Stabilizing { until: Duration },
}

/// One look at a clock.
#[derive(Debug, Clone, Copy)]
struct Sample {
    interval: Interval,
    /// The monotonic time at which it was so.
    at: Duration,
}

/// A clock that says how far it can be trusted.
#[derive(Debug)]
pub(super) struct TrustedClock {
    width_max: Duration,
    anchor: Option<Anchor>,
}

#[derive(Debug, Clone, Copy)]
struct Anchor {
    sample: Sample,
    stable_from: Duration,
}

impl TrustedClock {
    /// A clock that is gated while its interval is wider than `width_max`.
    pub(super) fn new(width_max: Duration) -> Self {
        Self { width_max, anchor: None }
    }

    /// The present, from a fresh look at `clock` if the last one is old enough.
    pub(super) fn read(&mut self, clock: &dyn Clock) -> Result<Interval, Gated> {
        let now = clock.monotonic();
        let is_fresh = self.anchor.is_some_and(|Anchor { sample, stable_from }| {
            // The end of a stabilization is believed after a look at that end, not on the strength of earlier ones.
            let is_confirmed = sample.at >= stable_from || now < stable_from;
            is_confirmed && now.saturating_sub(sample.at) < SAMPLE_EVERY
        });
        if !is_fresh {
            self.observe(self.sample(clock));
        }
        self.interval(clock.monotonic())
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
                return Sample { interval: Interval { earliest: wall, latest: wall + WALL_RESOLUTION + took }, at };
            }
            tries += 1;
        }
    }

    fn observe(&mut self, sample: Sample) {
        let stable_from = match self.anchor {
            None => sample.at + STABILIZATION,
            Some(anchor) => {
                let foretold = anchor.sample.after(sample.at);
                let jumped = sample.interval.earliest > foretold.latest + STEP_MAX
                    || sample.interval.latest < foretold.earliest - STEP_MAX;
                if jumped {
                    let by = sample.interval.earliest.as_millis() - foretold.earliest.as_millis();
                    tracing::warn!(by_ms = by, "the clock has jumped: nothing is published until it runs evenly");
                    sample.at + STABILIZATION
                } else {
                    anchor.stable_from
                }
            }
        };
        self.anchor = Some(Anchor { sample, stable_from });
    }

    fn interval(&self, now: Duration) -> Result<Interval, Gated> {
        let Some(anchor) = self.anchor else { return Err(Gated::Uncertain) };
        if now < anchor.stable_from {
            return Err(Gated::Stabilizing { until: anchor.stable_from });
        }
        let interval = anchor.sample.after(now);
        let is_old = now.saturating_sub(anchor.sample.at) > SAMPLE_AGE_MAX;
        if is_old || interval.latest.since(interval.earliest) > self.width_max {
            return Err(Gated::Uncertain);
        }
        Ok(interval)
    }
}

impl Sample {
    /// What it says about the monotonic time `now`; rounded outwards.
    fn after(&self, now: Duration) -> Interval {
        let elapsed = now.saturating_sub(self.at).as_nanos();
        let divergence = elapsed * DRIFT_MILLIONTHS / 1_000_000;
        let whole = |nanos: u128| i64::try_from(nanos).unwrap_or(i64::MAX / 2);
        let earliest = whole((elapsed - divergence) / 1_000_000);
        let latest = whole((elapsed + divergence).div_ceil(1_000_000));
        Interval {
            earliest: Timestamp::from_millis(self.interval.earliest.as_millis().saturating_add(earliest)),
            latest: Timestamp::from_millis(self.interval.latest.as_millis().saturating_add(latest)),
        }
    }
}

#[cfg(test)]
mod tests;
