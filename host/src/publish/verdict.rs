//! What an attempt came to: from an answer, or from the lack of one, to an [`Outcome`]. Decisions only; nothing is sent here.
//!
//! | what happened                                    | outcome     | the destination's fault |
//! |--------------------------------------------------|-------------|-------------------------|
//! | 2xx                                              | published   | no                      |
//! | 408, 429                                         | retriable   | no                      |
//! | 5xx                                              | retriable   | yes                     |
//! | 410: its lane is paused, an operator is told     | retriable   | no                      |
//! | any other answer, redirects among them           | permanent   | no                      |
//! | no connection: refused, no such name, no TLS     | retriable   | yes                     |
//! | the guard denied the address                     | permanent   | no                      |
//! | no answer after the request went out             | unknown     | yes                     |
//! | the message cannot be a request                  | permanent   | no                      |
//!
//! The status line decides. A body that drips, breaks off or has no end changes nothing about what the receiver has said.

use std::time::Duration;

use http::StatusCode;
use http::header::{HeaderMap, RETRY_AFTER};

use super::reliance::Overdue;
use super::request::Unsendable;
use crate::model::failure;
use crate::model::message::Outcome;
use crate::model::time::Timestamp;
use crate::outbound::{ConnectError, retry_after};

/// The status of what was there and will not be again (RFC 9110, 15.5.11).
const GONE: u16 = 410;

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    /// What it says about the message.
    pub(super) outcome: Outcome,
    /// The destination's status, if it gave one.
    pub(super) status: Option<u16>,
    /// What went wrong, for people; no payload, no secret, no query string.
    pub(super) error: Option<String>,
    /// How long the destination wishes to be left alone, by all messages.
    pub(super) lane_delay: Option<Duration>,
    /// Whether the destination was at fault, and not the message.
    pub(super) destination_failed: bool,
    /// Whether the destination says that it is gone. Such an attempt is never a message's last: what waits for an operator
    /// loses nothing.
    pub(super) destination_gone: bool,
    /// Whether the guard refused the address.
    pub(super) denied: bool,
    /// Whether this host was at fault: such an attempt is never a message's last.
    pub(super) host_failed: bool,
}

impl Verdict {
    /// The destination answered with `status`.
    pub(super) fn answered(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Self {
        let class = Answer::of(status);
        let retry_after = match class {
            Answer::Throttled | Answer::Unavailable => {
                headers.get(RETRY_AFTER).and_then(|value| retry_after(value, now)).filter(|wish| !wish.is_zero())
            }
            Answer::Success | Answer::Redirect | Answer::TimedOut | Answer::Failed | Answer::Gone | Answer::Refused => {
                None
            }
        };
        let outcome = match class {
            Answer::Success => Outcome::Published,
            Answer::Redirect | Answer::Refused => Outcome::Permanent,
            Answer::TimedOut | Answer::Throttled | Answer::Unavailable | Answer::Failed | Answer::Gone => {
                Outcome::Retriable { retry_after }
            }
        };
        let error = match class {
            Answer::Success => None,
            Answer::Redirect => Some(format!("it answered {}: redirects are not followed", status.as_u16())),
            Answer::Gone => Some(format!("it answered {GONE}: it is gone, so its lane is paused")),
            Answer::TimedOut | Answer::Throttled | Answer::Unavailable | Answer::Failed | Answer::Refused => {
                Some(format!("it answered {}", status.as_u16()))
            }
        };
        Self {
            outcome,
            status: Some(status.as_u16()),
            error,
            lane_delay: retry_after,
            destination_failed: matches!(class, Answer::Unavailable | Answer::Failed),
            destination_gone: class == Answer::Gone,
            denied: false,
            host_failed: false,
        }
    }

    /// It is an action, and becomes a WorkItem.
    pub(super) fn handed_off() -> Self {
        Self::succeeded(Outcome::HandedOff)
    }

    /// The destination took it, without an answer of HTTP's.
    pub(super) fn taken() -> Self {
        Self::succeeded(Outcome::Published)
    }

    fn succeeded(outcome: Outcome) -> Self {
        Self {
            outcome,
            status: None,
            error: None,
            lane_delay: None,
            destination_failed: false,
            destination_gone: false,
            denied: false,
            host_failed: false,
        }
    }

    /// There was no connection.
    pub(super) fn not_connected(error: &ConnectError) -> Self {
        match error {
            ConnectError::Denied(_) => Self { denied: true, ..Self::failed(Outcome::Permanent, error.to_string()) },
            ConnectError::Host(_) => Self::failed(Outcome::Permanent, error.to_string()),
            ConnectError::Lookup(_)
            | ConnectError::NoAddress
            | ConnectError::Dial(_)
            | ConnectError::Tls(_)
            | ConnectError::TimedOut => Self::not_sent(error.to_string()),
        }
    }

    /// Nothing reached the destination, and that was its fault.
    pub(super) fn not_sent(error: impl Into<String>) -> Self {
        Self { destination_failed: true, ..Self::failed(Outcome::Retriable { retry_after: None }, error) }
    }

    /// The request went out, at least in part, and no answer came.
    pub(super) fn unanswered(error: impl Into<String>) -> Self {
        Self { destination_failed: true, ..Self::failed(Outcome::Unknown, error) }
    }

    /// The message was not sent, and that was not the destination's fault.
    pub(super) fn unsendable(error: &Unsendable) -> Self {
        match error {
            Unsendable::Message(_) => Self::failed(Outcome::Permanent, error.to_string()),
            Unsendable::Secret(_) => Self::host_failed(error.to_string()),
        }
    }

    /// The message's time was over before it could be sent; nobody is at fault but the clock.
    pub(super) fn too_late() -> Self {
        let failed =
            Self::failed(Outcome::Retriable { retry_after: None }, "its time was over before it could be sent");
        Self { host_failed: true, ..failed }
    }

    /// The lease ended before it could be sent; the next attempt is its owner's of then.
    pub(super) fn overdue(overdue: Overdue) -> Self {
        Self { host_failed: true, ..Self::failed(Outcome::Retriable { retry_after: None }, overdue.to_string()) }
    }

    /// This host could not do its part; the operator can mend that, so the message waits.
    pub(super) fn host_failed(error: impl Into<String>) -> Self {
        // It concerns every message of the lane alike: the circuit holds the others back.
        let failed = Self::failed(Outcome::Retriable { retry_after: None }, error);
        Self { destination_failed: true, host_failed: true, ..failed }
    }

    fn failed(outcome: Outcome, error: impl Into<String>) -> Self {
        let error = Some(failure::cut(error.into()));
        Self {
            outcome,
            status: None,
            error,
            lane_delay: None,
            destination_failed: false,
            destination_gone: false,
            denied: false,
            host_failed: false,
        }
    }
}

/// Answers, divided by what follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Success,
    Redirect,
    /// 408.
    TimedOut,
    /// 429.
    Throttled,
    /// 503.
    Unavailable,
    /// 410.
    Gone,
    /// Any other 5xx.
    Failed,
    /// Anything else.
    Refused,
}

impl Answer {
    fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            200..=299 => Answer::Success,
            300..=399 => Answer::Redirect,
            408 => Answer::TimedOut,
            429 => Answer::Throttled,
            503 => Answer::Unavailable,
            500..=599 => Answer::Failed,
            GONE => Answer::Gone,
            // What HTTP does not define among them.
            _ => Answer::Refused,
        }
    }
}

#[cfg(test)]
mod tests;
