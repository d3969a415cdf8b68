//! The circuit of a destination: a destination that keeps failing is left alone, then probed, then trusted again.
//!
//! ```text
//!   Closed ──(a run of failures)──> Open ──(its time passes)──> HalfOpen ──(enough probes succeed)──> Ramping ──> Closed
//!                                     ^                            │                                     │
//!                                     └───────(a probe fails)──────┴───────────────(a failure)───────────┘
//!                                        for longer each time, up to a cap
//! ```
//!
//! A destination that is back is not met by all that waited at once: while it ramps, each success makes room for one
//! more in flight, so that what is in flight doubles with each round of answers, until its lanes' own limit is reached.
//!
//! While it is open no message is tried, so a destination's failure spends the attempts of the few messages that found
//! it out and of the probes, not those of every message that waits.

use std::time::Duration;

use crate::model::time::Timestamp;

/// When a circuit opens and how it closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitPolicy {
    /// A run of this many failures of the destination opens it.
    pub failures_to_open: u32,
    /// How long it is open the first time; every further time in a row twice as long.
    pub open_initial: Duration,
    /// The longest that it is open.
    pub open_max: Duration,
    /// How many probes may be on their way at once.
    pub probes_max: u32,
    /// How many probes must succeed for it to be trusted again.
    pub successes_to_close: u32,
    /// How many in flight end the ramp.
    pub ramp_messages: u32,
}

/// Where a circuit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Circuit {
    /// The destination is called freely.
    Closed {
        /// Failures since the last success.
        failures: u32,
    },
    /// The destination is not called.
    Open {
        /// Until then.
        until: Timestamp,
        /// How often in a row it has opened.
        openings: u32,
    },
    /// The destination is probed.
    HalfOpen {
        /// Probes on their way.
        probing: u32,
        /// Probes that succeeded.
        successes: u32,
        /// How often in a row it had opened.
        openings: u32,
    },
    /// The destination is called more and more.
    Ramping {
        /// So many at once.
        room: u32,
        /// How often in a row it had opened.
        openings: u32,
    },
}

/// What kind of attempt was allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// One of many.
    Ordinary,
    /// One that finds out whether the destination is back.
    Probe,
}

/// Why no attempt is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The circuit is open until then.
    Until(Timestamp),
    /// All probes are on their way.
    Probing,
}

/// What an attempt said about the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It answered.
    Healthy,
    /// It could not be reached, did not answer, or said itself that it failed.
    Failed,
    /// It answered that this was too much, or too slow: that says nothing about whether it works.
    Busy,
    /// It was not called.
    NotCalled,
}

impl Circuit {
    /// A circuit that trusts its destination.
    pub const CLOSED: Circuit = Circuit::Closed { failures: 0 };

    /// Every word for it.
    pub const WORDS: [&str; 4] = ["closed", "open", "half_open", "ramping"];

    /// The word for it in metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Circuit::Closed { .. } => "closed",
            Circuit::Open { .. } => "open",
            Circuit::HalfOpen { .. } => "half_open",
            Circuit::Ramping { .. } => "ramping",
        }
    }

    /// Whether an attempt is allowed at `now`, and the circuit with that attempt on its way.
    pub fn begin(self, policy: &CircuitPolicy, now: Timestamp) -> Result<(Circuit, Attempt), Refused> {
        match self {
            Circuit::Closed { .. } | Circuit::Ramping { .. } => Ok((self, Attempt::Ordinary)),
            Circuit::Open { until, .. } if now < until => Err(Refused::Until(until)),
            Circuit::Open { openings, .. } => {
                Ok((Circuit::HalfOpen { probing: 1, successes: 0, openings }, Attempt::Probe))
            }
            Circuit::HalfOpen { probing, .. } if probing >= policy.probes_max => Err(Refused::Probing),
            Circuit::HalfOpen { probing, successes, openings } => {
                Ok((Circuit::HalfOpen { probing: probing + 1, successes, openings }, Attempt::Probe))
            }
        }
    }

    /// The circuit after an attempt has ended.
    ///
    /// Ordinary attempts that end while it is open or half-open began before it opened: they say nothing new.
    pub fn end(self, policy: &CircuitPolicy, attempt: Attempt, verdict: Verdict, now: Timestamp) -> Circuit {
        match (self, attempt, verdict) {
            (Circuit::Closed { .. }, _, Verdict::Healthy) => Circuit::CLOSED,
            (Circuit::Closed { failures }, _, Verdict::Failed) if failures + 1 >= policy.failures_to_open => {
                Circuit::open(policy, 1, now)
            }
            (Circuit::Closed { failures }, _, Verdict::Failed) => Circuit::Closed { failures: failures + 1 },
            (Circuit::HalfOpen { openings, .. }, Attempt::Probe, Verdict::Failed) => {
                Circuit::open(policy, openings.saturating_add(1), now)
            }
            (Circuit::HalfOpen { successes, openings, .. }, Attempt::Probe, Verdict::Healthy)
                if successes + 1 >= policy.successes_to_close =>
            {
                Circuit::ramp(policy, successes + 1, openings)
            }
            (Circuit::Ramping { room, openings }, _, Verdict::Healthy) => Circuit::ramp(policy, room + 1, openings),
            (Circuit::Ramping { openings, .. }, _, Verdict::Failed) => {
                Circuit::open(policy, openings.saturating_add(1), now)
            }
            (Circuit::HalfOpen { probing, successes, openings }, Attempt::Probe, Verdict::Healthy) => {
                Circuit::HalfOpen { probing: probing.saturating_sub(1), successes: successes + 1, openings }
            }
            (
                Circuit::HalfOpen { probing, successes, openings },
                Attempt::Probe,
                Verdict::Busy | Verdict::NotCalled,
            ) => Circuit::HalfOpen { probing: probing.saturating_sub(1), successes, openings },
            (Circuit::Closed { .. } | Circuit::Ramping { .. }, _, Verdict::Busy | Verdict::NotCalled)
            | (Circuit::Open { .. }, _, _)
            | (Circuit::HalfOpen { .. }, Attempt::Ordinary, _) => self,
        }
    }

    fn ramp(policy: &CircuitPolicy, room: u32, openings: u32) -> Circuit {
        if room >= policy.ramp_messages { Circuit::CLOSED } else { Circuit::Ramping { room, openings } }
    }

    fn open(policy: &CircuitPolicy, openings: u32, now: Timestamp) -> Circuit {
        let doublings = openings.saturating_sub(1).min(31);
        let duration = policy.open_initial.saturating_mul(1 << doublings).min(policy.open_max);
        Circuit::Open { until: now + duration, openings }
    }
}

#[cfg(test)]
mod tests;
