//! A provider that delivers until every delivery has its `202`, whatever happens to the hosts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use forebay::env::{self, Env};
use forebay::model::time::Timestamp;
use forebay::rig::github::{Delivery, push_body};
use forebay::rig::http::Connection;
use forebay::rig::site::NAMESPACE;
use http::StatusCode;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::world::{event_ids, signed};

/// Objects that each provider reports about: source keys, each in order.
const SOURCES: usize = 3;
/// What a provider waits between two deliveries, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 0..25;
/// One delivery in so many emits a message for later.
const DELAYED_ONE_IN: u32 = 4;
/// How much later, in milliseconds.
const DELAY_MS: std::ops::Range<u64> = 200..3_000;
/// When a message that expires expires: not here.
const FAR_MS: i64 = 86_400_000;
/// What a provider waits before it tries again what got no answer.
const AGAIN: Duration = Duration::from_millis(20);

/// A delivery that had its `202`.
#[derive(Debug)]
pub struct Acknowledged {
    /// Its Event.
    pub event: String,
    /// What orders it, and where it stands there.
    pub source: (usize, usize),
    /// When its delayed messages are due at the earliest, if it emits any.
    pub delayed_until: Option<Timestamp>,
}

/// Providers at work.
pub struct Providers {
    tasks: Vec<JoinHandle<anyhow::Result<Vec<Acknowledged>>>>,
    stop: Arc<AtomicBool>,
}

impl Providers {
    /// Starts `count` providers, who deliver to any of `intakes`.
    pub fn start(count: usize, intakes: &[SocketAddr], seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = |client: usize| {
            let random = StdRng::seed_from_u64(seed.wrapping_add(client as u64 + 1));
            let provider = Provider { client, intakes: intakes.to_vec(), random, stop: stop.clone() };
            env::spawn("provider", provider.deliver())
        };
        Self { tasks: (0..count).map(task).collect(), stop }
    }

    /// Lets each finish its last delivery. Returns what was acknowledged.
    pub async fn stop(self) -> anyhow::Result<Vec<Acknowledged>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut acknowledged = Vec::new();
        for task in self.tasks {
            acknowledged.extend(task.await??);
        }
        Ok(acknowledged)
    }
}

/// What delivers about its own sources, each in order, and everything until it has its `202`.
struct Provider {
    client: usize,
    /// The ways in; each new connection takes one of them.
    intakes: Vec<SocketAddr>,
    random: StdRng,
    stop: Arc<AtomicBool>,
}

impl Provider {
    /// Delivers until it is stopped. Returns what was acknowledged.
    async fn deliver(mut self) -> anyhow::Result<Vec<Acknowledged>> {
        let mut acknowledged = Vec::new();
        let mut connection = None;
        for number in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let source = self.client * SOURCES + self.random.random_range(0..SOURCES);
            let id = format!("{:04}-{number:08}", self.client);
            let delay_ms = self.random.random_ratio(1, DELAYED_ONE_IN).then(|| self.random.random_range(DELAY_MS));
            let now = Env::system().now();
            let (route, delivery) = match delay_ms {
                None => ("github", signed(id, "push", push_body(source, 2_000))),
                Some(delay_ms) => {
                    let now = now.as_millis();
                    let body = json!({
                        "do": "emit_later", "source": format!("source-{source}"), "after_ms": delay_ms,
                        "at_ms": now + delay_ms.cast_signed(), "expire_at_ms": now + FAR_MS,
                    });
                    ("in-order", signed(id, "deed", body.to_string()))
                }
            };
            let delayed_until = delay_ms.map(|delay_ms| now + Duration::from_millis(delay_ms));
            let event = self.deliver_until_acknowledged(&mut connection, route, &delivery).await?;
            // Lanes belong to a pack's source: the two routes order apart.
            let lane = source * 2 + usize::from(delay_ms.is_some());
            acknowledged.push(Acknowledged { event, source: (lane, number), delayed_until });
            env::sleep(Duration::from_millis(self.random.random_range(PAUSE_MS))).await;
        }
        Ok(acknowledged)
    }

    async fn deliver_until_acknowledged(
        &mut self,
        connection: &mut Option<Connection>,
        route: &str,
        delivery: &Delivery,
    ) -> anyhow::Result<String> {
        loop {
            match self.try_once(connection, route, delivery).await {
                Ok(Some(event)) => return Ok(event),
                // Overloaded, starting or shutting down: later.
                Ok(None) => {}
                // Killed: the connection is of no more use.
                Err(_) => *connection = None,
            }
            env::sleep(AGAIN).await;
        }
    }

    async fn try_once(
        &mut self,
        connection: &mut Option<Connection>,
        route: &str,
        delivery: &Delivery,
    ) -> anyhow::Result<Option<String>> {
        let open = match connection {
            Some(open) => open,
            None => {
                let intake = *self.intakes.choose(&mut self.random).context("there is a way in")?;
                connection.insert(Connection::open(intake).await?)
            }
        };
        let request = delivery.request("localhost", &format!("/in/{NAMESPACE}/{route}"))?;
        let answer = open.send(request).await?;
        match answer.status {
            StatusCode::ACCEPTED => Ok(event_ids(&answer)?.pop()),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::NOT_FOUND => Ok(None),
            other => panic!("{other}: {:?}", answer.body),
        }
    }
}
