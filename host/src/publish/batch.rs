//! A batch of claimed messages: Publish Admission, bodies, then one attempt each.
//!
//! ```text
//!  claimed ──> in line ──admit──> admitted ──body──> attempt ──> outcome queue ──> settled
//!     │           │  │ (moved, fenced)                                                ^
//!     │           │  └────────────────────────────────────────────────────────────────┤
//!     └───────────┴─(not configured, called back, out of time, the store is busy)─────┘
//! ```
//!
//! A claim has its place in flight from the beginning, so that nothing waits in `publishing`, where a cancel comes too
//! late, for anything but its call.
//!
//! Expiry: a publish needs `latest < expire_at`, and this is asked again before the admission. A message that no
//! longer has it is given back as it was: whether it *has* expired is decided by the earliest that it can be, which its
//! shard knows, and not by the latest. After the admission it is asked whenever the lease is.
//!
//! Ownership: the admission is fenced by the store. Whether the lease is still relied on is asked again when the bodies
//! have come, and as the last thing before a request is on the wire (`reliance`). An attempt that ends there was
//! certainly not made. That is recorded if the shard is this owner's all the same; if not, its successor settles it.

use std::collections::HashMap;
use std::sync::Arc;

use metrics::Histogram;

use super::claim::{Claim, Latest};
use super::entrance::{Group, Line};
use super::outcomes::{Finished, Outcomes};
use super::routes::Routes;
use super::store_retry::StoreRetry;
use super::verdict::Verdict;
use super::{ClaimedMessage, Settled};
use crate::env::{self, Env};
use crate::model::destination_lane::Gate;
use crate::model::ids::MessageId;
use crate::model::message::{MessageEntry, MessageState, Outcome, after_attempt};
use crate::store::{
    Admission, AdmissionRequest, GateChange, OutcomeRecord, Payload, SetBy, ShardLease, Store, StoreError,
};

/// What publishing needs, shared by all batches.
pub(super) struct Engine {
    pub(super) store: Store,
    pub(super) env: Env,
    pub(super) outcomes: Outcomes,
    pub(super) line: Line,
    pub(super) admission_wait: Histogram,
    pub(super) routes: Routes,
}

/// An admitted message and the number of its attempt.
struct Admitted {
    claim: Claim,
    attempt: u32,
}

impl Engine {
    /// Publishes what waits in line, whoever's it is. Returns when nothing does and every attempt has begun.
    pub(super) async fn publish(self: Arc<Self>) {
        while let Some((Group { lease, latest, claims }, call)) = self.line.next().await {
            let claims = self.routed(claims);
            let admitted = self.admit(lease, self.still_of_use(claims, latest), latest).await;
            drop(call);
            if admitted.is_empty() {
                continue;
            }
            let mut payloads = self.payloads(lease, &admitted).await;
            for Admitted { claim, attempt } in admitted {
                let payload = payloads.remove(&claim.message.id);
                let attempt = Arc::clone(&self).attempt(lease, claim, attempt, payload, latest);
                env::spawn("publish attempt", attempt);
            }
        }
    }

    /// Those whose destinations are still known, on the ways to them that hold now; the others are recalled.
    fn routed(&self, claims: Vec<Claim>) -> Vec<Claim> {
        let routed = |mut claim: Claim| match self.routes.to(&claim.message.destination) {
            Some(route) => {
                claim.route = route;
                Some(claim)
            }
            None => {
                claim.settle(Settled::Recalled);
                None
            }
        };
        claims.into_iter().filter_map(routed).collect()
    }

    /// Those that may still be published; the others settle.
    fn still_of_use(&self, claims: Vec<Claim>, latest: Latest) -> Vec<Claim> {
        let now = latest.now(&*self.env.clock);
        let (of_use, too_late): (Vec<_>, Vec<_>) =
            claims.into_iter().partition(|claim| claim.message.expire_at.is_none_or(|expire_at| now < expire_at));
        too_late.into_iter().for_each(|claim| claim.settle(Settled::TooLate));
        of_use
    }

