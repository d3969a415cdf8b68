//! Backing off: exponential, capped, with full jitter that is derived from a hash, so that a replay of the same history
//! chooses the same delays.

use std::time::Duration;

use sha2::{Digest, Sha256};

/// How failed attempts are spaced, and when they end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The ceiling of the first delay.
    pub initial: Duration,
    /// The ceiling of every delay.
    pub max: Duration,
    /// How many failures end it: the failure with this number is the last.
    pub failures_max: u32,
}

impl RetryPolicy {
    /// How long to wait after failure number `failures` (1 for the first), or `None` if that was the last.
    ///
    /// The ceiling is `min(max, initial * 2^(failures - 1))`. The delay is uniform in the upper half of it: full jitter
    /// down to zero would let a failing receiver be called again at once. `seed` names the thing that is retried.
    pub fn delay_after(&self, failures: u32, seed: &[u8]) -> Option<Duration> {
        assert!(failures > 0, "a delay follows a failure");
        if failures >= self.failures_max {
            return None;
        }
        Some(self.jittered(failures, seed))
    }

    /// The delay after failure number `failures`, with no end.
    pub fn jittered(&self, failures: u32, seed: &[u8]) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let ceiling = self.initial.saturating_mul(1 << doublings).min(self.max);
        let half = ceiling / 2;
        half + half.mul_f64(fraction(seed, failures))
    }
}

/// A number in `0.0..1.0` that `seed` and `round` decide.
fn fraction(seed: &[u8], round: u32) -> f64 {
    let digest = Sha256::new().chain_update(seed).chain_update(round.to_be_bytes()).finalize();
    let mut high = [0; 8];
    high.copy_from_slice(&digest[..8]);
    // 53 bits: what an f64 holds exactly.
    (u64::from_be_bytes(high) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy =
        RetryPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(60), failures_max: 12 };

    // CLM-7
    #[test]
    fn delays_double_up_to_the_cap_and_end_with_the_budget() {
        for failures in 1..POLICY.failures_max {
            let ceiling = Duration::from_secs(1 << (failures - 1)).min(POLICY.max);
            let delay = POLICY.delay_after(failures, b"wi").unwrap();
            assert!(delay >= ceiling / 2 && delay <= ceiling, "{failures}: {delay:?}");
        }
        assert_eq!(POLICY.delay_after(12, b"wi"), None);
        assert_eq!(POLICY.delay_after(u32::MAX, b"wi"), None);
    }

    #[test]
    fn the_same_history_chooses_the_same_delays_and_another_seed_others() {
        let delays = |seed: &[u8]| (1..12).map(|n| POLICY.jittered(n, seed)).collect::<Vec<_>>();
        assert_eq!(delays(b"a"), delays(b"a"));
        assert_ne!(delays(b"a"), delays(b"b"));
    }
}
