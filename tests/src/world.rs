//! A host, the sink that it sends to, and a provider that delivers to it.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use forebay::admin::wire;
use forebay::env::Env;
use forebay::rig::github::Delivery;
use forebay::rig::http::{Answer, Connection};
use forebay::rig::process::HostProcess;
use forebay::rig::sink::Sink;
use forebay::rig::site::{GITHUB_SECRET, LOOPBACK_ALLOWED, NAMESPACE, Site, destination};

use serde_json::Value;

use crate::admin::{Admin, is_idle};
use crate::{paths, wait};

/// What the suites change of the defaults: leases short enough that what a crash leaves is soon taken up again.
const SETTINGS: &str = "[flow]\ndeadline_ms = 2_000\n\
    [inbound]\nlease_seconds = 7\nretry_initial_ms = 50\nretry_max_ms = 200\nfailures_max = 3\n\
    [timeline]\nlease_seconds = 2\n";
/// Of the destination: attempts that fail are soon repeated, and for long enough to outlast a crash.
pub const DESTINATION: &str = "retry_initial_ms = 50\nretry_max_ms = 500\nattempts_max = 1_000";

/// A host with its surroundings.
pub struct World {
    /// The folder that the host lives in.
    pub site: Site,
    /// Where its messages go.
    pub sink: Arc<Sink>,
    host: Option<HostProcess>,
}

impl World {
    /// Starts a host that serves these example packs.
    pub async fn start(packs: &[&str]) -> anyhow::Result<Self> {
        Self::start_with(packs, "").await
    }

    /// Starts a host with further settings.
    pub async fn start_with(packs: &[&str], settings: &str) -> anyhow::Result<Self> {
        let mut world = Self::prepare(packs, settings).await?;
        world.restart().await?;
        Ok(world)
    }

    /// Makes everything, but does not start the host.
    pub async fn prepare(packs: &[&str], settings: &str) -> anyhow::Result<Self> {
        Self::prepare_over(Arc::new(Sink::start().await?), packs, settings)
    }

    /// Makes everything but destinations, and does not start the host.
    pub async fn prepare_without_destinations(packs: &[&str]) -> anyhow::Result<Self> {
        let packs: Vec<PathBuf> = packs.iter().map(|name| paths::pack(name)).collect();
        let site = Site::new(paths::binary(), packs, &format!("{SETTINGS}{LOOPBACK_ALLOWED}"))?;
        Ok(Self { site, sink: Arc::new(Sink::start().await?), host: None })
    }

    /// Makes everything for a host that sends to a sink which others send to as well.
    pub fn prepare_over(sink: Arc<Sink>, packs: &[&str], settings: &str) -> anyhow::Result<Self> {
        let packs: Vec<PathBuf> = packs.iter().map(|name| paths::pack(name)).collect();
        let destinations = ["notifications", "sink"].map(|name| destination(name, sink.address(), DESTINATION));
        let settings = format!("{SETTINGS}{LOOPBACK_ALLOWED}{}{settings}", destinations.concat());
        Ok(Self { site: Site::new(paths::binary(), packs, &settings)?, sink, host: None })
    }

    /// Starts the host, and waits until it is ready.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        assert!(self.host.is_none(), "it runs already");
        self.host = Some(self.site.host.start(&Env::system()).await?);
        Ok(())
    }

    /// Kills the host with SIGKILL.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.host.take().context("it does not run")?.kill().await
    }

    /// Stops the host with SIGTERM.
    pub async fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        self.host.take().context("it does not run")?.stop().await
    }

    /// The host's process.
    pub fn host(&self) -> anyhow::Result<&HostProcess> {
        self.host.as_ref().context("it does not run")
    }

    /// Gives the host's process away.
    pub fn take_host(&mut self) -> anyhow::Result<HostProcess> {
        self.host.take().context("it does not run")
    }

    /// Its admin API.
    pub fn admin(&self) -> Admin {
        Admin { address: self.site.host.admin }
    }

    /// Waits until everything is worked off, and everything is sent that is due.
    pub async fn settle(&self) -> anyhow::Result<()> {
        let settled = async || {
            // With nothing in work, nothing new is emitted; with nothing due in wait, all that is due is under way or
            // done.
            let idle = is_idle(&self.admin().stats().await?);
            Ok(idle && self.nothing_due_waits().await? && is_idle(&self.admin().stats().await?))
        };
        wait::until("everything is worked off and sent", settled, |settled| *settled).await?;
        Ok(())
    }

    /// Waits until everything is sent, also what is due later.
    pub async fn settle_to_the_last(&self) -> anyhow::Result<()> {
        self.settle().await?;
        let nothing_is_left = |stats: &Value| stats["messages"]["scheduled"] == 0;
        wait::until("the last message is due", async || self.admin().stats().await, nothing_is_left).await?;
        self.settle().await
    }

    async fn nothing_due_waits(&self) -> anyhow::Result<bool> {
        let now = wire::rfc3339(Env::system().now());
        let scheduled = self.admin().scheduled_messages().await?;
        // RFC 3339 in UTC sorts as text.
        Ok(scheduled.iter().all(|message| message["due_at"].as_str().is_some_and(|due_at| due_at > now.as_str())))
    }

    /// Delivers, on a connection of its own.
    pub async fn deliver(&self, delivery: &Delivery) -> anyhow::Result<Answer> {
        self.deliver_to("github", delivery).await
    }

    /// Delivers to a route, on a connection of its own.
    pub async fn deliver_to(&self, route: &str, delivery: &Delivery) -> anyhow::Result<Answer> {
        let intake = self.site.host.intake;
        let request = delivery.request(&intake.to_string(), &format!("/in/{NAMESPACE}/{route}"))?;
        Connection::open(intake).await?.send(request).await
    }
}

/// A delivery that is signed as the host expects it.
pub fn signed(id: impl Into<String>, event: impl Into<String>, body: impl Into<Bytes>) -> Delivery {
    Delivery::signed(GITHUB_SECRET.as_bytes(), id, event, body)
}

/// The ids of the events that an answer names.
pub fn event_ids(answer: &Answer) -> anyhow::Result<Vec<String>> {
    let receipt = answer.json()?;
    let events = receipt["events"].as_array().with_context(|| format!("no events in {receipt}"))?;
    events.iter().map(|id| id.as_str().map(str::to_owned).context("an id is a text")).collect()
}

/// What decides a test's history; printed by the test, and set by `FOREBAY_SEED`.
pub fn seed() -> u64 {
    match std::env::var("FOREBAY_SEED") {
        Ok(text) => text.parse().expect("FOREBAY_SEED is a number"),
        Err(_) => u64::from_be_bytes(*Env::system().id_entropy().first_chunk().expect("ten bytes hold eight")),
    }
}
