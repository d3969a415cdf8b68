//! Why a call did not succeed.

use std::time::Duration;

/// Why a call did not succeed. The texts are shown to people: no payload and no secret belongs in them.
///
/// `?` turns any error into [`Failure::Other`], which is tried again. So it is no error itself: print it with `{:?}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Try again later. Each try spends one of the event's attempts.
    Retry {
        /// No sooner than after this; the host's own backing off may take longer.
        delay: Option<Duration>,
        /// Why.
        reason: String,
    },
    /// The connector wants no part of this. It is not tried again.
    Reject(String),
    /// The connector could make no sense of it. It is not tried again.
    InvalidInput(String),
    /// Anything else. It is tried again.
    Other(String),
}

impl Failure {
    /// Try again, when the host sees fit.
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::Retry { delay: None, reason: reason.into() }
    }

    /// Try again, no sooner than after `delay`.
    pub fn retry_after(delay: Duration, reason: impl Into<String>) -> Self {
        Self::Retry { delay: Some(delay), reason: reason.into() }
    }

    /// Never try this again: the connector wants no part of it.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::Reject(reason.into())
    }

    /// Never try this again: no sense could be made of it.
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
