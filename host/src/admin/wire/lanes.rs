//! Lanes, gates, shards, and why a message waits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;

use super::{one_of, rfc3339, words};
use crate::lanes::{Level, Resource};
use crate::model::destination_lane::{Gate, OrderingDomain};
use crate::store::{CheckpointRow, GateRow, Resolution, ShardRow, Withdrawal};
use crate::timeline::{self, AfterTrouble, LaneView, ShardTrouble, ShardView};

/// `GET /api/v1/lanes`: what this runtime knows.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Lanes {
    /// The lanes of the shards that it owns, by name; those that fit the filter, at most [`LANES_SHOWN_MAX`].
    pub lanes: Vec<Lane>,
    /// Whether there are more than are shown.
    pub more: bool,
    /// Every gate that is not open and fits the filter, whoever owns its shard.
    pub gates: Vec<GateOf>,
    /// Shards that it does not own: their owner tells of their lanes.
    pub elsewhere: Vec<u16>,
}

/// The most lanes of an answer.
pub const LANES_SHOWN_MAX: usize = 1_000;

/// A Destination Lane.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Lane {
    /// `namespace/destination`, with `#domain` or `:key` if it is ordered.
    pub lane: String,
    /// The tenant.
    pub namespace: String,
    /// Where its messages go.
    pub destination: String,
    /// Whether it sends heads only.
    pub ordered: bool,
    /// Its shard.
    pub shard: u16,
    /// `open`, `paused` or `closed`.
    #[schema(schema_with = gate)]
    pub gate: String,
    /// `closed`, `open`, `half_open` or `ramping`.
    pub circuit: String,
    /// Until when the circuit is open.
    #[schema(required = true)]
    pub circuit_until: Option<String>,
    /// Until when its destination asked to be left alone.
    #[schema(required = true)]
    pub throttled_until: Option<String>,
    /// Messages that wait, due or not.
    pub pending: u64,
    /// Messages between claim and outcome.
    pub in_flight_messages: u32,
    /// Their bytes.
    pub in_flight_bytes: u64,
    /// None that waits is eligible before this.
    #[schema(required = true)]
    pub eligible_from: Option<String>,
    /// The first reason why nothing of it is sent, were it due.
    #[schema(required = true)]
    pub held: Option<String>,
}

/// A gate that is not open.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct GateOf {
    /// The destination.
    pub destination: String,
    /// The tenant; null for the whole destination.
    #[schema(required = true)]
    pub namespace: Option<String>,
    /// `paused` or `closed`.
    pub gate: String,
    /// Why.
    #[schema(required = true)]
    pub reason: Option<String>,
    /// Since when.
    pub changed_at: String,
}

/// The body of `POST /api/v1/lanes/gate`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetGate {
    /// The destination.
    pub destination: String,
    /// The tenant; without one, the whole destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `open`, `paused` or `closed`.
    #[schema(schema_with = gate)]
    pub gate: String,
    /// Why, for whoever looks later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The body of `POST /api/v1/lanes/redrive`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RedriveLane {
    /// The tenant.
    pub namespace: String,
    /// The destination.
    pub destination: String,
    /// Only dead messages behind this one, newest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// What a redrive of a lane came to. One answer is about a page of messages: `next` is the next page's `after`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Redriven {
    /// Messages that are sent again.
    pub redriven: u64,
    /// Messages that are dead and of no more use.
    pub expired: u64,
    /// Where the next page begins; null on the last.
    #[schema(required = true)]
    pub next: Option<String>,
}

/// The body of `POST /api/v1/messages/{id}/resolve`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolve {
    /// `retry`, `published` or `dead`.
    #[schema(schema_with = resolution)]
    #[serde(rename = "as")]
    pub resolution: String,
}

/// `GET /api/v1/messages/{id}/why`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// The message.
    pub message: String,
    /// Its lane, but for its ordering domain.
    pub lane: String,
    /// Its shard.
    pub shard: u16,
    /// Its state.
    pub state: String,
    /// The first reason that holds, of the closed set; null if it is not due yet, is being sent, or has ended.
    #[schema(required = true)]
    pub reason: Option<String>,
    /// That in words.
    pub explanation: String,
    /// What to do, if anything is to be done.
    #[schema(required = true)]
    pub advice: Option<String>,
}

/// `GET /api/v1/shards`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Shards {
    /// All of them, by number.
    pub items: Vec<Shard>,
}

/// A Delay Shard.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Shard {
    /// Its number.
    pub shard: u16,
    /// The runtime that owns it.
    #[schema(required = true)]
    pub owner: Option<String>,
    /// Rises with every change of owner.
    pub epoch: u64,
    /// When its owner's lease ends unless it is renewed.
    pub lease_until: String,
    /// The last change of its messages.
    pub last_seq: u64,
    /// Its newest checkpoint; null if there is none.
    #[schema(required = true)]
    pub checkpoint: Option<Checkpoint>,
    /// Runtimes that cannot open it and have left it to others.
    pub withdrawn: Vec<Withdrawn>,
    /// What became of its actor in the runtime that was asked, if it panicked there since the start; else null.
    #[serde(default)]
    #[schema(required = true)]
    pub trouble: Option<Trouble>,
    /// What its owner knows; null if that is another runtime than the one that was asked.
    #[schema(required = true)]
    pub here: Option<ShardHere>,
}

