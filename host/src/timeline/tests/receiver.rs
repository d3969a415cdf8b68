//! A destination on loopback. What it does is the last part of the URL's path: `ok` takes it, `hold` answers when it is
//! let, `fail` fails while it is told to, `refuse` never takes it, `gone` is gone while `fail` fails, `busy` asks to be
//! left alone.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::PATIENCE;
use crate::env::{self, Clock, ManualClock};
use crate::model::ids::MessageId;
use crate::model::time::Timestamp;

/// A receiver that runs until the test ends.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    pub(super) received: mpsc::UnboundedReceiver<(MessageId, Timestamp)>,
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<ManualClock>,
    received: mpsc::UnboundedSender<(MessageId, Timestamp)>,
    /// How many requests are held; `None` once they are let go.
    held: watch::Sender<Option<u32>>,
    fails: AtomicBool,
}

impl Receiver {
    pub(super) async fn start(clock: Arc<ManualClock>) -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        let held = watch::Sender::new(Some(0));
        let shared = Arc::new(Shared { clock, received: sender, held, fails: AtomicBool::new(true) });
        let router = Router::new().route("/{what}", post(answer)).with_state(Arc::clone(&shared));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        env::spawn("test receiver", async move { axum::serve(listener, router).await });
        Self { address, received, shared }
    }

    /// The next message that arrives.
    pub(super) async fn next(&mut self) -> MessageId {
        self.next_at().await.0
    }

    /// The next message that arrives, and what time it was then.
    pub(super) async fn next_at(&mut self) -> (MessageId, Timestamp) {
        let received = tokio::time::timeout_at(env::deadline(PATIENCE), self.received.recv());
        received.await.expect("a message arrives in time").unwrap()
    }

    /// As many messages as arrive next, sorted.
    pub(super) async fn next_sorted(&mut self, count: usize) -> Vec<MessageId> {
        let mut ids = Vec::new();
        while ids.len() < count {
            ids.push(self.next().await);
        }
        ids.sort();
        ids
    }

    /// Waits until exactly this many requests are held.
    pub(super) async fn until_held(&self, count: u32) {
        self.shared.held.subscribe().wait_for(|held| *held == Some(count)).await.unwrap();
    }

    pub(super) fn held(&self) -> Option<u32> {
        *self.shared.held.borrow()
    }

    pub(super) fn let_go(&self) {
        self.shared.held.send_replace(None);
    }

    pub(super) fn recover(&self) {
        self.shared.fails.store(false, Ordering::SeqCst);
    }
}

async fn answer(Path(what): Path<String>, State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let id = headers["webhook-id"].to_str().unwrap().parse().unwrap();
    match what.as_str() {
        "hold" => {
            let mut held = shared.held.subscribe();
            shared.held.send_modify(|held| *held = held.map(|held| held + 1));
            held.wait_for(Option::is_none).await.unwrap();
        }
        "fail" if shared.fails.load(Ordering::SeqCst) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        "gone" if shared.fails.load(Ordering::SeqCst) => return StatusCode::GONE.into_response(),
        "busy" => return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "30")]).into_response(),
        "refuse" => return StatusCode::BAD_REQUEST.into_response(),
        _ => {}
    }
    // A test that has ended no longer listens.
    let _ = shared.received.send((id, shared.clock.now()));
    StatusCode::OK.into_response()
}
