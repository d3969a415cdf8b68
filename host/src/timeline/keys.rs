//! The keys of a shard's index. Big-endian, so that bytes sort as values do; tag and version come first.
//!
//! | family   | key                                            | value                                       |
//! |----------|------------------------------------------------|---------------------------------------------|
//! | timeline | DUE `lane, eligible_at, seq, message`          | what a claim needs; of an ordered lane      |
//! |          | (ordered: `lane, -, place, message`)           | sorted by place                             |
//! | timeline | EXPIRY `expire_at, message`                    | nothing                                     |
//! | id       | ENTRY `message`                                | where the message stands in the other lines |
//! | inflight | IN_FLIGHT `owner epoch, message, generation,   | nothing                                     |
//! |          | seq`                                           |                                             |
//! | meta     | STATE                                          | shard, owner epoch, applied sequence number |
//! | meta     | LANE `lane`                                    | the lane's name, how many wait              |
//! | meta     | ORDER `destination`                            | how its lanes are told apart                |
//! | meta     | WHOLE                                          | the owner epoch that left it in good order  |

use super::frame::{Fields, time_bytes};
use super::numbered::Number;
use crate::model::ids::MessageId;
use crate::model::names::DestinationName;
use crate::model::time::Timestamp;

/// The version of all keys and values together. An index of another version is rebuilt.
const VERSION: u8 = 6;

const DUE: u8 = 1;
const EXPIRY: u8 = 3;
const ENTRY: u8 = 4;
const IN_FLIGHT: u8 = 5;
const STATE: u8 = 6;
const LANE: u8 = 7;
const WHOLE: u8 = 8;
const ORDER: u8 = 9;

/// A column family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// What is due when.
    Timeline,
    /// Where each message stands.
    Id,
    /// What is claimed.
    InFlight,
    /// The shard itself, and its lanes.
    Meta,
}

impl Family {
    pub(super) const ALL: [Family; 4] = [Family::Timeline, Family::Id, Family::InFlight, Family::Meta];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Family::Timeline => "timeline",
            Family::Id => "id",
            Family::InFlight => "inflight",
            Family::Meta => "meta",
        }
    }
}

/// The number of a lane of the shard. Lanes are numbered in the order in which they were met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct LaneNumber(pub u32);

impl Number for LaneNumber {
    fn of_position(position: usize) -> Self {
        Self(u32::try_from(position).expect("there are fewer lanes than that"))
    }

    fn position(self) -> usize {
        self.0 as usize
    }
}

/// A message's position in its lane's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    /// The time from which it is eligible; in an ordered lane, the same for all.
    pub at: Timestamp,
    /// Its sequence number; in an ordered lane, its number in the order.
    pub order: u64,
    pub id: MessageId,
}

impl Position {
    /// Before every other.
    pub(super) const FIRST: Position =
        Position { at: Timestamp::from_millis(i64::MIN), order: 0, id: MessageId::from_bytes([0; 16]) };
}

/// A claim: a message is claimed at most once as it stands. A command makes it stand anew, also one that leaves its
/// generation as it is, and may do so while an earlier claim of it has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ClaimKey {
    pub id: MessageId,
    pub generation: u32,
    /// That of the row that it stood by.
    pub seq: u64,
}

pub(super) fn due(lane: LaneNumber, position: Position) -> Vec<u8> {
    let order = position.order.to_be_bytes();
    key(DUE, &[&lane.0.to_be_bytes(), &time_bytes(position.at), &order, position.id.as_bytes()])
}

/// Behind the last message of a lane's line.
pub(super) fn due_end(lane: LaneNumber) -> Vec<u8> {
    match lane.0.checked_add(1) {
        Some(next) => key(DUE, &[&next.to_be_bytes()]),
        None => key(DUE + 1, &[]),
    }
}

