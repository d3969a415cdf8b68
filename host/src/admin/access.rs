//! Access to the admin listener: the token, the origin of a request, and limits on concurrency and time.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

use super::console;
use super::error::ApiError;
use super::visitors::Visitor;
use crate::secrets::Secret;

/// Concurrent requests; the next one is answered `503`. Probes do not count.
pub(super) const REQUESTS_MAX: usize = 32;
/// Time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a request that reads, compiles or runs packs, or moves their work.
const PACK_REQUEST_TIMEOUT: Duration = Duration::from_secs(300);
/// Beginning of the paths of such requests.
const PACK_PATHS: &str = "/api/v1/packs";
/// End of the paths that re-run events.
const VERIFY_PATH: &str = "/verify";
/// Paths without a token: probes carry none. Many of them cost no more than one.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];
/// The header in which a browser says where a request comes from.
const FETCH_SITE: &str = "sec-fetch-site";

/// Extension of a request from an operator: it has the token, or comes from this machine if there is no token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operator;

/// The check in front of the admin listener.
pub(super) struct Gate {
    token: Option<Secret>,
    permits: Semaphore,
}

impl Gate {
    pub(super) fn new(token: Option<Secret>) -> Self {
        Self { token, permits: Semaphore::new(REQUESTS_MAX) }
    }

    /// Whether the request is an operator's; `None` if it does not matter.
    fn admit(&self, is_open: bool, headers: &HeaderMap) -> Result<Option<Operator>, ApiError> {
        match &self.token {
            None => check_local(headers, is_open).map(|()| Some(Operator)),
            Some(token) => match check_token(token, headers) {
                Ok(()) => Ok(Some(Operator)),
                Err(_) if is_open => Ok(None),
                Err(refusal) => Err(refusal),
            },
        }
    }
}

/// Lets a request pass, or refuses it.
pub(super) async fn guard(
    State(gate): State<Arc<Gate>>,
    Extension(visitor): Extension<Arc<Visitor>>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let is_open = OPEN_PATHS.contains(&path) || console::is_path(path);
    match gate.admit(is_open, request.headers()) {
        Ok(Some(operator)) => drop(request.extensions_mut().insert(operator)),
        Ok(None) => {}
        Err(refusal) => return refusal.into_response(),
    }
    if is_open {
        return next.run(request).await;
    }
    if !visitor.let_in() {
        return ApiError::Busy.into_response();
    }
    let Ok(_permit) = gate.permits.try_acquire() else {
        return ApiError::Busy.into_response();
    };
    let path = request.uri().path();
    let runs_packs = path.starts_with(PACK_PATHS) || path.ends_with(VERIFY_PATH);
    let timeout = if runs_packs { PACK_REQUEST_TIMEOUT } else { REQUEST_TIMEOUT };
    match tokio::time::timeout(timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => ApiError::TooSlow.into_response(),
    }
}

fn check_token(token: &Secret, headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let given = given.and_then(|value| match value.split_at_checked(b"Bearer ".len()) {
        Some((scheme, given)) if scheme.eq_ignore_ascii_case(b"Bearer ") => Some(given),
        Some(_) | None => None,
    });
    match given {
        Some(given) if bool::from(given.ct_eq(token.expose())) => Ok(()),
        Some(_) | None => Err(ApiError::Unauthorized),
    }
}

/// Checks that a request without a token comes from this machine and not from a foreign page in its browser. A foreign
/// page shows in `Host` (its name, rebound to loopback), in `Origin`, and in `Sec-Fetch-Site`. Pages of other servers
/// on this machine are foreign too.
fn check_local(headers: &HeaderMap, is_open: bool) -> Result<(), ApiError> {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let origin = headers.get(header::ORIGIN).map(|value| value.to_str().unwrap_or_default());
    let origin_host = origin.map(|origin| origin.split_once("://").map_or("", |(_, authority)| authority));
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    let is_local = host.is_some_and(is_loopback);
    let is_own_page = origin_host.is_none_or(|origin| host.is_some_and(|host| host.eq_ignore_ascii_case(origin)));
    // Any page may link to an open path.
    let is_own_site = is_open || matches!(site, None | Some(b"same-origin" | b"none"));
    if is_local && is_own_page && is_own_site { Ok(()) } else { Err(ApiError::ForeignHost) }
}

/// Tells browsers to trust the content type, to keep the answer to this origin, and not to store it unless the answer
/// itself allows that.
pub(super) async fn for_browsers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Whether an authority names this machine over loopback.
fn is_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<http::uri::Authority>() else { return false };
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
