//! The admin listener: HTTP/1.1 connections, bounded in number and in patience.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::env;

/// Connections at once; further ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;
/// How long a connection may take to send the head of a request, and may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after the system could not give a connection (out of descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until `stop` is cancelled, and returns once every connection has ended.
pub(super) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &permits) => accepted,
        };
        match accepted {
            Ok((stream, permit)) => {
                let connection = converse(stream, router.clone(), stop.clone(), permit);
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

async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = permits.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

/// One connection, until its peer or `stop` ends it.
async fn converse(stream: TcpStream, router: Router, stop: CancellationToken, permit: OwnedSemaphorePermit) {
    let service = service_fn(move |request| {
        let request: http::Request<hyper::body::Incoming> = request;
        router.clone().oneshot(request.map(Body::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an admin connection ended early");
    }
    drop(permit);
}
