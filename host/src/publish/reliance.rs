//! Until when a shard's owner relies on its lease: the last look at it before a message is on the wire.
//!
//! An admission is fenced by the store, but between it and the call lie the bodies, the lookup and the connection. An
//! owner that was held up there for longer than its lease must not call any more: its successor has taken the attempt
//! for one whose outcome nobody knows, and may have let an operator cancel the message since.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use crate::env::Clock;

/// Until when an owner relies on its lease, by [`Clock::monotonic`]. Renewals move it on, so it is asked for at each
/// use.
#[derive(Clone)]
pub struct Reliance {
    until: Arc<dyn Fn() -> Duration + Send + Sync>,
    clock: Arc<dyn Clock>,
}

/// The lease can no longer be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its shard's lease could no longer be relied on before it was sent")]
pub(super) struct Overdue;

impl Reliance {
    /// As long as `until` says.
    pub fn new(until: impl Fn() -> Duration + Send + Sync + 'static, clock: Arc<dyn Clock>) -> Self {
        Self { until: Arc::new(until), clock }
    }

    /// For how long from now; not at all once it is over.
    pub(super) fn left(&self) -> Result<Duration, Overdue> {
        let until = (self.until)();
        until.checked_sub(self.clock.monotonic()).filter(|left| !left.is_zero()).ok_or(Overdue)
    }
}

impl fmt::Debug for Reliance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Reliance").finish_non_exhaustive()
    }
}

/// A body that is given to the connection only while the lease is relied on. The connection asks for it after it has
/// put the head together and before it writes any of it, and writes nothing if there is none.
pub(super) struct ReliedBody {
    body: Full<Bytes>,
    reliance: Option<Reliance>,
}

impl ReliedBody {
    pub(super) fn new(body: Full<Bytes>, reliance: Reliance) -> Self {
        Self { body, reliance: Some(reliance) }
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
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
