//! What must hold after whatever happened: every acknowledged delivery is one Event and is done, sources kept their
//! order, and every message arrived, none before its time, none after its cancel, and none more often than is accounted
//! for.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use forebay::model::time::Timestamp;

use crate::provider::Acknowledged;
use crate::received;
use crate::world::World;

/// Counts everything, and compares it with what was acknowledged. `cancelled` are messages whose cancel was
/// acknowledged, with the time at which the answer was there.
pub async fn nothing_is_lost(
    world: &World,
    acknowledged: &[Acknowledged],
    cancelled: &BTreeMap<String, Timestamp>,
) -> anyhow::Result<()> {
    every_acknowledged_delivery_is_one_event(world, acknowledged).await?;
    sources_kept_their_order(world, acknowledged).await?;
    every_message_arrived_in_time(world, acknowledged, cancelled).await?;
    no_lane_was_repaired(world).await
}

/// The sweeper finds what a mistake left behind.
async fn no_lane_was_repaired(world: &World) -> anyhow::Result<()> {
    let repairs = world.admin().metric("forebay_lane_repairs_total").await?;
    assert_eq!(repairs, Some(0.0), "lanes were repaired that nobody would have let go on");
    Ok(())
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

async fn every_message_arrived_in_time(
    world: &World,
    acknowledged: &[Acknowledged],
    cancelled: &BTreeMap<String, Timestamp>,
) -> anyhow::Result<()> {
    let arrived = received::messages(&world.sink);
    let mut stored = Vec::new();
    for message in world.admin().messages().await? {
        let id = message["id"].as_str().context("a message has an id")?;
        stored.push(world.admin().get(&format!("/api/v1/messages/{id}")).await?);
    }
    let keys: BTreeSet<&str> = stored.iter().filter_map(|message| message["idempotency_key"].as_str()).collect();
    assert_eq!(keys.len(), stored.len(), "two messages have one key");
    assert!(arrived.keys().all(|key| keys.contains(key.as_str())), "something arrived that was not emitted");
    let (mut gone, mut again) = (BTreeSet::new(), 0);
    let mut due: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
    for message in &stored {
        let due_at = parse_time(message["due_at"].as_str().context("a message has a due time")?)?;
        let arrivals = arrived.get(message["idempotency_key"].as_str().context("a message has a key")?);
        let arrivals = arrivals.map(Vec::as_slice).unwrap_or_default();
        assert!(arrivals.iter().all(|arrival| arrival.at >= due_at), "{message} arrived early");
        let uncertain = message["uncertain_attempts"].as_u64().context("a message says what is not known of it")?;
        let arrived = arrivals.len() as u64;
        let id = message["id"].as_str().context("a message has an id")?;
        if message["state"] == "cancelled" {
            // Receiver and operator look at one clock.
            if let Some(answered_at) = cancelled.get(id) {
                let is_in_time = arrivals.iter().all(|arrival| arrival.at <= *answered_at);
                assert!(is_in_time, "{message} arrived after its cancel");
            }
            assert_eq!((arrived, uncertain), (0, 0), "{message} was cancelled, and arrived or may have");
            gone.insert(id);
        } else {
            assert_eq!(message["state"], "published", "{message}");
            assert!(arrived > 0, "{message} never arrived");
            assert!(arrived - 1 <= uncertain, "{message} arrived {arrived} times");
            again += arrived - 1;
        }
        due.entry(message["event_id"].as_str().context("a message has an event")?).or_default().push(due_at);
    }
    println!("{} messages, {} of them cancelled, {again} arrivals of what had arrived", stored.len(), gone.len());
    assert!(cancelled.keys().all(|id| gone.contains(id.as_str())), "an acknowledged cancel does not hold");
    for one in acknowledged {
        let due = due.get(one.event.as_str()).with_context(|| format!("{} emitted nothing", one.event))?;
        let Some(until) = one.delayed_until else {
            assert_eq!(due.len(), 1, "{one:?}");
            continue;
        };
        // For two of the three the guest or the host computed a later time; the third is due once it is stored,
        // whenever that was.
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
