//! The HTTP adapter: one attempt, from payload to [`Verdict`].
//!
//! Invariants:
//! - One deadline covers lookup, connect, TLS, head and body.
//! - No redirect is followed, no proxy asked, no body decompressed.
//! - Of an answer no more is read than the options say; none of it is kept but the status and `Retry-After`.
//! - Whether anything was sent decides between "try again" and "nobody knows". In doubt, something was sent.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use tokio::time::{Instant, timeout_at};

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

/// Calls destinations over HTTP.
pub(super) struct HttpAdapter {
    client: Client<Connector, Full<Bytes>>,
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
            .build(Connector::new(dialer, tls));
        Ok(Self { client, channels, response_bytes_max: limits.response_bytes_max, env })
    }

    /// Its connections that are open.
    pub(super) fn channels(&self) -> Channels {
        self.channels.clone()
    }

    /// Makes one attempt. `secrets` sign it; none leaves it unsigned.
    pub(super) async fn call(&self, destination: &Destination, secrets: &[Secret], payload: Payload) -> Verdict {
        let deadline = env::deadline(destination.deadline);
        let mut request = match request::build(&destination.url, payload, secrets, self.env.now()) {
            Ok(request) => request,
            Err(unsendable) => return Verdict::unsendable(&unsendable),
        };
        let connection = capture_connection(&mut request);
        match timeout_at(deadline, self.client.request(request)).await {
            Ok(Ok(response)) => {
                let verdict = Verdict::answered(response.status(), response.headers(), self.env.now());
                drain(response.into_body(), self.response_bytes_max, deadline).await;
                verdict
            }
            Ok(Err(error)) => broken(&error, &connection),
            Err(_elapsed) => {
                let error = format!("no answer within {} ms", destination.deadline.as_millis());
                if was_sent(&connection) { Verdict::unanswered(error) } else { Verdict::not_sent(error) }
            }
        }
    }
}

/// The verdict on a request that ended without an answer.
fn broken(error: &Error, connection: &CaptureConnection) -> Verdict {
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

/// Reads and forgets a body, so that its connection can be used again. One that is too long or too slow is dropped, and its
/// connection with it.
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
