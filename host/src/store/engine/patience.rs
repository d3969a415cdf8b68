//! How long a transaction in a shared database may take, and wait for others.
//!
//! All of it is shorter than a lease: while the writer is at one transaction, the renewals of all packs and shards wait
//! behind it.

use std::time::Duration;

/// How long a transaction in a shared database may take, and wait for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How long a statement waits for a row that another transaction has, before its transaction is done again; whole
    /// seconds.
    pub lock_wait: Duration,
    /// How long one attempt at a transaction may take. Longer, and the server is taken for gone.
    pub attempt: Duration,
    /// How long all attempts at a transaction may take together.
    pub attempts: Duration,
    /// After how long the server is to end a transaction of which it hears nothing, where it does that; whole seconds.
    /// `None`: as the server has it.
    pub idle: Option<Duration>,
}

/// The share of a lease that all attempts at a transaction may take: below a third, in which renewals are sent.
const SHARE_OF_LEASE: f64 = 0.3;

/// However short leases are, a loaded server gets so much time.
const ATTEMPTS_MIN: Duration = Duration::from_secs(3);

impl Patience {
    /// What leases allow that last so long.
    pub fn within(lease: Duration) -> Self {
        let attempts = lease.mul_f64(SHARE_OF_LEASE).max(ATTEMPTS_MIN);
        Self {
            lock_wait: whole_seconds(attempts / 4),
            attempt: attempts * 2 / 3,
            attempts,
            idle: Some(whole_seconds(attempts / 2)),
        }
    }
}

/// At least one.
fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    // CLM-6
    #[test]
    fn a_transaction_takes_less_than_the_time_between_two_renewals() {
        for seconds in [12, 15, 30, 3_600] {
            let lease = Duration::from_secs(seconds);
            let patience = Patience::within(lease);
            assert!(patience.attempts < lease / 3, "{patience:?}");
            assert!(patience.attempt < patience.attempts && patience.lock_wait * 2 <= patience.attempt, "{patience:?}");
            assert!(patience.idle.unwrap() < patience.attempts, "{patience:?}");
        }
    }
}
