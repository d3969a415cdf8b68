//! What the writer takes together: requests sorted by kind, each with the place where its answer goes.

use std::collections::BTreeSet;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::claim::{CLAIM_ROWS_MAX, ClaimRequest, Renewal};
use super::draining::{ActionDrain, Drain, DrainedRows};
use super::enqueue::{Delivery, Enqueued};
use super::error::StoreError;
use super::finish::{Finish, Finished};
use super::gates::GateChange;
use super::installing::{self, Activation, Chunk, Installation};
use super::messages::{Admission, AdmissionRequest, Cancelled, OutcomeRecord, Redriven, Rescheduled, Resolved};
use super::outbox::{self, Emitted};
use super::packs::{Activated, Installed};
use super::replay::{self, Replay, Replayed};
use super::runtimes::{self, Presence, Runtimes};
use super::shard_checkpoints::{self, CheckpointRequest, CheckpointRow};
use super::shards::{ShardId, ShardLease, ShardRequest, Shards};
use super::sweep::{self, Suspect};
use super::transitions::{self, Book, Cancel, Owned, Redrive, Reschedule, Resolve};
use super::unit::Unit;
use super::withdrawals::{self, Withdraw};
use super::{claiming, confirm, draining, finalize, gates, materialize};
use crate::model::ids::{MessageId, WorkItemId};
use crate::model::names::Namespace;
use crate::model::time::Timestamp;
use crate::model::work_item::ClaimedWorkItem;

/// Where an answer goes.
pub(super) type Reply<A> = oneshot::Sender<Result<A, StoreError>>;

/// A delivery that waits for the writer. Its share of the queue's bytes is free again when it is answered.
pub(super) struct Waiting {
    pub(super) delivery: Delivery,
    pub(super) reply: Reply<Enqueued>,
    pub(super) permit: OwnedSemaphorePermit,
}

/// Everything else that the writer does. These are what takes work off the store, so they never wait behind deliveries.
pub(super) enum Control {
    Finish(Finish, Reply<Finished>),
    Renew(Renewal, Reply<Vec<WorkItemId>>),
    SkipDead(WorkItemId, Reply<bool>),
    Replay(Replay, Reply<Replayed>),
    Sweep(Vec<Suspect>, Reply<u64>),
    Claim(ClaimRequest, Reply<Vec<ClaimedWorkItem>>),
    Admit(Owned<AdmissionRequest>, Reply<Vec<Admission>>),
    Record(Owned<OutcomeRecord>, Reply<Vec<bool>>),
    Expire(Owned<AdmissionRequest>, Reply<Vec<bool>>),
    Cancel(Cancel, Reply<Cancelled>),
    Reschedule(Reschedule, Reply<Rescheduled>),
    Redrive(Redrive, Reply<Vec<Redriven>>),
    Resolve(Resolve, Reply<Resolved>),
    SetGate(GateChange, Reply<()>),
    Shard(ShardRequest, Reply<Option<ShardLease>>),
    Beat(Presence, Reply<Runtimes>),
    Withdraw(Withdraw, Reply<()>),
    Checkpoint(Box<CheckpointRequest>, Reply<Option<Vec<CheckpointRow>>>),
    EnsureNamespaces(Vec<Namespace>, Timestamp, Reply<()>),
    StoreChunk(Chunk, Reply<()>),
    Install(Installation, Reply<Installed>),
    Activate(Activation, Reply<Activated>),
    Drain(Drain, Reply<DrainedRows>),
    /// Every Event below this ordinal has its WorkItem.
    MarkCovered(i64, Reply<()>),
    DrainActions(ActionDrain, Reply<DrainedRows>),
    /// Begins and ends a transaction.
    Probe(Reply<()>),
    /// The log is nearly all folded into the database: fold the rest, so that it begins anew.
    RestartLog,
    /// Do what is queued, and end.
    Close(Reply<()>),
}

impl Control {
    /// How many rows it is about.
    fn rows(&self) -> usize {
        match self {
            Control::Finish(finish, _) => 1 + finish.messages().len(),
            Control::Renew(renewal, _) => renewal.rows.len(),
            Control::Claim(request, _) => usize::try_from(request.rows_max.min(CLAIM_ROWS_MAX)).unwrap_or(usize::MAX),
            Control::Admit(request, _) | Control::Expire(request, _) => request.items.len(),
            Control::Record(request, _) => request.items.len(),
            Control::Redrive(request, _) => request.ids.len(),
            Control::EnsureNamespaces(names, _, _) => names.len(),
            Control::Drain(drain, _) => drain.rows.len(),
            Control::DrainActions(drain, _) => drain.ids.len(),
            Control::Sweep(suspects, _) => suspects.len(),
            Control::SkipDead(..)
            | Control::Replay(..)
            | Control::Cancel(..)
            | Control::Reschedule(..)
            | Control::Resolve(..)
            | Control::SetGate(..)
            | Control::Shard(..)
            | Control::StoreChunk(..)
            | Control::Beat(..)
            | Control::Withdraw(..)
            | Control::Checkpoint(..)
            | Control::Install(..)
            | Control::Activate(..)
            | Control::MarkCovered(..)
            | Control::Probe(_)
            | Control::RestartLog
            | Control::Close(_) => 1,
        }
    }
}

