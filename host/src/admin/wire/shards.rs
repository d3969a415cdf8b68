//! Delay Shards on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rfc3339;
use crate::lanes::{Level, Resource};
use crate::store::{CheckpointRow, ShardRow, Withdrawal};
use crate::timeline::{self, AfterTrouble, ShardTrouble, ShardView};

/// `GET /api/v1/shards`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Shards {
    /// All shards, by number.
    pub items: Vec<Shard>,
}

/// A Delay Shard.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Shard {
    /// The shard's number.
    pub shard: u16,
    /// Id of the host that owns it; null if no host does.
    #[schema(required = true)]
    pub owner: Option<String>,
    /// Ownership epoch: it rises with every change of owner.
    pub epoch: u64,
    /// End of the owner's lease unless it is renewed.
    pub lease_until: String,
    /// Number of the last change of its messages.
    pub last_seq: u64,
    /// Its newest checkpoint.
    #[schema(required = true)]
    pub checkpoint: Option<Checkpoint>,
    /// Hosts that cannot open it and have left it to others.
    pub withdrawn: Vec<Withdrawn>,
    /// Panics of its actor on this host since the start of the host; null if there was none.
    #[serde(default)]
    #[schema(required = true)]
    pub trouble: Option<Trouble>,
    /// What its owner knows; null if another host owns it.
    #[schema(required = true)]
    pub here: Option<ShardHere>,
}

/// A shard whose actor panicked.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Trouble {
    /// Panics in a row.
    pub panics: u32,
    /// The text of the last panic.
    pub reason: String,
    /// `opened` if the actor was restarted, `waiting` if it will be, `left` if the shard is left to another host,
    /// `down` if the actor stays down until the host is restarted.
    pub state: String,
    /// Time of the restart, if one is planned.
    #[schema(required = true)]
    pub at: Option<String>,
}

/// A checkpoint of a shard's index.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    /// Ownership epoch of the host that made it.
    pub epoch: u64,
    /// Number of the last change that it certainly contains.
    pub applied: u64,
    /// Its size.
    pub bytes: u64,
    /// Time of its record.
    pub created_at: String,
}

/// A host that cannot open a shard.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Withdrawn {
    /// Id of the host.
    pub runtime: String,
    /// Time of its next try at the earliest.
    pub until: String,
    /// Why it cannot open the shard.
    pub reason: String,
}

/// The answer to `POST /api/v1/shards/{shard}/checkpoint`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CheckpointAnswer {
    /// The checkpoint; null if it is still being made.
    #[schema(required = true)]
    pub checkpoint: Option<Checkpoint>,
}

/// What its owner knows of a shard.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ShardHere {
    /// Number of the last change that is applied.
    pub applied: u64,
    /// Changes that are not applied yet.
    pub lag: u64,
    /// Messages that wait, due or not.
    pub pending: u64,
    /// Messages between claim and outcome.
    pub in_flight: u64,
    /// Number of its lanes.
    pub lanes: u64,
    /// Why nothing of it is published; null if it publishes.
    #[schema(required = true)]
    pub held: Option<String>,
    /// Shortages: less is sent at once while one is tight, nothing while one is exhausted.
    #[serde(default)]
    #[schema(required = true)]
    pub pressing: Vec<Pressing>,
    /// Origin of its index: `here`, `checkpoint` or `store`.
    pub restored: String,
    /// Rows of the store that were read until the index had caught up.
    pub rows_read: u64,
    /// Waits of its work classes for a turn.
    #[serde(default)]
    #[schema(required = true)]
    pub waits: Vec<WorkWait>,
}

/// A shortage of a shard.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Pressing {
    /// `disk`, `descriptors`, `channels`, `index` or `evidence`.
    pub resource: String,
    /// `tight` or `exhausted`.
    pub level: String,
}

/// The wait of a work class for its turn, in records that other classes worked off meanwhile.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkWait {
    /// The work class.
    pub class: String,
    /// The longest wait since this host owns the shard.
    pub longest: u64,
    /// The bound of the wait.
    pub bound: u64,
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
        let (state, at) = match trouble.next {
            AfterTrouble::Opened => ("opened", None),
            AfterTrouble::OpenedAt(at) => ("waiting", Some(rfc3339(at))),
            AfterTrouble::LeftToOthers => ("left", None),
            AfterTrouble::Down => ("down", None),
        };
        Self { panics: trouble.panics, reason: trouble.reason, state: state.to_owned(), at }
    }
}

impl Trouble {
    /// The trouble of a shard as a sentence without its full stop.
    pub fn sentence(&self, shard: u16) -> String {
        let outcome = match (self.state.as_str(), &self.at) {
            ("opened", _) => "was restarted".to_owned(),
            (_, Some(at)) => format!("is restarted at {at}"),
            ("left", _) => "is left to another host".to_owned(),
            (_, None) => "stays down until the host is restarted".to_owned(),
        };
        format!("the actor of shard {shard} panicked, {} times in a row, and {outcome}: {}", self.panics, self.reason)
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
