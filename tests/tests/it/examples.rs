//! The example packs in a real host: their fixtures, signed as the providers sign, and what arrives at their
//! destinations.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use forebay::env::Env;
use forebay::rig::http::{Answer, Connection};
use forebay::rig::providers::Provider;
use forebay::rig::sink::Sink;
use forebay::rig::site::{NAMESPACE, destination};
use forebay_tests::fixture::{self, Fixture};
use forebay_tests::received;
use forebay_tests::world::{DESTINATION, World, event_ids};
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;

/// An example pack, who signs what it is sent, and where it sends.
struct Example {
    pack: &'static str,
    provider: Provider,
    secret: &'static str,
    /// The header, or the pointer into the body, that has the delivery's own id.
    id: &'static str,
    destinations: &'static [&'static str],
}

const EXAMPLES: [Example; 4] = [
    Example {
        pack: "github",
        provider: Provider::GitHub,
        secret: "It's a Secret to Everybody",
        id: "x-github-delivery",
        // The world has this one.
        destinations: &[],
    },
    Example {
        pack: "relay",
        provider: Provider::StandardWebhooks,
        secret: "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
        id: "webhook-id",
        destinations: &["relayed"],
    },
    Example {
        pack: "shopify",
        provider: Provider::Shopify,
        secret: "hush",
        id: "x-shopify-webhook-id",
        destinations: &["fulfilment", "catalogue"],
    },
    Example {
        pack: "stripe",
        provider: Provider::Stripe,
        secret: "whsec_test_secret",
        id: "/id",
        destinations: &["ledger", "collections"],
    },
];

impl Example {
    fn id_of(&self, fixture: &Fixture) -> String {
        let pointed =
            || serde_json::from_slice::<Value>(&fixture.body).ok()?.pointer(self.id)?.as_str().map(str::to_owned);
        fixture.headers.get(self.id).cloned().or_else(pointed).unwrap_or_default()
    }

    /// Delivers a fixture, signed for `signed`, with this body.
    async fn deliver(&self, world: &World, fixture: &Fixture, signed: &[u8], body: Bytes) -> anyhow::Result<Answer> {
        let intake = world.site.host.intake;
        let route = fixture.route.as_deref().unwrap_or(self.pack);
        let now = Env::system().now().as_millis() / 1_000;
        let mut request = Request::post(format!("/in/{NAMESPACE}/{route}")).header("host", intake.to_string());
        let signature = self.provider.signature(self.secret, &self.id_of(fixture), now, signed);
        // A fixture's time of signing is long past.
        let headers = fixture.headers.iter().filter(|(name, _)| name.as_str() != "webhook-timestamp");
        for (name, value) in headers
            .map(|(name, value)| (name.as_str(), value))
            .chain(signature.iter().map(|(name, value)| (*name, value)))
        {
            request = request.header(name, value);
        }
        Connection::open(intake).await?.send(request.body(Full::new(body))?).await
    }
}

/// A host with every example pack, its secrets and its destinations.
async fn world() -> anyhow::Result<World> {
    let sink = Arc::new(Sink::start().await?);
    let names = EXAMPLES.iter().flat_map(|example| example.destinations);
    let settings: String = names.map(|name| destination(name, sink.address(), DESTINATION)).collect();
    let mut world = World::prepare_over(sink, &EXAMPLES.map(|example| example.pack), &settings)?;
    for example in EXAMPLES.iter().filter(|example| example.pack != "github") {
        world.site.add_secret(example.pack, example.secret)?;
    }
    world.restart().await?;
    Ok(world)
}

// ADM-4, ADM-5, GST-1
#[tokio::test(flavor = "multi_thread")]
async fn what_the_examples_emit_arrives_as_their_fixtures_say_and_no_forgery_does() -> anyhow::Result<()> {
    let world = world().await?;
    let mut admitted = Vec::new();
    for example in &EXAMPLES {
        for fixture in fixture::of(example.pack)? {
            let what = format!("{}/{}", example.pack, fixture.name);
            let mut altered = fixture.body.to_vec();
            altered.push(b' ');
            let forged = example.deliver(&world, &fixture, &fixture.body, altered.into()).await?;
            assert_eq!(forged.status, StatusCode::UNAUTHORIZED, "{what}: {forged:?}");
            let answer = example.deliver(&world, &fixture, &fixture.body, fixture.body.clone()).await?;
            if let Some(refused) = fixture.expected["refused"].as_str() {
                assert!(refused.starts_with(answer.status.as_str()), "{what}: {answer:?}");
                continue;
            }
            admitted.push((what.clone(), event_ids(&answer)?.remove(0), fixture.expected["events"][0].clone()));
            let again = example.deliver(&world, &fixture, &fixture.body, fixture.body.clone()).await?;
            assert_eq!(again.json()?["duplicate"], true, "{what}: {again:?}");
        }
    }
    world.settle().await?;
    assert_eq!(world.admin().events().await?.len(), admitted.len());
    let arrived = received::messages(&world.sink);
    let mut sent = 0;
    for (what, event, expected) in admitted {
        let detail = world.admin().event(&event).await?;
        let item = &detail["work_items"][0];
        assert_eq!(item["state"], "done", "{what}: {detail}");
        let said = if expected["ignored"].is_string() { &expected["ignored"] } else { &expected["note"] };
        assert_eq!(&item["note"], said, "{what}");
        let messages = expected["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        assert_eq!(detail["messages"].as_array().map_or(0, Vec::len), messages.len(), "{what}: {detail}");
        for message in messages.iter().filter(|message| message["due"] == "now") {
            let id = message["idempotency_key"].as_str().with_context(|| format!("{what}: a message without a key"))?;
            let received = &arrived.get(id).with_context(|| format!("{what}: {id} did not arrive"))?[0];
            assert_eq!(received.path, format!("/{}", message["destination"].as_str().unwrap_or_default()), "{what}");
            let body: Value = serde_json::from_slice(&received.body)?;
            assert_eq!(body, message["body"], "{what}");
            sent += 1;
        }
    }
    assert_eq!(arrived.len(), sent, "something arrived that no fixture says");

    // The relay is one: what its source signed is what arrived, byte for byte, under the same id and another signature.
    let relay = EXAMPLES.iter().find(|example| example.pack == "relay").context("the relay")?;
    let fixture = fixture::of("relay")?.remove(0);
    let relayed = &arrived[&relay.id_of(&fixture)][0];
    assert_eq!(relayed.body, fixture.body);
    assert!(!relayed.is_signed_with(relay.secret));
    Ok(())
}
