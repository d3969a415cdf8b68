//! The kinds of requests that a transaction takes, and in which order it does them.

use std::collections::BTreeSet;

use tokio::sync::OwnedSemaphorePermit;

use super::group::{Afterwards, Reply};
use super::unit::Unit;
use crate::model::ids::{MessageId, WorkItemId};
use crate::model::names::Namespace;
use crate::model::time::Timestamp;
use crate::model::work_item::ClaimedWorkItem;
use crate::store::error::StoreError;
use crate::store::messages::outbox::{self, Emitted};
use crate::store::messages::transitions::{self, Book, Cancel, Owned, Redrive, Reschedule, Resolve};
use crate::store::messages::{Admission, AdmissionRequest, Cancelled, OutcomeRecord, Redriven, Rescheduled, Resolved};
use crate::store::packs::installing::{self, Activation, Chunk, Installation};
use crate::store::packs::{Activated, Installed};
use crate::store::retention::{self, Removed, Retire};
use crate::store::shards::checkpoints::{self, CheckpointRequest, CheckpointRow};
use crate::store::shards::destinations::{self, DestinationChange, DestinationChanged};
use crate::store::shards::gates::{self, GateChange};
use crate::store::shards::runtimes::{self, Presence, Runtimes};
use crate::store::shards::withdrawals::{self, Withdraw};
use crate::store::shards::{ShardId, ShardLease, ShardRequest, Shards};
use crate::store::upkeep::confirm;
use crate::store::work::claim::{ClaimRequest, Renewal};
use crate::store::work::draining::{self, ActionDrain, Drain, DrainedRows};
use crate::store::work::enqueue::{Delivery, Enqueued};
use crate::store::work::finish::{Finish, Finished};
use crate::store::work::replay::{self, Replay, Replayed};
use crate::store::work::sweep::{self, Suspect};
use crate::store::work::{claiming, finalize, materialize};

/// Requests of one kind.
pub(in crate::store) struct Batch<Q, A> {
    requests: Vec<Q>,
    askers: Vec<Asker<A>>,
    answers: Vec<Result<A, StoreError>>,
}

/// A caller that waits for its answer, and what the answer frees.
struct Asker<A> {
    reply: Reply<A>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<Q, A> Default for Batch<Q, A> {
    fn default() -> Self {
        Self { requests: Vec::new(), askers: Vec::new(), answers: Vec::new() }
    }
}

impl<Q, A> Batch<Q, A> {
    pub(in crate::store) fn push(&mut self, request: Q, reply: Reply<A>) {
        self.requests.push(request);
        self.askers.push(Asker { reply, _permit: None });
    }

    /// As [`Batch::push`]; the permit is given back with the answer.
    pub(in crate::store) fn push_with(&mut self, request: Q, reply: Reply<A>, permit: OwnedSemaphorePermit) {
        self.requests.push(request);
        self.askers.push(Asker { reply, _permit: Some(permit) });
    }

    /// Keeps the first `room` requests, takes them off `room`, and returns the others.
    fn split_off(&mut self, room: &mut usize) -> Self {
        assert_eq!(self.requests.len(), self.askers.len(), "requests are kept for another transaction");
        let kept = self.requests.len().min(*room);
        *room -= kept;
        self.answers.clear();
        let (requests, askers) = (self.requests.split_off(kept), self.askers.split_off(kept));
        Self { requests, askers, answers: Vec::new() }
    }

