//! A pause that doubles with each failure in a row, up to a bound.

use std::time::Duration;

/// The pause after the next failure.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Begins with `first` and never exceeds `longest`.
    pub(super) const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, first, longest }
    }

    /// The pause for a failure now; the next one is twice as long.
    pub(super) fn fail(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }

    /// The failures in a row are over.
    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_its_bound_and_begins_anew_after_a_success() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(2), seconds(5));
        assert_eq!([backoff.fail(), backoff.fail(), backoff.fail(), backoff.fail()], [2, 4, 5, 5].map(seconds));
        backoff.reset();
        assert_eq!(backoff.fail(), seconds(2));
    }
}
