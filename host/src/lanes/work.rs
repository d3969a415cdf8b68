//! Work classes of a shard: what its one writer does next, so that none of its duties waits behind another for long.
//!
//! Each class has a queue of its own, a weight, and a cap on what one turn of it does. The classes that have work stand
//! in a round; a visit grants `weight x QUANTUM` records, and turns are given until the grant is used up. What a turn
//! did is known only afterwards, so the last turn may exceed the grant by less than its cap, and the next visit makes
//! up for it. A turn that exceeds its cap is a mistake of its class: that is told, and owed, and stops nobody.
//!
//! [`WorkClass::LeaseFence`] alone comes before the round: as long as it owes nothing it is next, and what it did it
//! owes.
//!
//! Calls of destinations are no work of the writer: they have a bound of their own, the places in flight, and come back
//! as outcomes.
//!
//! Invariants:
//! - A class that has work is given a turn after the others have done no more than [`WorkPlan::bound`] records, as long
//!   as their turns keep within their caps.
//! - A class without work gathers no credit; what it owes, it goes on owing.
//! - Each class but [`WorkClass::Query`] and [`WorkClass::Checkpoint`] has a reserve in every dimension that nobody
//!   else can take, and all reserves together are there.

use std::time::Duration;

/// What one visit grants a class of weight 1, in records.
const QUANTUM: i64 = 64;
/// How many classes there are.
pub const CLASSES: usize = WorkClass::ALL.len();

/// A duty of a shard's writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkClass {
    /// Taking up what became of the lease.
    LeaseFence,
    /// What became of claims, gates, and attempts without an outcome.
    OutcomeAndControl,
    /// New messages, cancels and reschedules, from the feed.
    SourceApply,
    /// Messages that are of no more use.
    Expiry,
    /// Claiming what is due.
    DueScheduler,
    /// Letting go of what is kept for nobody.
    Gc,
    /// Answers to operators.
    Query,
    /// A copy of the index, for whoever owns the shard next.
    Checkpoint,
}

impl WorkClass {
    /// Every class, in the order of the round.
    pub const ALL: [WorkClass; 8] = [
        WorkClass::LeaseFence,
        WorkClass::OutcomeAndControl,
        WorkClass::SourceApply,
        WorkClass::Expiry,
        WorkClass::DueScheduler,
        WorkClass::Gc,
        WorkClass::Query,
        WorkClass::Checkpoint,
    ];

    /// The word for it in metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            WorkClass::LeaseFence => "lease_fence",
            WorkClass::OutcomeAndControl => "outcome_and_control",
            WorkClass::SourceApply => "source_apply",
            WorkClass::Expiry => "expiry",
            WorkClass::DueScheduler => "due_scheduler",
            WorkClass::Gc => "gc",
            WorkClass::Query => "query",
            WorkClass::Checkpoint => "checkpoint",
        }
    }

    /// Whether a shard could not go on without it: then something is kept for it.
    const fn needs_reserve(self) -> bool {
        match self {
            WorkClass::LeaseFence
            | WorkClass::OutcomeAndControl
            | WorkClass::SourceApply
            | WorkClass::Expiry
            | WorkClass::DueScheduler
            | WorkClass::Gc => true,
            WorkClass::Query | WorkClass::Checkpoint => false,
        }
    }
}

/// What work is counted in. Each dimension counts for itself: room in one makes up for none in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Records.
    pub records: usize,
    /// Bytes of them in memory.
    pub bytes: usize,
}

impl Amount {
    /// So many records of so many bytes each.
    pub const fn of(records: usize, bytes_each: usize) -> Self {
        Self { records, bytes: records.saturating_mul(bytes_each) }
    }

    const fn dimensions(self) -> [(&'static str, usize); 2] {
        [("records", self.records), ("bytes", self.bytes)]
    }

    fn map(self, other: Amount, with: impl Fn(usize, usize) -> usize) -> Amount {
        Amount { records: with(self.records, other.records), bytes: with(self.bytes, other.bytes) }
    }
}

/// What a class is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkShare {
    /// Its part of the writer's time.
    pub weight: u32,
    /// What may wait.
    pub queue: Amount,
    /// What one turn does at the most, with the bytes that it hands on or takes in.
    pub turn: Amount,
    /// How long one turn takes: claiming ends with it, the store is waited for no longer, and a turn of the index
    /// alone, which its records bound, is counted if it took longer.
    pub turn_time: Duration,
    /// What of the whole is kept for it.
    pub reserve: Amount,
}

