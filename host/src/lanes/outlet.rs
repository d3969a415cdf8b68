//! The outlet: what all lanes of one tenant to one destination share, whatever orders their lines.
//!
//! Whether a destination works, and whether it wishes to be left alone, is not a matter of ordering keys. So it has one
//! circuit and one backoff: what one lane finds out spares the messages of all the others.
//!
//! Invariant: an attempt that began before the circuit opened says nothing about the time after.

use super::circuit::{Attempt, Circuit, CircuitPolicy, Refused, Verdict};
use super::held::Held;
use crate::model::time::Timestamp;

/// The outlet of one tenant's messages to one destination.
#[derive(Debug)]
pub struct Outlet {
    policy: CircuitPolicy,
    circuit: Circuit,
    /// How often it has opened.
    openings: u64,
    /// The destination asked not to be called before this.
    backoff_until: Option<Timestamp>,
    in_flight: u32,
}

/// An attempt that is on its way.
#[derive(Debug)]
pub(super) struct Under {
    attempt: Attempt,
    openings: u64,
}

impl Outlet {
    /// One that trusts its destination.
    pub fn new(policy: CircuitPolicy) -> Self {
        Self { policy, circuit: Circuit::CLOSED, openings: 0, backoff_until: None, in_flight: 0 }
    }

    /// How its destination is trusted from now on; what was learned about it stands.
    pub fn set_policy(&mut self, policy: CircuitPolicy) {
        self.policy = policy;
    }

    /// Its destination is called elsewhere from now on: what was learned before says nothing about it, nor does what is
    /// under way.
    pub fn begin_anew(&mut self) {
        self.circuit = Circuit::CLOSED;
        self.openings += 1;
        self.backoff_until = None;
    }

    /// Its circuit.
    pub fn circuit(&self) -> Circuit {
        self.circuit
    }

    /// Until when its destination asked to be left alone, if that is still to come.
    pub fn throttled_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.backoff_until.filter(|until| now < *until)
    }

    /// The destination asked not to be called before `until`. A shorter wish never shortens a longer one.
    pub fn back_off(&mut self, until: Timestamp) {
        self.backoff_until = self.backoff_until.max(Some(until));
    }

    /// How many more attempts may begin at `now`, as far as the circuit has a say in that. With none, and no time at
    /// which that changes by itself, the end of one that is under way changes it.
    pub fn room(&self, now: Timestamp) -> u32 {
        if self.throttled_until(now).is_some() {
            return 0;
        }
        match self.circuit {
            Circuit::Open { until, .. } if now < until => 0,
            Circuit::Open { .. } => self.policy.probes_max,
            Circuit::HalfOpen { probing, .. } => self.policy.probes_max.saturating_sub(probing),
            Circuit::Ramping { room, .. } => room.saturating_sub(self.in_flight),
            Circuit::Closed { .. } => u32::MAX,
        }
    }

    /// When time alone lets it send again: the later of its backoff's and its circuit's ends, if either is to come.
    pub fn reopens_at(&self, now: Timestamp) -> Option<Timestamp> {
        let circuit = match self.circuit.begin(&self.policy, now) {
            Err(Refused::Until(until)) => Some(until),
            Err(Refused::Probing) | Ok(_) => None,
        };
        circuit.max(self.throttled_until(now))
    }

    /// What stands against every message at `now`.
    pub(super) fn held(&self, now: Timestamp) -> Option<Held> {
        if self.circuit.begin(&self.policy, now).is_err() {
            return Some(Held::CircuitOpen);
        }
        if self.throttled_until(now).is_some() {
            return Some(Held::Throttled);
        }
        (self.room(now) == 0).then_some(Held::LaneFull)
    }

    /// An attempt begins.
    pub(super) fn begin(&mut self, now: Timestamp) -> Result<Under, Held> {
        let (circuit, attempt) = self.circuit.begin(&self.policy, now).map_err(|_| Held::CircuitOpen)?;
        self.circuit = circuit;
        self.in_flight += 1;
        Ok(Under { attempt, openings: self.openings })
    }

    /// An attempt has ended.
    pub(super) fn end(&mut self, under: &Under, verdict: Verdict, now: Timestamp) {
        self.in_flight = self.in_flight.checked_sub(1).expect("an attempt ends once");
        if under.openings != self.openings {
            return;
        }
        let before = self.circuit;
        self.circuit = before.end(&self.policy, under.attempt, verdict, now);
        if matches!(self.circuit, Circuit::Open { .. }) && !matches!(before, Circuit::Open { .. }) {
            self.openings += 1;
        }
    }

    #[cfg(test)]
    pub(super) fn set_circuit(&mut self, circuit: Circuit) {
        self.circuit = circuit;
    }
}

#[cfg(test)]
mod tests;
