//! Destination Lanes and gates on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;

use super::{one_of, rfc3339, words};
use crate::model::destination_lane::{Gate, OrderingDomain};
use crate::store::GateRow;
use crate::timeline::LaneView;

/// `GET /api/v1/lanes`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Lanes {
    /// The lanes of the host's shards that fit the filter, by name; at most [`LANES_SHOWN_MAX`].
    pub items: Vec<Lane>,
    /// Whether more lanes fit the filter.
    pub more: bool,
    /// Every gate that fits the filter and is not open, whichever host owns the shard.
    pub gates: Vec<GateOf>,
    /// Shards of other hosts, whose lanes this host does not know.
    pub elsewhere: Vec<u16>,
}

/// The most lanes of an answer.
pub const LANES_SHOWN_MAX: usize = 1_000;

/// A Destination Lane.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Lane {
    /// `namespace/destination`, with `#domain` or `:key` if it is ordered.
    pub lane: String,
    /// The namespace.
    pub namespace: String,
    /// The destination.
    pub destination: String,
    /// Whether messages are sent one after the other, in order.
    pub ordered: bool,
    /// Its shard.
    pub shard: u16,
    /// `open`, `paused` or `closed`.
    #[schema(schema_with = gate)]
    pub gate: String,
    /// `closed`, `open`, `half_open` or `ramping`.
    pub circuit: String,
    /// Time until which the circuit is open.
    #[schema(required = true)]
    pub circuit_until: Option<String>,
    /// Time until which the destination asked not to be called.
    #[schema(required = true)]
    pub throttled_until: Option<String>,
    /// Messages that wait, due or not.
    pub pending: u64,
    /// Messages between claim and outcome.
    pub in_flight_messages: u32,
    /// Bytes of those messages.
    pub in_flight_bytes: u64,
    /// Earliest time at which a waiting message is eligible.
    #[schema(required = true)]
    pub eligible_from: Option<String>,
    /// Why the head is not sent although it is due; null if it is sent.
    #[schema(required = true)]
    pub held: Option<String>,
}

/// A gate that is not open.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct GateOf {
    /// The destination.
    pub destination: String,
    /// The namespace; null if the gate is that of the whole destination.
    #[schema(required = true)]
    pub namespace: Option<String>,
    /// `paused` or `closed`.
    pub gate: String,
    /// The operator's reason.
    #[schema(required = true)]
    pub reason: Option<String>,
    /// Time of the last change.
    pub changed_at: String,
}

/// The body of `POST /api/v1/lanes/gate`, and its answer.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetGate {
    /// The destination.
    pub destination: String,
    /// The namespace; by default the whole destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `open`, `paused` or `closed`.
    #[schema(schema_with = gate)]
    pub gate: String,
    /// The reason, shown with the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The body of `POST /api/v1/lanes/redrive`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RedriveLane {
    /// The namespace.
    pub namespace: String,
    /// The destination.
    pub destination: String,
    /// Start after this message: the `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// The result of a redrive, for one page of dead messages, newest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Redriven {
    /// Messages that are sent again.
    pub redriven: u64,
    /// Dead messages that have expired and are not sent again.
    pub expired: u64,
    /// The `after` of the next page; null on the last page.
    #[schema(required = true)]
    pub next: Option<String>,
}

fn gate() -> Object {
    one_of(words(&Gate::ALL, Gate::as_str))
}

impl From<LaneView> for Lane {
    fn from(lane: LaneView) -> Self {
        Self {
            lane: lane.name.to_string(),
            namespace: lane.name.namespace.to_string(),
            destination: lane.name.destination.to_string(),
            ordered: lane.name.ordering != OrderingDomain::Unordered,
            shard: lane.shard.0,
            gate: lane.gate.as_str().to_owned(),
            circuit: lane.circuit.to_owned(),
            circuit_until: lane.circuit_until.map(rfc3339),
            throttled_until: lane.throttled_until.map(rfc3339),
            pending: lane.pending,
            in_flight_messages: lane.in_flight_messages,
            in_flight_bytes: lane.in_flight_bytes,
            eligible_from: lane.eligible_from.map(rfc3339),
            held: lane.held.map(|held| held.as_str().to_owned()),
        }
    }
}

impl From<GateRow> for GateOf {
    fn from(gate: GateRow) -> Self {
        Self {
            destination: gate.destination.to_string(),
            namespace: gate.namespace.map(|namespace| namespace.to_string()),
            gate: gate.gate.as_str().to_owned(),
            reason: gate.reason,
            changed_at: rfc3339(gate.changed_at),
        }
    }
}
