//! The admin listener: HTTP/1.1 connections, bounded in number and in time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, header};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::visitors::{Visitor, Visitors};
use crate::env;

/// Time in which an admitted peer must send the head of a request; also how long its connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which a stranger must send the head of its first request. It has twice as long to receive the answer: the
/// console's files exceed the send buffer for a peer that does not read.
pub(super) const STRANGER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after the system could not accept a connection (out of descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until `stop` is cancelled, and returns once every connection has ended. `patience` is the time for
/// strangers.
pub(super) async fn serve(listener: TcpListener, router: Router, patience: Duration, stop: CancellationToken) {
    let visitors = Visitors::new();
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &visitors) => accepted,
        };
        match accepted {
            Ok((stream, visitor)) => {
                let connection = converse(stream, router.clone(), patience, stop.clone(), visitor);
                env::spawn("admin connection", connections.track_future(connection));
            }
            Err(error) => {
                tracing::warn!(%error, "the admin listener cannot accept");
                env::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    connections.close();
    connections.wait().await;
}

/// The newest connection is accepted before there is room for it; an older one makes room.
async fn accept(listener: &TcpListener, visitors: &Arc<Visitors>) -> io::Result<(TcpStream, Arc<Visitor>)> {
    let (stream, _) = listener.accept().await?;
    Ok((stream, visitors.receive().await))
}

/// Serves one connection until its peer, `stop`, a timeout or the need for its place ends it.
async fn converse(
    stream: TcpStream,
    router: Router,
    patience: Duration,
    stop: CancellationToken,
    visitor: Arc<Visitor>,
) {
    let asking = visitor.clone();
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        asking.ask();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(asking.clone());
        answer(router.clone(), request, asking.clone())
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut dismissed = std::pin::pin!(dismissal(&visitor, patience));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = dismissed.as_mut() => return,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = dismissed => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an admin connection ended early");
    }
}

/// Closes a stranger's connection after its answer: the next stranger needs the place.
async fn answer(
    router: Router,
    request: http::Request<Body>,
    visitor: Arc<Visitor>,
) -> Result<Response, std::convert::Infallible> {
    let mut response = router.oneshot(request).await?;
    if !visitor.is_known() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// Waits until a stranger must go, because it sent no request or does not read its answer.
async fn dismissal(visitor: &Visitor, patience: Duration) {
    tokio::select! {
        () = visitor.must_go() => {}
        () = env::sleep(patience) => {}
    }
    if visitor.is_waiting() {
        return;
    }
    env::sleep(2 * patience).await;
    if visitor.is_known() {
        std::future::pending::<()>().await;
    }
}
