//! Failures of calls.

use std::time::Duration;

/// The failure of a call. Operators see the texts: put no payload and no secret into them.
///
/// `?` turns any error into [`Failure::Other`], which is retried. Therefore this type is not an error itself: print it
/// with `{:?}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Retry later. Each failure counts against the event's budget.
    Retry {
        /// Least time until the retry; the backoff of the host may take longer.
        delay: Option<Duration>,
        /// The reason.
        reason: String,
    },
    /// The connector rejects the event. It is not retried.
    Reject(String),
    /// The event is malformed. It is not retried.
    InvalidInput(String),
    /// Any other failure. It is retried.
    Other(String),
}

impl Failure {
    /// Retry after the backoff of the host.
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::Retry { delay: None, reason: reason.into() }
    }

    /// Retry after `delay` at the earliest.
    pub fn retry_after(delay: Duration, reason: impl Into<String>) -> Self {
        Self::Retry { delay: Some(delay), reason: reason.into() }
    }

    /// Reject the event; no retry.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::Reject(reason.into())
    }

    /// The event is malformed; no retry.
    pub fn invalid_input(reason: impl Into<String>) -> Self {
        Self::InvalidInput(reason.into())
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Other(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_becomes_a_failure_that_is_tried_again() {
        fn parse(text: &str) -> Result<u32, Failure> {
            Ok(text.parse::<u32>()?)
        }
        assert_eq!(parse("7"), Ok(7));
        assert_eq!(parse("x"), Err(Failure::Other("invalid digit found in string".to_owned())));
    }
}
