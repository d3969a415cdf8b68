//! What an attempt came to: from an answer, or from the lack of one, to an [`Outcome`]. Decisions only; nothing is sent
//! here.
//!
//! | what happened                                    | outcome     | the destination's fault |
//! |--------------------------------------------------|-------------|-------------------------|
//! | 2xx                                              | published   | no                      |
//! | 408, 429, and what its destination retries       | retriable   | it is busy              |
//! | 502, 504: a gateway that does not know           | unknown     | yes                     |
//! | any other 5xx                                    | retriable   | yes                     |
//! | 410: its lane is paused, an operator is told     | retriable   | no                      |
//! | any other answer, redirects among them           | permanent   | no                      |
//! | no connection: refused, no such name, no TLS     | retriable   | yes                     |
//! | the guard denied the address                     | permanent   | no                      |
//! | no answer after the request went out             | unknown     | yes                     |
//! | the message cannot be a request                  | permanent   | no                      |
//! | a secret is missing                              | retriable   | no, but all must wait   |
//! | it was not sent after all                        | retriable   | no                      |
//!
//! The status line decides. A body that drips, breaks off or has no end changes nothing about what the receiver has
//! said.

use std::time::Duration;

use http::StatusCode;
use http::header::{HeaderMap, RETRY_AFTER};

use super::reliance::Overdue;
use super::request::Unsendable;
use crate::lanes;
use crate::model::failure;
use crate::model::message::Outcome;
use crate::model::retry::RetryPolicy;
use crate::model::time::Timestamp;
use crate::outbound::{ConnectError, retry_after};

/// The status of what was there and will not be again (RFC 9110, 15.5.11).
const GONE: u16 = 410;

/// What an attempt came to. The texts are for people: no payload, no secret, no query string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The destination took it; with its status, if it speaks HTTP.
    Taken(Option<u16>),
    /// It is an action, and becomes a WorkItem.
    HandedOff,
    /// The destination answered that it cannot take it now, and works: what it wishes concerns all of its messages.
    Busy { status: u16, wish: Option<Duration> },
    /// The destination does not work, or could not be reached: certainly nothing was taken.
    Failed { status: Option<u16>, wish: Option<Duration>, error: String },
    /// The message went out, at least in part, and nobody knows whether it was taken.
    Unknown { status: Option<u16>, error: String },
    /// The destination says that it is gone.
    Gone,
    /// The message itself is refused: no later attempt does better.
    Refused { status: Option<u16>, error: String },
    /// The guard refuses the destination's address.
    Denied(String),
    /// This host lacks what every message to this destination needs; the operator can mend that.
    Unfit(String),
    /// Nobody was called, for a reason of the host's own that will pass.
    NotMade(String),
}

impl Verdict {
    /// The destination answered with `status`. Those in `retried` say, here, that it may do better later.
    pub(super) fn answered(status: StatusCode, headers: &HeaderMap, retried: &[u16], now: Timestamp) -> Self {
        let status = status.as_u16();
        let wish = || headers.get(RETRY_AFTER).and_then(|value| retry_after(value, now)).filter(|wish| !wish.is_zero());
        let error = || format!("it answered {status}");
        match status {
            200..=299 => Verdict::Taken(Some(status)),
            _ if retried.contains(&status) => Verdict::Busy { status, wish: wish() },
            300..=399 => Verdict::Refused {
                status: Some(status),
                error: format!("it answered {status}: redirects are not followed"),
            },
            408 => Verdict::Busy { status, wish: None },
            429 => Verdict::Busy { status, wish: wish() },
            503 => Verdict::Failed { status: Some(status), wish: wish(), error: error() },
            // A gateway that gave up says nothing about whether whom it asked has taken it.
            502 | 504 => Verdict::Unknown { status: Some(status), error: error() },
            500..=599 => Verdict::Failed { status: Some(status), wish: None, error: error() },
            GONE => Verdict::Gone,
            // What HTTP does not define among them.
            _ => Verdict::Refused { status: Some(status), error: error() },
        }
    }

    /// There was no connection.
    pub(super) fn not_connected(error: &ConnectError) -> Self {
        let text = failure::cut(error.to_string());
        match error {
            ConnectError::Denied(_) => Verdict::Denied(text),
            ConnectError::Host(_) => Verdict::Refused { status: None, error: text },
            ConnectError::TooManyNames
            | ConnectError::Lookup(_)
            | ConnectError::NoAddress
            | ConnectError::Dial(_)
            | ConnectError::Tls(_)
            | ConnectError::TimedOut => Verdict::not_sent(text),
        }
    }

