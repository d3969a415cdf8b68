//! Publishing: Publish Admission, the destination's call, and the Publish Outcome.
//!
//! Invariants:
//! - A destination is called only after the admission is durable, and only while the shard's lease is relied on.
//! - Every admitted attempt ends in a recorded outcome, or stands as `publishing` until the owner of its shard settles
//!   it.
//! - Every message settles exactly once.
//! - Addresses are checked when they are dialled, on every attempt.
//!
//! What does not happen here: choosing what is due, fairness and the lanes' limits are the timeline's, which takes a
//! place for each message and hands over what it has claimed; a destination that fails is reported to it, never held
//! back here.

mod adapter;
mod batch;
mod claim;
mod entrance;
mod outcomes;
mod routes;
mod store_retry;

mod http;
mod reliance;
mod request;
mod sign;
mod verdict;

mod metrics;

#[cfg(test)]
mod tests;

pub use adapter::check_secret;
pub use adapter::{NativeAnswer, NativeCall};
pub use claim::Latest;
pub use entrance::{Entrance, Place, Seat};
pub use metrics::describe;
pub use reliance::Reliance;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use adapter::{Adapter, HttpDestination, NativeAdapter};
use batch::Engine;
use claim::Claim;
use entrance::{CLAIM_WAIT_MAX, Line};
use http::{HttpAdapter, HttpLimits};
use outcomes::Outcomes;
use routes::{MakeAdapter, Routes};

use crate::env::{self, Env};
use crate::lanes::{PlacesMax, Verdict};
use crate::model::destination::{Destination, Destinations};
use crate::model::ids::MessageId;
use crate::model::message::AfterAttempt;
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;
use crate::outbound::{self, Channels, Guard};
use crate::secrets::Secrets;
use crate::store::{ShardId, ShardLease, Store};

/// How destinations are called.
#[derive(Debug, Clone)]
pub struct PublishOptions {
    /// Messages that may be between claim and outcome at once, over all shards.
    pub in_flight_max: usize,
    /// Bytes of their bodies and headers.
    pub in_flight_bytes_max: u64,
    /// The most of a response body that is read.
    pub response_bytes_max: usize,
    /// Networks that may be called although they are private, in CIDR notation.
    pub allow_networks: Vec<String>,
    /// Authorities in PEM whose certificates are taken beside those of the public ones.
    pub ca_file: Option<PathBuf>,
    /// Addresses that are never called: the host's own listeners.
    pub deny_addresses: Vec<std::net::SocketAddr>,
    /// Idle connections kept a destination.
    pub idle_connections_max: usize,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
}

/// A message that a shard has claimed: permits are taken, nothing is durable yet.
#[derive(Debug, Clone)]
pub struct ClaimedMessage {
    /// The message.
    pub id: MessageId,
    /// The generation that was claimed.
    pub generation: u32,
    /// Tells its claim from others of the same generation; its settlement repeats it.
    pub seq: u64,
    /// The tenant.
    pub namespace: Namespace,
    /// Where it goes.
    pub destination: DestinationName,
    /// Body and headers, in bytes.
    pub bytes: u32,
    /// When it is of no more use.
    pub expire_at: Option<Timestamp>,
}

/// What became of a [`ClaimedMessage`]; its permits are free again, and its place is once its shard has taken this in.
#[derive(Debug)]
pub struct Settlement {
    /// The message.
    pub id: MessageId,
    /// The generation that was claimed.
    pub generation: u32,
    /// Which claim of it.
    pub seq: u64,
    /// What became of it.
    pub result: Settled,
    /// What it had in flight.
    pub place: Option<Place>,
}

