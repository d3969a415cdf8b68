//! Expiry: the store ends messages that have expired, and then the index removes them.
//!
//! If the store does not end a message, the message has moved, or this host has lost the shard. So the index follows
//! the message's row, and a refusal alone removes nothing from it: the next owner on this host continues with this
//! index.

use std::collections::HashMap;

use super::time::TRY_AGAIN;
use super::work::in_time;
use super::{End, Session};
use crate::lanes::WorkClass;
use crate::model::ids::MessageId;
use crate::model::message::{MessageEntry, MessageState};
use crate::store::{AdmissionRequest, ShardLease, StoreError};
use crate::timeline::clock::Interval;
use crate::timeline::database::Broken;
use crate::timeline::keys::Family;
use crate::timeline::values::Entry;

/// Messages that are expired together.
pub(super) const EXPIRED_MAX: usize = 256;

/// The fate of an expired message in the index.
enum Fate {
    /// The message has ended, or moved; the feed tells where to.
    Gone,
    /// The message was admitted after all: the answer to its admission was lost.
    InFlight,
    /// The message still waits, and is tried again.
    Stays,
    /// The outcome of the message is uncertain: in an ordered lane, it holds the messages behind it.
    Uncertain(Box<MessageEntry>),
}

impl Session<'_> {
    /// Ends messages that have expired. Returns how many it looked at.
    pub(super) async fn expire(&mut self, lease: ShardLease, now: Interval) -> Result<usize, End> {
        let found = self.index.expiring(now.earliest, EXPIRED_MAX)?;
        if found.stopped_early {
            self.expiry.look_again();
        } else {
            self.expiry.look_at(found.next_at);
        }
        if found.items.is_empty() {
            return Ok(0);
        }
        let mut entries = Vec::with_capacity(found.items.len());
        for (_, id) in found.items {
            let entry = self.index.entry(id)?;
            entries.push(entry.ok_or(Broken::Torn { family: Family::Id })?);
        }
        let asked = self.end_expired(lease, &entries, now);
        let fates = match in_time(self.around.work.share(WorkClass::Expiry).turn_time, asked).await {
            Ok(fates) => fates,
            Err(error) => {
                tracing::warn!(%error, "messages cannot be expired now");
                self.try_to_expire_again();
                return Ok(0);
            }
        };
        if fates.iter().any(|fate| matches!(fate, Fate::Stays)) {
            self.try_to_expire_again();
        }
        let mut step = self.index.begin();
        for (entry, fate) in entries.iter().zip(&fates) {
            match fate {
                Fate::Gone => step.withdraw(entry)?,
                Fate::InFlight => self.claims.take_over(&mut step, &mut self.schedule, entry)?,
                Fate::Stays => {}
                Fate::Uncertain(row) => {
                    let lane = self.schedule.lane_of(&mut step, row, &self.following.destinations);
                    self.claims.apply(&mut step, &mut self.schedule, row, lane)?;
                }
            }
        }
        self.schedule.refresh(&mut step, now.earliest);
        step.commit()?;
        Ok(entries.len())
    }

    /// Asks the store to end messages. Returns the fate of each.
    async fn end_expired(&self, lease: ShardLease, entries: &[Entry], now: Interval) -> Result<Vec<Fate>, StoreError> {
        let request = |entry: &Entry| AdmissionRequest { id: entry.id, generation: entry.generation };
        let store = &self.around.store;
        let expired = store.expire(lease, entries.iter().map(request).collect(), now.earliest).await?;
        self.shard.signals.expired(expired.iter().filter(|expired| **expired).count() as u64);
        let refused = entries.iter().zip(&expired).filter(|(_, expired)| !**expired);
        let refused: Vec<MessageId> = refused.map(|(entry, _)| entry.id).collect();
        let rows = if refused.is_empty() { Vec::new() } else { store.message_entries(&refused).await? };
        let rows: HashMap<MessageId, MessageEntry> = rows.into_iter().map(|row| (row.id, row)).collect();
        let fate = |(entry, expired): (&Entry, bool)| match rows.get(&entry.id) {
            Some(row) if !expired && (row.seq, row.generation) == (entry.seq, entry.generation) => match row.state {
                MessageState::Scheduled | MessageState::RetryWait => Fate::Stays,
                MessageState::Publishing => Fate::InFlight,
                MessageState::Uncertain => Fate::Uncertain(Box::new(row.clone())),
                MessageState::Published
                | MessageState::HandedOff
                | MessageState::Cancelled
                | MessageState::Expired
                | MessageState::Dead => Fate::Gone,
            },
            Some(_) | None => Fate::Gone,
        };
        Ok(entries.iter().zip(expired).map(fate).collect())
    }

    fn try_to_expire_again(&mut self) {
        self.expiry.look_again();
        self.expiry.put_off(self.monotonic() + TRY_AGAIN);
    }
}
