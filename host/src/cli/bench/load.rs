//! The load generator: keep-alive connections that each send one signed delivery after another.
//!
//! Signing does not affect the measurement: a body is signed once, and sent under many delivery ids.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use http::StatusCode;

use crate::env::{self, Env};
use crate::rig::github::{Delivery, push_body};
use crate::rig::http::Connection;

/// Repositories that pushes come from: each is a source key of its own.
const REPOSITORIES: usize = 512;
/// Size of a push in bytes, as in GitHub's published examples.
const BODY_BYTES: usize = 6_900;
/// Between two progress lines.
const PROGRESS: Duration = Duration::from_secs(5);

/// Pushes to many repositories, signed.
pub(super) fn pushes(secret: &[u8]) -> Vec<Delivery> {
    (0..REPOSITORIES).map(|number| Delivery::signed(secret, "", "push", push_body(number, BODY_BYTES))).collect()
}

/// A load.
#[derive(Clone)]
pub(super) struct Load {
    /// The listener.
    pub(super) address: SocketAddr,
    /// The path of the route.
    pub(super) path: String,
    /// Connections, each with one request in flight.
    pub(super) connections: usize,
    /// Time in which requests begin.
    pub(super) duration: Duration,
    /// Deliveries that are repeated under new delivery ids.
    pub(super) deliveries: Arc<Vec<Delivery>>,
}

/// The answers to a load.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Answers by status.
    pub(super) statuses: BTreeMap<u16, u64>,
    /// Time from the first request to the last answer.
    pub(super) elapsed: Duration,
    /// Latencies of accepted requests in microseconds, sorted.
    latencies: Vec<u32>,
}

impl Outcome {
    /// Requests that were answered `202`.
    pub(super) fn accepted(&self) -> u64 {
        self.statuses.get(&StatusCode::ACCEPTED.as_u16()).copied().unwrap_or(0)
    }

    /// Accepted requests per second.
    pub(super) fn rate(&self) -> f64 {
        self.accepted() as f64 / self.elapsed.as_secs_f64()
    }

    /// A quantile (0.0..=1.0) of the latencies of accepted requests, in milliseconds.
    pub(super) fn latency_ms(&self, share: f64) -> f64 {
        let Some(last) = self.latencies.len().checked_sub(1) else { return 0.0 };
        f64::from(self.latencies[(last as f64 * share).round() as usize]) / 1_000.0
    }
}

/// Sends each delivery once, over one connection: how many were accepted.
pub(super) async fn send_each(load: &Load) -> anyhow::Result<u64> {
    let host = load.address.to_string();
    let mut connection = Connection::open(load.address).await?;
    let mut accepted = 0;
    for (number, delivery) in load.deliveries.iter().enumerate() {
        let delivery = Delivery { id: format!("warm-up-{number}"), ..delivery.clone() };
        let answer = connection.send(delivery.request(&host, &load.path)?).await?;
        accepted += u64::from(answer.status == StatusCode::ACCEPTED);
    }
    Ok(accepted)
}

/// Sends the load, with progress on standard error.
pub(super) async fn run(load: Load, env: &Env) -> anyhow::Result<Outcome> {
    let sent = Arc::new(AtomicU64::new(0));
    let begin = env.clock.monotonic();
    let workers: Vec<_> = (0..load.connections)
        .map(|number| env::spawn("load", work(number, load.clone(), env.clone(), sent.clone())))
        .collect();
    let progress = env::spawn("load progress", report_progress(sent, load.duration));
    let mut outcome = Outcome::default();
    for worker in workers {
        let part = worker.await.context("a load connection panicked")??;
        for (status, count) in part.statuses {
            *outcome.statuses.entry(status).or_default() += count;
        }
        outcome.latencies.extend(part.latencies);
    }
    progress.abort();
    outcome.elapsed = env.clock.monotonic() - begin;
    outcome.latencies.sort_unstable();
    Ok(outcome)
}

async fn work(number: usize, load: Load, env: Env, sent: Arc<AtomicU64>) -> anyhow::Result<Outcome> {
    let host = load.address.to_string();
    let end = env.clock.monotonic() + load.duration;
    let mut connection = Connection::open(load.address).await?;
    let mut outcome = Outcome::default();
    let run = u64::from_be_bytes(*env.id_entropy().first_chunk().expect("ten bytes hold eight"));
    for round in 0.. {
        let begin = env.clock.monotonic();
        if begin >= end {
            break;
        }
        let mut delivery = load.deliveries[(number + round * load.connections) % load.deliveries.len()].clone();
        delivery.id = format!("{run:016x}-{number:04x}-{round:08x}");
        let answer = connection.send(delivery.request(&host, &load.path)?).await?;
        *outcome.statuses.entry(answer.status.as_u16()).or_default() += 1;
        if answer.status == StatusCode::ACCEPTED {
            let latency = (env.clock.monotonic() - begin).as_micros();
            outcome.latencies.push(u32::try_from(latency).unwrap_or(u32::MAX));
        }
        sent.fetch_add(1, Ordering::Relaxed);
    }
    Ok(outcome)
}

async fn report_progress(sent: Arc<AtomicU64>, duration: Duration) {
    let mut before = 0;
    let mut passed = PROGRESS;
    while passed < duration {
        env::sleep(PROGRESS).await;
        let now = sent.load(Ordering::Relaxed);
        eprintln!("  {} s: {} requests/s", passed.as_secs(), (now - before) / PROGRESS.as_secs());
        before = now;
        passed += PROGRESS;
    }
}