/// The ways in which a claimed message can settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Not admitted: cancelled, rescheduled or ended meanwhile. The feed has, or will have, its new entry.
    Moved,
    /// Not admitted: the shard belongs to somebody else.
    Fenced,
    /// Not admitted: it may have expired while it waited. Whether it *has* is its shard's to find out.
    TooLate,
    /// Not admitted: the store could not do it now. It is as it was before the claim.
    NotAdmitted,
    /// Not admitted: it was called back, has waited too long, or its destination is not known here any more. It is as
    /// it was before the claim, and says nothing about the store.
    Recalled,
    /// Admitted, and its outcome is durable.
    Outcome {
        /// What it made of the message.
        after: AfterAttempt,
        /// A wish of the destination that concerns its whole lane: no attempt before this time.
        lane_until: Option<Timestamp>,
        /// What it says about the destination, as opposed to the message.
        destination: Verdict,
        /// Whether the destination says that it is gone: its lanes are to be paused.
        gone: bool,
    },
    /// Admitted, but the outcome could not be recorded: it stands as `publishing`.
    Unrecorded,
}

/// What publishing holds at the moment, and what it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishLoad {
    /// Connections to destinations that are open.
    pub channels: usize,
    /// How many are needed at the most: one for each message in flight, and the idle ones that are kept.
    pub channels_max: usize,
    /// Attempts that are over and whose outcome is not recorded yet.
    pub outcomes_waiting: usize,
}

/// Gives work to the publisher; clones share it.
#[derive(Clone)]
pub struct Publisher {
    engine: Arc<Engine>,
    entrance: Entrance,
    channels: Channels,
    /// What calls destinations; `None` where they are functions of this process.
    http: Option<Arc<HttpAdapter>>,
    in_flight_max: usize,
    /// Connections that are kept a destination.
    idle_connections_max: usize,
    runtime: Handle,
    unsettled: TaskTracker,
}

impl Publisher {
    /// Starts publishing, on the runtime that it is called on.
    pub fn start(
        options: PublishOptions,
        destinations: &Destinations,
        store: Store,
        secrets: Secrets,
        env: Env,
    ) -> Result<Self, PublishError> {
        let guard = Guard::new(&options.allow_networks, &options.deny_addresses).map_err(PublishError)?;
        let limits = HttpLimits {
            response_bytes_max: options.response_bytes_max,
            idle_connections_max: options.idle_connections_max,
            idle_timeout: options.idle_timeout,
        };
        let tls = outbound::client_config("publish.ca_file", options.ca_file.as_deref()).map_err(PublishError)?;
        let http = HttpAdapter::new(guard, tls, destinations, limits, env.clone())
            .map_err(|error| PublishError(error.to_string()))?;
        let http = Arc::new(http);
        let calling = Arc::clone(&http);
        let adapter = move |destination: &Destination| -> Box<dyn Adapter> {
            let (http, secrets) = (Arc::clone(&calling), secrets.clone());
            Box::new(HttpDestination { http, secrets, destination: destination.clone() })
        };
        let places = PlacesMax { messages: options.in_flight_max, bytes: options.in_flight_bytes_max };
        let publisher = Self::with(destinations, Box::new(adapter), places, store, env);
        let (channels, idle_connections_max) = (http.channels(), options.idle_connections_max);
        Ok(Self { channels, http: Some(http), idle_connections_max, ..publisher })
    }

    /// A publisher that calls a function of this process for every message, whatever its destination.
    pub fn start_native(
        in_flight_max: usize,
        destinations: &Destinations,
        store: Store,
        call: &NativeCall,
        env: Env,
    ) -> Self {
        let call = Arc::clone(call);
        let adapter =
            move |_: &Destination| -> Box<dyn Adapter> { Box::new(NativeAdapter { call: Arc::clone(&call) }) };
        // No body is loaded for them.
        let places = PlacesMax { messages: in_flight_max, bytes: u64::MAX };
        Self::with(destinations, Box::new(adapter), places, store, env)
    }

    fn with(destinations: &Destinations, adapter: MakeAdapter, places: PlacesMax, store: Store, env: Env) -> Self {
        let routes = Routes::new(destinations, adapter);
        let outcomes = Outcomes::new(store.clone());
        let entrance = Entrance::new(places, Arc::clone(&env.clock), metrics::in_flight());
        let (line, admission_wait) = (Line::new(), metrics::admission_wait());
        Self {
            engine: Arc::new(Engine { store, env, outcomes, line, admission_wait, routes }),
            entrance,
            channels: Channels::default(),
            http: None,
            in_flight_max: places.messages,
            idle_connections_max: 0,
            runtime: Handle::current(),
            unsettled: TaskTracker::new(),
        }
    }

