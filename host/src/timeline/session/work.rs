//! What a session does in a turn of each work class, and which class has work.

use std::time::Duration;

use super::{End, Look, SETTLEMENTS_MAX, Session, TRY_AGAIN};
use crate::lanes::{UnfitPlan, WorkClass, WorkPlan, WorkShare};
use crate::model::time::Timestamp;
use crate::store::{AdmissionRequest, ShardLease};
use crate::timeline::clock::Interval;
use crate::timeline::database::Broken;
use crate::timeline::inquiry::INQUIRIES_MAX;
use crate::timeline::keys::Family;
use crate::timeline::recovery;
use crate::timeline::schedule::{self, TURN_MESSAGES_MAX};
use crate::timeline::source::PAGE_ROWS_MAX;

/// Messages that are expired together.
const EXPIRED_MAX: usize = 256;
/// What becomes of claims counts twice: it frees what everything else waits for.
const OUTCOME_WEIGHT: u32 = 8;
const WEIGHT: u32 = 4;
const QUERY_WEIGHT: u32 = 1;

/// The work classes of a shard that may have claimed `claimed_max` messages at once: each of them has a place to settle in.
pub(in crate::timeline) fn plan(claimed_max: usize) -> Result<WorkPlan, UnfitPlan> {
    let outcomes = SETTLEMENTS_MAX + recovery::ROWS_MAX as usize;
    let kept = |weight, queue_max, turn_max| WorkShare { weight, queue_max, turn_max, reserve: queue_max };
    let page = PAGE_ROWS_MAX as usize;
    let due = TURN_MESSAGES_MAX as usize;
    let query = WorkShare { weight: QUERY_WEIGHT, queue_max: INQUIRIES_MAX, turn_max: INQUIRIES_MAX, reserve: 0 };
    let checkpoint = WorkShare { weight: QUERY_WEIGHT, queue_max: INQUIRIES_MAX, turn_max: 1, reserve: 0 };
    let shares = [
        kept(OUTCOME_WEIGHT, claimed_max, outcomes),
        kept(WEIGHT, page, page),
        kept(WEIGHT, EXPIRED_MAX, EXPIRED_MAX),
        kept(WEIGHT, due, due),
        query,
        checkpoint,
    ];
    WorkPlan::new(shares, claimed_max + page + EXPIRED_MAX + due + 2 * INQUIRIES_MAX)
}

impl Session {
    /// The class whose turn it is. Only while it `may_publish` is anything claimed or expired.
    pub(super) fn next_class(&mut self, may_publish: bool) -> Option<WorkClass> {
        let monotonic = self.parts.env.clock.monotonic();
        let outcomes = !self.settlements.is_empty() || !self.settled.is_empty();
        let control = self.parts.gates.has_changed().unwrap_or(false) || self.is_resolve_due(monotonic);
        let feed = self.arrived.is_some() || !self.pages.is_empty();
        let expiry = may_publish && self.expiry == Look::Now && monotonic >= self.expire_from;
        let due = may_publish && self.due == Look::Now && monotonic >= self.refused_until;
        let query = self.inquiry.is_some() || !self.inquiries.is_empty();
        let checkpoint = self.has_checkpoint_work(monotonic);
        self.work.next(|class| match class {
            WorkClass::OutcomeAndControl => outcomes || control,
            WorkClass::SourceApply => feed,
            WorkClass::Expiry => expiry,
            WorkClass::DueScheduler => due,
            WorkClass::Query => query,
            WorkClass::Checkpoint => checkpoint,
        })
    }

