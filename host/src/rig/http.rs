//! A keep-alive HTTP/1.1 connection, one request at a time.

use std::net::SocketAddr;

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::env;

/// A connection to a server on this machine.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // The task ends with the connection, whose errors the sender reports.
        drop(env::spawn("rig connection", connection));
        Ok(Self { sender })
    }

    /// Sends a request, and reads the whole answer.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> anyhow::Result<Answer> {
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: head.status, headers: head.headers, body })
    }
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("{}: not JSON", self.status))
    }
}

/// Asks once, on a connection of its own.
pub async fn get(address: SocketAddr, path: &str) -> anyhow::Result<Answer> {
    let request = Request::get(path).header(http::header::HOST, address.to_string()).body(Full::default())?;
    Connection::open(address).await?.send(request).await
}

/// Posts JSON once, on a connection of its own.
pub async fn post(address: SocketAddr, path: &str, body: &serde_json::Value) -> anyhow::Result<Answer> {
    let request = Request::post(path)
        .header(http::header::HOST, address.to_string())
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Full::from(serde_json::to_vec(body)?))?;
    Connection::open(address).await?.send(request).await
}