    /// From here on these destinations are called, and no others. An attempt that has begun ends as it began.
    pub fn follow(&self, destinations: &Destinations) -> Result<(), PublishError> {
        if let Some(http) = &self.http {
            http.follow(destinations).map_err(|error| PublishError(error.to_string()))?;
        }
        self.engine.routes.follow(destinations);
        Ok(())
    }

    /// Whether a destination may be called at all, as far as that is known before it is; if not, why.
    pub fn check(&self, destination: &Destination) -> Result<(), String> {
        let Some(http) = &self.http else { return Ok(()) };
        http.check(destination).map_err(|error| error.to_string())
    }

    /// Where a shard takes places in flight. It has one seat at a time.
    pub fn seat(&self, shard: ShardId) -> Seat {
        self.entrance.seat(shard)
    }

    /// Admits and publishes a batch in the background. Each message settles exactly once on `settled`, which must have
    /// room for all that its shard has claimed. `latest` is the trusted time that it was claimed by; what is not on its
    /// way by the end of `reliance` is not sent.
    ///
    /// A message to a destination that is not known here is recalled: it waits until it is.
    pub fn publish(
        &self,
        lease: ShardLease,
        reliance: Reliance,
        batch: Vec<(ClaimedMessage, Place)>,
        latest: Latest,
        settled: mpsc::Sender<Settlement>,
    ) {
        let now = self.engine.env.clock.monotonic();
        let mut waiting = Vec::with_capacity(batch.len());
        for (message, place) in batch {
            match self.engine.routes.to(&message.destination) {
                Some(route) => {
                    let (reliance, settled) = (reliance.clone(), settled.clone());
                    let unsettled = self.unsettled.token();
                    waiting.push(Claim::new((message, place), route, reliance, now, settled, unsettled));
                }
                None => claim::send(&settled, &message, Settled::Recalled, Some(place)),
            }
        }
        self.engine.line.wait(lease, latest, waiting);
        env::spawn_on(&self.runtime, "publish batch", Arc::clone(&self.engine).publish());
    }

    /// Calls back what was handed over under a lease and is not being admitted yet, as far as `is_meant` says so: it
    /// settles as it came, and no attempt is spent.
    pub fn recall(&self, lease: ShardLease, is_meant: impl Fn(&ClaimedMessage) -> bool) {
        self.engine.line.recall(lease, |message, _| is_meant(message));
    }

    /// Calls back what was handed over under a lease and has waited too long for its admission.
    pub fn recall_late(&self, lease: ShardLease) {
        let now = self.engine.env.clock.monotonic();
        self.engine.line.recall(lease, |_, since| now.saturating_sub(since) > CLAIM_WAIT_MAX);
    }

    /// What this host lacks for every attempt at a tenant's messages to a destination, if it lacks anything.
    pub fn obstacle(&self, namespace: &Namespace, destination: &DestinationName) -> Option<String> {
        self.engine.routes.to(destination)?.adapter.obstacle(namespace)
    }

    /// What it holds at the moment.
    pub fn load(&self) -> PublishLoad {
        let outcomes_waiting = self.engine.outcomes.waiting();
        let channels_max = channels_max(self.in_flight_max, self.engine.routes.len(), self.idle_connections_max);
        PublishLoad { channels: self.channels.open(), channels_max, outcomes_waiting }
    }

    /// Returns when everything that was given to it has settled.
    pub async fn drain(&self) {
        self.unsettled.close();
        self.unsettled.wait().await;
    }
}

/// How many connections to destinations are needed at the most: one for each message in flight, and the idle ones that
/// are kept for each destination.
pub fn channels_max(in_flight_max: usize, destinations: usize, idle_connections_max: usize) -> usize {
    in_flight_max.saturating_add(destinations.saturating_mul(idle_connections_max))
}

/// Why the publisher cannot start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PublishError(pub String);
