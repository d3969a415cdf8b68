//! A client that sends exactly what it is told to, byte for byte.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One connection.
pub(super) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

/// One response.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Reply {
    /// The value of a header, if it is there.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// When to come back, in seconds.
    pub(super) fn retry_after(&self) -> u32 {
        self.header("retry-after").unwrap().parse().unwrap()
    }

    /// The body, which is JSON.
    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The code of a typed error.
    pub(super) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), received: Vec::new() }
    }

    /// Writes these bytes. A peer that stopped reading is no error: its answer is what counts.
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Says that nothing more will be sent.
    pub(super) async fn finish_sending(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// The next response, `100 Continue` included.
    pub(super) async fn reply(&mut self) -> Reply {
        let end = loop {
            if let Some(place) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                break place;
            }
            assert!(self.receive().await, "closed before a response: {:?}", String::from_utf8_lossy(&self.received));
        };
        let head = String::from_utf8(self.received.drain(..end + 4).collect()).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut reply = Reply { status, headers, body: String::new() };
        let length: usize = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
        while self.received.len() < length {
            assert!(self.receive().await, "closed inside a response");
        }
        reply.body = String::from_utf8(self.received.drain(..length).collect()).unwrap();
        reply
    }

    /// Waits until the peer closes; what it still says is dropped.
    pub(super) async fn closed(&mut self) {
        while self.receive().await {}
    }

    /// All that still comes, as text.
    pub(super) async fn rest(mut self) -> String {
        self.closed().await;
        String::from_utf8(self.received).unwrap()
    }

    async fn receive(&mut self) -> bool {
        self.stream.read_buf(&mut self.received).await.is_ok_and(|count| count > 0)
    }
}

/// A request with a `content-length`.
pub(super) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let length = body.len().to_string();
    let mut bytes = head(method, path, &[headers, &[("content-length", &length)]].concat());
    bytes.extend_from_slice(body);
    bytes
}

/// The head of a request.
pub(super) fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.into_bytes()
}
