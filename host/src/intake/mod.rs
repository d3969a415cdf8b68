//! Intake: admission over HTTP, on a listener of its own. No guest runs here: an answer takes milliseconds even while a
//! pack compiles.
//!
//! Invariants:
//! - Overload is decided before any durable work, and answered at once: `503` with `Retry-After`.
//! - `202` comes after the commit.
//! - What is verified is the raw body.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::env::Env;
use crate::model::names::{Namespace, PackName};
use crate::model::pack::{GenerationNumber, Manifest};
use crate::secrets::Secrets;
use crate::store::Store;

/// The admission budget.
#[derive(Debug, Clone)]
pub struct IntakeOptions {
    /// Requests in flight.
    pub requests_max: usize,
    /// Bytes of bodies in flight.
    pub bytes_max: usize,
    /// One body.
    pub body_bytes_max: usize,
    /// From the first byte of the head to the answer.
    pub deadline: Duration,
}

/// The ways in that are open, replaced as a whole; clones share them.
#[derive(Clone)]
pub struct RouteTable {}

/// A generation that admits.
#[derive(Clone)]
pub struct ActiveGeneration {
    /// The pack.
    pub pack: PackName,
    /// Its number.
    pub number: GenerationNumber,
    /// Its routes' rules.
    pub manifest: Arc<Manifest>,
}

/// Two packs want the same route.
#[derive(Debug, thiserror::Error)]
#[error("packs `{first}` and `{second}` both declare the route `{path}`: rename one, or serve only one of them")]
pub struct RouteConflict {
    /// One pack.
    pub first: PackName,
    /// The other.
    pub second: PackName,
    /// The path that both declare.
    pub path: String,
}

impl RouteTable {
    /// A table with no routes.
    pub fn empty() -> Self {
        Self {}
    }

    /// Opens the routes of these generations in each of these namespaces, and closes all others.
    pub fn replace(&self, namespaces: &[Namespace], active: &[ActiveGeneration]) -> Result<(), RouteConflict> {
        let _ = (namespaces, active);
        todo!()
    }
}

/// Serves until `stop` is cancelled, then answers `503` to what still comes and returns once what was admitted has been
/// answered.
pub async fn serve(
    listener: TcpListener,
    options: IntakeOptions,
    store: Store,
    routes: RouteTable,
    secrets: Secrets,
    env: Env,
    stop: CancellationToken,
) {
    let _ = (listener, options, store, routes, secrets, env, stop);
    todo!()
}
