//! A client of a running host's admin API.

use std::fmt::{Display, Write};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::exit::Failure;
use super::output::print;
use crate::admin::wire::ErrorBody;

/// The variable with the token.
const TOKEN_VARIABLE: &str = "FOREBAY_ADMIN_TOKEN";
/// Time for one request.
const DEADLINE: Duration = Duration::from_secs(60);
/// Time for a request in which the host reads, compiles or runs packs.
const PACK_DEADLINE: Duration = Duration::from_secs(330);
/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1_024 * 1_024;

/// The host to ask, and the form of the output.
#[derive(Debug, Clone, Args)]
pub(super) struct HostArguments {
    /// The host's admin listener; its token, if it has one, is read from FOREBAY_ADMIN_TOKEN
    #[arg(long, value_name = "URL", env = "FOREBAY_ADMIN_URL", default_value = "http://127.0.0.1:8081")]
    admin: Uri,
    /// Print the API's JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// A client of one host.
pub(super) struct Client {
    http: HttpClient<HttpConnector, Full<Bytes>>,
    authority: http::uri::Authority,
    token: Option<String>,
}

/// A host's answer.
pub(super) struct Answer {
    body: Bytes,
}

impl Client {
    pub(super) fn new(arguments: &HostArguments) -> Result<Self, Failure> {
        Self::at(&arguments.admin)
    }

    /// A client of the host with this admin listener.
    pub(super) fn at(admin: &Uri) -> Result<Self, Failure> {
        let authority = match (admin.scheme_str(), admin.authority()) {
            (Some("http"), Some(authority)) => authority.clone(),
            (Some(_) | None, _) => {
                let reason =
                    "--admin must be a URL like http://127.0.0.1:8081 (https ends at a proxy, not at the host)";
                return Err(Failure::Usage(reason.to_owned()));
            }
        };
        let http = HttpClient::builder(TokioExecutor::new()).build_http();
        let token = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
        Ok(Self { http, authority, token })
    }

    /// GETs a path.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// GETs a path and returns the answer whatever its status.
    pub(super) async fn get_whatever(&self, path: &str) -> Result<Answer, Failure> {
        Ok(self.exchange(Method::GET, path, Bytes::new()).await?.1)
    }

    /// POSTs without a body.
    pub(super) async fn post(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(Method::POST, path, Bytes::new()).await
    }

    /// POSTs `body`.
    pub(super) async fn post_json(&self, path: &str, body: &impl Serialize) -> Result<Answer, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::Failed(error.to_string()))?;
        self.ask(Method::POST, path, body.into()).await
    }

    /// PUTs `body`.
    pub(super) async fn put(&self, path: &str, body: &impl Serialize) -> Result<Answer, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::Failed(error.to_string()))?;
        self.ask(Method::PUT, path, body.into()).await
    }

    /// PATCHes with `body`.
    pub(super) async fn patch(&self, path: &str, body: &impl Serialize) -> Result<Answer, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::Failed(error.to_string()))?;
        self.ask(Method::PATCH, path, body.into()).await
    }

    /// DELETEs a path.
    pub(super) async fn delete(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(Method::DELETE, path, Bytes::new()).await
    }

    /// POSTs a file.
    pub(super) async fn post_file(&self, path: &str, file: Vec<u8>) -> Result<Answer, Failure> {
        self.ask(Method::POST, path, file.into()).await
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, Failure> {
        let (status, answer) = self.exchange(method, path, body).await?;
        if status.is_success() { Ok(answer) } else { Err(refusal(status, &answer.body)) }
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<(StatusCode, Answer), Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.authority))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body)).map_err(|error| Failure::Usage(error.to_string()))?;
        let deadline = if path.starts_with("/api/v1/packs") { PACK_DEADLINE } else { DEADLINE };
        match tokio::time::timeout(deadline, self.send(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.unreachable(format_args!("no answer within {} s", deadline.as_secs()))),
        }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Answer), Failure> {
        let response = self.http.request(request).await.map_err(|error| self.unreachable(with_sources(&error)))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await.map_err(|error| self.unreachable(error))?.to_bytes();
        Ok((status, Answer { body }))
    }

    fn unreachable(&self, reason: impl std::fmt::Display) -> Failure {
        Failure::Unreachable(format!("the host at {} does not answer: {reason}", self.authority))
    }
}

/// A path with a query. Its values are names, states, numbers and ids, whose characters need no escape.
pub(super) struct Query {
    path: String,
    is_bare: bool,
}

impl Query {
    pub(super) fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), is_bare: true }
    }

    /// Adds a parameter if it has a value.
    pub(super) fn and(mut self, name: &str, value: Option<impl Display>) -> Self {
        if let Some(value) = value {
            let separator = if self.is_bare { '?' } else { '&' };
            let _ = write!(self.path, "{separator}{name}={value}");
            self.is_bare = false;
        }
        self
    }

    /// The path with its query.
    pub(super) fn as_str(&self) -> &str {
        &self.path
    }
}

impl Answer {
    /// Prints the answer: as JSON if `host` says so, else as the text that `render` makes of it.
    pub(super) fn show<T: DeserializeOwned>(
        &self,
        host: &HostArguments,
        render: impl FnOnce(T) -> String,
    ) -> Result<(), Failure> {
        let text = if host.json { self.text() } else { render(self.read()?) };
        Ok(print(&text)?)
    }

    /// The answer as it came, with a line end.
    pub(super) fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.body).into_owned();
        text.push('\n');
        text
    }

    /// The answer as a `T`.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Failure::Failed(format!("this version cannot read the host's answer: {error}")))
    }
}

/// The failure that an error of the API means.
pub(super) fn refusal(status: StatusCode, body: &[u8]) -> Failure {
    let text = match serde_json::from_slice::<ErrorBody>(body) {
        Ok(answer) => answer.error.message,
        Err(_) => format!("the host answered {status}"),
    };
    match status {
        StatusCode::BAD_REQUEST => Failure::Usage(text),
        StatusCode::NOT_FOUND => Failure::NotFound(text),
        StatusCode::CONFLICT => Failure::Conflict(text),
        StatusCode::UNAUTHORIZED => Failure::Failed(format!("{text} (set {TOKEN_VARIABLE})")),
        _ => Failure::Failed(text),
    }
}

/// An error with its causes: the text of the HTTP client alone names none.
fn with_sources(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
