//! Messages to a destination that is reached by HTTPS only.

use forebay::rig::github::push_body;
use forebay_tests::received;
use forebay_tests::tls::{TlsFront, authority};
use forebay_tests::wait;
use forebay_tests::world::{World, event_ids, signed};
use http::StatusCode;
use serde_json::Value;

/// Changes the host's configuration, which it reads at its next start.
fn reconfigure(world: &World, from: &str, to: &str) -> anyhow::Result<()> {
    let before = std::fs::read_to_string(&world.site.host.config)?;
    assert!(before.contains(from), "{before}");
    Ok(std::fs::write(&world.site.host.config, before.replace(from, to))?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_arrives_by_https_once_the_operator_trusts_the_receivers_authority() -> anyhow::Result<()> {
    let mut world = World::prepare(&["github"], "").await?;
    let front = TlsFront::start(world.sink.address()).await?;
    reconfigure(&world, &format!("http://{}", world.sink.address()), &format!("https://{}", front.address))?;
    world.restart().await?;
    let answer = world.deliver(&signed("one", "push", push_body(1, 2_000))).await?;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{:?}", answer.body);
    let event = event_ids(&answer)?.remove(0);
    let attempted = |event: &Value| event["messages"][0]["state"] == "retry_wait";
    let refused = wait::until("an attempt fails", async || world.admin().event(&event).await, attempted).await?;
    let message = refused["messages"][0]["id"].as_str().expect("a message has an id").to_owned();
    let detail = world.admin().get(&format!("/api/v1/messages/{message}")).await?;
    assert!(detail["error"].as_str().is_some_and(|error| error.starts_with("no TLS connection")), "{detail}");
    assert!(world.sink.received().is_empty(), "nothing is sent to whom nobody vouches for");

    assert!(world.stop().await?.success());
    reconfigure(&world, "[publish]\n", &format!("[publish]\nca_file = {:?}\n", authority()))?;
    world.restart().await?;
    world.settle().await?;
    let detail = world.admin().get(&format!("/api/v1/messages/{message}")).await?;
    assert_eq!(detail["state"], "published", "{detail}");
    assert_eq!(received::messages(&world.sink).len(), 1);
    assert!(world.stop().await?.success());
    Ok(())
}
