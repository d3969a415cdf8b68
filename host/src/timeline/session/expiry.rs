//! Ending what has expired: the store ends it, and then the index lets it go.
//!
//! What the store does not end has moved, or this owner is none any more. So the index is told what the rows say, and
//! nothing is taken out of it on the strength of a refusal: whoever has the shard next, here, goes on with this index.

use std::collections::HashMap;

use super::work::in_time;
use super::{End, Look, Session, TRY_AGAIN};
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

/// What becomes of one in the index.
enum Fate {
    /// It has ended, or moved: then the feed tells where to.
    Gone,
    /// It was admitted after all, by an admission that was taken for refused.
    InFlight,
    /// It stands as it did, and is tried again.
    Stays,
}

impl Session {
    /// Ends what has expired. Says how many it looked at.
    pub(super) async fn expire(&mut self, lease: ShardLease, now: Interval) -> Result<usize, End> {
        let found = self.index.expiring(now.earliest, EXPIRED_MAX)?;
        self.expiry = if found.stopped_early { Look::Now } else { Look::At(found.next_at) };
        if found.items.is_empty() {
            return Ok(0);
        }
        let mut entries = Vec::with_capacity(found.items.len());
        for (_, id) in found.items {
            let entry = self.index.entry(id)?;
            entries.push(entry.ok_or(Broken::Torn { family: Family::Id })?);
        }
        let asked = self.end_expired(lease, &entries, now);
        let fates = match in_time(self.parts.work.share(WorkClass::Expiry).turn_time, asked).await {
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
            }
        }
        self.schedule.refresh(&mut step, now.earliest);
        step.commit()?;
        Ok(entries.len())
    }

    /// Has the store end them. Says what becomes of each.
    async fn end_expired(&self, lease: ShardLease, entries: &[Entry], now: Interval) -> Result<Vec<Fate>, StoreError> {
        let request = |entry: &Entry| AdmissionRequest { id: entry.id, generation: entry.generation };
        let store = &self.parts.store;
        let expired = store.expire(lease, entries.iter().map(request).collect(), now.earliest).await?;
        self.parts.signals.expired(expired.iter().filter(|expired| **expired).count() as u64);
        let refused = entries.iter().zip(&expired).filter(|(_, expired)| !**expired);
        let refused: Vec<MessageId> = refused.map(|(entry, _)| entry.id).collect();
        let rows = if refused.is_empty() { Vec::new() } else { store.message_entries(&refused).await? };
        let rows: HashMap<MessageId, MessageEntry> = rows.into_iter().map(|row| (row.id, row)).collect();
        let fate = |(entry, expired): (&Entry, bool)| match rows.get(&entry.id) {
            Some(row) if !expired && (row.seq, row.generation) == (entry.seq, entry.generation) => match row.state {
                MessageState::Scheduled | MessageState::RetryWait => Fate::Stays,
                MessageState::Publishing => Fate::InFlight,
                MessageState::Uncertain
                | MessageState::Published
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
        self.expiry = Look::Now;
        self.expire_from = self.parts.env.clock.monotonic() + TRY_AGAIN;
    }
}
