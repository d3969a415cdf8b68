//! Until when a message may be sent: the last look at that before it is on the wire.
//!
//! An admission is fenced by the store, but between it and the call lie the bodies, the lookup and the connection. An
//! owner that was held up there for longer than its lease must not call any more: its successor has taken the attempt
//! for one whose outcome nobody knows, and may have let an operator cancel the message since. A message whose time was
//! over there is of no more use either.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use crate::env::Clock;

/// Until when an owner relies on its lease, by [`Clock::monotonic`], and, of one message, until when it may be sent.
/// Renewals move the former on, so it is asked for at each use.
#[derive(Clone)]
pub struct Reliance {
    until: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The message may have expired from here on.
    expires: Option<Duration>,
    clock: Arc<dyn Clock>,
}

/// Why a message may not be sent any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Overdue {
    /// The lease can no longer be relied on.
    #[error("its shard's lease could no longer be relied on before it was sent")]
    Lease,
    /// It may have expired.
    #[error("its time was over before it could be sent")]
    Expiry,
}

impl Reliance {
    /// As long as `until` says.
    pub fn new(until: impl Fn() -> Duration + Send + Sync + 'static, clock: Arc<dyn Clock>) -> Self {
        Self { until: Arc::new(until), expires: None, clock }
    }

    /// The same, of a message that may have expired from this monotonic time on, if it ever does.
    pub(super) fn expiring(self, expires: Option<Duration>) -> Self {
        Self { expires, ..self }
    }

    /// For how long from now; not at all once it is over.
    pub(super) fn left(&self) -> Result<Duration, Overdue> {
        let until = (self.until)();
        let now = self.clock.monotonic();
        let left = |until: Duration| until.checked_sub(now).filter(|left| !left.is_zero());
        let of_message = self.expires.map_or(Ok(Duration::MAX), |expires| left(expires).ok_or(Overdue::Expiry))?;
        left(until).ok_or(Overdue::Lease).map(|of_lease| of_lease.min(of_message))
    }
}

impl fmt::Debug for Reliance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Reliance").finish_non_exhaustive()
    }
}

/// A body that is given to the connection only while its message may be sent. The connection asks for it after it has
/// put the head together and before it writes any of it, and writes nothing if there is none.
///
/// For an empty body it never asks, only for whether it is one. So this is one only while its message may be sent;
/// after that there is something to ask for.
pub(super) struct ReliedBody {
    body: Full<Bytes>,
    reliance: Option<Reliance>,
}

impl ReliedBody {
    pub(super) fn new(body: Full<Bytes>, reliance: Reliance) -> Self {
        Self { body, reliance: Some(reliance) }
    }

    fn is_overdue(&self) -> bool {
        self.reliance.as_ref().is_some_and(|reliance| reliance.left().is_err())
    }
}

impl Body for ReliedBody {
    type Data = Bytes;
    type Error = Overdue;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Overdue>>> {
        // What follows its beginning is on its way.
        if let Some(reliance) = self.reliance.take()
            && let Err(overdue) = reliance.left()
        {
            return Poll::Ready(Some(Err(overdue)));
        }
        Pin::new(&mut self.body).poll_frame(context).map_err(|never| match never {})
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && !self.is_overdue()
    }

    fn size_hint(&self) -> SizeHint {
        // Of an unknown length something is asked for, of none nothing is.
        if self.body.is_end_stream() && self.is_overdue() { SizeHint::new() } else { self.body.size_hint() }
    }
}