/// A shard whose actor panicked.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Trouble {
    /// How often in a row.
    pub panics: u32,
    /// What the last panic said.
    pub reason: String,
    /// `opened` if it was restarted, `waiting` if it will be, `left` if it is left to another host, `down` if it stays
    /// down until the host is restarted.
    pub next: String,
    /// When it is restarted, if it will be.
    #[schema(required = true)]
    pub at: Option<String>,
}

/// A checkpoint of a shard's index.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    /// The owner that made it.
    pub epoch: u64,
    /// At least this much of the feed is in it.
    pub applied: u64,
    /// Its size.
    pub bytes: u64,
    /// When it was recorded.
    pub created_at: String,
}

/// A runtime that cannot open a shard.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Withdrawn {
    /// Which one.
    pub runtime: String,
    /// It is not asked again before.
    pub until: String,
    /// Why it cannot.
    pub reason: String,
}

/// The answer to `POST /api/v1/shards/{shard}/checkpoint`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CheckpointAnswer {
    /// The checkpoint; null if it is still being made.
    #[schema(required = true)]
    pub checkpoint: Option<Checkpoint>,
}

/// What a shard's owner knows of it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ShardHere {
    /// The last change of its messages that is applied.
    pub applied: u64,
    /// Changes that are not.
    pub lag: u64,
    /// Messages that wait, due or not.
    pub pending: u64,
    /// Messages between claim and outcome.
    pub in_flight: u64,
    /// Lanes.
    pub lanes: u64,
    /// Why nothing of it is published, if nothing is.
    #[schema(required = true)]
    pub held: Option<String>,
    /// What it is short of: less is sent at once while something is tight, nothing while something is exhausted.
    #[serde(default)]
    #[schema(required = true)]
    pub pressing: Vec<Pressing>,
    /// Where its index was had from: `here`, `checkpoint` or `store`.
    pub restored: String,
    /// Rows of the store that were read until the index had caught up.
    pub rows_read: u64,
    /// How long its work classes had to wait for a turn.
    #[serde(default)]
    #[schema(required = true)]
    pub waits: Vec<WorkWait>,
}

/// Something that a shard is short of.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Pressing {
    /// `disk`, `descriptors`, `channels`, `index` or `evidence`.
    pub resource: String,
    /// `tight` or `exhausted`.
    pub level: String,
}

/// How long a work class had to wait for a turn, in records that others did meanwhile.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkWait {
    /// The class.
    pub class: String,
    /// The longest that it did, since the shard is owned.
    pub longest: u64,
    /// The longest that it may.
    pub bound: u64,
}

fn gate() -> Object {
    one_of(words(&Gate::ALL, Gate::as_str))
}

fn resolution() -> Object {
    one_of(words(&Resolution::ALL, Resolution::as_str))
}

impl From<CheckpointRow> for Checkpoint {
    fn from(row: CheckpointRow) -> Self {
        Self { epoch: row.epoch, applied: row.applied, bytes: row.bytes, created_at: rfc3339(row.created_at) }
    }
}

impl From<Withdrawal> for Withdrawn {
    fn from(row: Withdrawal) -> Self {
        Self { runtime: row.runtime.to_string(), until: rfc3339(row.until), reason: row.reason }
    }
}

impl From<ShardTrouble> for Trouble {
    fn from(trouble: ShardTrouble) -> Self {
        let (next, at) = match trouble.next {
            AfterTrouble::Opened => ("opened", None),
            AfterTrouble::OpenedAt(at) => ("waiting", Some(rfc3339(at))),
            AfterTrouble::LeftToOthers => ("left", None),
            AfterTrouble::Down => ("down", None),
        };
        Self { panics: trouble.panics, reason: trouble.reason, next: next.to_owned(), at }
    }
}

impl Trouble {
    /// What happened to a shard, in a sentence without its end.
    pub fn sentence(&self, shard: u16) -> String {
        let next = match (self.next.as_str(), &self.at) {
            ("opened", _) => "was restarted".to_owned(),
            (_, Some(at)) => format!("is restarted at {at}"),
            ("left", _) => "is left to another host".to_owned(),
            (_, None) => "stays down until the host is restarted".to_owned(),
        };
        format!("the actor of shard {shard} panicked, {} times in a row, and {next}: {}", self.panics, self.reason)
    }
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

impl From<ShardRow> for Shard {
    fn from(row: ShardRow) -> Self {
        Self {
            shard: row.shard.0,
            owner: row.owner.map(|owner| owner.to_string()),
            epoch: row.epoch,
            lease_until: rfc3339(row.lease_until),
            last_seq: row.last_seq,
            checkpoint: None,
            withdrawn: Vec::new(),
            trouble: None,
            here: None,
        }
    }
}

impl From<ShardView> for ShardHere {
    fn from(view: ShardView) -> Self {
        Self {
            applied: view.applied,
            lag: view.lag,
            pending: view.pending,
            in_flight: view.in_flight,
            lanes: view.lanes,
            held: view.held.map(|held| held.as_str().to_owned()),
            pressing: view.pressing.into_iter().map(Pressing::from).collect(),
            restored: view.restored.as_str().to_owned(),
            rows_read: view.rows_read,
            waits: view.waits.iter().map(WorkWait::from).collect(),
        }
    }
}

impl From<(Resource, Level)> for Pressing {
    fn from((resource, level): (Resource, Level)) -> Self {
        Self { resource: resource.as_str().to_owned(), level: level.as_str().to_owned() }
    }
}

impl From<&timeline::WorkWait> for WorkWait {
    fn from(wait: &timeline::WorkWait) -> Self {
        Self { class: wait.class.as_str().to_owned(), longest: wait.longest, bound: wait.bound }
    }
}
