//! Who makes a reader's call, and what became of it.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use http::StatusCode;
use http::header::{HeaderMap, RETRY_AFTER};
use tokio::time::Instant;

use super::division::Blame;
use crate::guest::{ReadRequest, ReadResponse};
use crate::model::failure::{Failure, FailureClass};
use crate::model::names::{Namespace, PackName};
use crate::model::pack::Reader;
use crate::model::time::Timestamp;
use crate::outbound::retry_after;

/// Makes the calls of readers: over the network, or from a recording.
pub trait Caller: Send + Sync {
    /// Makes one call. It ends by `deadline`.
    fn call<'a>(&'a self, call: ReaderCall<'a>, deadline: Instant) -> BoxFuture<'a, Result<ReadResponse, Unread>>;
}

/// One call to be made.
#[derive(Debug)]
pub struct ReaderCall<'a> {
    /// The pack.
    pub pack: &'a PackName,
    /// Whose secrets are used.
    pub namespace: &'a Namespace,
    /// The reader.
    pub reader: &'a Reader,
    /// What the guest wrote.
    pub request: ReadRequest,
}

/// What became of a call, for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// Its answer was read by the guest.
    Answered,
    /// The guest did not write the request, or did not read the answer.
    Guest,
    /// 429.
    Throttled,
    /// 5xx, 408.
    Unavailable,
    /// 401, 403, 407.
    Unauthorized,
    /// Any other 4xx.
    Refused,
    /// 3xx.
    Redirected,
    /// The address may not be called.
    Denied,
    /// There is no secret for it.
    NoSecret,
    /// No connection, or it broke.
    Broken,
    /// No answer in time.
    TimedOut,
    /// An answer that is too long.
    TooLong,
}

/// Why a call brought no records.
#[derive(Debug, Clone)]
pub struct Unread {
    /// For counting.
    pub outcome: CallOutcome,
    /// What the events fail with that wanted them.
    pub failure: Failure,
    /// Who may be why, if it was for several keys: whether the others might still be had.
    pub blame: Blame,
}

impl CallOutcome {
    /// Its word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            CallOutcome::Answered => "answered",
            CallOutcome::Guest => "guest",
            CallOutcome::Throttled => "throttled",
            CallOutcome::Unavailable => "unavailable",
            CallOutcome::Unauthorized => "unauthorized",
            CallOutcome::Refused => "refused",
            CallOutcome::Redirected => "redirected",
            CallOutcome::Denied => "denied",
            CallOutcome::NoSecret => "no_secret",
            CallOutcome::Broken => "broken",
            CallOutcome::TimedOut => "timed_out",
            CallOutcome::TooLong => "too_long",
        }
    }
}

impl Unread {
    /// What will not succeed later either.
    pub fn refused(outcome: CallOutcome, reader: &Reader, what: impl std::fmt::Display) -> Self {
        let text = format!("reader `{}`: {what}", reader.name);
        Self { outcome, failure: Failure::new(FailureClass::ReadRefused, text), blame: Blame::All }
    }

    /// What may succeed later, no sooner than after `delay`.
    pub fn failed(
        outcome: CallOutcome,
        reader: &Reader,
        delay: Option<Duration>,
        what: impl std::fmt::Display,
    ) -> Self {
        let text = format!("reader `{}`: {what}", reader.name);
        Self { outcome, failure: Failure::new(FailureClass::ReadFailed { delay }, text), blame: Blame::All }
    }

    /// The guest did not do its part of a call for many events. One that asks for a time is believed to mean all keys.
    pub(super) fn guest(reader: &Reader, function: &str, failure: Failure) -> Self {
        let blame = match failure.class {
            FailureClass::Retry { delay: None }
            | FailureClass::Rejected
            | FailureClass::InvalidInput
            | FailureClass::Panic
            | FailureClass::Trap
            | FailureClass::OutOfFuel
            | FailureClass::Memory
            | FailureClass::BadOutput => Blame::Key,
            FailureClass::Retry { delay: Some(_) }
            | FailureClass::Deadline
            | FailureClass::ReadFailed { .. }
            | FailureClass::ReadRefused
            | FailureClass::Host
            | FailureClass::NotRun => Blame::All,
        };
        let text = format!("reader `{}`, in {function}: {}", reader.name, failure.message);
        Self { outcome: CallOutcome::Guest, failure: Failure::new(failure.class, text), blame }
    }

    /// The same, with somebody else to blame.
    pub fn by(self, blame: Blame) -> Self {
        Self { blame, ..self }
    }

    /// The answer was longer than is read. Fewer keys may have a shorter one.
    pub fn too_long(reader: &Reader) -> Self {
        let bytes_max = reader.response_bytes_max;
        let text = format!("the answer is longer than {bytes_max} bytes, see `response_kib`");
        Self::refused(CallOutcome::TooLong, reader, text).by(Blame::Key)
    }
}

/// Whether the guest is to read an answer of this status; if not, what it means.
pub(super) fn judge(reader: &Reader, status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Result<(), Unread> {
    let code = status.as_u16();
    if status.is_success() || reader.decoded_statuses.contains(&code) {
        return Ok(());
    }
    let wish = || headers.get(RETRY_AFTER).and_then(|value| retry_after(value, now)).filter(|wish| !wish.is_zero());
    let answered = format!("the provider answered {code}");
    Err(match code {
        429 => Unread::failed(CallOutcome::Throttled, reader, wish(), answered),
        503 => Unread::failed(CallOutcome::Unavailable, reader, wish(), answered),
        408 => Unread::failed(CallOutcome::Unavailable, reader, None, answered),
        // It may have failed over one record.
        500..=599 => Unread::failed(CallOutcome::Unavailable, reader, None, answered).by(Blame::KeyOrProvider),
        // The operator can mend it while the event is tried again. One record that nobody may see is forbidden in any
        // company.
        401 | 403 | 407 => {
            let blame = if code == 403 { Blame::KeyOrProvider } else { Blame::All };
            let text = format!("{answered}: does the secret that the manifest names still hold?");
            Unread::failed(CallOutcome::Unauthorized, reader, None, text).by(blame)
        }
        300..=399 => {
            Unread::refused(CallOutcome::Redirected, reader, format!("{answered}: redirects are not followed"))
        }
        _ => Unread::refused(CallOutcome::Refused, reader, answered).by(Blame::Key),
    })
}

/// Calls nobody: for what has no readers.
pub struct Unconnected;

impl Caller for Unconnected {
    fn call<'a>(&'a self, call: ReaderCall<'a>, _: Instant) -> BoxFuture<'a, Result<ReadResponse, Unread>> {
        ready(Err(Unread::refused(CallOutcome::Denied, call.reader, "no provider is called here"))).boxed()
    }
}
