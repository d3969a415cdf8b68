//! A running intake, and the routes that tests give it.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderName;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sha2::Sha256;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::client::{Connection, Reply, request};
use crate::env;
use crate::intake::admit::Intake;
use crate::intake::server::{self, Bounds};
use crate::intake::{ActiveGeneration, IntakeOptions, RouteTable};
use crate::model::event::Event;
use crate::model::pack::{
    Answer, Coalescing, FailedHeadPolicy, GuestLimits, KeyRule, Manifest, Ordering, QueueClassRule, Route,
};
use crate::model::presets::preset;
use crate::model::queue::{QueueClass, QueueClasses};
use crate::model::time::Timestamp;
use crate::model::verification::Verification;
use crate::secrets::Secrets;
use crate::store::testing::{Fixture, GENERATION, START, namespace, pack};
use crate::store::{CLAIM_ROWS_MAX, ClaimRequest, EventFilter, PageRequest, Store};

/// What the host's clock shows.
pub(in crate::intake) const NOW: Timestamp = START;

/// The secret of the signed routes.
pub(super) const SECRET: &str = "It's a Secret to Everybody";

/// A route that asks for nothing.
pub(in crate::intake) fn plain_route(path: &str) -> Route {
    Route {
        path: path.parse().unwrap(),
        verification: Verification::Plain,
        event_list: None,
        delivery_key: None,
        source_key: None,
        ordering: Ordering::None,
        coalescing: Coalescing::None,
        failed_head: FailedHeadPolicy::DEFAULT,
        queue_class: QueueClassRule::DEFAULT,
        keep_headers: Vec::new(),
        answer: Answer::Receipt,
        handshake: None,
    }
}

/// A route as the github preset has it, ordered by repository.
pub(super) fn github_route(path: &str) -> Route {
    let preset = preset("github").unwrap();
    Route {
        verification: Verification::Signature { scheme: preset.scheme, secret: "github".parse().unwrap() },
        delivery_key: preset.delivery_key,
        source_key: Some(KeyRule::Pointer("/repository/id".to_owned())),
        ordering: Ordering::Source,
        keep_headers: preset.keep_headers,
        ..plain_route(path)
    }
}

/// A pack of these routes.
pub(in crate::intake) fn manifest(pack: &str, routes: Vec<Route>) -> Manifest {
    Manifest {
        name: pack.parse().unwrap(),
        version: "1.0.0".to_owned(),
        imports: Vec::new(),
        limits: GuestLimits::DEFAULT,
        routes,
        readers: Vec::new(),
        destinations: Vec::new(),
        settings: BTreeMap::new(),
    }
}

/// What a test's intake is made of.
pub(super) struct Setup {
    pub(super) routes: Vec<Route>,
    pub(super) options: IntakeOptions,
    pub(super) bounds: Bounds,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            routes: vec![github_route("github"), plain_route("plain")],
            options: IntakeOptions {
                requests_max: 256,
                bytes_max: 64 * 1024 * 1024,
                body_bytes_max: 1024 * 1024,
                deadline: Duration::from_secs(60),
                public_url: None,
            },
            bounds: Bounds::for_requests(256),
        }
    }
}

/// An intake that serves.
pub(super) struct World {
    pub(super) address: SocketAddr,
    pub(super) store: Store,
    pub(super) stop: CancellationToken,
    serving: JoinHandle<()>,
    metrics: PrometheusHandle,
    shared: Fixture,
}

impl World {
    /// Claims all work items of this class. Returns how many there were.
    pub(super) async fn claim_of(&self, class: QueueClass) -> usize {
        let request = ClaimRequest { classes: QueueClasses::of(&[class]), ..self.shared.request(CLAIM_ROWS_MAX) };
        self.store.claim(request).await.unwrap().len()
    }

    pub(super) async fn start(setup: Setup) -> Self {
        let shared = Fixture::new().await;
        let (store, env) = (shared.store.clone(), shared.env.clone());
        let secrets = shared.directory.path().join("secrets");
        fs::create_dir(&secrets).unwrap();
        for name in ["github", "token"] {
            fs::write(secrets.join(name), SECRET).unwrap();
        }
        let manifest = Arc::new(manifest(pack().as_str(), setup.routes));
        let active = ActiveGeneration { pack: pack(), number: GENERATION, manifest };
        let routes = RouteTable::empty();
        routes.replace(&[namespace()], &[active]).unwrap();
        let secrets_of_operator = Secrets::open(&secrets, env.clone()).unwrap();

        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = recorder.handle();
        let intake = metrics::with_local_recorder(&recorder, || {
            Intake::new(setup.options, store.clone(), routes, secrets_of_operator, env)
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let serving = env::spawn("intake", server::run(listener, intake, setup.bounds, stop.clone()));
        Self { address, store, stop, serving, metrics, shared }
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> Connection {
        Connection::open(self.address).await
    }

    /// One request on a connection of its own.
    pub(super) async fn send(&self, request: &[u8]) -> Reply {
        let mut connection = self.connect().await;
        connection.send(request).await;
        connection.reply().await
    }

    /// Stops it, and waits until it has.
    pub(super) async fn stopped(&mut self) {
        self.stop.cancel();
        (&mut self.serving).await.unwrap();
    }

    /// All that is durable, newest first.
    pub(super) async fn events(&self) -> Vec<Event> {
        let page = self.store.list_events(&EventFilter::default(), PageRequest { after: None, limit: 1_000 }).await;
        let mut events = Vec::new();
        for summary in page.unwrap().items {
            events.push(self.store.event(summary.id).await.unwrap().unwrap().event);
        }
        events
    }

    /// How often this was answered.
    pub(super) fn answers(&self, status: u16, reason: &str) -> u64 {
        self.metric(&format!(r#"forebay_intake_answers_total{{status="{status}",reason="{reason}"}}"#)) as u64
    }

    /// The value of a metric; zero if it has none.
    pub(super) fn metric(&self, name: &str) -> f64 {
        let rendered = self.metrics.render();
        let value = rendered.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().unwrap())
    }
}

/// The value of GitHub's signature header.
pub(super) fn signature(body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body);
    format!("sha256={}", HEXLOWER.encode(&mac.finalize().into_bytes()))
}

/// The same in base64, with nothing before it.
pub(super) fn base64_signature(signed: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(signed);
    data_encoding::BASE64.encode(&mac.finalize().into_bytes())
}

/// A signed delivery.
pub(super) fn delivery(id: &str, body: &[u8]) -> Vec<u8> {
    let signature = signature(body);
    let headers = [("x-github-delivery", id), ("x-hub-signature-256", &signature), ("x-github-event", "push")];
    request("POST", "/in/acme/github", &headers, body)
}

/// A header's name.
pub(super) fn name(text: &'static str) -> HeaderName {
    HeaderName::from_static(text)
}
