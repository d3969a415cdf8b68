//! A log line that a request storm cannot repeat without end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// At most one line of a kind in this time; the counters have the rest.
const SILENCE: Duration = Duration::from_secs(10);

/// When a thing may be complained about again.
#[derive(Default)]
pub(super) struct Complaint {
    /// On the monotonic clock, in milliseconds.
    silent_until: AtomicU64,
}

impl Complaint {
    /// Whether it is time for a line; if so, the next one is far away.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let next = now.saturating_add(u64::try_from(SILENCE.as_millis()).unwrap_or(u64::MAX));
        self.silent_until
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |until| (now >= until).then_some(next))
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_then_silence_for_a_while() {
        let complaint = Complaint::default();
        let seconds = [0, 1, 9, 10, 11, 25];
        let due = seconds.map(|second| complaint.is_due(Duration::from_secs(second)));
        assert_eq!(due, [true, false, false, true, false, true]);
    }
}
