//! The interface for operators: health, metrics, the API and the console, on a listener of its own.
//!
//! ```text
//!  GET  /healthz, /readyz, /metrics         the process answers; it is ready; Prometheus text
//!  /api/v1/…                                the API: [`routes`] has every operation with its description
//!  GET  /api/v1/openapi.json                the description of the API
//!  GET  /console/                           the console
//! ```
//!
//! Invariants:
//! - All requests but the two probes and the console's own files need the bearer token, if one is set. Without a token
//!   the listener is on loopback. It then answers only requests that name it by a loopback name, and from browsers only
//!   those of the console: neither a foreign page nor a rebound name reaches the API.
//! - No answer contains a secret. Bodies are cut to [`BODY_SHOWN_BYTES_MAX`].
//! - Connections, requests, time and pages are bounded; nothing here competes with admission or delivery.
//! - The probes are answered under any load, and while other peers hold connections without a request (`visitors`).
//! - The JSON forms are defined in [`wire`], apart from the model.

mod access;
mod console;
mod destinations;
mod error;
mod error_codes;
mod events;
mod health;
mod lanes;
mod listener;
mod messages;
mod openapi;
mod operations;
mod packs;
mod parameters;
mod queue;
mod retention;
mod routes;
mod shards;
#[cfg(test)]
mod tests;
mod visitors;
mod why;
pub mod wire;
mod work_items;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension};
use axum::middleware;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::env::Env;
use crate::publish::Publisher;
use crate::secrets::Secret;
use crate::store::Store;
use crate::supervise::{DestinationBook, Keeper, Supervisor};
use crate::timeline::Timeline;

pub use console::url as console_url;
pub use health::describe;
pub use openapi::document as openapi;
pub use wire::BODY_SHOWN_BYTES_MAX;

pub use crate::supervise::PREVIEW_EVENTS_MAX;

/// The largest request body.
const REQUEST_BYTES_MAX: usize = 16 * 1_024;

/// Settings of the admin listener.
#[derive(Debug, Clone)]
pub struct AdminOptions {
    /// The bearer token; `None` only on loopback.
    pub token: Option<Secret>,
}

/// What the handlers work with.
#[derive(Clone)]
pub struct AdminParts {
    /// The store.
    pub store: Store,
    /// Recorded metrics.
    pub metrics: PrometheusHandle,
    /// Stage of the host.
    pub stage: watch::Receiver<Stage>,
    /// Time and randomness.
    pub env: Env,
    /// Removes what has been kept long enough.
    pub keeper: Keeper,
}

/// The stage of a host.
#[derive(Clone)]
pub enum Stage {
    /// Some parts do not run yet.
    Starting,
    /// All parts run.
    Serving {
        /// Runs packs and works events off.
        supervisor: Supervisor,
        /// Holds messages until they are due.
        timeline: Timeline,
        /// Calls destinations.
        publisher: Publisher,
        /// Knows the destinations.
        destinations: DestinationBook,
    },
    /// The host takes nothing new.
    Stopping,
}

/// Serves until `stop` is cancelled, then answers the open requests and returns.
pub async fn serve(listener: TcpListener, options: AdminOptions, parts: AdminParts, stop: CancellationToken) {
    listener::serve(listener, router(options, parts), listener::STRANGER_TIMEOUT, stop).await;
}

fn router(options: AdminOptions, parts: AdminParts) -> Router {
    let console = Arc::new(console::Console::new(options.token.is_some()));
    let gate = Arc::new(access::Gate::new(options.token));
    let of_api = routes::operations().into_iter();
    let routes = of_api.map(|operation| (operation.path, operation.handler)).chain(console::routes());
    routes
        .fold(Router::new(), |router, (path, handler)| router.route(path, handler))
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .layer(Extension(Arc::new(health::StoreProbe::default())))
        .layer(Extension(console))
        .layer(middleware::from_fn_with_state(gate, access::guard))
        .layer(middleware::map_response(access::for_browsers))
        .with_state(parts)
}
