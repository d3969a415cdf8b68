//! The host is killed again and again while providers deliver; at the end everything is counted.
//!
//! What happens is decided by a seed, which is printed; `FOREBAY_SEED` sets it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use forebay::cli::rig::github::{Delivery, push_body};
use forebay::cli::rig::http::Connection;
use forebay::cli::rig::site::NAMESPACE;
use forebay::env::{self, Env};
use forebay::model::time::Timestamp;
use forebay_tests::world::{World, event_ids, signed};
use forebay_tests::{received, wait};
use http::StatusCode;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

/// How often the host is killed.
const KILLS: usize = 22;
/// After so many kills each, the timeline's RocksDB is deleted before the host starts again.
const KILLS_PER_LOST_TIMELINE: usize = 4;
/// How long a host lives, in milliseconds.
const LIFE_MS: std::ops::Range<u64> = 50..1_200;
/// Providers that deliver at once.
const CLIENTS: usize = 4;
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
struct Acknowledged {
    event: String,
    /// What orders it, and where it stands there.
    source: (usize, usize),
    /// When its delayed messages are due at the earliest, if it emits any.
    delayed_until: Option<Timestamp>,
}

// ADM-3, ADM-5, CLM-3, CLM-5, TL-2, TL-3, TL-6
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nothing_comes_early_over_many_kills() -> anyhow::Result<()> {
    let seed = seed();
    println!("FOREBAY_SEED={seed}");
    let mut world = World::start(&["github", "hostile"]).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let random = StdRng::seed_from_u64(seed.wrapping_add(client as u64 + 1));
            let provider = Provider { client, intake: world.site.host.intake, random, stop: stop.clone() };
            env::spawn("provider", provider.deliver())
        })
        .collect();

    kill_again_and_again(&mut world, StdRng::seed_from_u64(seed)).await?;
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for client in clients {
        acknowledged.extend(client.await??);
    }
    world.settle().await?;
    let nothing_is_left = |stats: &Value| stats["messages"]["scheduled"] == 0;
    wait::until("the last message is due", async || world.admin().stats().await, nothing_is_left).await?;
    world.settle().await?;
    println!("{} deliveries over {KILLS} kills", acknowledged.len());

    every_acknowledged_delivery_is_one_event(&world, &acknowledged).await?;
    sources_kept_their_order(&world, &acknowledged).await?;
    every_message_arrived_in_time(&world, &acknowledged).await?;
    assert!(world.stop().await?.success());
    Ok(())
}

async fn kill_again_and_again(world: &mut World, mut random: StdRng) -> anyhow::Result<()> {
    for kill in 1..=KILLS {
        // The point of this wait is that it means nothing: the host dies wherever it happens to be.
        env::sleep(Duration::from_millis(random.random_range(LIFE_MS))).await;
        world.kill().await?;
        if kill % KILLS_PER_LOST_TIMELINE == 0 {
            std::fs::remove_dir_all(world.site.host.data.join("timeline")).context("deleting the timeline")?;
        }
        world.restart().await?;
    }
    Ok(())
}

/// What delivers about its own sources, each in order, and everything until it has its `202`.
struct Provider {
    client: usize,
    intake: SocketAddr,
    random: StdRng,
    stop: Arc<AtomicBool>,
}

impl Provider {
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
        &self,
        connection: &mut Option<Connection>,
        route: &str,
        delivery: &Delivery,
    ) -> anyhow::Result<Option<String>> {
        let open = match connection {
            Some(open) => open,
            None => connection.insert(Connection::open(self.intake).await?),
        };
        let request = delivery.request(&self.intake.to_string(), &format!("/in/{NAMESPACE}/{route}"))?;
        let answer = open.send(request).await?;
        match answer.status {
            StatusCode::ACCEPTED => Ok(event_ids(&answer)?.pop()),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::NOT_FOUND => Ok(None),
            other => panic!("{other}: {:?}", answer.body),
        }
    }
}

