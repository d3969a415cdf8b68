//! A disk that takes nothing more, and later does again.
//!
//! What stands in for it is the process's limit of file sizes, which somebody else may change while it runs: every
//! write fails as on a full disk, to whatever file.

use std::time::Duration;

use forebay::rig::github::push_body;
use forebay::rig::receiver::Reply;
use forebay_tests::admin::count;
use forebay_tests::world::{World, signed};
use forebay_tests::{received, wait};
use http::StatusCode;
use http::header::RETRY_AFTER;
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

/// A write beyond the limit fails, and is not answered with a signal.
const WRITES_FAIL: &str = "trap '' XFSZ";
/// Deliveries that come while there is no room.
const TURNED_AWAY: usize = 3;
/// How long the receiver takes for the message that is under way then: past the moment when there is no room.
const LATE: Duration = Duration::from_secs(1);

/// The metric of attempts that were answered well.
const PUBLISHED: &str = r#"forebay_publish_attempts_total{destination="notifications",outcome="published"}"#;

/// The disk is full, or has room.
fn give_room(world: &World, room: bool) -> anyhow::Result<()> {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let current = if room { maximum } else { Some(0) };
    prlimit(Some(world.host()?.pid()?), Resource::Fsize, Rlimit { current, maximum })?;
    Ok(())
}

async fn deliver(world: &World, id: &str) -> anyhow::Result<StatusCode> {
    let answer = world.deliver(&signed(id, "push", push_body(1, 2_000))).await?;
    if answer.status != StatusCode::ACCEPTED {
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{:?}", answer.body);
        let seconds: u64 = answer.headers.get(RETRY_AFTER).expect("it says when to come again").to_str()?.parse()?;
        assert!((1..=30).contains(&seconds), "{seconds}");
    }
    Ok(answer.status)
}

// ADM-2, ADM-3
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_acknowledges_nothing_and_loses_nothing() -> anyhow::Result<()> {
    let mut world = World::prepare(&["github"], "").await?;
    world.site.host.limits = Some(WRITES_FAIL.to_owned());
    world.restart().await?;
    world.sink.reply(Reply::Late(LATE));
    assert_eq!(deliver(&world, "before").await?, StatusCode::ACCEPTED);
    let under_way = |stats: &serde_json::Value| count(stats, "messages", "publishing") > 0;
    wait::until("a message is under way", async || world.admin().stats().await, under_way).await?;

    give_room(&world, false)?;
    for number in 0..TURNED_AWAY {
        assert_eq!(deliver(&world, &format!("full-{number}")).await?, StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(world.admin().events().await?.len(), 1, "what was turned away is not there");
    world.admin().until_metric(PUBLISHED, 1.0).await?;
    let stats = world.admin().stats().await?;
    assert_eq!(count(&stats, "messages", "published"), 0, "the outcome of what was under way cannot be recorded");

    world.sink.reply(Reply::OK);
    give_room(&world, true)?;
    for number in 0..TURNED_AWAY {
        let again = async || deliver(&world, &format!("full-{number}")).await;
        wait::until("there is room again", again, |status| *status == StatusCode::ACCEPTED).await?;
    }
    world.settle().await?;
    assert_eq!(world.admin().events().await?.len(), 1 + TURNED_AWAY);
    assert_eq!(received::messages(&world.sink).len(), 1 + TURNED_AWAY);
    assert!(world.stop().await?.success(), "{}", world.site.host.log_tail());
    Ok(())
}
