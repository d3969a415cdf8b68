//! Claims: messages handed to the publisher and not settled, or settled without a known outcome.
//!
//! A claim is reversible and costs no attempt: it takes permits and a place in flight, and moves the message from its
//! line to the messages in flight. Without a place nothing is claimed: the message stays in its line, and its lane
//! keeps its turn. A claim ends with its settlement, whatever the feed has said about the message meanwhile. A claim is
//! *superseded* once the feed has brought a newer row of its message: its end then says nothing about the message.

mod pick;

pub(super) use pick::{Picking, TurnEnd, WithoutPlace};

use std::collections::HashMap;
use std::time::Duration;

use super::database::Broken;
use super::index::{Index, Step};
use super::keys::{ClaimKey, LaneNumber};
use super::schedule::Schedule;
use super::values::{self, Entry};
use crate::lanes::{Permit, Verdict};
use crate::model::message::{AfterAttempt, MessageEntry, MessageState};
use crate::model::time::Timestamp;
use crate::publish::{ClaimedMessage, Place, Settled, Settlement};

/// The longest pause of a lane that its destination can ask for.
const LANE_BACKOFF_MAX: Duration = Duration::from_secs(3_600);
/// The pause of a lane whose destination says that it is gone: longer than it takes to read its gate.
const GONE_PAUSE: Duration = Duration::from_secs(5);

/// One claim.
#[derive(Debug)]
struct Claim {
    entry: Entry,
    /// The epoch of the owner that made the claim.
    epoch: u64,
    superseded: bool,
    /// The time at which the claim was made; for one that was taken over, at which it could have been.
    since: Timestamp,
    /// The permit of the attempt; `None` for an unresolved claim, which has settled without a known outcome.
    permit: Option<Permit>,
}

/// The claims of a shard, `max` at the most.
pub(super) struct Claims {
    claims: HashMap<ClaimKey, Claim>,
    /// Claims that have settled without a known outcome.
    unresolved: usize,
    /// The cursor of `unresolved_ids`.
    asked: Option<ClaimKey>,
    max: usize,
    /// As many claims as there is room for, `max` at the most.
    limit: usize,
}

/// A claim that the index does not have yet. Its permits are taken; they end with the session if it never gets there.
#[derive(Debug)]
pub(super) struct Picked {
    pub message: ClaimedMessage,
    place: Place,
    claim: Claim,
    /// The time for which its lane had waited to be served.
    gap: Duration,
}

impl Picked {
    /// The time for which its lane had waited to be served; zero but for the first message of a visit.
    pub(super) fn service_gap(&self) -> Duration {
        self.gap
    }

    /// The time from which the message could have been claimed.
    pub(super) fn eligible_at(&self) -> Timestamp {
        self.claim.entry.eligible_at
    }
}

/// The state of a message at the end of its claim.
#[derive(Debug, Clone, Copy)]
enum Ended {
    /// The message leaves the index, or the feed tells about it.
    Gone,
    /// The message stands in its line again.
    BackAt(Timestamp),
    /// The message stands in its line again, after an attempt.
    RetriedAt(Timestamp),
    /// The message only waits for its expiry.
    Late,
    /// The outcome is unknown, and an operator decides.
    Unsettled,
}

impl From<AfterAttempt> for Ended {
    fn from(after: AfterAttempt) -> Self {
        match after {
            AfterAttempt::RetryAt(at) => Ended::RetriedAt(at),
            AfterAttempt::Uncertain => Ended::Unsettled,
            AfterAttempt::Published | AfterAttempt::HandedOff | AfterAttempt::Dead | AfterAttempt::Expired => {
                Ended::Gone
            }
        }
    }
}

/// The meaning of a batch of settlements for the shard as a whole.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settlements {
    /// Another host owns the shard.
    pub fenced: bool,
    /// The store could not admit a message.
    pub refused: bool,
    /// A message had moved: the store is to be asked about it.
    pub moved: bool,
}

impl Claims {
    pub(super) fn new(max: usize) -> Self {
        Self { claims: HashMap::new(), unresolved: 0, asked: None, max, limit: max }
    }

    /// Claims that have not settled.
    pub(super) fn with_publisher(&self) -> usize {
        self.claims.len() - self.unresolved
    }

    /// Claims that have settled without a known outcome.
    pub(super) fn unresolved(&self) -> usize {
        self.unresolved
    }

    /// The time of the oldest unresolved claim; for one that was inherited, the time from which it could have been
    /// made.
    pub(super) fn oldest_unresolved(&self) -> Option<Timestamp> {
        if self.unresolved == 0 {
            return None;
        }
        self.claims.values().filter(|claim| claim.permit.is_none()).map(|claim| claim.since).min()
    }

    /// Those that are with the publisher, and their lanes.
    pub(super) fn attempted(&self) -> HashMap<ClaimKey, LaneNumber> {
        let attempted = self.claims.iter().filter(|(_, claim)| claim.permit.is_some());
        attempted.map(|(key, claim)| (*key, claim.entry.lane)).collect()
    }

