//! The admission budget, as clients on real sockets see it.

use forebay_tests::unfinished::{BYTES_IN_FLIGHT, REQUESTS_IN_FLIGHT, Unfinished};
use forebay_tests::wait;
use forebay_tests::world::{World, signed};
use http::StatusCode;
use http::header::RETRY_AFTER;

async fn is_refused(world: &World) -> anyhow::Result<bool> {
    let answer = world.deliver(&signed("probe", "ping", r#"{"zen":"Keep it logically awesome."}"#)).await?;
    if answer.status == StatusCode::ACCEPTED {
        return Ok(false);
    }
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{:?}", answer.body);
    let seconds: u64 = answer.headers.get(RETRY_AFTER).expect("it says when to come again").to_str()?.parse()?;
    assert!((1..=30).contains(&seconds), "{seconds}");
    Ok(true)
}

// ADM-1, ADM-2
#[tokio::test(flavor = "multi_thread")]
async fn requests_over_the_budget_are_told_to_come_again() -> anyhow::Result<()> {
    let world = World::start_with(&["github"], "[intake]\nrequests_max = 2\n").await?;
    let push = String::from_utf8(forebay_tests::cases::github_body("push").to_vec())?;
    let first = Unfinished::begin(&world, "first", &push).await?;
    let second = Unfinished::begin(&world, "second", &push).await?;
    world.admin().until_metric(REQUESTS_IN_FLIGHT, 2.0).await?;
    assert!(is_refused(&world).await?);
    // What is in flight is not harmed, and the budget comes back with it.
    assert!(first.finish().await?.contains("202"));
    assert!(second.finish().await?.contains("202"));
    wait::until("there is room again", async || is_refused(&world).await, |refused| !*refused).await?;
    let events = world.admin().events().await?;
    let mut keys: Vec<&str> = events.iter().filter_map(|event| event["delivery_key"].as_str()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["first", "probe", "second"], "what was refused left something");
    Ok(())
}

// ADM-1, ADM-2
#[tokio::test(flavor = "multi_thread")]
async fn bytes_over_the_budget_are_told_to_come_again() -> anyhow::Result<()> {
    let world = World::start_with(&["github"], "[intake]\nbytes_max_mib = 1\nbody_max_mib = 1\n").await?;
    let most_of_a_mebibyte = format!(r#"{{"ref":"{}"}}"#, "x".repeat(1_000_000));
    let big = Unfinished::begin(&world, "big", &most_of_a_mebibyte).await?;
    world.admin().until_metric(BYTES_IN_FLIGHT, 1_000_000.0).await?;
    let another = world.deliver(&signed("another", "push", most_of_a_mebibyte.clone())).await?;
    assert_eq!(another.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(big.finish().await?.contains("202"));
    Ok(())
}
