//! A request that holds a place of the admission budget for as long as a suite wants it to.

use bytes::Bytes;
use forebay::rig::site::NAMESPACE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{World, signed};

/// The metric of requests that hold a place of the budget.
pub const REQUESTS_IN_FLIGHT: &str = "forebay_intake_in_flight";
/// The metric of bytes that they hold.
pub const BYTES_IN_FLIGHT: &str = "forebay_intake_bytes_in_flight";

/// A request of which all but the last byte has been sent: it is in flight until that follows.
pub struct Unfinished {
    stream: TcpStream,
    last: Bytes,
}

impl Unfinished {
    /// Delivers all but the last byte of this push.
    pub async fn begin(world: &World, id: &str, body: &str) -> anyhow::Result<Self> {
        let delivery = signed(id, "push", body.to_owned());
        let mut stream = TcpStream::connect(world.site.host.intake).await?;
        let head = format!(
            "POST /in/{NAMESPACE}/github HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nx-github-event: push\r\nx-github-delivery: {id}\r\nx-hub-signature-256: {}\r\n\
             connection: close\r\n\r\n",
            delivery.body.len(),
            delivery.signature,
        );
        stream.write_all(head.as_bytes()).await?;
        let last = delivery.body.slice(delivery.body.len() - 1..);
        stream.write_all(&delivery.body[..delivery.body.len() - 1]).await?;
        Ok(Self { stream, last })
    }

    /// Sends the rest: the answer's status line.
    pub async fn finish(mut self) -> anyhow::Result<String> {
        self.stream.write_all(&self.last).await?;
        Ok(self.answer().await?.lines().next().unwrap_or_default().to_owned())
    }

    /// The whole answer, which may come before the rest is sent.
    pub async fn answer(&mut self) -> anyhow::Result<String> {
        let mut answer = String::new();
        self.stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}
