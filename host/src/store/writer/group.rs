//! What the writer takes together: requests sorted by kind, each with the place where its answer goes.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::kinds::Kinds;
use super::unit::Unit;
use crate::model::ids::WorkItemId;
use crate::model::names::Namespace;
use crate::model::time::Timestamp;
use crate::model::work_item::ClaimedWorkItem;
use crate::store::error::StoreError;
use crate::store::messages::transitions::{Cancel, Owned, Redrive, Reschedule, Resolve};
use crate::store::messages::{Admission, AdmissionRequest, Cancelled, OutcomeRecord, Redriven, Rescheduled, Resolved};
use crate::store::packs::installing::{Activation, Chunk, Installation};
use crate::store::packs::{Activated, Installed};
use crate::store::shards::checkpoints::{CheckpointRequest, CheckpointRow};
use crate::store::shards::destinations::{DestinationChange, DestinationChanged};
use crate::store::shards::gates::GateChange;
use crate::store::shards::runtimes::{Presence, Runtimes};
use crate::store::shards::withdrawals::Withdraw;
use crate::store::shards::{ShardLease, ShardRequest};
use crate::store::work::claim::{CLAIM_ROWS_MAX, ClaimRequest, Renewal};
use crate::store::work::draining::{ActionDrain, Drain, DrainedRows};
use crate::store::work::enqueue::{Delivery, Enqueued};
use crate::store::work::finish::{Finish, Finished};
use crate::store::work::replay::{Replay, Replayed};
use crate::store::work::sweep::Suspect;

/// Where an answer goes.
pub(in crate::store) type Reply<A> = oneshot::Sender<Result<A, StoreError>>;

/// A delivery that waits for the writer. Its share of the queue's bytes is free again when it is answered.
pub(in crate::store) struct Waiting {
    pub(in crate::store) delivery: Delivery,
    pub(in crate::store) reply: Reply<Enqueued>,
    pub(in crate::store) permit: OwnedSemaphorePermit,
}

/// Everything else that the writer does. These are what takes work off the store, so they never wait behind deliveries.
pub(in crate::store) enum Control {
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
    ChangeDestination(DestinationChange, Reply<DestinationChanged>),
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
            | Control::ChangeDestination(..)
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

/// Whether a transaction may have to be done again, with the same requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Afterwards {
    /// It has no rival: it succeeds or fails.
    Spent,
    /// Others write too: a conflict with one of them is settled by doing it again.
    Kept,
}

/// What one transaction does.
#[derive(Default)]
pub(in crate::store) struct Group {
    kinds: Kinds,
    restart_log: bool,
    close: Option<Reply<()>>,
    rows: usize,
    body_bytes: usize,
}

impl Group {
    pub(in crate::store) fn deliver(&mut self, waiting: Waiting) {
        self.rows += waiting.delivery.events.len();
        self.body_bytes += waiting.delivery.bytes();
        self.kinds.deliveries.push_with(waiting.delivery, waiting.reply, waiting.permit);
    }

    pub(in crate::store) fn control(&mut self, control: Control) {
        self.rows += control.rows();
        match control {
            Control::Finish(finish, reply) => {
                self.body_bytes += finish.messages().iter().map(|message| message.body.len()).sum::<usize>();
                self.kinds.finishes.push(finish, reply);
            }
            Control::Renew(renewal, reply) => self.kinds.renewals.push(renewal, reply),
            Control::SkipDead(id, reply) => self.kinds.skips.push(id, reply),
            Control::Replay(request, reply) => self.kinds.replays.push(request, reply),
            Control::Sweep(suspects, reply) => self.kinds.sweeps.push(suspects, reply),
            Control::Claim(request, reply) => self.kinds.claims.push(request, reply),
            Control::Admit(request, reply) => self.kinds.admissions.push(request, reply),
            Control::Record(request, reply) => self.kinds.outcomes.push(request, reply),
            Control::Expire(request, reply) => self.kinds.expiries.push(request, reply),
            Control::Cancel(request, reply) => self.kinds.cancels.push(request, reply),
            Control::Reschedule(request, reply) => self.kinds.reschedules.push(request, reply),
            Control::Redrive(request, reply) => self.kinds.redrives.push(request, reply),
            Control::Resolve(request, reply) => self.kinds.resolutions.push(request, reply),
            Control::SetGate(request, reply) => self.kinds.gates.push(request, reply),
            Control::ChangeDestination(request, reply) => self.kinds.destinations.push(request, reply),
            Control::Shard(request, reply) => self.kinds.shards.push(request, reply),
            Control::Beat(presence, reply) => self.kinds.presences.push(presence, reply),
            Control::Withdraw(wish, reply) => self.kinds.withdrawals.push(wish, reply),
            Control::Checkpoint(request, reply) => self.kinds.checkpoints.push(*request, reply),
            Control::EnsureNamespaces(names, now, reply) => self.kinds.namespaces.push((names, now), reply),
            Control::StoreChunk(chunk, reply) => {
                self.body_bytes += chunk.bytes.len();
                self.kinds.chunks.push(chunk, reply);
            }
            Control::Install(installation, reply) => self.kinds.installations.push(installation, reply),
            Control::Activate(activation, reply) => self.kinds.activations.push(activation, reply),
            Control::Drain(drain, reply) => self.kinds.drains.push(drain, reply),
            Control::MarkCovered(ordinal, reply) => self.kinds.coverage_marks.push(ordinal, reply),
            Control::DrainActions(drain, reply) => self.kinds.action_drains.push(drain, reply),
            Control::Probe(reply) => self.kinds.probes.push((), reply),
            Control::RestartLog => self.restart_log = true,
            Control::Close(reply) => self.close = Some(reply),
        }
    }

    pub(in crate::store) fn rows(&self) -> usize {
        self.rows
    }

    pub(in crate::store) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    pub(in crate::store) fn restarts_log(&self) -> bool {
        self.restart_log
    }

    pub(in crate::store) fn take_close(&mut self) -> Option<Reply<()>> {
        self.close.take()
    }

    /// How many requests it has.
    pub(in crate::store) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Applies every request.
    pub(in crate::store) async fn apply(
        &mut self,
        unit: &mut Unit<'_>,
        afterwards: Afterwards,
    ) -> Result<(), sqlx::Error> {
        self.kinds.apply(unit, afterwards).await
    }

    /// Takes out the first half of the requests.
    pub(in crate::store) fn split_half(&mut self) -> Self {
        let second = self.kinds.split_off(self.kinds.len() / 2);
        let first = std::mem::replace(&mut self.kinds, second);
        self.part(first)
    }

    /// Takes out what somebody loses a lease without, if there is such and anything beside it.
    pub(in crate::store) fn split_urgent(&mut self) -> Option<Self> {
        let urgent = self.kinds.take_urgent();
        if urgent.len() > 0 && self.kinds.len() > 0 {
            return Some(self.part(urgent));
        }
        if urgent.len() > 0 {
            self.kinds = urgent;
        }
        None
    }

    /// A part of it is about as many rows at most.
    fn part(&self, kinds: Kinds) -> Self {
        Self { kinds, restart_log: false, close: None, rows: self.rows, body_bytes: self.body_bytes }
    }

    /// Answers everybody: with what was decided, or with why nothing was done.
    pub(in crate::store) fn settle(self, outcome: &Result<(), StoreError>) {
        self.kinds.settle(outcome);
    }
}
