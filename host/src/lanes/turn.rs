//! The turn: what a caller does in one go before it looks at anything else.
//!
//! Its limits end the turn and not the visit: the next turn goes on where this one stopped, with nothing granted twice
//! and nothing forfeited.

use super::drr::DrrOptions;
use crate::model::message::MESSAGE_BYTES_MAX;

/// What a message costs at least, in bytes: calling a destination is work even where there is little to say.
const MESSAGE_COST_MIN: u64 = 256;
/// What a message costs at most: as many bytes as it can have.
pub const MESSAGE_COST_MAX: u64 = MESSAGE_BYTES_MAX as u64;

/// How messages share service. One visit of weight 1 is worth as much as the smallest message: lanes of any weight
/// take turns that are smaller than what they may have in flight, and so their weights count where that is little.
pub const MESSAGES: DrrOptions = DrrOptions { quantum: MESSAGE_COST_MIN, cost_max: MESSAGE_COST_MAX };

/// What a message of `bytes` costs.
pub fn message_cost(bytes: u32) -> u64 {
    u64::from(bytes).clamp(MESSAGE_COST_MIN, MESSAGE_COST_MAX)
}

/// What a turn may do at the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnLimits {
    /// What it serves, by number.
    pub items_max: u32,
    /// What it serves, by cost; at least the largest cost that there is.
    pub cost_max: u64,
    /// The visits that it begins: heads that cost many quanta are not waited for in one go.
    pub visits_max: u32,
}

/// What is left of a turn.
#[derive(Debug)]
pub struct Turn {
    limits: TurnLimits,
    items: u32,
    cost: u64,
    visits: u32,
}

/// What became of a wish to serve the head of the key that is being visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// Serve it: its cost has been deducted.
    Served,
    /// Its deficit does not cover it: the ring has moved on.
    VisitOver,
    /// The turn is used up; the next one goes on here.
    TurnOver,
}

impl TurnLimits {
    /// A fresh turn.
    ///
    /// # Panics
    /// If the turn could do nothing.
    pub fn begin(self) -> Turn {
        assert!(self.items_max > 0 && self.cost_max > 0 && self.visits_max > 0, "a turn must serve something");
        Turn { limits: self, items: self.items_max, cost: self.cost_max, visits: self.visits_max }
    }
}

impl Turn {
    /// Its time is over: nothing more is served in it.
    pub fn end(&mut self) {
        self.items = 0;
    }

    /// Whether nothing more is served in it.
    pub fn is_over(&self) -> bool {
        self.items == 0
    }

    /// Begins a visit, unless it has begun as many as it may: then it is over.
    pub(super) fn begin_visit(&mut self) -> bool {
        match self.visits.checked_sub(1) {
            Some(left) => {
                self.visits = left;
                true
            }
            None => {
                self.end();
                false
            }
        }
    }

    /// Whether it has room for one service of this cost; if not, it is over.
    pub(super) fn has_room(&mut self, cost: u64) -> bool {
        assert!(cost <= self.limits.cost_max, "a turn has room for the largest cost");
        let has_room = self.items > 0 && cost <= self.cost;
        if !has_room {
            self.end();
        }
        has_room
    }

    /// Spends the cost of one service, which it has room for.
    pub(super) fn spend(&mut self, cost: u64) {
        self.items -= 1;
        self.cost -= cost;
    }
}