    /// Gives a class its turn. What is claimed and expired is so at `now`.
    pub(super) async fn turn(&mut self, class: WorkClass, lease: ShardLease, now: Option<Interval>) -> Result<(), End> {
        let records = match (class, now) {
            (WorkClass::OutcomeAndControl, _) => {
                let mut records = self.take_settlements()?;
                self.take_gates()?;
                let monotonic = self.parts.env.clock.monotonic();
                if self.is_resolve_due(monotonic) {
                    self.resolve_from = monotonic + TRY_AGAIN;
                    records += self.claims.unresolved().min(recovery::ROWS_MAX as usize);
                    self.resolve(lease).await?;
                }
                records
            }
            (WorkClass::SourceApply, _) => self.take_page()?,
            (WorkClass::Expiry, Some(now)) => self.expire(lease, now).await?,
            (WorkClass::DueScheduler, Some(now)) => self.claim(lease, now)?,
            (WorkClass::Query, _) => self.answer()?,
            (WorkClass::Checkpoint, _) => self.take_checkpoint_turn(lease).await,
            (WorkClass::Expiry | WorkClass::DueScheduler, None) => unreachable!("they have work at a known time only"),
        };
        match class {
            // They change what is ready.
            WorkClass::OutcomeAndControl | WorkClass::SourceApply => self.look_again(),
            WorkClass::Expiry | WorkClass::DueScheduler | WorkClass::Query | WorkClass::Checkpoint => {}
        }
        self.work.did(class, records);
        Ok(())
    }

    /// What time makes ready is looked for again.
    pub(super) fn look_again(&mut self) {
        (self.due, self.expiry) = (Look::Now, Look::Now);
    }

    /// How long there is nothing to do, unless something arrives.
    pub(super) fn pause(&self, earliest: Timestamp) -> Duration {
        let monotonic = self.parts.env.clock.monotonic();
        let until = |look, not_before: Duration| match look {
            Look::Now => Some(not_before.saturating_sub(monotonic)),
            Look::At(at) => at.map(|at| at.since(earliest).max(not_before.saturating_sub(monotonic))),
        };
        let looks = [until(self.due, self.refused_until), until(self.expiry, self.expire_from)];
        looks.into_iter().flatten().min().unwrap_or(self.parts.poll).min(self.parts.poll)
    }

    fn is_resolve_due(&self, monotonic: Duration) -> bool {
        self.claims.unresolved() > 0 && monotonic >= self.resolve_from
    }

    fn claim(&mut self, lease: ShardLease, now: Interval) -> Result<usize, End> {
        let (ready_at, stopped_early) = self.schedule.discover(&self.index, now.earliest, &self.parts.signals)?;
        self.due = if stopped_early { Look::Now } else { Look::At(ready_at) };
        if self.schedule.drr.is_idle() {
            return Ok(0);
        }
        if !std::mem::replace(&mut self.begun, true) {
            // Owners that come and go shall not always begin with the same lanes.
            self.schedule.drr.begin_at(u64::from(self.parts.env.id_entropy()[0]));
        }
        let clock = &*self.parts.env.clock;
        let turn_end = clock.monotonic() + schedule::TURN_TIME_MAX;
        let mut step = self.index.begin();
        let is_over = || clock.monotonic() >= turn_end;
        let (picked, turn_over) = self.claims.pick(&mut step, &mut self.schedule, now, is_over)?;
        self.schedule.refresh(&mut step, now.earliest);
        step.commit()?;
        if turn_over {
            self.due = Look::Now;
        }
        let claimed = picked.len();
        if claimed > 0 {
            picked.iter().for_each(|picked| self.parts.signals.claimed(picked, now.earliest));
            let batch = self.claims.take_up(picked);
            self.parts.publisher.publish(lease, batch, now.latest, self.settle.clone());
        }
        Ok(claimed)
    }

    async fn expire(&mut self, lease: ShardLease, now: Interval) -> Result<usize, End> {
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
        let requests =
            entries.iter().map(|entry| AdmissionRequest { id: entry.id, generation: entry.generation }).collect();
        let expired = match self.parts.store.expire(lease, requests, now.earliest).await {
            Ok(expired) => expired,
            Err(error) => {
                tracing::warn!(%error, "messages cannot be expired now");
                self.expiry = Look::Now;
                self.expire_from = self.parts.env.clock.monotonic() + TRY_AGAIN;
                return Ok(0);
            }
        };
        self.parts.signals.expired(expired.iter().filter(|expired| **expired).count() as u64);
        // One that did not expire has moved meanwhile; the feed tells where to.
        let mut step = self.index.begin();
        for entry in &entries {
            step.withdraw(entry)?;
        }
        self.schedule.refresh(&mut step, now.earliest);
        step.commit()?;
        Ok(entries.len())
    }
}
