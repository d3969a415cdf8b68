//! The admin listener over real HTTP, with a real store behind it.

mod access;
mod console;
mod content;
mod destinations;
mod lanes;
mod openapi;
mod probes;
mod retention;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{AdminOptions, AdminParts, Stage, serve};
use crate::env;
use crate::model::retention::Keep;
use crate::model::time::Timestamp;
use crate::rig::http::{Answer, Connection};
use crate::secrets::Secret;
use crate::store::Store;
use crate::store::testing::Fixture;
use crate::supervise::{Keeper, RetentionOptions};
use crate::telemetry;

/// 2030-01-01T00:00:00Z.
const NOW: Timestamp = Timestamp::from_millis(1_893_456_000_000);

/// A listener over a store of its own. Dropped, it stops.
struct Desk {
    shared: Fixture,
    store: Store,
    address: SocketAddr,
    stage: watch::Sender<Stage>,
    keeper: Keeper,
    _stop: DropGuard,
}

impl Desk {
    async fn open(token: Option<&str>) -> Self {
        let shared = Fixture::starting_at(NOW).await;
        let (store, env) = (shared.store.clone(), shared.env.clone());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stage = watch::Sender::new(Stage::Starting);
        let keep = Keep::of_days(30, 20, None);
        let keeper = Keeper::new(RetentionOptions { keep, start_after: Duration::ZERO }, store.clone(), env.clone());
        let (metrics, stage_seen) = (telemetry::metrics().unwrap(), stage.subscribe());
        let parts = AdminParts { store: store.clone(), metrics, stage: stage_seen, env, keeper: keeper.clone() };
        let stop = CancellationToken::new();
        let options = AdminOptions { token: token.map(|token| Secret::new(token.as_bytes())) };
        env::spawn("admin", serve(listener, options, parts, stop.clone()));
        Self { shared, store, address, stage, keeper, _stop: stop.drop_guard() }
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", self.address.to_string());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        Connection::open(self.address).await.unwrap().send(request).await.unwrap()
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    async fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, &[], body).await
    }
}

/// Status and body, for a comparison.
fn shown(answer: &Answer) -> String {
    format!("{} {}", answer.status.as_u16(), String::from_utf8_lossy(&answer.body))
}
