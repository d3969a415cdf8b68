//! A client for requests whose answer matters: the whole of it is read, up to a bound.

use std::path::PathBuf;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::HeaderMap;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, timeout_at};

use super::{ConnectError, Connector, Dialer, Guard, cause, client_config, innermost};

/// The most that is buffered of an answer's head, in bytes; a longer one is a broken answer.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How a [`Client`] calls.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Networks that may be called although they are private, in CIDR notation.
    pub allow_networks: Vec<String>,
    /// Authorities in PEM whose certificates are taken beside those of the public ones.
    pub ca_file: Option<PathBuf>,
    /// Addresses that are never called: the host's own listeners.
    pub deny_addresses: Vec<std::net::SocketAddr>,
    /// Idle connections kept a host.
    pub idle_connections_max: usize,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
}

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ClientError(pub String);

/// Calls any host that the guard lets through; clones share connections.
#[derive(Clone)]
pub struct Client {
    client: HyperClient<Connector, Full<Bytes>>,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, as it came.
    pub body: Bytes,
}

/// Why there is no whole answer. The texts name no path, no query and no header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The guard refuses the address, or the name is none.
    #[error("{0}")]
    Denied(String),
    /// There is no connection.
    #[error("{0}")]
    Unreachable(String),
    /// There was a connection, and it broke.
    #[error("{0}")]
    Broken(String),
    /// The deadline passed.
    #[error("no whole answer in time")]
    TimedOut,
    /// The body is longer than is read.
    #[error("the answer is longer than {bytes_max} bytes")]
    TooLong {
        /// What is read.
        bytes_max: usize,
    },
}

impl Client {
    /// A client with no connections.
    pub fn new(options: &ClientOptions) -> Result<Self, ClientError> {
        let guard = Guard::new(&options.allow_networks, &options.deny_addresses).map_err(ClientError)?;
        let tls = client_config("publish.ca_file", options.ca_file.as_deref()).map_err(ClientError)?;
        let client = HyperClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(options.idle_timeout)
            .pool_max_idle_per_host(options.idle_connections_max)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .build(Connector::new(Dialer::for_any(guard), tls));
        Ok(Self { client })
    }

    /// Sends a request and reads its answer, of at most `body_bytes_max`.
    pub async fn call(
        &self,
        request: Request<Full<Bytes>>,
        body_bytes_max: usize,
        deadline: Instant,
    ) -> Result<Response, CallFailure> {
        let whole = async {
            let response = self.client.request(request).await.map_err(|error| broken(&error))?;
            let (head, body) = response.into_parts();
            let body = read(body, body_bytes_max).await?;
            Ok(Response { status: head.status, headers: head.headers, body })
        };
        timeout_at(deadline, whole).await.unwrap_or(Err(CallFailure::TimedOut))
    }
}

#[cfg(test)]
impl Client {
    /// A client that may call these networks although they are private.
    pub(crate) fn allowing(networks: &[&str]) -> Self {
        let options = ClientOptions {
            allow_networks: networks.iter().map(|network| (*network).to_owned()).collect(),
            ca_file: None,
            deny_addresses: Vec::new(),
            idle_connections_max: 1,
            idle_timeout: Duration::from_secs(1),
        };
        Self::new(&options).unwrap()
    }
}

fn broken(error: &hyper_util::client::legacy::Error) -> CallFailure {
    match cause::<ConnectError>(error) {
        Some(refused @ (ConnectError::Denied(_) | ConnectError::Host(_))) => CallFailure::Denied(refused.to_string()),
        Some(
            failed @ (ConnectError::TooManyNames
            | ConnectError::Lookup(_)
            | ConnectError::NoAddress
            | ConnectError::Dial(_)
            | ConnectError::Tls(_)
            | ConnectError::TimedOut),
        ) => CallFailure::Unreachable(failed.to_string()),
        None => CallFailure::Broken(format!("the connection broke: {}", innermost(error))),
    }
}

/// Reads a body. What it says of its own length is believed only where it is too much.
async fn read(mut body: Incoming, bytes_max: usize) -> Result<Bytes, CallFailure> {
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(CallFailure::TooLong { bytes_max });
    }
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| CallFailure::Broken(format!("the answer broke off: {}", innermost(&error))))?;
        let Some(data) = frame.data_ref() else { continue };
        if read.len() + data.len() > bytes_max {
            return Err(CallFailure::TooLong { bytes_max });
        }
        read.extend_from_slice(data);
    }
    Ok(read.freeze())
}

#[cfg(test)]
mod tests;
