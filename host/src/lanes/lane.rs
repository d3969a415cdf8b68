//! The Destination Lane: whether messages to one destination may be sent now, and why not if not.
//!
//! A lane owns its gate, its in-flight limits, its backoff and its circuit. It is not a shard, has no owner and keeps no
//! messages: those stand in the timeline's index, in the lane's line.
//!
//! Invariants:
//! - What is in flight never exceeds the limits, in messages or in bytes.
//! - Every permit is given back exactly once, by [`DestinationLane::settle`].
//! - Of an ordered lane, one message at the most is claimed and not concluded: what became of it is known before its
//!   successor goes, even where its permit came back without that.
//! - Closing or pausing a lane refuses new permits and nothing else: what waits goes on waiting.

use super::circuit::{Attempt, Circuit, CircuitPolicy, Refused, Verdict};
use super::held::Held;
use crate::model::destination::LaneLimits;
use crate::model::destination_lane::Gate;
use crate::model::time::Timestamp;

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
    /// Whether this runtime can call its destination.
    capable: bool,
    ordered: bool,
    /// Messages that were claimed and of which it is not known what became of them.
    unconcluded: u32,
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
    /// A lane whose messages go side by side; open, with nothing in flight.
    pub fn new(limits: LaneLimits, policy: CircuitPolicy) -> Self {
        Self {
            gate: Gate::Open,
            capable: true,
            ordered: false,
            unconcluded: 0,
            limits,
            policy: CircuitPolicy { ramp_messages: limits.messages, ..policy },
            circuit: Circuit::CLOSED,
            backoff_until: None,
            in_flight_messages: 0,
            in_flight_bytes: 0,
            wants_room: false,
        }
    }

    /// A lane whose messages go one after the other.
    pub fn ordered(limits: LaneLimits, policy: CircuitPolicy) -> Self {
        Self { ordered: true, ..Self::new(LaneLimits { messages: limits.messages.min(1), ..limits }, policy) }
    }

    /// The lane of a destination that this runtime cannot call.
    pub fn incapable(policy: CircuitPolicy) -> Self {
        Self { capable: false, ..Self::new(LaneLimits { messages: 0, bytes: 0 }, policy) }
    }

    /// Opens, pauses or closes it.
    pub fn set_gate(&mut self, gate: Gate) {
        self.gate = gate;
    }

    /// Its gate.
    pub fn gate(&self) -> Gate {
        self.gate
    }

    /// Its circuit.
    pub fn circuit(&self) -> Circuit {
        self.circuit
    }

    /// Messages in flight.
    pub fn in_flight_messages(&self) -> u32 {
        self.in_flight_messages
    }

    /// Bytes in flight.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
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
        self.unconcluded += 1;
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

    /// Takes over a message that an owner before this one claimed, and of which it is not known what became of it.
    pub fn inherit(&mut self) {
        self.unconcluded += 1;
    }

    /// It is known what became of a message that was claimed or inherited.
    pub fn conclude(&mut self) {
        self.unconcluded = self.unconcluded.checked_sub(1).expect("a message is concluded once");
    }

    /// Whether it is as a lane that never sent anything, but for its gate and its limits.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        self.unconcluded == 0 && self.circuit == Circuit::CLOSED && self.throttled_until(now).is_none()
    }

    /// Until when its destination asked to be left alone, if that is still to come.
    pub fn throttled_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.backoff_until.filter(|until| now < *until)
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
        if self.ordered && self.unconcluded > 0 {
            return Some(Held::OrderingHead);
        }
        if !self.capable {
            return Some(Held::Capability);
        }
        if self.circuit.begin(&self.policy, now).is_err() {
            return Some(Held::CircuitOpen);
        }
        if self.throttled_until(now).is_some() {
            return Some(Held::Throttled);
        }
        let messages_max = self.circuit.messages_max().unwrap_or(u32::MAX).min(self.limits.messages);
        (self.wants_room || self.in_flight_messages >= messages_max).then_some(Held::LaneFull)
    }

    /// When time alone lets it send again: the later of its backoff's and its circuit's ends, if either is to come.
    /// `None` if time changes nothing: it may send, or it waits for an operator or for something in flight.
    pub fn reopens_at(&self, now: Timestamp) -> Option<Timestamp> {
        let circuit = match self.circuit.begin(&self.policy, now) {
            Err(Refused::Until(until)) => Some(until),
            Err(Refused::Probing) | Ok(_) => None,
        };
        circuit.max(self.throttled_until(now))
    }

    /// What a message counts for: one that is larger than the whole lane takes the whole lane, so that it can be sent
    /// at all, and alone.
    fn accounted(&self, bytes: u32) -> u64 {
        u64::from(bytes).min(self.limits.bytes)
    }
}

#[cfg(test)]
mod tests;
