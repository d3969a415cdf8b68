//! Claims: what a shard has given to the publisher and has not heard of again, or does not know the end of.
//!
//! A claim is reversible and costs no attempt: it takes permits and a place in flight, and moves the message from its
//! line to what is in flight. Where there is no place, nothing is claimed: the message stays in its line, and its lane
//! keeps its turn. A claim ends with its settlement, whatever the feed has said about the message meanwhile. A message
//! that the feed has told of anew is *superseded*: its claim's end then says nothing about the message any more.

mod pick;

pub(super) use pick::Turned;

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

/// The longest that a destination's wish holds its lane.
const LANE_BACKOFF_MAX: Duration = Duration::from_secs(3_600);
/// How long a destination that says that it is gone is left alone by itself: longer than it takes to read its gate.
const GONE_PAUSE: Duration = Duration::from_secs(5);

/// One claim.
#[derive(Debug)]
struct Claim {
    entry: Entry,
    /// The owner that made it.
    epoch: u64,
    superseded: bool,
    /// When it was made, or taken over.
    since: Timestamp,
    /// `None` if it is no longer the publisher's, and its message may stand as `publishing` with nobody behind it.
    permit: Option<Permit>,
}

/// Every claim of a shard, `max` at the most.
pub(super) struct Claims {
    claims: HashMap<ClaimKey, Claim>,
    unresolved: usize,
    /// The last of those with nobody that was asked about.
    asked: Option<ClaimKey>,
    max: usize,
    /// As many as there is room for, `max` at the most.
    limit: usize,
}

/// A claim that is not in the index yet: its permits are taken, and given back with the lanes if it never gets there.
#[derive(Debug)]
pub(super) struct Picked {
    pub message: ClaimedMessage,
    place: Place,
    claim: Claim,
    /// How long its lane had waited to be served.
    gap: Duration,
}

impl Picked {
    /// How long its lane had waited to be served; nothing but for the first of a visit.
    pub(super) fn service_gap(&self) -> Duration {
        self.gap
    }

    /// Since when it could have been claimed.
    pub(super) fn eligible_at(&self) -> Timestamp {
        self.claim.entry.eligible_at
    }
}

/// What the end of a claim makes of its message.
#[derive(Debug, Clone, Copy)]
enum Ended {
    /// The index has no more to do with it, or hears of it from the feed.
    Gone,
    /// It stands in its line again.
    BackAt(Timestamp),
    /// As well, and was attempted.
    RetriedAt(Timestamp),
    /// It only waits for its expiry.
    Late,
    /// Nobody knows what became of it, and an operator is asked.
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

/// What a batch of settlements means for the shard as a whole.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settlements {
    /// The shard is somebody else's.
    pub fenced: bool,
    /// The store could not admit for the moment.
    pub refused: bool,
    /// Somebody is to be asked what became of a message that had moved.
    pub moved: bool,
}

impl Claims {
    pub(super) fn new(max: usize) -> Self {
        Self { claims: HashMap::new(), unresolved: 0, asked: None, max, limit: max }
    }

    /// How many are with the publisher.
    pub(super) fn with_publisher(&self) -> usize {
        self.claims.len() - self.unresolved
    }

    /// How many are with nobody.
    pub(super) fn unresolved(&self) -> usize {
        self.unresolved
    }

    /// Since when the oldest of those with nobody has been claimed; of one that was inherited, since when it could have
    /// been.
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

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.claims.len()
    }

    /// No more than so many beside those that there are.
    pub(super) fn limit(&mut self, room: usize) {
        self.limit = self.claims.len().saturating_add(room).min(self.max);
    }

    /// Whether one more may be claimed, beside `picked` that are being claimed.
    pub(super) fn has_room(&self, picked: usize) -> bool {
        self.claims.len() + picked < self.limit
    }

    /// Takes over what the index says is in flight: whoever claimed it is gone. Its lanes have been adopted.
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
                // It was superseded while it was claimed, so it was not admitted: the index says all there is to say.
                Some(_) | None => step.forget_claim(epoch, key),
            }
        }
        step.commit()
    }

    /// Takes over a message that stands in its line, or is set aside, and was admitted all the same: whoever admitted
    /// it does not know.
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

    /// Applies a row of the feed, which stands in `lane`'s line if in any. A generation that waits anew is a new one,
    /// but for rows that were applied before.
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
                // It is with nobody, and what is asked about its row has been answered by this one.
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

    /// Takes up claims that are in the index now; their messages are for the publisher.
    pub(super) fn take_up(&mut self, picked: Vec<Picked>) -> Vec<(ClaimedMessage, Place)> {
        let mut messages = Vec::with_capacity(picked.len());
        for Picked { message, place, claim, .. } in picked {
            let before = self.claims.insert(claim.entry.claim_key(), claim);
            assert!(before.is_none(), "a message is claimed once as it stands");
            messages.push((message, place));
        }
        messages
    }

    /// Takes in what became of claims.
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
                // Its row has moved on, which is what it would be asked about.
                Settled::Unrecorded | Settled::Moved if superseded => Ended::Gone,
                // Whatever it moved to, it is not with the publisher. Mostly the feed is about to tell; but it may also
                // stand as `publishing`, by an admission whose answer was lost and that was committed after all.
                Settled::Unrecorded | Settled::Moved => {
                    sum.moved |= *result == Settled::Moved;
                    self.unresolved += 1;
                    continue;
                }
                Settled::Outcome { after, lane_until, gone, .. } => {
                    if *gone {
                        // Its gate is what the store says of it, and nothing else. If it could not be set, the next
                        // message finds out again.
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

    /// The next messages whose claims are with nobody, `rows_max` at the most: those that stay so are in the way of
    /// none.
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

    /// Ends claims that are with nobody, by what the store says about their messages.
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
                    // Its outcome could not be recorded this time either.
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
                // It was rescheduled, which the feed tells of.
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
    match ended {
        Ended::Gone | Ended::BackAt(_) | Ended::RetriedAt(_) | Ended::Late | Ended::Unsettled if superseded => {
            step.forget_claim(epoch, entry.claim_key())
        }
        // In an ordered lane it holds those behind it.
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
