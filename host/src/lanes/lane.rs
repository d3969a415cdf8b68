//! The Destination Lane: whether messages to one destination may be sent now, and why not if not.
//!
//! A lane owns its gate and its in-flight limits, and shares the circuit and the backoff of its [`Outlet`]. It is not a
//! shard, has no owner and keeps no messages: those stand in the timeline's index, in the lane's line.
//!
//! Invariants:
//! - What is in flight never exceeds the limits, in messages or in bytes.
//! - Every permit is given back exactly once, by [`DestinationLane::settle`].
//! - Of an ordered lane, one message at the most is claimed and not concluded: what became of it is known before its
//!   successor goes, even where its permit came back without that.
//! - Closing or pausing a lane refuses new permits and nothing else: what waits goes on waiting.

use super::circuit::Verdict;
use super::held::Held;
use super::outlet::{Outlet, Under};
use crate::model::destination::LaneLimits;
use crate::model::destination_lane::Gate;
use crate::model::time::Timestamp;

/// The right to one attempt.
#[derive(Debug)]
#[must_use = "a permit that is not settled is lost to its lane"]
pub struct Permit {
    bytes: u64,
    under: Under,
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
    in_flight_messages: u32,
    in_flight_bytes: u64,
    /// A message was refused for want of room; nothing is asked again before something is given back.
    wants_room: bool,
}

impl DestinationLane {
    /// A lane whose messages go side by side; open, with nothing in flight.
    pub fn new(limits: LaneLimits) -> Self {
        Self {
            gate: Gate::Open,
            capable: true,
            ordered: false,
            unconcluded: 0,
            limits,
            in_flight_messages: 0,
            in_flight_bytes: 0,
            wants_room: false,
        }
    }

    /// A lane whose messages go one after the other.
    pub fn ordered(limits: LaneLimits) -> Self {
        Self { ordered: true, ..Self::new(LaneLimits { messages: limits.messages.min(1), ..limits }) }
    }

    /// What it may have in flight from now on; `None` if this runtime cannot call its destination. What is in flight
    /// already counts, and ends as it began.
    pub fn set_limits(&mut self, limits: Option<LaneLimits>) {
        let LaneLimits { messages, bytes } = limits.unwrap_or(LaneLimits { messages: 0, bytes: 0 });
        self.capable = limits.is_some();
        self.limits = LaneLimits { messages: if self.ordered { messages.min(1) } else { messages }, bytes };
        self.wants_room = false;
    }

    /// Opens, pauses or closes it.
    pub fn set_gate(&mut self, gate: Gate) {
        self.gate = gate;
    }

    /// Its gate.
    pub fn gate(&self) -> Gate {
        self.gate
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
    pub fn claim(&mut self, outlet: &mut Outlet, bytes: u32, now: Timestamp) -> Result<Permit, Held> {
        let bytes = self.accounted(bytes);
        if let Some(held) = self.held(outlet, now) {
            return Err(held);
        }
        if self.in_flight_bytes + bytes > self.limits.bytes {
            self.wants_room = true;
            return Err(Held::LaneFull);
        }
        let under = outlet.begin(now)?;
        self.in_flight_messages += 1;
        self.unconcluded += 1;
        self.in_flight_bytes += bytes;
        Ok(Permit { bytes, under })
    }

    /// Gives a permit back, with what its attempt said about the destination.
    pub fn settle(&mut self, outlet: &mut Outlet, permit: Permit, verdict: Verdict, now: Timestamp) {
        assert!(
            self.in_flight_messages > 0 && self.in_flight_bytes >= permit.bytes,
            "a permit goes back to the lane that gave it"
        );
        self.in_flight_messages -= 1;
        self.in_flight_bytes -= permit.bytes;
        self.wants_room = false;
        outlet.end(&permit.under, verdict, now);
    }

    /// Takes over a message that an owner before this one claimed, and of which it is not known what became of it.
    pub fn inherit(&mut self) {
        self.unconcluded += 1;
    }

    /// It is known what became of a message that was claimed or inherited.
    pub fn conclude(&mut self) {
        self.unconcluded = self.unconcluded.checked_sub(1).expect("a message is concluded once");
    }

    /// Whether something of it was claimed, and it is not known what became of that.
    pub fn is_busy(&self) -> bool {
        self.unconcluded > 0
    }

    /// What stands against every message of the lane at `now`. `None` does not promise room for a message of any size.
    pub fn held(&self, outlet: &Outlet, now: Timestamp) -> Option<Held> {
        [self.held_itself(), outlet.held(now)].into_iter().flatten().min()
    }

    /// What stands against every message of the lane and concerns no other lane.
    pub fn held_itself(&self) -> Option<Held> {
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
        (self.wants_room || self.in_flight_messages >= self.limits.messages).then_some(Held::LaneFull)
    }

    /// What a message counts for: one that is larger than the whole lane takes the whole lane, so that it can be sent
    /// at all, and alone.
    fn accounted(&self, bytes: u32) -> u64 {
        u64::from(bytes).min(self.limits.bytes)
    }
}

#[cfg(test)]
mod tests;
