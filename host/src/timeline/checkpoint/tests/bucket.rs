//! As much of S3 as checkpoints need, in memory, on loopback.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;

use crate::env;

/// The one bucket that there is.
pub(super) const BUCKET: &str = "checkpoints";

const TIME: &str = "2026-01-01T00:00:00.000Z";

#[derive(Default)]
struct Content {
    objects: BTreeMap<String, Bytes>,
    parts: BTreeMap<u32, Bytes>,
}

type Shared = Arc<Mutex<Content>>;

/// A server that runs until the test ends.
pub(super) async fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(answer).layer(DefaultBodyLimit::disable()).with_state(Shared::default());
    env::spawn("test bucket", async move { axum::serve(listener, router).await });
    address
}

async fn answer(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let signed = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !signed.starts_with("AWS4-HMAC-SHA256 Credential=who/") {
        return StatusCode::FORBIDDEN.into_response();
    }
    let Some(key) = uri.path().strip_prefix(&format!("/{BUCKET}")) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let key = key.trim_start_matches('/').to_owned();
    let mut content = shared.lock().unwrap_or_else(PoisonError::into_inner);
    match method {
        Method::GET if query.contains_key("list-type") => list(&content, &query),
        Method::GET => match content.objects.get(&key) {
            Some(bytes) => ([(header::ETAG, "\"1\"")], bytes.clone()).into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        Method::PUT => {
            match query.get("partNumber") {
                Some(number) => content.parts.insert(number.parse().unwrap(), body),
                None => content.objects.insert(key, body),
            };
            [(header::ETAG, "\"1\"")].into_response()
        }
        Method::POST if query.contains_key("uploads") => {
            content.parts.clear();
            xml("<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>".to_owned())
        }
        Method::POST if query.contains_key("uploadId") => {
            let whole: Vec<u8> = std::mem::take(&mut content.parts).into_values().flatten().collect();
            content.objects.insert(key, whole.into());
            xml("<CompleteMultipartUploadResult><ETag>\"1\"</ETag></CompleteMultipartUploadResult>".to_owned())
        }
        Method::POST if query.contains_key("delete") => delete(&mut content, &body),
        Method::DELETE => {
            content.objects.remove(&key);
            StatusCode::NO_CONTENT.into_response()
        }
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

fn list(content: &Content, query: &HashMap<String, String>) -> Response {
    let prefix = query.get("prefix").map_or("", String::as_str);
    let mut text = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
    for (key, bytes) in content.objects.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix)) {
        let size = bytes.len();
        let _ = write!(
            text,
            "<Contents><Key>{key}</Key><LastModified>{TIME}</LastModified><ETag>\"1\"</ETag><Size>{size}</Size></Contents>"
        );
    }
    text.push_str("</ListBucketResult>");
    xml(text)
}

fn delete(content: &mut Content, body: &[u8]) -> Response {
    let body = std::str::from_utf8(body).unwrap();
    let mut text = "<DeleteResult>".to_owned();
    for key in body.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()) {
        content.objects.remove(key);
        let _ = write!(text, "<Deleted><Key>{key}</Key></Deleted>");
    }
    text.push_str("</DeleteResult>");
    xml(text)
}

fn xml(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/xml")], format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{text}"))
        .into_response()
}
