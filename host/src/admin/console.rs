//! The console: a page with its scripts and styles, embedded in this binary.
//!
//! ```text
//!  /, /console             redirect to
//!  /console/               the page: validated by its tag each time
//!  /console/files/{all}/…  its files: cached for good, because `all` is a digest over all of them
//! ```
//!
//! Invariants:
//! - The files are public and say nothing about this host, so they need no token. Their data comes from the API, as it
//!   does for any other client.
//! - The page runs only these scripts and styles, connects only to this listener, and cannot be framed ([`POLICY`]).

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Extension, Path};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest, Sha256};

use super::AdminParts;
use super::error::ApiError;

/// Path of the page.
const PAGE: &str = "/console/";
/// Content security policy of the page. No script writes HTML, so no trusted type is allowed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types 'none'";
/// Placeholders in the page: the folder of its files, the version, and whether a token is needed.
const FILES_AT: &str = "{files}";
const VERSION: &str = "{version}";
const TOKEN: &str = "{token}";
/// Digits of a digest in a tag.
const TAG_DIGITS: usize = 16;

/// A file of the console.
struct File {
    name: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(File {
            name: $name,
            bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/console/", $name)),
        }),*]
    };
}

/// The page itself.
const INDEX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/console/index.html"));

/// The files of the page.
const FILES: &[File] = files![
    "icon.svg",
    "css/tokens.css",
    "css/base.css",
    "css/frame.css",
    "css/parts.css",
    "css/figures.css",
    "css/tables.css",
    "css/dialogs.css",
    "js/main.js",
    "js/actions/asking.js",
    "js/actions/lanes.js",
    "js/actions/messages.js",
    "js/actions/packs.js",
    "js/actions/shards.js",
    "js/actions/work.js",
    "js/api.js",
    "js/charts.js",
    "js/dialog.js",
    "js/dom.js",
    "js/format.js",
    "js/frame.js",
    "js/parts.js",
    "js/refresh.js",
    "js/routes.js",
    "js/session.js",
    "js/states.js",
    "js/views/attention.js",
    "js/views/event.js",
    "js/views/events.js",
    "js/views/lanes.js",
    "js/views/message.js",
    "js/views/messages.js",
    "js/views/overview.js",
    "js/views/packs.js",
    "js/views/queue.js",
    "js/views/shards.js",
    "js/views/work-item.js",
];

/// The console of one listener.
pub(super) struct Console {
    page: Bytes,
    page_tag: HeaderValue,
    /// Digest over all files.
    files_tag: String,
}

impl Console {
    /// The console of a listener that needs a token, or needs none.
    pub(super) fn new(asks_for_token: bool) -> Self {
        let files_tag = tag(FILES.iter().flat_map(|file| [file.name.as_bytes(), file.bytes]));
        let page = INDEX
            .replace(FILES_AT, &format!("files/{files_tag}"))
            .replace(VERSION, env!("CARGO_PKG_VERSION"))
            .replace(TOKEN, if asks_for_token { "asked" } else { "none" });
        let page_tag = format!("\"{}\"", tag([page.as_bytes()]));
        let page_tag = HeaderValue::from_str(&page_tag).unwrap_or(HeaderValue::from_static("\"\""));
        Self { page: page.into(), page_tag, files_tag }
    }
}

/// URL of the console of a listener; `localhost` if it listens on all addresses.
pub fn url(admin: SocketAddr) -> String {
    match admin.ip().is_unspecified() {
        true => format!("http://localhost:{}{PAGE}", admin.port()),
        false => format!("http://{admin}{PAGE}"),
    }
}

/// The routes of the console.
pub(super) fn routes() -> impl Iterator<Item = (&'static str, MethodRouter<AdminParts>)> {
    let to_page = || get(async || Redirect::temporary(PAGE));
    [("/", to_page()), ("/console", to_page()), (PAGE, get(page)), ("/console/files/{tag}/{*name}", get(file))]
        .into_iter()
}

/// Whether a path belongs to the console.
pub(super) fn is_path(path: &str) -> bool {
    matches!(path, "/" | "/console") || path.starts_with(PAGE)
}

async fn page(Extension(console): Extension<Arc<Console>>, headers: HeaderMap) -> Response {
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|tag| *tag == console.page_tag);
    let mut response =
        if known { StatusCode::NOT_MODIFIED.into_response() } else { console.page.clone().into_response() };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::ETAG, console.page_tag.clone());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    response
}

async fn file(Extension(console): Extension<Arc<Console>>, Path((tag, name)): Path<(String, String)>) -> Response {
    let found = FILES.iter().find(|file| file.name == name).filter(|_| tag == console.files_tag);
    let Some(file) = found else {
        return ApiError::NotFound { what: "such file of the console".to_owned() }.into_response();
    };
    let mut response = Bytes::from_static(file.bytes).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type(file.name)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        Some(_) | None => "application/octet-stream",
    }
}

/// The beginning of a digest over `parts`, each preceded by its length.
fn tag<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_be_bytes());
        digest.update(part);
    }
    let mut tag = digest.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    tag.truncate(TAG_DIGITS);
    tag
}

/// Names of the embedded files, for a test that compares them with the folder.
#[cfg(test)]
pub(super) fn names() -> Vec<&'static str> {
    FILES.iter().map(|file| file.name).collect()
}
