//! Sockets: who is let in, how long a head may take, and how it all ends.
//!
//! Invariants:
//! - No connection is dropped for want of a place (ADM-2). Above [`Bounds::connections_max`] a connection is answered
//!   `503` and closed; when even those are too many, the next ones wait in the kernel's queue for one of them to end,
//!   which [`SHED_TIME_MAX`] bounds.
//! - Everything that a peer can make wait has an end: a head, an idle connection, an answer that is not read.
//! - Stopping answers everybody: new requests `503`, those whose body is there as ever, those whose body still arrives
//!   after [`LATE_BODIES_MAX`] `503`, and then connections are closed, not cut.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admit::Intake;
use super::complaint::Complaint;
use crate::env;

/// The largest head of a request. Also what one connection may buffer, so that all together stay far below the budget
/// of bodies.
pub(super) const HEAD_BYTES_MAX: usize = 128 * 1024;

/// How long a head may take, and how long a connection may be idle.
const HEAD_TIME_MAX: Duration = Duration::from_secs(20);

/// How old a connection gets before it is closed behind its next answer.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(600);

/// How long a connection that is turned away may take to read why.
const SHED_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a connection that is being closed may take to write its last answer, once there is one.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);

/// How long to wait when the machine has no descriptor left for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long bodies may still arrive once the host stops: one that is nearly there is taken, and one that drips does not
/// use up the time to stop.
const LATE_BODIES_MAX: Duration = Duration::from_secs(1);

/// How many connections there may be, and how long their bodies are waited for at the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Those that are served.
    pub(super) connections_max: usize,
    /// Those that are turned away at one time.
    pub(super) shedding_max: usize,
    /// How long bodies may still arrive once the host stops.
    pub(super) late_bodies_max: Duration,
}

impl Bounds {
    /// Enough for the budget of requests to be reached while as many connections again are idle between theirs.
    pub(super) fn for_requests(requests_max: usize) -> Self {
        Self {
            connections_max: requests_max.saturating_mul(2).min(Semaphore::MAX_PERMITS),
            shedding_max: 64,
            late_bodies_max: LATE_BODIES_MAX,
        }
    }

    /// File descriptors that the connections take, all together.
    pub(super) fn descriptors(self) -> usize {
        self.connections_max + self.shedding_max
    }
}

/// What becomes of a connection.
#[derive(Debug, Clone, Copy)]
enum Treatment {
    /// Its requests are admitted.
    Served,
    /// Its one request is answered `503`.
    TurnedAway,
}

impl Treatment {
    /// How long the connection may last.
    fn time_max(self) -> Duration {
        match self {
            Treatment::Served => CONNECTION_AGE_MAX,
            Treatment::TurnedAway => SHED_TIME_MAX,
        }
    }
}

/// The place that a connection takes while it lasts.
struct Place {
    treatment: Treatment,
    _permit: OwnedSemaphorePermit,
}

/// Serves until `stop`, drains, and returns.
pub(super) async fn run(listener: TcpListener, intake: Arc<Intake>, bounds: Bounds, stop: CancellationToken) {
    let closing = CancellationToken::new();
    let connections = TaskTracker::new();
    let stopping = async {
        stop.cancelled().await;
        if !intake.drain(bounds.late_bodies_max).await {
            tracing::warn!("some deliveries were still being written when intake closed");
        }
        closing.cancel();
    };
    // Accepting goes on while it drains: whoever comes is told to come back.
    tokio::join!(accept_all(&listener, &intake, bounds, &closing, &connections), stopping);
    drop(listener);
    connections.close();
    // Each closes within this time by itself; what is left belongs to peers that do not read.
    let _ = timeout_at(env::deadline(CLOSE_TIME_MAX), connections.wait()).await;
}

async fn accept_all(
    listener: &TcpListener,
    intake: &Arc<Intake>,
    bounds: Bounds,
    closing: &CancellationToken,
    connections: &TaskTracker,
) {
    let serving = Arc::new(Semaphore::new(bounds.connections_max));
    let shedding = Arc::new(Semaphore::new(bounds.shedding_max));
    let accept_complaint = Complaint::default();
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let place = place(&serving, &shedding).await;
                    let serving = serve_connection(stream, place, intake.clone(), closing.clone());
                    drop(env::spawn("intake connection", connections.track_future(serving)));
                }
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    if accept_complaint.is_due(intake.monotonic()) {
                        tracing::warn!(%error, "no connection can be accepted for now");
                    }
                    env::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = closing.cancelled() => {}
        () = accepting => {}
    }
}

/// A place for one more connection: among those that are served if there is one, or else whichever is free first.
async fn place(serving: &Arc<Semaphore>, shedding: &Arc<Semaphore>) -> Place {
    let (treatment, permit) = tokio::select! {
        biased;
        permit = serving.clone().acquire_owned() => (Treatment::Served, permit),
        permit = shedding.clone().acquire_owned() => (Treatment::TurnedAway, permit),
    };
    Place { treatment, _permit: permit.expect("these semaphores are never closed") }
}

/// Errors of `accept` that belong to the connection that it would have returned.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

async fn serve_connection(stream: TcpStream, place: Place, intake: Arc<Intake>, closing: CancellationToken) {
    // An answer is one small write, which must not wait for an acknowledgement. Without the option it is only slower.
    let _ = stream.set_nodelay(true);
    let treatment = place.treatment;
    let service = service_fn(|request| {
        let intake = intake.clone();
        async move {
            Ok::<_, Infallible>(match treatment {
                Treatment::Served => intake.answer(request).await,
                Treatment::TurnedAway => intake.shed(request),
            })
        }
    });
    let mut connection = pin!(http().serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = closing.cancelled() => None,
        () = env::sleep(treatment.time_max()) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            // A request may have just begun.
            let patience = intake.deadline() + CLOSE_TIME_MAX;
            timeout_at(env::deadline(patience), connection).await.unwrap_or(Ok(()))
        }
    };
    // All other ends are the peer's own affair: it went away, was idle, or took too long.
    if ended.is_err_and(|error| error.is_parse()) {
        intake.meters.malformed.increment(1);
    }
    drop(place);
}

fn http() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        // A sender may close its side once it has sent its request, and still read the answer.
        .half_close(true);
    builder
}
