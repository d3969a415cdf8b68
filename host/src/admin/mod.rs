//! The operators' interface: health, metrics and the API, on a listener of its own.
//!
//! ```text
//!  GET  /healthz, /readyz, /metrics         the process answers; it does its work; Prometheus text
//!  /api/v1/…                                the API: [`routes`] has every operation with its description
//!  GET  /api/v1/openapi.json                that, for programs
//!  GET  /console/                           the console, for people
//! ```
//!
//! Invariants:
//! - Everything but the two probes and the console's own files is asked for with a bearer token, if there is one.
//!   Without one the listener is on loopback, and answers only what names it by a loopback name, and of a browser's
//!   requests only those of the console: neither a page from elsewhere nor one that rebinds its name reaches anything.
//! - A secret is in no answer. Bodies are cut to [`BODY_SHOWN_BYTES_MAX`].
//! - Connections, requests, time and pages are bounded; nothing here competes with admission or delivery.
//! - The probes are answered whatever else is asked, and whoever holds connections without asking (`visitors`).
//! - What goes over the wire is defined in [`wire`], apart from the model.

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

/// Who may ask.
#[derive(Debug, Clone)]
pub struct AdminOptions {
    /// The bearer token; `None` only on loopback.
    pub token: Option<Secret>,
}

/// What the answers are made of.
#[derive(Clone)]
pub struct AdminParts {
    /// The store.
    pub store: Store,
    /// Recorded metrics.
    pub metrics: PrometheusHandle,
    /// How far the host has come.
    pub stage: watch::Receiver<Stage>,
    /// Time and chance.
    pub env: Env,
    /// Removes what has been kept long enough.
    pub keeper: Keeper,
}

/// How far a host has come.
#[derive(Clone)]
pub enum Stage {
    /// Not everything runs yet.
    Starting,
    /// Everything runs.
    Serving {
        /// Works events off.
        supervisor: Supervisor,
        /// Delivers messages.
        timeline: Timeline,
        /// Calls their destinations.
        publisher: Publisher,
        /// Which these are.
        destinations: DestinationBook,
    },
    /// It takes nothing new.
    Stopping,
}

/// Serves until `stop` is cancelled, then answers what has been asked and returns.
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
