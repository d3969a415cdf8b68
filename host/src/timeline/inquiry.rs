//! What operators see of a shard that this runtime owns: its lanes, how far it is, and why a message waits.
//!
//! An inquiry is answered by the shard's session in turns of their own, a part of the lanes in each. What it says of a
//! lane holds together, and what it says of the shard.

use tokio::sync::{mpsc, oneshot};

use super::session::{CheckpointReply, RestoredFrom};
use crate::lanes::{CLASSES, Held, Level, Resource, WorkClass};
use crate::model::destination_lane::{Gate, LaneName};
use crate::model::message::MessageEntry;
use crate::model::time::Timestamp;
use crate::store::ShardId;

/// Inquiries that may wait for a session.
pub(super) const INQUIRIES_MAX: usize = 16;

/// A question to a session.
#[derive(Debug)]
pub(super) enum Inquiry {
    /// How the shard and its lanes stand.
    Look(oneshot::Sender<(ShardView, Vec<LaneView>)>),
    /// Make a checkpoint now.
    Checkpoint(CheckpointReply),
    /// Why a message that waits is not admitted, were it due.
    Why(Box<MessageEntry>, oneshot::Sender<Held>),
}

/// How questions get to a shard's session; `None` while it has none here.
pub(super) type Inquiries = Option<mpsc::Sender<Inquiry>>;

/// A shard as its owner sees it.
#[derive(Debug, Clone)]
pub struct ShardView {
    /// The shard.
    pub shard: ShardId,
    /// The last change of its messages that is applied.
    pub applied: u64,
    /// Changes that are not applied yet.
    pub lag: u64,
    /// Messages that wait in its lanes, due or not.
    pub pending: u64,
    /// Messages between claim and outcome.
    pub in_flight: u64,
    /// Lanes that it has met.
    pub lanes: u64,
    /// Why nothing of it is published, if nothing is.
    pub held: Option<Held>,
    /// What it is short of, and how hard that presses.
    pub pressing: Vec<(Resource, Level)>,
    /// Where its index was had from.
    pub restored: RestoredFrom,
    /// Rows of the store that were read until the index had caught up, and since to compare its lines with.
    pub rows_read: u64,
    /// How long each of its work classes had to wait for a turn.
    pub waits: [WorkWait; CLASSES],
}

/// How long a work class had to wait for a turn, in records that others did meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkWait {
    /// The class.
    pub class: WorkClass,
    /// The longest that it did, since the shard is owned.
    pub longest: u64,
    /// The longest that it may.
    pub bound: u64,
}

/// A Destination Lane as its shard's owner sees it.
#[derive(Debug, Clone)]
pub struct LaneView {
    /// Which one.
    pub name: LaneName,
    /// Its shard.
    pub shard: ShardId,
    /// Its gate.
    pub gate: Gate,
    /// Its circuit, in a word, and until when it is open.
    pub circuit: &'static str,
    /// Until when it is open, if it is.
    pub circuit_until: Option<Timestamp>,
    /// Until when its destination asked to be left alone.
    pub throttled_until: Option<Timestamp>,
    /// Messages that wait, due or not.
    pub pending: u64,
    /// Messages between claim and outcome, and their bytes.
    pub in_flight_messages: u32,
    /// Their bytes.
    pub in_flight_bytes: u64,
    /// A time before which none that waits is eligible.
    pub eligible_from: Option<Timestamp>,
    /// What stands against its messages, if they are due.
    pub held: Option<Held>,
}