/// What all classes are given, in the order of [`WorkClass::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkPlan {
    shares: [WorkShare; CLASSES],
    whole: Amount,
}

/// Why a plan would let a shard stand still.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitPlan {
    /// A class would never be given a turn, or could do nothing in it.
    #[error("work class {class} is starved: its {what} is 0")]
    Starved {
        /// The class.
        class: &'static str,
        /// What it lacks.
        what: &'static str,
    },
    /// More is kept for a class than may wait in its queue.
    #[error("work class {class} has a reserve of {reserve} {dimension} and a queue of {queue}")]
    Unusable {
        /// The class.
        class: &'static str,
        /// What is counted.
        dimension: &'static str,
        /// What is kept.
        reserve: usize,
        /// What may wait.
        queue: usize,
    },
    /// The reserves are more than there is.
    #[error("the reserves of the work classes are {reserves} {dimension} together, and a shard may hold {whole}")]
    Oversold {
        /// What is counted.
        dimension: &'static str,
        /// What is kept for all classes.
        reserves: usize,
        /// What there is.
        whole: usize,
    },
}

impl WorkPlan {
    /// A plan for a shard that may hold `whole`, over all queues.
    pub fn new(shares: [WorkShare; CLASSES], whole: Amount) -> Result<Self, UnfitPlan> {
        for (class, share) in WorkClass::ALL.into_iter().zip(&shares) {
            share.check(class)?;
        }
        let add = |sum: Amount, share: &WorkShare| sum.map(share.reserve, usize::saturating_add);
        let reserves = shares.iter().fold(Amount::default(), add);
        for ((dimension, reserves), (_, whole)) in reserves.dimensions().into_iter().zip(whole.dimensions()) {
            if reserves > whole {
                return Err(UnfitPlan::Oversold { dimension, reserves, whole });
            }
        }
        Ok(Self { shares, whole })
    }

    /// What a class is given.
    pub fn share(&self, class: WorkClass) -> &WorkShare {
        &self.shares[class as usize]
    }

    /// What a class that holds `held` may hold beside it. What is kept for the others is never lent to it, not even
    /// while they do not need it: when they do, they need it at once.
    pub fn room(&self, class: WorkClass, held: Amount) -> Amount {
        let others = WorkClass::ALL.into_iter().filter(|other| *other != class).map(|other| self.share(other).reserve);
        let kept = others.fold(Amount::default(), |kept, reserve| kept.map(reserve, usize::saturating_add));
        let its = self.whole.map(kept, usize::saturating_sub).map(self.share(class).queue, usize::min);
        its.map(held, usize::saturating_sub)
    }

    /// The records that the other classes do at the most before a class that has work, and owes nothing, is given a
    /// turn.
    pub fn bound(&self, class: WorkClass) -> u64 {
        let others = WorkClass::ALL.into_iter().filter(|other| *other != class).map(|other| self.share(other));
        match class {
            // It comes after the turn that is under way.
            WorkClass::LeaseFence => others.map(|share| share.turn.records as u64).max().unwrap_or(0),
            WorkClass::OutcomeAndControl
            | WorkClass::SourceApply
            | WorkClass::Expiry
            | WorkClass::DueScheduler
            | WorkClass::Gc
            | WorkClass::Query
            | WorkClass::Checkpoint => {
                others.map(|share| share.grant().unsigned_abs() + share.turn.records as u64 - 1).sum()
            }
        }
    }
}

impl WorkShare {
    fn grant(&self) -> i64 {
        i64::from(self.weight) * QUANTUM
    }

