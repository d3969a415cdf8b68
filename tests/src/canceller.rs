//! An operator who cancels messages that wait, at one host or the other, while everything else goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::env::{self, Env};
use forebay::model::time::Timestamp;
use http::StatusCode;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::admin::Admin;

/// What the operator waits between two cancels, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 20..120;
/// How long an answer may take: a host that stands still gives none.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// An operator at work.
pub struct Canceller {
    task: JoinHandle<BTreeMap<String, Timestamp>>,
    stop: Arc<AtomicBool>,
}

impl Canceller {
    /// Starts one who asks any of these hosts.
    pub fn start(hosts: Vec<Admin>, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = env::spawn("canceller", cancel(hosts, StdRng::seed_from_u64(seed), Arc::clone(&stop)));
        Self { task, stop }
    }

    /// Ends. Returns the messages whose cancel was acknowledged, and by when it was.
    pub async fn stop(self) -> anyhow::Result<BTreeMap<String, Timestamp>> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.task.await?)
    }
}

async fn cancel(hosts: Vec<Admin>, mut random: StdRng, stop: Arc<AtomicBool>) -> BTreeMap<String, Timestamp> {
    let mut acknowledged = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        env::sleep(Duration::from_millis(random.random_range(PAUSE_MS))).await;
        let host = *hosts.choose(&mut random).expect("there is a host");
        let Some(waiting) = in_time(host.get("/api/v1/messages?limit=100&state=scheduled")).await else { continue };
        let ids: Vec<&str> =
            waiting["items"].as_array().into_iter().flatten().filter_map(|item| item["id"].as_str()).collect();
        let Some(id) = ids.choose(&mut random) else { continue };
        // The host that is asked need not be the one that listed it.
        let host = *hosts.choose(&mut random).expect("there is a host");
        if let Some(answer) = in_time(host.post(&format!("/api/v1/messages/{id}/cancel"), json!({}))).await
            && answer.status == StatusCode::OK
        {
            acknowledged.insert((*id).to_owned(), Env::system().now());
        }
    }
    acknowledged
}

/// What a host answers, if it is there and does.
async fn in_time<T>(answer: impl Future<Output = anyhow::Result<T>>) -> Option<T> {
    tokio::time::timeout_at(env::deadline(ANSWER_MAX), answer).await.ok()?.ok()
}
