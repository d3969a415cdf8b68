//! Publishing: Publish Admission, the destination's call, and the Publish Outcome.
//!
//! Invariants:
//! - A destination is called only after the admission is durable.
//! - Every admitted attempt ends in a recorded outcome, or stands as `publishing` until its shard's next owner settles it.
//! - Addresses are checked when they are dialled, on every attempt.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::env::Env;
use crate::model::destination::Destinations;
use crate::model::ids::MessageId;
use crate::model::message::AfterAttempt;
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;
use crate::secrets::Secrets;
use crate::store::{ShardLease, Store};

/// How destinations are called.
#[derive(Debug, Clone)]
pub struct PublishOptions {
    /// Messages that may be between claim and outcome at once, over all shards.
    pub in_flight_max: usize,
    /// The most of a response body that is read.
    pub response_bytes_max: usize,
    /// Networks that may be called although they are private, in CIDR notation.
    pub allow_networks: Vec<String>,
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
    /// The tenant.
    pub namespace: Namespace,
    /// Where it goes.
    pub destination: DestinationName,
    /// Body and headers, in bytes.
    pub bytes: u32,
    /// When it is of no more use.
    pub expire_at: Option<Timestamp>,
}

/// What became of a [`ClaimedMessage`]; its permits are free again.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The message.
    pub id: MessageId,
    /// The generation that was claimed.
    pub generation: u32,
    /// What became of it.
    pub result: Settled,
}

/// The ways in which a claimed message can settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Not admitted: cancelled, rescheduled or ended meanwhile. The feed has, or will have, its new entry.
    Moved,
    /// Not admitted: the shard belongs to somebody else.
    Fenced,
    /// Not admitted: the store could not do it now. It is as it was before the claim.
    NotAdmitted,
    /// Admitted, and its outcome is durable.
    Outcome {
        /// What it made of the message.
        after: AfterAttempt,
        /// A wish of the destination that concerns its whole lane: no attempt before this time.
        lane_until: Option<Timestamp>,
        /// Whether the destination itself was at fault (no connection, no answer, 5xx), as opposed to the message.
        destination_failed: bool,
    },
    /// Admitted, but the outcome could not be recorded: it stands as `publishing`.
    Unrecorded,
}

/// Gives work to the publisher; clones share it.
#[derive(Clone)]
pub struct Publisher {}

impl Publisher {
    /// Starts publishing.
    pub fn start(
        options: PublishOptions,
        destinations: Arc<Destinations>,
        store: Store,
        secrets: Secrets,
        env: Env,
    ) -> Result<Self, PublishError> {
        let _ = (options, destinations, store, secrets, env);
        Ok(Self {})
    }

    /// Admits and publishes a batch in the background. Each message settles exactly once on `settled`, which must have
    /// room for all that its shard has claimed. `latest` is the latest that it can be now (trusted time).
    pub fn publish(
        &self,
        lease: ShardLease,
        batch: Vec<ClaimedMessage>,
        latest: Timestamp,
        settled: mpsc::Sender<Settlement>,
    ) {
        let _ = (lease, batch, latest, settled);
        todo!()
    }

    /// Returns when everything that was given to it has settled.
    pub async fn drain(&self) {
        todo!()
    }
}

/// Why the publisher cannot start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PublishError(pub String);
