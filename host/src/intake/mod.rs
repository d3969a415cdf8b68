//! Intake: admission over HTTP, on a listener of its own. No guest runs here: an answer takes milliseconds even while a
//! pack compiles.
//!
//! ```text
//! server ──► admit ──► budget     a place among the requests in flight, or 503 at once
//! (sockets)  (order)   routes     which pack and generation admits here, or 404
//!                      handshake  what a provider asks of the address before it delivers
//!                      body       the raw bytes, as they arrive, inside the byte budget, or 413, 408, 400
//!                      judge ──►  verify   the signature over the raw bytes, or 401
//!                      (pure)     keys     which delivery this is, and what it is about, or 400
//!                      store      the durable commit, or 503
//!            answer ◄──┘
//! ```
//!
//! Invariants:
//! - Overload is decided before any durable work, and answered at once: `503` with `Retry-After`.
//! - `202` comes after the commit.
//! - What is verified is the raw body, and what is stored is what was verified.
//! - A refused request leaves nothing but a count. Its reason is counted in full and told outside only as far as it
//!   helps an honest sender.
//! - Every `5xx` is a `503`.

mod admit;
mod answer;
mod body;
mod budget;
mod complaint;
mod handshake;
mod judge;
mod keys;
mod meters;
mod pointer;
mod routes;
mod sample;
mod server;
mod split;
mod verify;

pub use meters::describe;
pub use routes::{ActiveGeneration, RouteConflict, RouteSecret, RouteTable};
pub use sample::Sample;
pub use verify::{keyed_hash, signed_form};

use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::env::Env;
use crate::secrets::Secrets;
use crate::store::Store;

use admit::Intake;
use server::Bounds;

/// The admission budget.
#[derive(Debug, Clone)]
pub struct IntakeOptions {
    /// Requests in flight. Twice as many connections are served; each takes a file descriptor ([`descriptors`]).
    pub requests_max: usize,
    /// Bytes of bodies in flight.
    pub bytes_max: usize,
    /// One body.
    pub body_bytes_max: usize,
    /// From the end of a request's head, for which the server has a bound of its own, to the answer.
    pub deadline: Duration,
    /// The address that providers deliver to, without a path: what some of them sign.
    pub public_url: Option<String>,
}

/// Serves until `stop` is cancelled, then answers `503` to what still comes, a second later also to those whose body
/// still arrives, and returns once everybody has been answered: soon, unless the store is slow, and then after little
/// more than `options.deadline`.
///
/// Install the metrics recorder before: the handles of intake's metrics are taken here, once.
pub async fn serve(
    listener: TcpListener,
    options: IntakeOptions,
    store: Store,
    routes: RouteTable,
    secrets: Secrets,
    env: Env,
    stop: CancellationToken,
) {
    let bounds = Bounds::for_requests(options.requests_max);
    let intake = Intake::new(options, store, routes, secrets, env);
    server::run(listener, intake, bounds, stop).await;
}

/// How many file descriptors the connections of an intake with this budget take at the most.
pub fn descriptors(requests_max: usize) -> usize {
    Bounds::for_requests(requests_max).descriptors()
}

#[cfg(test)]
mod tests;