    fn check(&self, class: WorkClass) -> Result<(), UnfitPlan> {
        let kept = class.needs_reserve();
        let lacks = [
            ("weight", self.weight == 0),
            ("queue", self.queue.records == 0 || self.queue.bytes == 0),
            ("turn", self.turn.records == 0 || self.turn.bytes == 0 || self.turn_time.is_zero()),
            ("reserve", kept && (self.reserve.records == 0 || self.reserve.bytes == 0)),
        ];
        let class = class.as_str();
        if let Some((what, _)) = lacks.into_iter().find(|(_, is_lacking)| *is_lacking) {
            return Err(UnfitPlan::Starved { class, what });
        }
        for ((dimension, reserve), (_, queue)) in self.reserve.dimensions().into_iter().zip(self.queue.dimensions()) {
            if reserve > queue {
                return Err(UnfitPlan::Unusable { class, dimension, reserve, queue });
            }
        }
        Ok(())
    }
}

/// Whose turn it is.
#[derive(Debug)]
pub struct WorkRound {
    plan: WorkPlan,
    /// What each class may still do; below zero, what it owes.
    credit: [i64; CLASSES],
    /// The class that is being visited, and whether it has been granted for this visit.
    at: usize,
    granted: bool,
    /// What others have done since a class has had work and no turn; nothing while it owes something.
    waited: [Option<u64>; CLASSES],
    longest: [u64; CLASSES],
}

impl WorkRound {
    /// Nobody has done anything yet.
    pub fn new(plan: WorkPlan) -> Self {
        Self { plan, credit: [0; CLASSES], at: 0, granted: false, waited: [None; CLASSES], longest: [0; CLASSES] }
    }

    /// The plan that it follows.
    pub fn plan(&self) -> &WorkPlan {
        &self.plan
    }

    /// The class that is given the next turn, among those that `has_work`; `None` if none has.
    pub fn next(&mut self, has_work: impl Fn(WorkClass) -> bool) -> Option<WorkClass> {
        let ready = WorkClass::ALL.map(has_work);
        self.begin_waiting(&ready);
        if !ready.contains(&true) {
            return None;
        }
        if ready[WorkClass::LeaseFence as usize] && self.credit[WorkClass::LeaseFence as usize] >= 0 {
            return Some(WorkClass::LeaseFence);
        }
        loop {
            let credit = &mut self.credit[self.at];
            if ready[self.at] {
                if !std::mem::replace(&mut self.granted, true) {
                    *credit = (*credit).min(0) + self.plan.shares[self.at].grant();
                }
                if *credit > 0 {
                    return Some(WorkClass::ALL[self.at]);
                }
            } else {
                *credit = (*credit).min(0);
            }
            self.at = (self.at + 1) % CLASSES;
            self.granted = false;
        }
    }

    /// A turn of a class did so much; one that found nothing to do costs a record. Says whether it kept within what a
    /// turn may do. An excess is owed like the rest: the class waits for its next turn until the others have had as
    /// much, and their longest waits show it.
    pub fn did(&mut self, class: WorkClass, Amount { records, bytes }: Amount) -> bool {
        let turn = self.plan.share(class).turn;
        let spent = i64::try_from(records.max(1)).unwrap_or(i64::MAX);
        self.credit[class as usize] = self.credit[class as usize].saturating_sub(spent);
        for other in WorkClass::ALL {
            let waited = &mut self.waited[other as usize];
            if other == class {
                *waited = None;
            } else if let Some(waited) = waited {
                *waited = waited.saturating_add(records.max(1) as u64);
                self.longest[other as usize] = self.longest[other as usize].max(*waited);
            }
        }
        records <= turn.records && bytes <= turn.bytes
    }

    /// How long each class has waited at the most, in records that others did meanwhile: never more than its bound, as
    /// long as every turn keeps within its own.
    pub fn longest_wait(&self, class: WorkClass) -> u64 {
        self.longest[class as usize]
    }

    fn begin_waiting(&mut self, ready: &[bool; CLASSES]) {
        for (at, is_ready) in ready.iter().enumerate() {
            match (is_ready, self.waited[at]) {
                (true, None) if self.credit[at] >= 0 => self.waited[at] = Some(0),
                (false, Some(_)) => self.waited[at] = None,
                (true, _) | (false, None) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
