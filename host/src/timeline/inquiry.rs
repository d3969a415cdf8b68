//! Inquiries: operators' questions about a shard that this host owns, its lanes, and messages that wait.
//!
//! The shard's session answers inquiries in turns of a work class of their own, a part of the lanes in each. The
//! figures of one lane are of one moment, and so are those of the shard.

use tokio::sync::{mpsc, oneshot};

use super::session::{CheckpointReply, RestoredFrom};
use crate::lanes::{CLASSES, Held, Level, Resource, WorkClass};
use crate::model::destination_lane::{Gate, LaneName};
use crate::model::message::MessageEntry;
use crate::model::time::Timestamp;
use crate::store::ShardId;

/// Inquiries that may wait for a session.
pub(super) const INQUIRIES_MAX: usize = 16;

/// An inquiry, with the way for its answer.
#[derive(Debug)]
pub(super) enum Inquiry {
    /// Show the shard and its lanes.
    Look(oneshot::Sender<(ShardView, Vec<LaneView>)>),
    /// Make a checkpoint now.
    Checkpoint(CheckpointReply),
    /// Say why a waiting message would not be admitted if it were due.
    Why(Box<MessageEntry>, oneshot::Sender<Held>),
}

/// The way to a shard's session; `None` while there is none here.
pub(super) type Inquiries = Option<mpsc::Sender<Inquiry>>;

/// A shard as its owner sees it.
#[derive(Debug, Clone)]
pub struct ShardView {
    /// The shard.
    pub shard: ShardId,
    /// The sequence number of the last change that is applied.
    pub applied: u64,
    /// Changes that are not applied yet.
    pub lag: u64,
    /// Messages that wait in its lanes, due or not.
    pub pending: u64,
    /// Messages between claim and outcome.
    pub in_flight: u64,
    /// Lanes of the shard.
    pub lanes: u64,
    /// The reason why the whole shard sends nothing, if there is one.
    pub held: Option<Held>,
    /// The resources that are short, and how hard each presses.
    pub pressing: Vec<(Resource, Level)>,
    /// The origin of its index.
    pub restored: RestoredFrom,
    /// Rows of the store that were read until the index had caught up, and since to compare its lines with.
    pub rows_read: u64,
    /// The waits of its work classes for a turn.
    pub waits: [WorkWait; CLASSES],
}

/// The waits of a work class for a turn, in records that other classes did meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkWait {
    /// The class.
    pub class: WorkClass,
    /// The longest wait since this host owns the shard.
    pub longest: u64,
    /// The bound of a wait.
    pub bound: u64,
}

/// A Destination Lane as its shard's owner sees it.
#[derive(Debug, Clone)]
pub struct LaneView {
    /// The lane.
    pub name: LaneName,
    /// Its shard.
    pub shard: ShardId,
    /// Its gate.
    pub gate: Gate,
    /// Its circuit, in a word.
    pub circuit: &'static str,
    /// The time until which the circuit is open, if it is.
    pub circuit_until: Option<Timestamp>,
    /// The time until which its destination asked to be left alone.
    pub throttled_until: Option<Timestamp>,
    /// Messages that wait, due or not.
    pub pending: u64,
    /// Messages between claim and outcome.
    pub in_flight_messages: u32,
    /// The bytes of messages between claim and outcome.
    pub in_flight_bytes: u64,
    /// A time before which no message that waits is eligible.
    pub eligible_from: Option<Timestamp>,
    /// The reason why its messages are not sent although they are due, if there is one.
    pub held: Option<Held>,
}
