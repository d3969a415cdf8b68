//! The Destination Lane: whether messages to one destination may be sent now, and why not if not.
//!
//! A lane owns its gate, its in-flight limits, its backoff and its circuit. It is not a shard, has no owner and keeps no
//! messages: those stand in the timeline's index, in the lane's line.
//!
//! Invariants:
//! - What is in flight never exceeds the limits, in messages or in bytes.
//! - Every permit is given back exactly once, by [`DestinationLane::settle`].
//! - Closing or pausing a lane refuses new permits and nothing else: what waits goes on waiting.

use super::circuit::{Attempt, Circuit, CircuitPolicy, Refused, Verdict};
use crate::model::destination::LaneLimits;
use crate::model::time::Timestamp;

/// Whether a lane takes part at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// It does.
    Open,
    /// An operator has paused it.
    Paused,
    /// Its destination does not exist (any more).
    Closed,
}

/// Why a lane's due head is not admitted, in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    /// Its gate is closed.
    LaneClosed,
    /// Its gate is paused.
    LanePaused,
    /// Its circuit is open, or half-open with all probes on their way.
    CircuitOpen,
    /// Its destination asked to be left alone for a while.
    Throttled,
    /// It has in flight what it may.
    LaneFull,
}

impl Held {
    /// Every reason, in order of precedence.
    pub const ALL: [Held; 5] = [Held::LaneClosed, Held::LanePaused, Held::CircuitOpen, Held::Throttled, Held::LaneFull];

    /// The word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Held::LaneClosed => "lane_closed",
            Held::LanePaused => "lane_paused",
            Held::CircuitOpen => "circuit_open",
            Held::Throttled => "throttled",
            Held::LaneFull => "lane_full",
        }
    }
}

/// The right to one attempt.
#[derive(Debug)]
#[must_use = "a permit that is not settled is lost to its lane"]
pub struct Permit {
    bytes: u64,
    attempt: Attempt,
}

/// One lane.
#[derive(Debug)]
pub struct DestinationLane {
    gate: Gate,
    limits: LaneLimits,
    policy: CircuitPolicy,
    circuit: Circuit,
    /// The destination asked not to be called before this.
    backoff_until: Option<Timestamp>,
    in_flight_messages: u32,
    in_flight_bytes: u64,
    /// A message was refused for want of room; nothing is asked again before something is given back.
    wants_room: bool,
}

impl DestinationLane {
    /// A lane with nothing in flight.
    pub fn new(gate: Gate, limits: LaneLimits, policy: CircuitPolicy) -> Self {
        Self {
            gate,
            limits,
            policy,
            circuit: Circuit::CLOSED,
            backoff_until: None,
            in_flight_messages: 0,
            in_flight_bytes: 0,
            wants_room: false,
        }
    }

    /// Opens, pauses or closes it.
    pub fn set_gate(&mut self, gate: Gate) {
        self.gate = gate;
    }

    /// Its circuit.
    pub fn circuit(&self) -> Circuit {
        self.circuit
    }

    /// Messages in flight.
    pub fn in_flight_messages(&self) -> u32 {
        self.in_flight_messages
    }

    /// Takes a permit for a message of `bytes`, or says what stands against it.
    pub fn claim(&mut self, bytes: u32, now: Timestamp) -> Result<Permit, Held> {
        let bytes = self.accounted(bytes);
        if let Some(held) = self.held(now) {
            return Err(held);
        }
        if self.in_flight_bytes + bytes > self.limits.bytes {
            self.wants_room = true;
            return Err(Held::LaneFull);
        }
        let (circuit, attempt) = self.circuit.begin(&self.policy, now).map_err(|_| Held::CircuitOpen)?;
        self.circuit = circuit;
        self.in_flight_messages += 1;
        self.in_flight_bytes += bytes;
        Ok(Permit { bytes, attempt })
    }

    /// Gives a permit back, with what its attempt said about the destination.
    pub fn settle(&mut self, permit: Permit, verdict: Verdict, now: Timestamp) {
        assert!(
            self.in_flight_messages > 0 && self.in_flight_bytes >= permit.bytes,
            "a permit goes back to the lane that gave it"
        );
        self.in_flight_messages -= 1;
        self.in_flight_bytes -= permit.bytes;
        self.wants_room = false;
        self.circuit = self.circuit.end(&self.policy, permit.attempt, verdict, now);
    }

    /// The destination asked not to be called before `until`. A shorter wish never shortens a longer one.
    pub fn back_off(&mut self, until: Timestamp) {
        self.backoff_until = self.backoff_until.max(Some(until));
    }

    /// What stands against every message of the lane at `now`. `None` does not promise room for a message of any size.
    pub fn held(&self, now: Timestamp) -> Option<Held> {
        match self.gate {
            Gate::Closed => return Some(Held::LaneClosed),
            Gate::Paused => return Some(Held::LanePaused),
            Gate::Open => {}
        }
        if self.circuit.begin(&self.policy, now).is_err() {
            return Some(Held::CircuitOpen);
        }
        if self.backoff_until.is_some_and(|until| now < until) {
            return Some(Held::Throttled);
        }
        (self.wants_room || self.in_flight_messages >= self.limits.messages).then_some(Held::LaneFull)
    }

    /// When time alone lets it send again: the later of its backoff's and its circuit's ends, if either is to come.
    /// `None` if time changes nothing: it may send, or it waits for an operator or for something in flight.
    pub fn reopens_at(&self, now: Timestamp) -> Option<Timestamp> {
        let circuit = match self.circuit.begin(&self.policy, now) {
            Err(Refused::Until(until)) => Some(until),
            Err(Refused::Probing) | Ok(_) => None,
        };
        circuit.max(self.backoff_until.filter(|until| now < *until))
    }

    /// What a message counts for: one that is larger than the whole lane takes the whole lane, so that it can be sent
    /// at all, and alone.
    fn accounted(&self, bytes: u32) -> u64 {
        u64::from(bytes).min(self.limits.bytes)
    }
}

#[cfg(test)]
mod tests;