async fn every_acknowledged_delivery_is_one_event(world: &World, acknowledged: &[Acknowledged]) -> anyhow::Result<()> {
    let events = world.admin().events().await?;
    let stored: BTreeSet<&str> = events.iter().filter_map(|event| event["id"].as_str()).collect();
    let answered: BTreeSet<&str> = acknowledged.iter().map(|one| one.event.as_str()).collect();
    assert_eq!(answered.len(), acknowledged.len(), "two deliveries became one Event");
    assert_eq!(stored, answered, "what is stored is not what was acknowledged");
    for event in &events {
        assert_eq!(event["state"], "done", "{event}");
    }
    Ok(())
}

async fn sources_kept_their_order(world: &World, acknowledged: &[Acknowledged]) -> anyhow::Result<()> {
    let mut lanes: BTreeMap<usize, Vec<(usize, String)>> = BTreeMap::new();
    for one in acknowledged {
        let detail = world.admin().event(&one.event).await?;
        let items = detail["work_items"].as_array().context("an event has work items")?;
        assert_eq!(items.len(), 1, "{detail}");
        let finished_at = items[0]["finished_at"].as_str().context("it is done")?.to_owned();
        lanes.entry(one.source.0).or_default().push((one.source.1, finished_at));
    }
    for (lane, mut items) in lanes {
        items.sort();
        // RFC 3339 in UTC sorts as text.
        assert!(items.is_sorted_by(|one, next| one.1 <= next.1), "lane {lane} was not worked off in order: {items:?}");
    }
    Ok(())
}

async fn every_message_arrived_in_time(world: &World, acknowledged: &[Acknowledged]) -> anyhow::Result<()> {
    let arrived = received::messages(&world.sink);
    let mut stored = Vec::new();
    for message in world.admin().messages().await? {
        let id = message["id"].as_str().context("a message has an id")?;
        stored.push(world.admin().get(&format!("/api/v1/messages/{id}")).await?);
    }
    let keys: BTreeSet<&str> = stored.iter().filter_map(|message| message["idempotency_key"].as_str()).collect();
    assert_eq!(keys.len(), stored.len(), "two messages have one key");
    assert_eq!(
        arrived.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        keys,
        "what arrived is not what was emitted"
    );
    let mut due: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
    for message in &stored {
        assert_eq!(message["state"], "published", "{message}");
        let due_at = parse_time(message["due_at"].as_str().context("a message has a due time")?)?;
        for attempt in &arrived[message["idempotency_key"].as_str().context("a message has a key")?] {
            assert!(attempt.at >= due_at, "{message} arrived early, at {:?}", attempt.at);
        }
        due.entry(message["event_id"].as_str().context("a message has an event")?).or_default().push(due_at);
    }
    for one in acknowledged {
        let due = due.get(one.event.as_str()).with_context(|| format!("{} emitted nothing", one.event))?;
        let Some(until) = one.delayed_until else {
            assert_eq!(due.len(), 1, "{one:?}");
            continue;
        };
        // For two of the three the guest or the host computed a later time; the third is due once it is stored, whenever
        // that was.
        assert_eq!(due.len(), 3, "{one:?}");
        assert!(due.iter().filter(|due| **due >= until).count() >= 2, "{one:?}: {due:?}");
    }
    Ok(())
}

/// A time of the API.
fn parse_time(text: &str) -> anyhow::Result<Timestamp> {
    let time: jiff::Timestamp = text.parse().with_context(|| format!("`{text}` is not a time"))?;
    Ok(Timestamp::from_millis(time.as_millisecond()))
}

fn seed() -> u64 {
    match std::env::var("FOREBAY_SEED") {
        Ok(text) => text.parse().expect("FOREBAY_SEED is a number"),
        Err(_) => u64::from_be_bytes(*Env::system().id_entropy().first_chunk().expect("ten bytes hold eight")),
    }
}