    /// Publish Admission. Those that are not admitted settle.
    async fn admit(&self, lease: ShardLease, mut claims: Vec<Claim>, latest: Latest) -> Vec<Admitted> {
        if claims.is_empty() {
            return Vec::new();
        }
        let request = |claim: &Claim| AdmissionRequest { id: claim.message.id, generation: claim.message.generation };
        let requests: Vec<AdmissionRequest> = claims.iter().map(request).collect();
        for claim in &mut claims {
            claim.may_be_admitted();
        }
        let admissions = match self.ask_for_admission(lease, &requests, latest).await {
            Ok(admissions) => admissions,
            Err(NoAdmission::Refused(error)) => {
                tracing::debug!(messages = claims.len(), %error, "no publish admission for now");
                claims.into_iter().for_each(|claim| claim.settle(Settled::NotAdmitted));
                return Vec::new();
            }
            // Dropped claims settle as unrecorded: whoever owns the shard must look.
            Err(NoAdmission::InDoubt(error)) => {
                tracing::warn!(messages = claims.len(), %error, "publish admissions in doubt");
                return Vec::new();
            }
        };
        assert_eq!(admissions.len(), claims.len(), "the store answers every admission");
        let mut admitted = Vec::with_capacity(claims.len());
        let now = self.env.clock.monotonic();
        for (claim, admission) in claims.into_iter().zip(admissions) {
            match admission {
                Admission::Admitted { attempt } => {
                    self.admission_wait.record(now.saturating_sub(claim.since).as_secs_f64());
                    admitted.push(Admitted { claim, attempt });
                }
                Admission::Moved => claim.settle(Settled::Moved),
                Admission::Fenced => claim.settle(Settled::Fenced),
            }
        }
        admitted
    }

