//! Sends a fixture to the host, and describes its result.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use http::Request;
use http_body_util::Full;

use super::provider::Provider;
use super::sign;
use crate::admin::wire;
use crate::cli::client::Client;
use crate::cli::exit::Failure;
use crate::cli::fixture::{self, Fixture};
use crate::env::{self, Env};
use crate::model::pack::Manifest;
use crate::rig::http::{Answer, Connection};

/// The longest wait for the result of a fixture.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at an event.
const LOOK: Duration = Duration::from_millis(30);
/// Characters of a body that are shown in a line.
const BODY_CHARS_SHOWN: usize = 400;

/// Sends fixtures to a host.
#[derive(Clone)]
pub(super) struct Deliverer {
    pub(super) intake: SocketAddr,
    pub(super) client: Arc<Client>,
    pub(super) secrets: PathBuf,
    /// Address at which providers reach the host, for signatures that cover it.
    pub(super) public_url: Option<String>,
    pub(super) namespace: String,
    /// The provider that answers the packs' readers, unless a configuration names another.
    pub(super) provider: Option<Arc<Provider>>,
    pub(super) env: Env,
}

impl Deliverer {
    /// Sends a fixture of the pack in `folder`, waits for its result, and returns a text about it.
    pub(super) async fn send(
        &self,
        folder: &std::path::Path,
        name: &str,
        manifest: &Manifest,
    ) -> anyhow::Result<String> {
        let mut fixture = fixture::read(&folder.join(fixture::FOLDER), name, manifest)?;
        if let Some(provider) = &self.provider {
            provider.expect(manifest.name.as_str(), std::mem::take(&mut fixture.answers))?;
        }
        let now = self.env.now();
        sign::renew(&mut fixture, now)?;
        if let Some(secret) = fixture.route.verification.secret() {
            let path = format!("/in/{}/{}", self.namespace, fixture.route.path);
            let uri = format!("{}{path}", self.public_url.as_deref().unwrap_or_default());
            sign::sign(&mut fixture, &uri, &self.secrets, &self.secret(secret.as_str())?, now)?;
        }
        let answer = self.post(fixture).await?;
        let mut text = format!("> {name}: {}\n", answer.status);
        if !answer.status.is_success() {
            text.push_str(&format!("  refused: {}\n", shown(&answer.body)));
            return Ok(text);
        }
        for event in self.events(&answer).await? {
            text.push_str(&self.outcome(&event).await?);
        }
        Ok(text)
    }

    fn secret(&self, name: &str) -> anyhow::Result<String> {
        let own = self.secrets.join(&self.namespace).join(name);
        let file = if own.exists() { own } else { self.secrets.join(name) };
        let text = std::fs::read_to_string(&file).with_context(|| format!("the secret {}", file.display()))?;
        Ok(sign::first_secret(&text)?.to_owned())
    }

    async fn post(&self, fixture: Fixture<'_>) -> anyhow::Result<Answer> {
        let mut request = Request::post(format!("/in/{}/{}", self.namespace, fixture.route.path))
            .header("host", self.intake.to_string())
            .body(Full::new(fixture.body))?;
        request.headers_mut().extend(fixture.headers);
        Connection::open(self.intake).await?.send(request).await
    }

    /// Ids of the events in an answer; the newest event if the answer of the route names none.
    async fn events(&self, answer: &Answer) -> anyhow::Result<Vec<String>> {
        if let Ok(receipt) = answer.json()
            && let Some(events) = receipt["events"].as_array()
        {
            return Ok(events.iter().filter_map(|id| id.as_str().map(str::to_owned)).collect());
        }
        let newest: serde_json::Value = self.ask("/api/v1/events?limit=1").await?;
        Ok(newest["items"][0]["id"].as_str().map(str::to_owned).into_iter().collect())
    }

    /// Waits for the first success or failure of an event.
    async fn outcome(&self, event: &str) -> anyhow::Result<String> {
        let end = self.env.clock.monotonic() + PATIENCE;
        loop {
            let detail: wire::EventDetail = self.ask(&format!("/api/v1/events/{event}")).await?;
            if let Some(item) = detail.work_items.first()
                && (matches!(item.state.as_str(), "done" | "dead") || item.failure.is_some())
            {
                let mut text = format!("  {event} {}\n", ended(item));
                for message in &detail.messages {
                    let message: wire::MessageDetail = self.ask(&format!("/api/v1/messages/{}", message.id)).await?;
                    text.push_str(&emitted(&message));
                }
                return Ok(text);
            }
            if self.env.clock.monotonic() > end {
                bail!("{event} did not end within {} s", PATIENCE.as_secs());
            }
            env::sleep(LOOK).await;
        }
    }

    async fn ask<T: serde::de::DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let said = |failure: Failure| anyhow::anyhow!("{}", failure.text());
        self.client.get(path).await.map_err(said)?.read().map_err(said)
    }
}

fn ended(item: &wire::WorkItem) -> String {
    let note = item.note.as_deref().unwrap_or("no note");
    match (&item.failure, item.ignored) {
        (Some(failure), _) => {
            let next = if item.state == "dead" { "dead" } else { "failed, and is retried" };
            format!("{next}: {}: {}", failure.class, failure.message.replace('\n', "\n    "))
        }
        (None, true) => format!("ignored: {note}"),
        (None, false) => format!("{}: {note}", item.state),
    }
}

fn emitted(message: &wire::MessageDetail) -> String {
    let summary = &message.summary;
    let body = shown(message.body.data.as_bytes());
    let due = if summary.due_at == summary.created_at { "now".to_owned() } else { format!("at {}", summary.due_at) };
    format!("  -> {} {due}: {body}\n", summary.destination)
}

fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body).replace('\n', " ");
    if text.chars().count() > BODY_CHARS_SHOWN {
        return text.chars().take(BODY_CHARS_SHOWN).chain(['…']).collect();
    }
    text
}
