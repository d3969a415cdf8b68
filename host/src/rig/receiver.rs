//! A receiving server: where the host's messages arrive, with whatever manners the one who starts it wants to see.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sha2::Sha256;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::env::{self, Env};
use crate::model::time::Timestamp;

/// The most that is read of a message, in bytes.
const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A message as it arrived.
#[derive(Debug, Clone)]
pub struct Received {
    /// `webhook-id`: the same on every attempt.
    pub id: String,
    /// The path that it was sent to.
    pub path: String,
    /// Every header.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// When its last byte was there.
    pub at: Timestamp,
}

/// What a receiver does with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Answers with this status.
    Status(StatusCode),
    /// Answers so.
    Answer {
        /// The status.
        status: StatusCode,
        /// The headers; the body's length is none of them.
        headers: HeaderMap,
        /// The body.
        body: Bytes,
    },
    /// Answers `200` after this time.
    Late(Duration),
    /// Closes the connection with no answer.
    Hangup,
}

impl Reply {
    /// What a healthy receiver says.
    pub const OK: Reply = Reply::Status(StatusCode::OK);
}

/// A running receiver; it stops when this is dropped.
pub struct Receiver {
    /// Where it listens.
    pub address: SocketAddr,
    _stop: DropGuard,
}

type Handler = Arc<dyn Fn(Received) -> Reply + Send + Sync>;

impl Receiver {
    /// Listens on a port of its own, and gives every message to `handler`.
    pub async fn start(handler: impl Fn(Received) -> Reply + Send + Sync + 'static) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.context("binding a receiver")?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let handler: Handler = Arc::new(handler);
        drop(env::spawn("rig receiver", accept(listener, handler, stop.clone())));
        Ok(Self { address, _stop: stop.drop_guard() })
    }
}

async fn accept(listener: TcpListener, handler: Handler, stop: CancellationToken) {
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let Ok((stream, _)) = accepted else { continue };
        let (handler, stop) = (handler.clone(), stop.clone());
        drop(env::spawn("rig receiver connection", async move {
            stop.run_until_cancelled(serve(stream, handler)).await;
        }));
    }
}

async fn serve(stream: TcpStream, handler: Handler) {
    // A sender that goes away ends its connection, and nobody here minds.
    let _ = stream.set_nodelay(true);
    let hangup = CancellationToken::new();
    let service = service_fn(|request| answer(request, handler.clone(), hangup.clone()));
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let _ = hangup.run_until_cancelled(connection).await;
}

async fn answer(
    request: hyper::Request<hyper::body::Incoming>,
    handler: Handler,
    hangup: CancellationToken,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let (status, headers, body) = match http_body_util::Limited::new(body, BODY_BYTES_MAX).collect().await {
        Err(_) => (StatusCode::BAD_REQUEST, HeaderMap::new(), Bytes::new()),
        Ok(body) => {
            let id = head.headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
            let path = head.uri.path().to_owned();
            let at = Env::system().now();
            match handler(Received { id, path, headers: head.headers, body: body.to_bytes(), at }) {
                Reply::Status(status) => (status, HeaderMap::new(), Bytes::new()),
                Reply::Answer { status, headers, body } => (status, headers, body),
                Reply::Late(after) => {
                    env::sleep(after).await;
                    (StatusCode::OK, HeaderMap::new(), Bytes::new())
                }
                Reply::Hangup => {
                    hangup.cancel();
                    std::future::pending().await
                }
            }
        }
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

impl Received {
    /// Whether one of its signatures is right for `secret`, written as Standard Webhooks has it (`whsec_` and base64).
    pub fn is_signed_with(&self, secret: &str) -> bool {
        let text = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok());
        let (Some(timestamp), Some(signatures)) = (text("webhook-timestamp"), text("webhook-signature")) else {
            return false;
        };
        let Ok(key) = BASE64.decode(secret.trim_start_matches("whsec_")) else { return false };
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("HMAC takes keys of any length");
        mac.update(format!("{}.{timestamp}.", self.id).as_bytes());
        mac.update(&self.body);
        let expected = format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()));
        signatures.split(' ').any(|signature| signature == expected)
    }
}