    /// Nothing reached the destination, and that was its fault.
    pub(super) fn not_sent(error: impl Into<String>) -> Self {
        Verdict::Failed { status: None, wish: None, error: failure::cut(error.into()) }
    }

    /// The request went out, at least in part, and no answer came.
    pub(super) fn unanswered(error: impl Into<String>) -> Self {
        Verdict::Unknown { status: None, error: failure::cut(error.into()) }
    }

    /// No request could be made of the message.
    pub(super) fn unsendable(error: &Unsendable) -> Self {
        match error {
            Unsendable::Message(_) => Verdict::Refused { status: None, error: failure::cut(error.to_string()) },
            Unsendable::Secret(_) => Verdict::unfit(error.to_string()),
        }
    }

    /// Its time or the lease was over before it could be sent. Nobody is at fault but the clock; the next attempt, if
    /// there is one, is the shard's owner's of then.
    pub(super) fn overdue(overdue: Overdue) -> Self {
        Verdict::NotMade(overdue.to_string())
    }

    /// See [`Verdict::Unfit`].
    pub(super) fn unfit(error: impl Into<String>) -> Self {
        Verdict::Unfit(failure::cut(error.into()))
    }

    /// See [`Verdict::NotMade`].
    pub(super) fn not_made(error: impl Into<String>) -> Self {
        Verdict::NotMade(failure::cut(error.into()))
    }

    /// What it says about the message.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Verdict::Taken(_) => Outcome::Published,
            Verdict::HandedOff => Outcome::HandedOff,
            Verdict::Busy { wish, .. } | Verdict::Failed { wish, .. } => Outcome::Retriable { retry_after: *wish },
            Verdict::Gone | Verdict::Unfit(_) | Verdict::NotMade(_) => Outcome::Retriable { retry_after: None },
            Verdict::Unknown { .. } => Outcome::Unknown,
            Verdict::Refused { .. } | Verdict::Denied(_) => Outcome::Permanent,
        }
    }

    /// The destination's status, if it gave one.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Verdict::Taken(status)
            | Verdict::Failed { status, .. }
            | Verdict::Unknown { status, .. }
            | Verdict::Refused { status, .. } => *status,
            Verdict::Busy { status, .. } => Some(*status),
            Verdict::Gone => Some(GONE),
            Verdict::HandedOff | Verdict::Denied(_) | Verdict::Unfit(_) | Verdict::NotMade(_) => None,
        }
    }

    /// What went wrong.
    pub(super) fn error(&self) -> Option<String> {
        match self {
            Verdict::Taken(_) | Verdict::HandedOff => None,
            Verdict::Busy { status, .. } => Some(format!("it answered {status}")),
            Verdict::Gone => Some(format!("it answered {GONE}: it is gone, so its lane is paused")),
            Verdict::Failed { error, .. }
            | Verdict::Unknown { error, .. }
            | Verdict::Refused { error, .. }
            | Verdict::Denied(error)
            | Verdict::Unfit(error)
            | Verdict::NotMade(error) => Some(error.clone()),
        }
    }

    /// How long the destination is to be left alone, by all messages. One that is busy and does not say for how long is
    /// so for the first pause of `retry`: the others of its messages would be told the same.
    pub(super) fn lane_delay(&self, retry: &RetryPolicy) -> Option<Duration> {
        match self {
            Verdict::Busy { wish, .. } => Some(wish.unwrap_or(retry.initial).min(retry.max)),
            Verdict::Failed { wish, .. } => wish.map(|wish| wish.min(retry.max)),
            _ => None,
        }
    }

    /// What it says about the destination.
    pub(super) fn of_destination(&self) -> lanes::Verdict {
        match self {
            Verdict::Taken(_) | Verdict::HandedOff | Verdict::Refused { status: Some(_), .. } => {
                lanes::Verdict::Healthy
            }
            Verdict::Busy { .. } | Verdict::Gone => lanes::Verdict::Busy,
            Verdict::Failed { .. } | Verdict::Unknown { .. } => lanes::Verdict::Failed,
            // It was not called; but what is missing is missing for all of its messages, and the circuit holds the
            // others back.
            Verdict::Unfit(_) => lanes::Verdict::Failed,
            Verdict::Refused { status: None, .. } | Verdict::Denied(_) | Verdict::NotMade(_) => {
                lanes::Verdict::NotCalled
            }
        }
    }

    /// Whether it spends one of the message's attempts. What waits for an operator, or was never tried, loses nothing.
    pub(super) fn spends(&self) -> bool {
        !matches!(self, Verdict::Gone | Verdict::Unfit(_) | Verdict::NotMade(_))
    }
}

#[cfg(test)]
mod tests;