/// Requests of one kind.
struct Batch<Q, A> {
    requests: Vec<Q>,
    replies: Vec<Reply<A>>,
    answers: Vec<Result<A, StoreError>>,
}

impl<Q, A> Default for Batch<Q, A> {
    fn default() -> Self {
        Self { requests: Vec::new(), replies: Vec::new(), answers: Vec::new() }
    }
}

impl<Q: Clone, A> Batch<Q, A> {
    fn push(&mut self, request: Q, reply: Reply<A>) {
        self.requests.push(request);
        self.replies.push(reply);
    }

    /// The requests, for one attempt to apply them.
    fn requests(&mut self, afterwards: Afterwards) -> Vec<Q> {
        match afterwards {
            Afterwards::Spent => std::mem::take(&mut self.requests),
            Afterwards::Kept => self.requests.clone(),
        }
    }

    /// Decides the requests one after the other.
    fn decide(&mut self, afterwards: Afterwards, decide: impl FnMut(Q) -> Result<A, StoreError>) {
        self.answers = self.requests(afterwards).into_iter().map(decide).collect();
    }

    fn settle(self, outcome: &Result<(), StoreError>) {
        match outcome {
            Ok(()) => {
                assert_eq!(self.answers.len(), self.replies.len(), "every request has its answer");
                for (reply, answer) in self.replies.into_iter().zip(self.answers) {
                    // Whoever no longer listens does not need the answer.
                    let _ = reply.send(answer);
                }
            }
            Err(error) => {
                for reply in self.replies {
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
    }
}

/// Whether a transaction may have to be done again, with the same requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Afterwards {
    /// It has no rival: it succeeds or fails.
    Spent,
    /// Others write too: a conflict with one of them is settled by doing it again.
    Kept,
}

/// What one transaction does.
#[derive(Default)]
pub(super) struct Group {
    shards: Batch<ShardRequest, Option<ShardLease>>,
    presences: Batch<Presence, Runtimes>,
    withdrawals: Batch<Withdraw, ()>,
    checkpoints: Batch<CheckpointRequest, Option<Vec<CheckpointRow>>>,
    namespaces: Batch<(Vec<Namespace>, Timestamp), ()>,
    chunks: Batch<Chunk, ()>,
    installations: Batch<Installation, Installed>,
    activations: Batch<Activation, Activated>,
    drains: Batch<Drain, DrainedRows>,
    coverage_marks: Batch<i64, ()>,
    action_drains: Batch<ActionDrain, DrainedRows>,
    finishes: Batch<Finish, Finished>,
    renewals: Batch<Renewal, Vec<WorkItemId>>,
    skips: Batch<WorkItemId, bool>,
    replays: Batch<Replay, Replayed>,
    sweeps: Batch<Vec<Suspect>, u64>,
    outcomes: Batch<Owned<OutcomeRecord>, Vec<bool>>,
    cancels: Batch<Cancel, Cancelled>,
    reschedules: Batch<Reschedule, Rescheduled>,
    redrives: Batch<Redrive, Vec<Redriven>>,
    resolutions: Batch<Resolve, Resolved>,
    gates: Batch<GateChange, ()>,
    expiries: Batch<Owned<AdmissionRequest>, Vec<bool>>,
    admissions: Batch<Owned<AdmissionRequest>, Vec<Admission>>,
    deliveries: Batch<Delivery, Enqueued>,
    claims: Batch<ClaimRequest, Vec<ClaimedWorkItem>>,
    probes: Batch<(), ()>,
    permits: Vec<OwnedSemaphorePermit>,
    restart_log: bool,
    close: Option<Reply<()>>,
    rows: usize,
    body_bytes: usize,
}

impl Group {
    pub(super) fn deliver(&mut self, waiting: Waiting) {
        self.rows += waiting.delivery.events.len();
        self.body_bytes += waiting.delivery.bytes();
        self.deliveries.push(waiting.delivery, waiting.reply);
        self.permits.push(waiting.permit);
    }

    pub(super) fn control(&mut self, control: Control) {
        self.rows += control.rows();
        match control {
            Control::Finish(finish, reply) => {
                self.body_bytes += finish.messages().iter().map(|message| message.body.len()).sum::<usize>();
                self.finishes.push(finish, reply);
            }
            Control::Renew(renewal, reply) => self.renewals.push(renewal, reply),
            Control::SkipDead(id, reply) => self.skips.push(id, reply),
            Control::Replay(request, reply) => self.replays.push(request, reply),
            Control::Sweep(suspects, reply) => self.sweeps.push(suspects, reply),
            Control::Claim(request, reply) => self.claims.push(request, reply),
            Control::Admit(request, reply) => self.admissions.push(request, reply),
            Control::Record(request, reply) => self.outcomes.push(request, reply),
            Control::Expire(request, reply) => self.expiries.push(request, reply),
            Control::Cancel(request, reply) => self.cancels.push(request, reply),
            Control::Reschedule(request, reply) => self.reschedules.push(request, reply),
            Control::Redrive(request, reply) => self.redrives.push(request, reply),
            Control::Resolve(request, reply) => self.resolutions.push(request, reply),
            Control::SetGate(request, reply) => self.gates.push(request, reply),
            Control::Shard(request, reply) => self.shards.push(request, reply),
            Control::Beat(presence, reply) => self.presences.push(presence, reply),
            Control::Withdraw(wish, reply) => self.withdrawals.push(wish, reply),
            Control::Checkpoint(request, reply) => self.checkpoints.push(*request, reply),
            Control::EnsureNamespaces(names, now, reply) => self.namespaces.push((names, now), reply),
            Control::StoreChunk(chunk, reply) => {
                self.body_bytes += chunk.bytes.len();
                self.chunks.push(chunk, reply);
            }
            Control::Install(installation, reply) => self.installations.push(installation, reply),
            Control::Activate(activation, reply) => self.activations.push(activation, reply),
            Control::Drain(drain, reply) => self.drains.push(drain, reply),
            Control::MarkCovered(ordinal, reply) => self.coverage_marks.push(ordinal, reply),
            Control::DrainActions(drain, reply) => self.action_drains.push(drain, reply),
            Control::Probe(reply) => self.probes.push((), reply),
            Control::RestartLog => self.restart_log = true,
            Control::Close(reply) => self.close = Some(reply),
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    pub(super) fn restarts_log(&self) -> bool {
        self.restart_log
    }

    pub(super) fn take_close(&mut self) -> Option<Reply<()>> {
        self.close.take()
    }

    /// Applies every request. What takes work off the store comes first, so that it counts before a claim looks; claims
    /// come last, so that they find what the others made claimable.
    pub(super) async fn apply(&mut self, unit: &mut Unit<'_>, afterwards: Afterwards) -> Result<(), sqlx::Error> {
        self.namespaces.answers = installing::ensure_namespaces(unit, self.namespaces.requests(afterwards)).await?;
        self.chunks.answers = installing::store_chunks(unit, self.chunks.requests(afterwards)).await?;
        self.installations.answers = installing::install(unit, self.installations.requests(afterwards)).await?;
        self.activations.answers = installing::activate(unit, self.activations.requests(afterwards)).await?;
        let (finished, emitted) = finalize::finish(unit, self.finishes.requests(afterwards)).await?;
        self.finishes.answers = finished;
        self.renewals.answers = finalize::renew(unit, self.renewals.requests(afterwards)).await?;
        self.skips.answers = finalize::skip_dead(unit, self.skips.requests(afterwards)).await?;
        self.drains.answers = draining::apply(unit, self.drains.requests(afterwards)).await?;
        self.coverage_marks.answers = confirm::apply(unit, self.coverage_marks.requests(afterwards)).await?;
        self.replays.answers = replay::apply(unit, self.replays.requests(afterwards)).await?;
        self.sweeps.answers = sweep::apply(unit, self.sweeps.requests(afterwards)).await?;
        self.apply_to_shards(unit, emitted, afterwards).await?;
        self.withdrawals.answers = withdrawals::apply(unit, self.withdrawals.requests(afterwards)).await?;
        self.presences.answers = runtimes::apply(unit, self.presences.requests(afterwards)).await?;
        self.gates.answers = gates::apply(unit, self.gates.requests(afterwards)).await?;
        self.deliveries.answers = materialize::apply(unit, self.deliveries.requests(afterwards)).await?;
        self.claims.answers = claiming::apply(unit, self.claims.requests(afterwards)).await?;
        self.probes.decide(afterwards, |()| Ok(()));
        unit.write_counters().await
    }

    /// What concerns shards and their messages, with the shards' rows held.
    async fn apply_to_shards(
        &mut self,
        unit: &mut Unit<'_>,
        emitted: Vec<Emitted>,
        afterwards: Afterwards,
    ) -> Result<(), sqlx::Error> {
        let ids = self.message_ids();
        let shard_ids = self.shard_ids(unit, &emitted).await?;
        if shard_ids.is_empty() && ids.is_empty() && self.shards.requests.is_empty() && !self.has_owned_requests() {
            return Ok(());
        }
        let mut shards = Shards::load(unit, shard_ids).await?;
        self.shards.decide(afterwards, |request| shards.apply(unit, request));
        self.checkpoints.answers =
            shard_checkpoints::apply(unit, &shards, self.checkpoints.requests(afterwards)).await?;
        outbox::emit(unit, &mut shards, emitted).await?;
        let mut book = Book::load(unit, &mut shards, ids).await?;
        // Outcomes first: they may make a message reschedulable. Commands before admissions: a cancel that arrives
        // together with an admission wins.
        self.outcomes.decide(afterwards, |request| book.record(request));
        self.cancels.decide(afterwards, |request| book.cancel(request));
        self.reschedules.decide(afterwards, |request| book.reschedule(request));
        self.redrives.decide(afterwards, |request| book.redrive(request));
        self.resolutions.decide(afterwards, |request| book.resolve(request));
        self.action_drains.decide(afterwards, |request| book.drain(request));
        self.expiries.decide(afterwards, |request| book.expire(request));
        self.admissions.decide(afterwards, |request| book.admit(request));
        book.save(unit).await?;
        shards.save(unit).await
    }

    /// The shards that anything here concerns.
    async fn shard_ids(&self, unit: &mut Unit<'_>, emitted: &[Emitted]) -> Result<BTreeSet<ShardId>, sqlx::Error> {
        let owned = self.expiries.requests.iter().chain(&self.admissions.requests).map(|request| request.lease.shard);
        let recorded = self.outcomes.requests.iter().map(|request| request.lease.shard);
        let asked_for = self.shards.requests.iter().map(ShardRequest::shard);
        let kept = self.checkpoints.requests.iter().map(|request| request.lease.shard);
        let receiving = emitted.iter().map(|emitted| emitted.shard(unit.terms.shard_count));
        let mut shards: BTreeSet<ShardId> =
            owned.chain(recorded).chain(asked_for).chain(kept).chain(receiving).collect();
        shards.extend(transitions::shards_of(unit, self.commanded_ids().collect()).await?);
        Ok(shards)
    }

    fn message_ids(&self) -> Vec<MessageId> {
        let outcomes = self.outcomes.requests.iter().flat_map(|request| request.items.iter().map(|item| item.id));
        let owned = self.expiries.requests.iter().chain(&self.admissions.requests);
        let owned = owned.flat_map(|request| request.items.iter().map(|item| item.id));
        outcomes.chain(self.commanded_ids()).chain(owned).collect()
    }

    fn commanded_ids(&self) -> impl Iterator<Item = MessageId> {
        let cancels = self.cancels.requests.iter().map(|cancel| cancel.id);
        let reschedules = self.reschedules.requests.iter().map(|reschedule| reschedule.id);
        let redrives = self.redrives.requests.iter().flat_map(|redrive| redrive.ids.iter().copied());
        let resolutions = self.resolutions.requests.iter().map(|resolve| resolve.id);
        let drained = self.action_drains.requests.iter().flat_map(|drain| drain.ids.iter().copied());
        cancels.chain(reschedules).chain(redrives).chain(resolutions).chain(drained)
    }

    /// Whether shard owners ask for something, though it be about no message.
    fn has_owned_requests(&self) -> bool {
        !self.outcomes.requests.is_empty() || !self.expiries.requests.is_empty() || !self.admissions.requests.is_empty()
    }

    /// Answers everybody: with what was decided, or with why nothing was done.
    pub(super) fn settle(self, outcome: &Result<(), StoreError>) {
        self.shards.settle(outcome);
        self.presences.settle(outcome);
        self.withdrawals.settle(outcome);
        self.checkpoints.settle(outcome);
        self.namespaces.settle(outcome);
        self.chunks.settle(outcome);
        self.installations.settle(outcome);
        self.activations.settle(outcome);
        self.drains.settle(outcome);
        self.coverage_marks.settle(outcome);
        self.action_drains.settle(outcome);
        self.finishes.settle(outcome);
        self.renewals.settle(outcome);
        self.skips.settle(outcome);
        self.replays.settle(outcome);
        self.sweeps.settle(outcome);
        self.outcomes.settle(outcome);
        self.cancels.settle(outcome);
        self.reschedules.settle(outcome);
        self.redrives.settle(outcome);
        self.resolutions.settle(outcome);
        self.gates.settle(outcome);
        self.expiries.settle(outcome);
        self.admissions.settle(outcome);
        self.deliveries.settle(outcome);
        self.claims.settle(outcome);
        self.probes.settle(outcome);
    }
}
