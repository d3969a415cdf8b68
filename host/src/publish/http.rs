//! The HTTP adapter: one attempt, from payload to [`Verdict`].
//!
//! Invariants:
//! - One deadline covers lookup, connect, TLS, head and body.
//! - What is not on the wire while its shard's lease is relied on is never sent: lookup, connect and TLS end with it,
//!   and the connection asks for it before it writes.
//! - No redirect is followed, no proxy asked, no body decompressed.
//! - Of an answer no more is read than the options say; none of it is kept but the status and `Retry-After`.
//! - Whether anything was sent decides between "try again" and "nobody knows". In doubt, something was sent.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use tokio::time::{Instant, timeout_at};

use super::reliance::{Overdue, Reliance, ReliedBody};
use super::request;
use super::verdict::Verdict;
use crate::env::{self, Env};
use crate::model::destination::{Destination, Destinations};
use crate::model::url::UrlError;
use crate::outbound::{Channels, ConnectError, Connector, Dialer, Guard, cause, innermost};
use crate::secrets::Secret;
use crate::store::Payload;

/// The most that is buffered of an answer's head, in bytes; a longer one is a broken answer.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The shortest pause between two looks at whether a lease is still relied on, beside those before each step of a call.
const RELIANCE_LOOK_MIN: Duration = Duration::from_millis(5);

/// Calls destinations over HTTP.
pub(super) struct HttpAdapter {
    client: Client<Connector, ReliedBody>,
    dialer: Dialer,
    channels: Channels,
    response_bytes_max: usize,
    env: Env,
}

/// What an [`HttpAdapter`] keeps and reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct HttpLimits {
    /// The most of a response body that is read.
    pub(super) response_bytes_max: usize,
    /// Idle connections kept a destination.
    pub(super) idle_connections_max: usize,
    /// How long an idle connection is kept.
    pub(super) idle_timeout: Duration,
}

impl HttpAdapter {
    /// An adapter for `destinations` behind `guard`.
    pub(super) fn new(
        guard: Guard,
        tls: ClientConfig,
        destinations: &Destinations,
        limits: HttpLimits,
        env: Env,
    ) -> Result<Self, UrlError> {
        let dialer = Dialer::new(guard, destinations.values().map(|destination| &destination.url))?;
        let channels = dialer.channels();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(limits.idle_timeout)
            .pool_max_idle_per_host(limits.idle_connections_max)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .build(Connector::new(dialer.clone(), tls));
        Ok(Self { client, dialer, channels, response_bytes_max: limits.response_bytes_max, env })
    }

    /// From here on it calls these destinations, and no others.
    pub(super) fn follow(&self, destinations: &Destinations) -> Result<(), UrlError> {
        self.dialer.list(destinations.values().map(|destination| &destination.url))
    }

    /// Whether a destination's URL may be called, as far as that is known before it is.
    pub(super) fn check(&self, destination: &Destination) -> Result<(), ConnectError> {
        self.dialer.check(&destination.url)
    }

    /// Its connections that are open.
    pub(super) fn channels(&self) -> Channels {
        self.channels.clone()
    }

    /// Makes one attempt, to be on its way before the end of `reliance`. `secrets` sign it; none leaves it unsigned.
    pub(super) async fn call(
        &self,
        destination: &Destination,
        secrets: &[Secret],
        payload: Payload,
        reliance: &Reliance,
    ) -> Verdict {
        let deadline = env::deadline(destination.deadline);
        let request = match request::build(&destination.url, payload, secrets, self.env.now()) {
            Ok(request) => request,
            Err(unsendable) => return Verdict::unsendable(&unsendable),
        };
        let mut request = request.map(|body| ReliedBody::new(body, reliance.clone()));
        let connection = capture_connection(&mut request);
        let answer = while_relied_on(self.client.request(request), reliance, || was_sent(&connection));
        match timeout_at(deadline, answer).await {
            Ok(Ok(Ok(response))) => {
                let (status, headers) = (response.status(), response.headers());
                let verdict = Verdict::answered(status, headers, &destination.retry_statuses, self.env.now());
                drain(response.into_body(), self.response_bytes_max, deadline).await;
                verdict
            }
            Ok(Ok(Err(error))) => broken(&error, &connection),
            Ok(Err(overdue)) => Verdict::overdue(overdue),
            Err(_elapsed) => {
                let error = format!("no answer within {} ms", destination.deadline.as_millis());
                if was_sent(&connection) { Verdict::unanswered(error) } else { Verdict::not_sent(error) }
            }
        }
    }
}

/// Goes on with a call as long as it is sent or the lease is relied on. That is asked before each step of it: a process
/// that was stopped goes on with whatever it was at.
async fn while_relied_on<T>(
    call: impl Future<Output = T>,
    reliance: &Reliance,
    was_sent: impl Fn() -> bool,
) -> Result<T, Overdue> {
    let mut call = pin!(call);
    let mut over = pin!(env::sleep(reliance.left()?));
    poll_fn(|context| {
        while !was_sent() {
            let left = match reliance.left() {
                Ok(left) => left,
                Err(overdue) => return Poll::Ready(Err(overdue)),
            };
            if over.as_mut().poll(context).is_pending() {
                break;
            }
            // It was renewed meanwhile.
            over.set(env::sleep(left.max(RELIANCE_LOOK_MIN)));
        }
        call.as_mut().poll(context).map(Ok)
    })
    .await
}

/// The verdict on a request that ended without an answer.
fn broken(error: &Error, connection: &CaptureConnection) -> Verdict {
    if let Some(overdue) = cause::<Overdue>(error) {
        return Verdict::overdue(*overdue);
    }
    if let Some(error) = cause::<ConnectError>(error) {
        return Verdict::not_connected(error);
    }
    let cancelled = cause::<hyper::Error>(error).is_some_and(hyper::Error::is_canceled);
    let text = format!("the connection broke: {}", innermost(error));
    // Cancelled means that hyper gave the request back before any of it was written.
    if error.is_connect() || cancelled || !was_sent(connection) {
        Verdict::not_sent(text)
    } else {
        Verdict::unanswered(text)
    }
}

/// Whether a connection had been chosen for the request, from which moment on it may be on its way.
fn was_sent(connection: &CaptureConnection) -> bool {
    connection.connection_metadata().is_some()
}

/// Reads and forgets a body, so that its connection can be used again. One that is too long or too slow is dropped, and
/// its connection with it.
async fn drain(mut body: Incoming, bytes_max: usize, deadline: Instant) {
    if body.size_hint().lower() > bytes_max as u64 {
        return;
    }
    let reading = async {
        let mut left = bytes_max;
        while let Some(Ok(frame)) = body.frame().await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    // Nothing depends on how this ends.
    let _ = timeout_at(deadline, reading).await;
}

#[cfg(test)]
mod tests;
