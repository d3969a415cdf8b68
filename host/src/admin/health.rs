//! Health, readiness and metrics.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use metrics::{counter, describe_counter, describe_gauge, gauge};
use tokio::sync::Mutex;

use super::access::Operator;
use super::{AdminParts, Stage, wire};
use crate::store::{Stats, Store};
use crate::timeline::ShardTrouble;

/// How long the store may take to show that it answers.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Age up to which the result of a probe is used again.
const PROBE_FRESH: Duration = Duration::from_secs(1);
/// The answer without the token: reasons name packs, hosts and errors.
const REASONS_HELD_BACK: &str = "send the admin token to see the reasons";
/// How Prometheus names its text format.
const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const WORK_ITEMS: &str = "forebay_work_items";
const MESSAGES: &str = "forebay_messages";
const OLDEST_UNCERTAIN: &str = "forebay_oldest_uncertain_seconds";
const STATS_FAILURES: &str = "forebay_stats_failures_total";

/// Registers the descriptions of this module's metrics.
pub fn describe() {
    describe_gauge!(WORK_ITEMS, "WorkItems now, by state");
    describe_gauge!(MESSAGES, "Messages now, by state");
    describe_gauge!(
        OLDEST_UNCERTAIN,
        metrics::Unit::Seconds,
        "Age of the oldest uncertain message that waits for an operator; 0 if there is none"
    );
    describe_counter!(STATS_FAILURES, "Scrapes whose counts by state could not be read");
}

/// Answers, which shows that the process runs.
pub(super) async fn healthz() -> Json<wire::Health> {
    Json(wire::Health { healthy: true })
}

/// The last probe of the store. Requests during a probe wait for its result, so a crowd costs no more than one.
#[derive(Default)]
pub(super) struct StoreProbe {
    last: Mutex<Option<Probed>>,
}

#[derive(Clone)]
struct Probed {
    /// Monotonic time of the probe.
    at: Duration,
    trouble: Option<String>,
}

impl StoreProbe {
    async fn trouble(&self, parts: &AdminParts) -> Option<String> {
        let mut last = self.last.lock().await;
        let clock = &parts.env.clock;
        if let Some(probed) = &*last
            && clock.monotonic().saturating_sub(probed.at) < PROBE_FRESH
        {
            return probed.trouble.clone();
        }
        let trouble = store_trouble(&parts.store).await;
        *last = Some(Probed { at: clock.monotonic(), trouble: trouble.clone() });
        trouble
    }
}

/// Answers whether the host takes deliveries and works them off.
pub(super) async fn readyz(
    State(parts): State<AdminParts>,
    Extension(probe): Extension<Arc<StoreProbe>>,
    operator: Option<Extension<Operator>>,
) -> Response {
    // A set: the supervisor probes the store too, and reports it in the same words.
    let mut reasons = BTreeSet::new();
    reasons.extend(probe.trouble(&parts).await);
    let stage = parts.stage.borrow().clone();
    let mut notes = Vec::new();
    match stage {
        Stage::Starting => {
            reasons.insert("the host is starting".to_owned());
        }
        Stage::Stopping => {
            reasons.insert("the host is shutting down".to_owned());
        }
        Stage::Serving { supervisor, timeline, destinations, .. } => {
            if operator.is_some() {
                // If the store does not answer, the reasons say so.
                notes = destinations.notes(supervisor.destinations_named()).await.unwrap_or_default();
            }
            reasons.extend(supervisor.readiness().reasons);
            reasons.extend(timeline_trouble(timeline.troubles_now(), timeline.is_looked_after()));
            reasons.extend(destinations.trouble());
        }
    }
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let ready = reasons.is_empty();
    let reasons = match operator {
        None if !ready => vec![REASONS_HELD_BACK.to_owned()],
        Some(_) | None => reasons.into_iter().collect(),
    };
    let body = wire::Readiness { ready, reasons, notes };
    (status, Json(body)).into_response()
}

/// Reasons why a shard publishes nothing.
pub(super) fn timeline_trouble(panicked: Vec<ShardTrouble>, is_looked_after: bool) -> Vec<String> {
    let sentence = |trouble: ShardTrouble| {
        let shard = trouble.shard.0;
        wire::Trouble::from(trouble).sentence(shard)
    };
    let mut reasons: Vec<String> = panicked.into_iter().map(sentence).collect();
    if !is_looked_after {
        reasons.push("the timeline is not publishing: a shard has no owner, or is catching up".to_owned());
    }
    reasons
}

async fn store_trouble(store: &Store) -> Option<String> {
    match tokio::time::timeout(PROBE_TIMEOUT, store.probe()).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("the store does not answer: {error}")),
        Err(_) => Some(format!("the store does not answer: no answer within {} s", PROBE_TIMEOUT.as_secs())),
    }
}

/// The metrics, with present counts by state; without these if the store does not answer.
pub(super) async fn metrics(State(parts): State<AdminParts>) -> Response {
    match tokio::time::timeout(PROBE_TIMEOUT, parts.store.stats()).await {
        Ok(Ok(stats)) => publish(&stats),
        Ok(Err(_)) | Err(_) => counter!(STATS_FAILURES).increment(1),
    }
    match tokio::time::timeout(PROBE_TIMEOUT, parts.store.oldest_uncertain()).await {
        Ok(Ok(since)) => {
            let age = since.map_or(Duration::ZERO, |since| parts.env.now().since(since));
            gauge!(OLDEST_UNCERTAIN).set(age.as_secs_f64());
        }
        Ok(Err(_)) | Err(_) => counter!(STATS_FAILURES).increment(1),
    }
    ([(header::CONTENT_TYPE, METRICS_CONTENT_TYPE)], parts.metrics.render()).into_response()
}

fn publish(stats: &Stats) {
    for (state, count) in &stats.work_items {
        gauge!(WORK_ITEMS, "state" => state.as_str()).set(*count as f64);
    }
    for (state, count) in &stats.messages {
        gauge!(MESSAGES, "state" => state.as_str()).set(*count as f64);
    }
}
