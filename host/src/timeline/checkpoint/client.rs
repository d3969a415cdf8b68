//! How the S3 client speaks HTTP: with the host's own TLS, no proxy, no redirects, and few idle connections.

use std::error::Error as StdError;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector as Dialer;
use hyper_util::client::legacy::{Client as HyperClient, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};

use crate::outbound;

/// Idle connections that are kept.
const IDLE_CONNECTIONS_MAX: usize = 2;
/// How long.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a connection may take to come about.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// An HTTP client for an object store.
#[derive(Debug, Clone)]
pub(super) struct Client(HyperClient<HttpsConnector<Dialer>, HttpRequestBody>);

impl Client {
    /// The authorities of `ca_file` are trusted beside the public ones.
    pub(super) fn new(ca_file: Option<&Path>) -> Result<Self, String> {
        let tls = outbound::client_config("checkpoints.ca_file", ca_file)?;
        let mut dialer = Dialer::new();
        dialer.enforce_http(false);
        dialer.set_connect_timeout(Some(CONNECT_TIME_MAX));
        dialer.set_nodelay(true);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(dialer);
        let client = HyperClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME_MAX)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(connector);
        Ok(Self(client))
    }
}

impl HttpConnector for Client {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.request(request).await.map_err(failed)?;
        Ok(response.map(|body| HttpResponseBody::new(body.map_err(interrupted))))
    }
}

/// A request that got no answer, by what the object store's client may do about it.
fn failed(error: Error) -> HttpError {
    let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted };
    HttpError::new(kind, innermost(Box::new(error)))
}

fn interrupted(error: hyper::Error) -> HttpError {
    HttpError::new(HttpErrorKind::Interrupted, error)
}

/// The text of the last cause: hyper's own says only that something went wrong.
fn innermost(error: Box<dyn StdError>) -> std::io::Error {
    let mut cause: &dyn StdError = &*error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    std::io::Error::other(cause.to_string())
}
