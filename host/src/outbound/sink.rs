//! A destination for tests: a real server on loopback that records what it is sent and answers as it is told, politely
//! or not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

use crate::env;

/// How a [`Sink`] answers a request.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// These bytes, then the next request.
    Raw(String),
    /// These bytes, as soon as there is a permit for it.
    Held(Arc<Semaphore>, String),
    /// Nothing, with the connection left open.
    Never,
    /// Nothing, with the connection closed.
    Close,
    /// These bytes, then the connection is closed.
    BreakOff(String),
    /// These bytes, then one more every few milliseconds, without end.
    Drip(String),
    /// These bytes, then more as fast as they are taken, without end.
    Flood(String),
}

impl Answer {
    /// A whole answer with this status and an empty body.
    pub(crate) fn status(status: u16) -> Self {
        Answer::Raw(format!("HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n"))
    }
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) request_line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    /// The value of the header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(candidate, _)| candidate == name).map(|(_, value)| value.as_str())
    }
}

/// A running server; it stops when dropped.
pub(crate) struct Sink {
    pub(crate) address: SocketAddr,
    pub(crate) received: mpsc::UnboundedReceiver<Received>,
    /// Bytes that each answered connection took after its request, once it has ended.
    pub(crate) flooded: mpsc::UnboundedReceiver<usize>,
    /// Connections that are open.
    pub(crate) open: watch::Receiver<usize>,
    accepting: JoinHandle<()>,
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

struct Script<F> {
    answer: F,
    received: mpsc::UnboundedSender<Received>,
    flooded: mpsc::UnboundedSender<usize>,
    open: watch::Sender<usize>,
}

impl Sink {
    /// Starts a server that answers each request with what `answer` says.
    pub(crate) async fn start(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (received_in, received) = mpsc::unbounded_channel();
        let (flooded_in, flooded) = mpsc::unbounded_channel();
        let (open_in, open) = watch::channel(0);
        let script = Arc::new(Script { answer, received: received_in, flooded: flooded_in, open: open_in });
        let accepting = env::spawn("test sink", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let script = Arc::clone(&script);
                script.open.send_modify(|open| *open += 1);
                env::spawn("test sink connection", async move {
                    script.serve(stream).await;
                    script.open.send_modify(|open| *open -= 1);
                });
            }
        });
        Self { address, received, flooded, open, accepting }
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Received {
        self.received.recv().await.expect("the sink is running")
    }

    /// Waits until this many connections are open.
    pub(crate) async fn until_open(&mut self, wanted: impl FnMut(&usize) -> bool) -> usize {
        *self.open.wait_for(wanted).await.expect("the sink is running")
    }
}

impl<F: Fn(&Received) -> Answer> Script<F> {
    async fn serve(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        while let Some(request) = read_request(&mut stream).await {
            let answer = (self.answer)(&request);
            // A test that ended no longer listens.
            let _ = self.received.send(request);
            match answer {
                Answer::Raw(bytes) => {
                    if stream.write_all(bytes.as_bytes()).await.is_err() {
                        return;
                    }
                }
                Answer::Held(permits, bytes) => {
                    permits.acquire().await.expect("nobody closes it").forget();
                    if stream.write_all(bytes.as_bytes()).await.is_err() {
                        return;
                    }
                }
                Answer::Never => {
                    let _ = stream.read_u8().await;
                    return;
                }
                Answer::Close => return,
                Answer::BreakOff(bytes) => {
                    let _ = stream.write_all(bytes.as_bytes()).await;
                    return;
                }
                Answer::Drip(bytes) => {
                    let _ = stream.write_all(bytes.as_bytes()).await;
                    while stream.write_all(b"x").await.is_ok() {
                        env::sleep(Duration::from_millis(5)).await;
                    }
                    return;
                }
                Answer::Flood(bytes) => {
                    let _ = stream.write_all(bytes.as_bytes()).await;
                    // One chunk of the chunked coding.
                    let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
                    let mut taken = 0;
                    while stream.write_all(&chunk).await.is_ok() {
                        taken += chunk.len();
                    }
                    let _ = self.flooded.send(taken);
                    return;
                }
            }
        }
    }
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let request_line = lines.next()?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut received = Received { request_line, headers, body: Vec::new() };
    let length = received.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    received.body.resize(length, 0);
    stream.read_exact(&mut received.body).await.ok()?;
    Some(received)
}
