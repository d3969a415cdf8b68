//! What is stored under the keys.

use std::str::FromStr;

use super::frame::{Fields, time_bytes};
use super::keys::{self, ClaimKey, LaneNumber, Position};
use crate::model::ids::MessageId;
use crate::model::message::MessageEntry;
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;
use crate::store::ShardId;

/// A message as the index knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub id: MessageId,
    pub lane: LaneNumber,
    pub seq: u64,
    pub generation: u32,
    /// Body and headers.
    pub bytes: u32,
    pub eligible_at: Timestamp,
    pub expire_at: Option<Timestamp>,
    pub place: Place,
}

/// Whether a message stands in its lane's line when it is not claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It does.
    Line,
    /// It was found to expire too soon to be published, and only waits for that.
    Expiring,
}

impl Entry {
    /// The entry of a message that stands in `lane`'s line.
    pub(super) fn of(message: &MessageEntry, lane: LaneNumber) -> Self {
        Self {
            id: message.id,
            lane,
            seq: message.seq,
            generation: message.generation,
            bytes: message.bytes,
            eligible_at: message.eligible_at,
            expire_at: message.expire_at,
            place: Place::Line,
        }
    }

    pub(super) fn position(&self) -> Position {
        Position { eligible_at: self.eligible_at, seq: self.seq, id: self.id }
    }

    pub(super) fn claim_key(&self) -> ClaimKey {
        ClaimKey { id: self.id, generation: self.generation }
    }

    /// The value of its ENTRY key.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(48);
        value.extend_from_slice(&self.lane.0.to_be_bytes());
        value.extend_from_slice(&self.seq.to_be_bytes());
        value.extend_from_slice(&time_bytes(self.eligible_at));
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
        let (lane, seq, eligible_at) = (LaneNumber(fields.u32()?), fields.u64()?, fields.time()?);
        let place = match fields.u8()? {
            0 => Place::Line,
            1 => Place::Expiring,
            _ => return None,
        };
        let entry = Self::read_due(lane, Position { eligible_at, seq, id }, fields.rest())?;
        Some(Self { place, ..entry })
    }

    /// The value of its DUE key: what is not in the key.
    pub(super) fn write_due(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(17);
        value.extend_from_slice(&self.generation.to_be_bytes());
        value.extend_from_slice(&self.bytes.to_be_bytes());
        value.push(u8::from(self.expire_at.is_some()));
        value.extend_from_slice(&time_bytes(self.expire_at.unwrap_or(Timestamp::MAX)));
        value
    }

    /// Reads [`Entry::write_due`].
    pub(super) fn read_due(lane: LaneNumber, position: Position, value: &[u8]) -> Option<Self> {
        let Position { eligible_at, seq, id } = position;
        let mut fields = Fields::new(value);
        let (generation, bytes, expires, expire_at) = (fields.u32()?, fields.u32()?, fields.u8()?, fields.time()?);
        fields.end()?;
        let expire_at = (expires == 1).then_some(expire_at);
        Some(Self { id, lane, seq, generation, bytes, eligible_at, expire_at, place: Place::Line })
    }
}

/// What a lane groups.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LaneName {
    pub namespace: Namespace,
    pub destination: DestinationName,
}

impl LaneName {
    /// The value of its LANE key, beside how many messages stand in its line.
    pub(super) fn write(&self, pending: u64) -> Vec<u8> {
        let mut value = pending.to_be_bytes().to_vec();
        for text in [self.namespace.as_str(), self.destination.as_str()] {
            value.push(u8::try_from(text.len()).expect("a name is at most 63 bytes"));
            value.extend_from_slice(text.as_bytes());
        }
        value
    }

    /// Reads [`LaneName::write`].
    pub(super) fn read(value: &[u8]) -> Option<(Self, u64)> {
        let mut fields = Fields::new(value);
        let pending = fields.u64()?;
        let namespace = Namespace::from_str(fields.text()?).ok()?;
        let destination = DestinationName::from_str(fields.text()?).ok()?;
        fields.end()?;
        Some((Self { namespace, destination }, pending))
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
