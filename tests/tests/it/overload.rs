//! The admission budget, as clients on real sockets see it.

use bytes::Bytes;
use forebay::cli::rig::http::get as http_get;
use forebay::cli::rig::site::NAMESPACE;
use forebay_tests::wait;
use forebay_tests::world::{World, signed};
use http::StatusCode;
use http::header::RETRY_AFTER;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Requests that hold a place of the budget.
const REQUESTS_IN_FLIGHT: &str = "forebay_intake_in_flight";
/// Bytes that they hold.
const BYTES_IN_FLIGHT: &str = "forebay_intake_bytes_in_flight";

/// A request of which all but the last byte has been sent: it is in flight until that follows.
struct Unfinished {
    stream: TcpStream,
    last: Bytes,
}

impl Unfinished {
    async fn begin(world: &World, id: &str, body: &str) -> anyhow::Result<Self> {
        let delivery = signed(id, "push", body.to_owned());
        let mut stream = TcpStream::connect(world.site.host.intake).await?;
        let head = format!(
            "POST /in/{NAMESPACE}/github HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nx-github-event: push\r\nx-github-delivery: {id}\r\nx-hub-signature-256: {}\r\n\
             connection: close\r\n\r\n",
            delivery.body.len(),
            delivery.signature,
        );
        stream.write_all(head.as_bytes()).await?;
        let last = delivery.body.slice(delivery.body.len() - 1..);
        stream.write_all(&delivery.body[..delivery.body.len() - 1]).await?;
        Ok(Self { stream, last })
    }

    /// Sends the rest: the answer's status line.
    async fn finish(mut self) -> anyhow::Result<String> {
        self.stream.write_all(&self.last).await?;
        let mut answer = String::new();
        self.stream.read_to_string(&mut answer).await?;
        Ok(answer.lines().next().unwrap_or_default().to_owned())
    }
}

/// Waits until the host says that it holds this much of its budget: what has been sent is not yet what has been seen.
async fn holds(world: &World, gauge: &str, expected: f64) -> anyhow::Result<()> {
    let look = async || {
        let metrics = http_get(world.site.host.admin, "/metrics").await?;
        let text = String::from_utf8(metrics.body.to_vec())?;
        let value = text.lines().find_map(|line| line.strip_prefix(gauge)?.trim().parse::<f64>().ok());
        Ok(value.unwrap_or(0.0))
    };
    wait::until(gauge, look, |value| *value >= expected).await?;
    Ok(())
}

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
    holds(&world, REQUESTS_IN_FLIGHT, 2.0).await?;
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
    holds(&world, BYTES_IN_FLIGHT, 1_000_000.0).await?;
    let another = world.deliver(&signed("another", "push", most_of_a_mebibyte.clone())).await?;
    assert_eq!(another.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(big.finish().await?.contains("202"));
    Ok(())
}