    /// Asks the store; an answer that got lost is asked for again.
    async fn ask_for_admission(
        &self,
        lease: ShardLease,
        requests: &[AdmissionRequest],
        latest: Latest,
    ) -> Result<Vec<Admission>, NoAdmission> {
        let mut retry = StoreRetry::new(lease.shard);
        let mut in_doubt = false;
        loop {
            let now = latest.now(&*self.env.clock);
            let error = match self.store.admit(lease, requests.to_vec(), now).await {
                Ok(admissions) if !in_doubt => return Ok(admissions),
                Ok(admissions) => match self.recognise(requests, admissions).await {
                    Ok(admissions) => return Ok(admissions),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            in_doubt |= matches!(error, StoreError::Unknown(_));
            if !in_doubt {
                return Err(NoAdmission::Refused(error));
            }
            if !retry.wait(&error).await {
                return Err(NoAdmission::InDoubt(error));
            }
        }
    }

    /// After an answer that got lost: a message that moved, and stands as `publishing`, was admitted by the first call.
    /// It cannot have been anybody else's, because the second call was not fenced and only a shard's owner admits.
    async fn recognise(
        &self,
        requests: &[AdmissionRequest],
        mut admissions: Vec<Admission>,
    ) -> Result<Vec<Admission>, StoreError> {
        let moved: Vec<MessageId> = requests
            .iter()
            .zip(&admissions)
            .filter(|(_, admission)| **admission == Admission::Moved)
            .map(|(request, _)| request.id)
            .collect();
        let entries = self.store.message_entries(&moved).await?;
        let entries: HashMap<MessageId, MessageEntry> = entries.into_iter().map(|entry| (entry.id, entry)).collect();
        for (request, admission) in requests.iter().zip(&mut admissions) {
            if let Some(entry) = entries.get(&request.id)
                && entry.state == MessageState::Publishing
                && entry.generation == request.generation
            {
                *admission = Admission::Admitted { attempt: entry.attempt };
            }
        }
        Ok(admissions)
    }

    /// The bodies of admitted messages, as far as attempts need them; none if the store does not give them.
    async fn payloads(&self, lease: ShardLease, admitted: &[Admitted]) -> HashMap<MessageId, Payload> {
        let needing = admitted.iter().filter(|admitted| admitted.claim.route.adapter.needs_payload());
        let ids: Vec<MessageId> = needing.map(|admitted| admitted.claim.message.id).collect();
        if ids.is_empty() {
            return HashMap::new();
        }
        let mut retry = StoreRetry::new(lease.shard);
        loop {
            match self.store.payloads(&ids).await {
                Ok(payloads) => return payloads.into_iter().map(|payload| (payload.id, payload)).collect(),
                Err(error) => {
                    if !retry.wait(&error).await {
                        tracing::warn!(messages = ids.len(), %error, "bodies of admitted messages could not be loaded");
                        return HashMap::new();
                    }
                }
            }
        }
    }

    /// One attempt: the call, its verdict, its outcome.
    async fn attempt(
        self: Arc<Self>,
        lease: ShardLease,
        claim: Claim,
        attempt: u32,
        payload: Option<Payload>,
        latest: Latest,
    ) {
        let began = self.env.clock.monotonic();
        let expires = claim.message.expire_at.map(|expire_at| latest.reaches(expire_at));
        let reliance = claim.reliance.clone().expiring(expires);
        let verdict = match reliance.left() {
            Ok(_) => claim.route.adapter.attempt(&claim.message, payload, &reliance).await,
            // The store or the bodies took longer than the lease, or than there was time: then its next attempt would
            // be too late as well, so it expires.
            Err(overdue) => Verdict::overdue(overdue),
        };
        drop(reliance);
        claim.route.metrics.attempted(&verdict, self.env.clock.monotonic().saturating_sub(began));
        let at = latest.now(&*self.env.clock);
        let (message, terms) = (&claim.message, claim.route.terms);
        if verdict == Verdict::Gone {
            self.pause(lease, message).await;
        }
        let mut retry = terms.retry;
        if !verdict.spends() {
            // Never its last.
            retry.failures_max = u32::MAX;
        }
        let outcome = verdict.outcome();
        let after = after_attempt(message.id, attempt, message.expire_at, &outcome, &retry, terms.uncertain, at);
        let settled = Settled::Outcome {
            after,
            lane_until: verdict.lane_delay(&terms.retry).map(|delay| at + delay),
            destination: verdict.of_destination(),
            gone: verdict == Verdict::Gone,
        };
        let record = OutcomeRecord {
            id: message.id,
            generation: message.generation,
            attempt,
            after,
            uncertain: matches!(outcome, Outcome::Unknown),
            spared: !verdict.spends(),
            status: verdict.status(),
            error: verdict.error(),
        };
        self.outcomes.record(Finished { claim, lease, record, settled, at }).await;
    }

    /// Pauses the lanes of a tenant's destination that says that it is gone, until an operator resumes them. The shards
    /// read it from the store, as they read what an operator sets.
    async fn pause(&self, lease: ShardLease, message: &ClaimedMessage) {
        let (namespace, destination) = (&message.namespace, &message.destination);
        tracing::error!(%namespace, %destination, "a destination says that it is gone (410): its lane is paused until resumed");
        let change = GateChange {
            destination: destination.clone(),
            namespace: Some(namespace.clone()),
            gate: Gate::Paused,
            reason: Some("the destination answered 410: it is gone".to_owned()),
            by: SetBy::Destination,
            now: self.env.now(),
        };
        let mut retry = StoreRetry::new(lease.shard);
        while let Err(error) = self.store.set_gate(change.clone()).await {
            if !retry.wait(&error).await {
                // Its next message finds out again.
                tracing::warn!(%error, "a lane could not be paused");
                return;
            }
        }
    }
}

/// Why a batch has no admissions.
enum NoAdmission {
    /// Certainly nothing was written.
    Refused(StoreError),
    /// Something may have been written.
    InDoubt(StoreError),
}