    fn settle(self, outcome: &Result<(), StoreError>) {
        match outcome {
            Ok(()) => {
                assert_eq!(self.answers.len(), self.askers.len(), "every request has its answer");
                for (asker, answer) in self.askers.into_iter().zip(self.answers) {
                    // A caller that no longer listens does not need the answer.
                    let _ = asker.reply.send(answer);
                }
            }
            Err(error) => {
                for asker in self.askers {
                    let _ = asker.reply.send(Err(error.clone()));
                }
            }
        }
    }
}

impl<Q: Clone, A> Batch<Q, A> {
    /// The requests, for one transaction; for more, if it may have to be done again.
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
}

/// Defines all that there is of one kind of request, so that none is forgotten: how it is asked for, where it is
/// collected, what it is answered with, and how many rows and bytes of bodies it is about (else one row, no bytes).
macro_rules! kinds {
    (@or $default:expr) => { $default };
    (@or $default:expr, $value:expr) => { $value };
    ($(
        $kind:ident: $variant:ident($request:ty) => $answer:ty
        $(, rows |$of_rows:ident| $rows:expr)? $(, bytes |$of_bytes:ident| $bytes:expr)?;
    )*) => {
        /// All that the writer does besides storing deliveries. It takes work off the store, so it never waits behind
        /// deliveries.
        pub(in crate::store) enum Control {
            $($variant($request, Reply<$answer>),)*
            /// What concerns the writer itself.
            Writer(Order),
        }

        impl Control {
            /// How many rows it is about.
            pub(in crate::store) fn rows(&self) -> usize {
                match self {
                    $(Control::$variant(request, _) => {
                        let _ = request;
                        kinds!(@or 1 $(, { let $of_rows = request; $rows })?)
                    })*
                    Control::Writer(_) => 1,
                }
            }

            /// How many bytes of bodies it brings.
            pub(in crate::store) fn body_bytes(&self) -> usize {
                match self {
                    $(Control::$variant(request, _) => {
                        let _ = request;
                        kinds!(@or 0 $(, { let $of_bytes = request; $bytes })?)
                    })*
                    Control::Writer(_) => 0,
                }
            }
        }

        /// Requests, by kind.
        #[derive(Default)]
        pub(in crate::store) struct Kinds {
            $($kind: Batch<$request, $answer>,)*
            pub(in crate::store) deliveries: Batch<Delivery, Enqueued>,
        }

        impl Kinds {
            /// Collects a request. Returns what concerns the writer itself.
            pub(in crate::store) fn push(&mut self, control: Control) -> Option<Order> {
                match control {
                    $(Control::$variant(request, reply) => self.$kind.push(request, reply),)*
                    Control::Writer(order) => return Some(order),
                }
                None
            }

            /// How many requests there are.
            pub(in crate::store) fn len(&self) -> usize {
                0 $(+ self.$kind.askers.len())* + self.deliveries.askers.len()
            }

            /// Keeps the first `room` requests, and returns the others.
            pub(in crate::store) fn split_off(&mut self, mut room: usize) -> Self {
                Self {
                    $($kind: self.$kind.split_off(&mut room),)*
                    deliveries: self.deliveries.split_off(&mut room),
                }
            }

            /// Answers everybody: with what was decided, or with why nothing was done.
            pub(in crate::store) fn settle(self, outcome: &Result<(), StoreError>) {
                $(self.$kind.settle(outcome);)*
                self.deliveries.settle(outcome);
            }
        }
    };
}

kinds! {
    shards: Shard(ShardRequest) => Option<ShardLease>;
    presences: Beat(Presence) => Runtimes;
    withdrawals: Withdraw(Withdraw) => ();
    checkpoints: Checkpoint(Box<CheckpointRequest>) => Option<Vec<CheckpointRow>>;
    namespaces: EnsureNamespaces((Vec<Namespace>, Timestamp)) => (), rows |request| request.0.len();
    chunks: StoreChunk(Chunk) => (), bytes |chunk| chunk.bytes.len();
    installations: Install(Installation) => Installed;
    activations: Activate(Activation) => Activated;
    drains: Drain(Drain) => DrainedRows, rows |drain| drain.rows.len();
    // Every Event below this ordinal has its WorkItem.
    coverage_marks: MarkCovered(i64) => ();
    action_drains: DrainActions(ActionDrain) => DrainedRows, rows |drain| drain.ids.len();
    finishes: Finish(Finish) => Finished, rows |finish| 1 + finish.messages().len(), bytes |finish| finish.body_bytes();
    renewals: Renew(Renewal) => Vec<WorkItemId>, rows |renewal| renewal.rows.len();
    skips: SkipDead(WorkItemId) => bool;
    replays: Replay(Replay) => Replayed;
    sweeps: Sweep(Vec<Suspect>) => u64, rows |suspects| suspects.len();
    outcomes: Record(Owned<OutcomeRecord>) => Vec<bool>, rows |request| request.items.len();
    cancels: Cancel(Cancel) => Cancelled;
    reschedules: Reschedule(Reschedule) => Rescheduled;
    redrives: Redrive(Redrive) => Vec<Redriven>, rows |request| request.ids.len();
    resolutions: Resolve(Resolve) => Resolved;
    gates: SetGate(GateChange) => ();
    destinations: ChangeDestination(DestinationChange) => DestinationChanged;
    retirements: Retire(Retire) => Removed, rows |request| request.rows();
    expiries: Expire(Owned<AdmissionRequest>) => Vec<bool>, rows |request| request.items.len();
    admissions: Admit(Owned<AdmissionRequest>) => Vec<Admission>, rows |request| request.items.len();
    claims: Claim(ClaimRequest) => Vec<ClaimedWorkItem>, rows |request| request.rows();
    // Begins and ends a transaction.
    probes: Probe(()) => ();
}

/// What the writer is told about itself.
pub(in crate::store) enum Order {
    /// The log is nearly all folded into the database: fold the rest, so that it begins again.
    RestartLog,
    /// Do what is queued, and end.
    Close(Reply<()>),
}

impl Kinds {
    /// Takes out the requests that keep leases: they wait behind nothing else.
    pub(in crate::store) fn take_urgent(&mut self) -> Self {
        Self {
            renewals: std::mem::take(&mut self.renewals),
            shards: std::mem::take(&mut self.shards),
            presences: std::mem::take(&mut self.presences),
            ..Self::default()
        }
    }

    /// Applies every request. What takes work off the store comes first, so that it counts before a claim looks; claims
    /// come last, so that they find what the others made claimable.
    pub(in crate::store) async fn apply(
        &mut self,
        unit: &mut Unit<'_>,
        afterwards: Afterwards,
    ) -> Result<(), sqlx::Error> {
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
        self.retirements.answers = retention::apply(unit, self.retirements.requests(afterwards)).await?;
        self.withdrawals.answers = withdrawals::apply(unit, self.withdrawals.requests(afterwards)).await?;
        self.presences.answers = runtimes::apply(unit, self.presences.requests(afterwards)).await?;
        self.gates.answers = gates::apply(unit, self.gates.requests(afterwards)).await?;
        self.destinations.answers = destinations::apply(unit, self.destinations.requests(afterwards)).await?;
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
        let kept = self.checkpoints.requests(afterwards).into_iter().map(|request| *request);
        self.checkpoints.answers = checkpoints::apply(unit, &shards, kept).await?;
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
}