/// Where the line after `key` begins: between it and the next.
pub(super) fn behind(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

pub(super) fn read_due(key: &[u8]) -> Option<Position> {
    let mut fields = fields_of(DUE, key)?;
    fields.u32()?;
    let position = Position { at: fields.time()?, order: fields.u64()?, id: MessageId::from_bytes(fields.bytes()?) };
    fields.end()?;
    Some(position)
}

pub(super) fn expiry(at: Timestamp, id: MessageId) -> Vec<u8> {
    key(EXPIRY, &[&time_bytes(at), id.as_bytes()])
}

/// Before the first message that expires at `at` or later.
pub(super) fn expiry_start(at: Timestamp) -> Vec<u8> {
    key(EXPIRY, &[&time_bytes(at)])
}

pub(super) fn expiry_end() -> Vec<u8> {
    key(EXPIRY + 1, &[])
}

pub(super) fn read_expiry(key: &[u8]) -> Option<(Timestamp, MessageId)> {
    let mut fields = fields_of(EXPIRY, key)?;
    let read = (fields.time()?, MessageId::from_bytes(fields.bytes()?));
    fields.end()?;
    Some(read)
}

pub(super) fn entry(id: MessageId) -> Vec<u8> {
    key(ENTRY, &[id.as_bytes()])
}

pub(super) fn in_flight(epoch: u64, claim: ClaimKey) -> Vec<u8> {
    let (generation, seq) = (claim.generation.to_be_bytes(), claim.seq.to_be_bytes());
    key(IN_FLIGHT, &[&epoch.to_be_bytes(), claim.id.as_bytes(), &generation, &seq])
}

pub(super) fn in_flight_start() -> Vec<u8> {
    key(IN_FLIGHT, &[])
}

pub(super) fn in_flight_end() -> Vec<u8> {
    key(IN_FLIGHT + 1, &[])
}

pub(super) fn read_in_flight(key: &[u8]) -> Option<(u64, ClaimKey)> {
    let mut fields = fields_of(IN_FLIGHT, key)?;
    let epoch = fields.u64()?;
    let id = MessageId::from_bytes(fields.bytes()?);
    let claim = ClaimKey { id, generation: fields.u32()?, seq: fields.u64()? };
    fields.end()?;
    Some((epoch, claim))
}

/// The one key that has no version: what is under it says which version the rest has.
pub(super) fn state() -> Vec<u8> {
    vec![STATE]
}

/// Written last by an owner that ended in good order.
pub(super) fn whole() -> Vec<u8> {
    key(WHOLE, &[])
}

pub(super) fn lane(lane: LaneNumber) -> Vec<u8> {
    key(LANE, &[&lane.0.to_be_bytes()])
}

pub(super) fn lane_start() -> Vec<u8> {
    key(LANE, &[])
}

pub(super) fn lane_end() -> Vec<u8> {
    key(LANE + 1, &[])
}

pub(super) fn read_lane(key: &[u8]) -> Option<LaneNumber> {
    let mut fields = fields_of(LANE, key)?;
    let lane = LaneNumber(fields.u32()?);
    fields.end()?;
    Some(lane)
}

pub(super) fn order(destination: &DestinationName) -> Vec<u8> {
    key(ORDER, &[destination.as_str().as_bytes()])
}

pub(super) fn order_start() -> Vec<u8> {
    key(ORDER, &[])
}

pub(super) fn order_end() -> Vec<u8> {
    key(ORDER + 1, &[])
}

pub(super) fn read_order(key: &[u8]) -> Option<DestinationName> {
    std::str::from_utf8(key.strip_prefix(&[ORDER, VERSION])?).ok()?.parse().ok()
}

/// The version that [`super::values`] writes into the shard's state.
pub(super) const fn version() -> u8 {
    VERSION
}

fn key(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(2 + parts.iter().map(|part| part.len()).sum::<usize>() + 1);
    key.push(tag);
    key.push(VERSION);
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

fn fields_of(tag: u8, key: &[u8]) -> Option<Fields<'_>> {
    Some(Fields::new(key.strip_prefix(&[tag, VERSION])?))
}