    /// Whether a claim is with the publisher.
    pub(super) fn is_attempted(&self, key: &ClaimKey) -> bool {
        self.claims.get(key).is_some_and(|claim| claim.permit.is_some())
    }

    /// Whether a message is claimed.
    pub(super) fn has(&self, key: &ClaimKey) -> bool {
        self.claims.contains_key(key)
    }

    /// All claims.
    pub(super) fn len(&self) -> usize {
        self.claims.len()
    }

    /// Allows `room` more claims than there are.
    pub(super) fn limit(&mut self, room: usize) {
        self.limit = self.claims.len().saturating_add(room).min(self.max);
    }

    /// Whether one more message may be claimed in addition to `picked` new ones.
    pub(super) fn has_room(&self, picked: usize) -> bool {
        self.claims.len() + picked < self.limit
    }

    /// Takes over the claims in the index, which earlier owners made. Their lanes have been adopted.
    pub(super) fn inherit(&mut self, index: &mut Index, schedule: &mut Schedule) -> Result<(), Broken> {
        let in_flight = index.in_flight()?;
        let mut step = index.begin();
        for (epoch, key) in in_flight {
            match step.entry(key.id)? {
                Some(entry) if entry.claim_key() == key => {
                    schedule.inherit(entry.lane);
                    step.touch(entry.lane);
                    let claim = Claim { entry, epoch, superseded: false, since: entry.eligible_at, permit: None };
                    self.claims.insert(key, claim);
                    self.unresolved += 1;
                }
                // The claim was superseded, so its message was not admitted: the index has nothing to learn.
                Some(_) | None => step.forget_claim(epoch, key),
            }
        }
        step.commit()
    }

    /// Takes over a message that stands in its line, or is set aside, and was admitted all the same: the answer to its
    /// admission was lost.
    pub(super) fn take_over(
        &mut self,
        step: &mut Step<'_>,
        schedule: &mut Schedule,
        entry: &Entry,
    ) -> Result<(), Broken> {
        step.take_over(entry)?;
        schedule.inherit(entry.lane);
        let (entry, epoch) = (Entry { place: values::Place::Line, ..*entry }, step.epoch());
        let claim = Claim { entry, epoch, superseded: false, since: entry.eligible_at, permit: None };
        self.claims.insert(entry.claim_key(), claim);
        self.unresolved += 1;
        Ok(())
    }

    /// Applies a row of the feed, which stands in `lane`'s line if in any. Rows that were applied before change
    /// nothing.
    pub(super) fn apply(
        &mut self,
        step: &mut Step<'_>,
        schedule: &mut Schedule,
        row: &MessageEntry,
        lane: Option<LaneNumber>,
    ) -> Result<(), Broken> {
        if let Some(known) = step.entry(row.id)? {
            let key = known.claim_key();
            let claim = self.claims.get_mut(&key);
            if known.seq > row.seq || (known.seq == row.seq && claim.is_some()) {
                return Ok(());
            }
            match claim {
                Some(claim) if claim.permit.is_some() => {
                    claim.superseded = true;
                    step.forget(row.id);
                }
                // An unresolved claim: this row answers the question about it.
                Some(claim) => {
                    let epoch = claim.epoch;
                    self.claims.remove(&key);
                    self.unresolved -= 1;
                    schedule.conclude(known.lane);
                    step.end(epoch, &known);
                    step.touch(known.lane);
                }
                None => step.withdraw(&known)?,
            }
        }
        if let Some(lane) = lane
            && let Some(entry) = Entry::standing(row, lane, &step.lane(lane).name)
        {
            step.schedule(&entry);
        }
        Ok(())
    }

    /// Takes up claims that are in the index now. Returns their messages, for the publisher.
    pub(super) fn take_up(&mut self, picked: Vec<Picked>) -> Vec<(ClaimedMessage, Place)> {
        let mut messages = Vec::with_capacity(picked.len());
        for Picked { message, place, claim, .. } in picked {
            let before = self.claims.insert(claim.entry.claim_key(), claim);
            assert!(before.is_none(), "a message is claimed once as it stands");
            messages.push((message, place));
        }
        messages
    }

