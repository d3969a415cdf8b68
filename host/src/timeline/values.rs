//! The values of a shard's index.

use std::str::FromStr;

use super::frame::{Fields, time_bytes};
use super::keys::{self, ClaimKey, LaneNumber, Position};
use crate::model::destination_lane::{LaneName, Ordering, OrderingDomain};
use crate::model::ids::MessageId;
use crate::model::message::{MessageEntry, MessageState};
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;
use crate::store::ShardId;

/// The bits of a DUE value.
const EXPIRES: u8 = 1;
const RETRIED: u8 = 2;

/// A message as the index knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub id: MessageId,
    pub lane: LaneNumber,
    pub seq: u64,
    pub generation: u32,
    /// The size of body and headers.
    pub bytes: u32,
    pub eligible_at: Timestamp,
    pub expire_at: Option<Timestamp>,
    /// Its number in the order of its lane, if the lane is ordered.
    pub order: Option<u64>,
    pub place: Place,
    /// Whether the message was attempted, and waits for its next attempt.
    pub retried: bool,
}

/// Whether a message stands in its lane's line when it is not claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The message stands in its line.
    Line,
    /// The message expires too soon to be published, and only waits for its expiry.
    Expiring,
}

/// Whether a message in this state stands in the line of its lane.
pub(super) fn stands(state: MessageState, in_order: bool) -> bool {
    match state {
        MessageState::Scheduled | MessageState::RetryWait => true,
        // In an ordered lane it holds the messages behind it, until the feed tells its end.
        MessageState::Publishing | MessageState::Uncertain => in_order,
        MessageState::Published
        | MessageState::Cancelled
        | MessageState::Expired
        | MessageState::Dead
        | MessageState::HandedOff => false,
    }
}

impl Entry {
    /// The entry of a message that stands in `lane`'s line, whose name is `name`.
    pub(super) fn of(message: &MessageEntry, lane: LaneNumber, name: &LaneName) -> Self {
        Self {
            id: message.id,
            lane,
            seq: message.seq,
            generation: message.generation,
            bytes: message.bytes,
            eligible_at: message.eligible_at,
            expire_at: message.expire_at,
            order: name.ordering.is_ordered().then_some(message.place),
            place: Place::Line,
            retried: message.state == MessageState::RetryWait,
        }
    }

    /// How a message stands in `lane`'s line by what the store says of it; `None` if it does not stand there.
    pub(super) fn standing(message: &MessageEntry, lane: LaneNumber, name: &LaneName) -> Option<Self> {
        let entry = Self::of(message, lane, name);
        match message.state {
            _ if !stands(message.state, name.ordering.is_ordered()) => None,
            MessageState::Publishing | MessageState::Uncertain => Some(entry.unsettled()),
            _ => Some(entry),
        }
    }

    /// The position in the line: by order in an ordered lane, else by the time from which the message is eligible.
    pub(super) fn position(&self) -> Position {
        match self.order {
            Some(place) => Position { at: Position::FIRST.at, order: place, id: self.id },
            None => Position { at: self.eligible_at, order: self.seq, id: self.id },
        }
    }

    /// The entry in an ordered lane while the outcome is unknown: never eligible, and never expiring.
    pub(super) fn unsettled(&self) -> Self {
        Self { eligible_at: Timestamp::MAX, expire_at: None, retried: false, ..*self }
    }

    pub(super) fn claim_key(&self) -> ClaimKey {
        ClaimKey { id: self.id, generation: self.generation, seq: self.seq }
    }

    /// The value of its ENTRY key.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(52);
        value.extend_from_slice(&self.lane.0.to_be_bytes());
        value.push(match self.place {
            Place::Line => 0,
            Place::Expiring => 1,
        });
        value.extend_from_slice(&self.write_due());
        value
    }

    /// Reads [`Entry::write`].
    pub(super) fn read(id: MessageId, value: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(value);
        let lane = LaneNumber(fields.u32()?);
        let place = match fields.u8()? {
            0 => Place::Line,
            1 => Place::Expiring,
            _ => return None,
        };
        let entry = Self::read_due(lane, id, fields.rest())?;
        Some(Self { place, ..entry })
    }

    /// The value of its DUE key.
    pub(super) fn write_due(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(47);
        value.extend_from_slice(&self.generation.to_be_bytes());
        value.extend_from_slice(&self.bytes.to_be_bytes());
        value.push(u8::from(self.expire_at.is_some()) * EXPIRES + u8::from(self.retried) * RETRIED);
        value.extend_from_slice(&time_bytes(self.expire_at.unwrap_or(Timestamp::MAX)));
        value.extend_from_slice(&self.seq.to_be_bytes());
        value.extend_from_slice(&time_bytes(self.eligible_at));
        value.push(u8::from(self.order.is_some()));
        value.extend_from_slice(&self.order.unwrap_or(0).to_be_bytes());
        value
    }

    /// Reads [`Entry::write_due`].
    pub(super) fn read_due(lane: LaneNumber, id: MessageId, value: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(value);
        let (generation, bytes, marks, expire_at) = (fields.u32()?, fields.u32()?, fields.u8()?, fields.time()?);
        let (seq, eligible_at, ordered, order) = (fields.u64()?, fields.time()?, fields.u8()?, fields.u64()?);
        fields.end()?;
        let (expire_at, retried) = ((marks & EXPIRES != 0).then_some(expire_at), marks & RETRIED != 0);
        let order = (ordered == 1).then_some(order);
        Some(Self { id, lane, seq, generation, bytes, eligible_at, expire_at, order, place: Place::Line, retried })
    }
}

