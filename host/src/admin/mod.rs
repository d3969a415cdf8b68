//! The operators' interface: health, metrics and the API, on a listener of its own.
//!
//! ```text
//!  GET  /healthz                            the process answers
//!  GET  /readyz                             it does its work, or why not
//!  GET  /metrics                            Prometheus text
//!  GET  /api/v1/stats[?exact=true]          how many stand in which state
//!  GET  /api/v1/packs/{pack}/queue          who is next, and why not
//!  GET  /api/v1/events[/{id}]               POST /api/v1/events/{id}/run
//!  GET  /api/v1/work-items/{id}             POST /api/v1/work-items/{id}/skip
//!                                           POST /api/v1/work-items/{id}/replay
//!  GET  /api/v1/messages[/{id}]             POST /api/v1/messages/{id}/cancel
//!                                           POST /api/v1/messages/{id}/reschedule
//!  GET  /api/v1/messages/{id}/why           POST /api/v1/messages/{id}/redrive
//!                                           POST /api/v1/messages/{id}/resolve
//!  GET  /api/v1/destinations[/{name}]       PUT, PATCH, DELETE /api/v1/destinations/{name}
//!  GET  /api/v1/lanes                       POST /api/v1/lanes/gate
//!  GET  /api/v1/shards                      POST /api/v1/lanes/redrive
//!                                           POST /api/v1/shards/{shard}/checkpoint
//!  GET  /api/v1/packs                       POST /api/v1/packs
//!                                           POST /api/v1/packs/{pack}/activate, rollback, deactivate, drain, preview
//!                                           POST /api/v1/packs/preview
//! ```
//!
//! Invariants:
//! - Everything but the two probes is asked for with a bearer token, if there is one. Without one the listener is on
//!   loopback, and answers only what names it by a loopback name: a web page that rebinds its own name reaches nothing.
//! - A secret is in no answer. Bodies are cut to [`BODY_SHOWN_BYTES_MAX`].
//! - Connections, requests, time and pages are bounded; nothing here competes with admission or delivery.
//! - The probes are answered whatever else is asked, and whoever holds connections without asking (`visitors`).
//! - What goes over the wire is defined in [`wire`], apart from the model.

mod access;
mod destinations;
mod error;
mod events;
mod health;
mod lanes;
mod listener;
mod messages;
mod packs;
mod parameters;
mod queue;
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
use axum::routing::{get, post, put};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::env::Env;
use crate::publish::Publisher;
use crate::secrets::Secret;
use crate::store::Store;
use crate::supervise::{DestinationBook, Supervisor};
use crate::timeline::Timeline;

pub use health::describe;
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
    let gate = Arc::new(access::Gate::new(options.token));
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .route("/api/v1/stats", get(queue::stats))
        .route("/api/v1/events", get(events::list))
        .route("/api/v1/events/verify", post(events::verify_last))
        .route("/api/v1/events/{id}", get(events::show))
        .route("/api/v1/events/{id}/run", post(events::run))
        .route("/api/v1/events/{id}/verify", post(events::verify))
        .route("/api/v1/work-items/{id}", get(work_items::show))
        .route("/api/v1/work-items/{id}/skip", post(work_items::skip))
        .route("/api/v1/work-items/{id}/replay", post(work_items::replay))
        .route("/api/v1/messages", get(messages::list))
        .route("/api/v1/messages/{id}", get(messages::show))
        .route("/api/v1/messages/{id}/cancel", post(messages::cancel))
        .route("/api/v1/messages/{id}/reschedule", post(messages::reschedule))
        .route("/api/v1/messages/{id}/redrive", post(messages::redrive))
        .route("/api/v1/messages/{id}/resolve", post(messages::resolve))
        .route("/api/v1/messages/{id}/why", get(why::why))
        .route("/api/v1/destinations", get(destinations::list))
        .route("/api/v1/destinations/{name}", get(destinations::show).delete(destinations::remove))
        .route("/api/v1/destinations/{name}", put(destinations::put).patch(destinations::patch))
        .route("/api/v1/lanes", get(lanes::list))
        .route("/api/v1/lanes/gate", post(lanes::set_gate))
        .route("/api/v1/lanes/redrive", post(lanes::redrive))
        .route("/api/v1/shards", get(shards::list))
        .route("/api/v1/shards/{shard}/checkpoint", post(shards::checkpoint))
        .route("/api/v1/packs", get(packs::list).post(packs::install))
        .route("/api/v1/packs/{pack}/queue", get(queue::peek))
        .route("/api/v1/packs/{pack}/activate", post(packs::activate))
        .route("/api/v1/packs/{pack}/rollback", post(packs::rollback))
        .route("/api/v1/packs/{pack}/deactivate", post(packs::deactivate))
        .route("/api/v1/packs/{pack}/drain", post(packs::drain))
        .route("/api/v1/packs/{pack}/preview", post(packs::preview_generation))
        .route("/api/v1/packs/preview", post(packs::preview_file))
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .layer(Extension(Arc::new(health::StoreProbe::default())))
        .layer(middleware::from_fn_with_state(gate, access::guard))
        .with_state(parts)
}