    /// Takes in settlements.
    pub(super) fn settle(
        &mut self,
        step: &mut Step<'_>,
        schedule: &mut Schedule,
        settlements: &[Settlement],
        now: Timestamp,
    ) -> Settlements {
        let mut sum = Settlements::default();
        for Settlement { id, generation, seq, result, .. } in settlements {
            let key = ClaimKey { id: *id, generation: *generation, seq: *seq };
            let Some(claim) = self.claims.get_mut(&key) else {
                tracing::error!(message = %id, "a claim settled twice");
                continue;
            };
            let Claim { entry, epoch, superseded, .. } = *claim;
            if let Some(permit) = claim.permit.take() {
                schedule.settle(entry.lane, permit, verdict(result), now);
            }
            step.touch(entry.lane);
            let ended = match result {
                // Its row has moved on, so there is no question about it.
                Settled::Unrecorded | Settled::Moved if superseded => Ended::Gone,
                // The publisher has let go of the message. Mostly the feed is about to tell where it moved; but its row
                // may also say `publishing`, by an admission that was committed after its answer was lost.
                Settled::Unrecorded | Settled::Moved => {
                    sum.moved |= *result == Settled::Moved;
                    self.unresolved += 1;
                    continue;
                }
                Settled::Outcome { after, lane_until, gone, .. } => {
                    if *gone {
                        // The gate is the store's to change. If it could not be closed, the next message finds out
                        // again.
                        schedule.back_off(entry.lane, now + GONE_PAUSE, now);
                    }
                    if let Some(until) = lane_until {
                        schedule.back_off(entry.lane, (*until).min(now + LANE_BACKOFF_MAX), now);
                    }
                    schedule.tried(entry.lane, matches!(after, AfterAttempt::RetryAt(_) | AfterAttempt::Dead), now);
                    Ended::from(*after)
                }
                Settled::NotAdmitted | Settled::Recalled | Settled::Fenced => {
                    sum.refused |= *result == Settled::NotAdmitted;
                    sum.fenced |= *result == Settled::Fenced;
                    Ended::BackAt(entry.eligible_at)
                }
                Settled::TooLate => Ended::Late,
            };
            self.claims.remove(&key);
            schedule.conclude(entry.lane);
            conclude(step, &entry, epoch, superseded, ended);
        }
        sum
    }

    /// The next unresolved claims, `rows_max` at the most, in turn: those that stay unresolved hold up no others.
    pub(super) fn unresolved_ids(&mut self, rows_max: usize) -> Vec<ClaimKey> {
        let unresolved = self.claims.iter().filter(|(_, claim)| claim.permit.is_none());
        let mut keys: Vec<ClaimKey> = unresolved.map(|(key, _)| *key).collect();
        keys.sort_unstable();
        let asked = keys.partition_point(|key| Some(*key) <= self.asked);
        keys.rotate_left(asked);
        keys.truncate(rows_max);
        self.asked = keys.last().copied();
        keys
    }

    /// Ends unresolved claims by the rows of their messages.
    pub(super) fn resolve(
        &mut self,
        step: &mut Step<'_>,
        schedule: &mut Schedule,
        keys: &[ClaimKey],
        rows: &[MessageEntry],
    ) {
        let rows: HashMap<_, _> = rows.iter().map(|row| (row.id, row)).collect();
        for key in keys {
            let Some(claim) = self.claims.get(key) else { continue };
            let Claim { entry, epoch, superseded, .. } = *claim;
            let ended = match rows.get(&key.id) {
                Some(row) if row.generation == key.generation => match row.state {
                    // The outcome could not be recorded this time either.
                    MessageState::Publishing => continue,
                    MessageState::Scheduled => Ended::BackAt(row.eligible_at),
                    MessageState::RetryWait => Ended::RetriedAt(row.eligible_at),
                    MessageState::Uncertain => Ended::Unsettled,
                    MessageState::Published
                    | MessageState::Cancelled
                    | MessageState::Expired
                    | MessageState::Dead
                    | MessageState::HandedOff => Ended::Gone,
                },
                // The message was rescheduled, as the feed tells.
                Some(_) | None => Ended::Gone,
            };
            self.claims.remove(key);
            self.unresolved -= 1;
            schedule.conclude(entry.lane);
            step.touch(entry.lane);
            conclude(step, &entry, epoch, superseded, ended);
        }
    }
}

/// Takes a claim out of the index.
fn conclude(step: &mut Step<'_>, entry: &Entry, epoch: u64, superseded: bool, ended: Ended) {
    if superseded {
        return step.forget_claim(epoch, entry.claim_key());
    }
    match ended {
        // In an ordered lane it holds the messages behind it.
        Ended::Unsettled if entry.order.is_some() => step.put_back(epoch, &entry.unsettled(), Timestamp::MAX),
        Ended::Gone | Ended::Unsettled => step.end(epoch, entry),
        Ended::BackAt(at) => step.put_back(epoch, entry, at),
        Ended::RetriedAt(at) => step.put_back(epoch, &Entry { retried: true, ..*entry }, at),
        Ended::Late => step.put_aside(epoch, entry),
    }
}

fn verdict(result: &Settled) -> Verdict {
    match result {
        Settled::Outcome { destination, .. } => *destination,
        Settled::Moved
        | Settled::Fenced
        | Settled::TooLate
        | Settled::NotAdmitted
        | Settled::Recalled
        | Settled::Unrecorded => Verdict::NotCalled,
    }
}

#[cfg(test)]
mod tests;