const UNORDERED: u8 = 0;
const HASH: u8 = 1;
const KEY: u8 = 2;
const VACANT: u8 = 3;

/// The value of a LANE key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredLane {
    pub name: LaneName,
    /// Messages in its line.
    pub pending: u64,
    /// Whether the number is vacant; its name is that of an empty key then.
    pub is_vacant: bool,
}

/// Writes the value of the LANE key of a vacant lane.
pub(super) fn write_vacant_lane(name: &LaneName) -> Vec<u8> {
    let mut value = write_lane(&LaneName { ordering: OrderingDomain::Unordered, ..name.clone() }, 0);
    *value.last_mut().expect("the last byte says what is ordered") = VACANT;
    value
}

/// The value of a LANE key: a lane's name, and how many messages stand in its line.
pub(super) fn write_lane(name: &LaneName, pending: u64) -> Vec<u8> {
    let mut value = pending.to_be_bytes().to_vec();
    for text in [name.namespace.as_str(), name.destination.as_str()] {
        value.push(u8::try_from(text.len()).expect("a name is at most 63 bytes"));
        value.extend_from_slice(text.as_bytes());
    }
    match &name.ordering {
        OrderingDomain::Unordered => value.push(UNORDERED),
        OrderingDomain::Hash(number) => {
            value.push(HASH);
            value.extend_from_slice(&number.to_be_bytes());
        }
        OrderingDomain::Key(key) => {
            value.push(KEY);
            value.extend_from_slice(key.as_bytes());
        }
    }
    value
}

/// Reads [`write_lane`].
pub(super) fn read_lane(value: &[u8]) -> Option<StoredLane> {
    let mut fields = Fields::new(value);
    let pending = fields.u64()?;
    let namespace = Namespace::from_str(fields.text()?).ok()?;
    let destination = DestinationName::from_str(fields.text()?).ok()?;
    let kind = fields.u8()?;
    let ordering = match kind {
        VACANT => {
            fields.end()?;
            OrderingDomain::Key(String::new())
        }
        UNORDERED => {
            fields.end()?;
            OrderingDomain::Unordered
        }
        HASH => {
            let number = u16::from_be_bytes(fields.bytes()?);
            fields.end()?;
            OrderingDomain::Hash(number)
        }
        KEY => OrderingDomain::Key(String::from_utf8(fields.rest().to_vec()).ok()?),
        _ => return None,
    };
    Some(StoredLane { name: LaneName { namespace, destination, ordering }, pending, is_vacant: kind == VACANT })
}

/// The value of an ORDER key: which messages of a destination keep their order.
pub(super) fn write_order(ordering: Ordering) -> Vec<u8> {
    let (kind, domains) = match ordering {
        Ordering::None => (UNORDERED, 0),
        Ordering::Exact => (KEY, 0),
        Ordering::Hashed { domains } => (HASH, domains),
    };
    let mut value = vec![kind];
    value.extend_from_slice(&domains.to_be_bytes());
    value
}

/// Reads [`write_order`].
pub(super) fn read_order(value: &[u8]) -> Option<Ordering> {
    let mut fields = Fields::new(value);
    let (kind, domains) = (fields.u8()?, u16::from_be_bytes(fields.bytes()?));
    fields.end()?;
    match kind {
        UNORDERED => Some(Ordering::None),
        KEY => Some(Ordering::Exact),
        HASH => Some(Ordering::Hashed { domains }),
        _ => None,
    }
}

/// How far an index has come, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShardState {
    pub shard: ShardId,
    /// The last owner that wrote to it.
    pub epoch: u64,
    /// Everything up to this sequence number is in it.
    pub applied: u64,
}

impl ShardState {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut value = vec![keys::version()];
        value.extend_from_slice(&self.shard.0.to_be_bytes());
        value.extend_from_slice(&self.epoch.to_be_bytes());
        value.extend_from_slice(&self.applied.to_be_bytes());
        value
    }

    /// Reads [`ShardState::write`]; `None` for another version as well.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(value);
        if fields.u8()? != keys::version() {
            return None;
        }
        let shard = ShardId(u16::from_be_bytes(fields.bytes()?));
        let (epoch, applied) = (fields.u64()?, fields.u64()?);
        fields.end()?;
        Some(Self { shard, epoch, applied })
    }
}
