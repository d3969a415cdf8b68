//! The admin API as a client sees it.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use forebay::rig::http::{self, Answer};
use serde_json::Value;

use crate::wait;

/// How many rows a page of a listing has.
const PAGE: usize = 500;

/// A client of the admin API.
#[derive(Debug, Clone, Copy)]
pub struct Admin {
    /// Where the API is.
    pub address: SocketAddr,
}

impl Admin {
    /// Asks for something that must be there.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = http::get(self.address, path).await?;
        ensure!(answer.status.is_success(), "{path}: {}: {:?}", answer.status, answer.body);
        answer.json()
    }

    /// Posts, and returns the answer as it is.
    pub async fn post(&self, path: &str, body: Value) -> anyhow::Result<Answer> {
        http::post(self.address, path, &body).await
    }

    /// `/api/v1/stats`.
    pub async fn stats(&self) -> anyhow::Result<Value> {
        self.get("/api/v1/stats").await
    }

    /// One event, with its work items and messages.
    pub async fn event(&self, id: &str) -> anyhow::Result<Value> {
        self.get(&format!("/api/v1/events/{id}")).await
    }

    /// Every event, newest first.
    pub async fn events(&self) -> anyhow::Result<Vec<Value>> {
        self.all("/api/v1/events", "").await
    }

    /// Every message, newest first.
    pub async fn messages(&self) -> anyhow::Result<Vec<Value>> {
        self.all("/api/v1/messages", "").await
    }

    /// Every message that waits for its time or its turn, newest first.
    pub async fn scheduled_messages(&self) -> anyhow::Result<Vec<Value>> {
        self.all("/api/v1/messages", "&state=scheduled").await
    }

    /// Waits until a metric, given with its labels, is at least so much: what has been sent is not yet what has been
    /// seen.
    pub async fn until_metric(&self, name: &str, at_least: f64) -> anyhow::Result<()> {
        wait::until(name, async || Ok(self.metric(name).await?.unwrap_or(0.0)), |value| *value >= at_least).await?;
        Ok(())
    }

    /// A metric, given with its labels; none, if it is not there.
    pub async fn metric(&self, name: &str) -> anyhow::Result<Option<f64>> {
        let metrics = http::get(self.address, "/metrics").await?;
        let text = String::from_utf8(metrics.body.to_vec())?;
        Ok(text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()))
    }

    async fn all(&self, path: &str, filter: &str) -> anyhow::Result<Vec<Value>> {
        let mut items = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.get(&format!("{path}?limit={PAGE}{filter}{after}")).await?;
            items.extend(page["items"].as_array().context("a page has items")?.iter().cloned());
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(items),
            }
        }
    }
}

/// How many rows of statistics stand in a state.
pub fn count(stats: &Value, kind: &str, state: &str) -> u64 {
    stats[kind][state].as_u64().unwrap_or_else(|| panic!("no {kind}.{state} in {stats}"))
}

/// Whether nothing is in work, and no message is under way; some may still wait for their time or their turn.
pub(crate) fn is_idle(stats: &Value) -> bool {
    let work = ["ready", "delayed", "blocked", "processing"].map(|state| count(stats, "work_items", state));
    let messages = ["publishing", "retry_wait", "uncertain"].map(|state| count(stats, "messages", state));
    work.iter().chain(&messages).all(|count| *count == 0)
}
