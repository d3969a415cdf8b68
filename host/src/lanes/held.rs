//! Why what is due is not admitted: a closed set, with a stated precedence.

/// Why a lane's due head, or a message in it, is not admitted, in order of precedence: where several hold, the first
/// counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    /// Its lane's gate is closed.
    LaneClosed,
    /// Its lane's gate is paused.
    LanePaused,
    /// Its lane is ordered, and one before it is not settled.
    OrderingHead,
    /// The clock is not trusted.
    ClockGated,
    /// Its shard has no owner that has caught up.
    Recovering,
    /// Its destination is not one that this runtime can call.
    Capability,
    /// Its lane's circuit is open, or half-open with all probes on their way.
    CircuitOpen,
    /// It failed, and waits for its next attempt.
    RetryBackoff,
    /// Its destination asked to be left alone for a while.
    Throttled,
    /// Its lane has in flight what it may.
    LaneFull,
    /// There is no place in flight for it, of all or of its destination's, or the store admits nothing for the moment.
    Capacity,
    /// It is the turn of others.
    Fairness,
}

impl Held {
    /// Every reason, in order of precedence.
    pub const ALL: [Held; 12] = [
        Held::LaneClosed,
        Held::LanePaused,
        Held::OrderingHead,
        Held::ClockGated,
        Held::Recovering,
        Held::Capability,
        Held::CircuitOpen,
        Held::RetryBackoff,
        Held::Throttled,
        Held::LaneFull,
        Held::Capacity,
        Held::Fairness,
    ];

    /// The word for it in metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Held::LaneClosed => "lane_closed",
            Held::LanePaused => "lane_paused",
            Held::OrderingHead => "ordering_head",
            Held::ClockGated => "clock_gated",
            Held::Recovering => "recovering",
            Held::Capability => "capability",
            Held::CircuitOpen => "circuit_open",
            Held::RetryBackoff => "retry_backoff",
            Held::Throttled => "throttled",
            Held::LaneFull => "lane_full",
            Held::Capacity => "capacity",
            Held::Fairness => "fairness",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // OBS-4
    #[test]
    fn the_reasons_are_listed_in_order_of_precedence() {
        assert!(Held::ALL.is_sorted());
        let words = Held::ALL.map(Held::as_str).join(", ");
        assert_eq!(
            words,
            "lane_closed, lane_paused, ordering_head, clock_gated, recovering, capability, circuit_open, retry_backoff, \
             throttled, lane_full, capacity, fairness"
        );
    }
}
