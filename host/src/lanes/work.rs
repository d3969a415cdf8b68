//! Work classes of a shard: what its one writer does next, so that none of its duties waits behind another for long.
//!
//! Each class has a queue of its own, a weight, and a cap on what one turn of it does. The classes that have work stand in a
//! round; a visit grants `weight x QUANTUM` records, and turns are given until the grant is used up. What a turn did is known
//! only afterwards, so the last turn may exceed the grant by less than its cap, and the next visit makes up for it.
//!
//! Looking at the lease is no class in the round: it is done before every turn, and costs nothing.
//!
//! Invariants:
//! - A class that has work is given a turn after the others have done no more than [`WorkPlan::bound`] records.
//! - A class without work gathers no credit; what it owes, it goes on owing.
//! - Each class but [`WorkClass::Query`] and [`WorkClass::Checkpoint`] has a reserve that nobody else can take, and all reserves together are there.

/// What one visit grants a class of weight 1, in records.
const QUANTUM: i64 = 64;

/// A duty of a shard's writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkClass {
    /// What became of claims, gates, and attempts without an outcome.
    OutcomeAndControl,
    /// New messages, cancels and reschedules, from the feed.
    SourceApply,
    /// Messages that are of no more use.
    Expiry,
    /// Claiming what is due.
    DueScheduler,
    /// Answers to operators.
    Query,
    /// A copy of the index, for whoever owns the shard next.
    Checkpoint,
}

impl WorkClass {
    /// Every class, in the order of the round.
    pub const ALL: [WorkClass; 6] = [
        WorkClass::OutcomeAndControl,
        WorkClass::SourceApply,
        WorkClass::Expiry,
        WorkClass::DueScheduler,
        WorkClass::Query,
        WorkClass::Checkpoint,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            WorkClass::OutcomeAndControl => "outcome_and_control",
            WorkClass::SourceApply => "source_apply",
            WorkClass::Expiry => "expiry",
            WorkClass::DueScheduler => "due_scheduler",
            WorkClass::Query => "query",
            WorkClass::Checkpoint => "checkpoint",
        }
    }
}

/// What a class is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkShare {
    /// Its part of the writer's time.
    pub weight: u32,
    /// Records that may wait.
    pub queue_max: usize,
    /// Records that one turn does at the most.
    pub turn_max: usize,
    /// Records of the whole that are kept for it.
    pub reserve: usize,
}

/// What all classes are given, in the order of [`WorkClass::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkPlan([WorkShare; 6]);

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
    #[error("work class {class} has a reserve of {reserve} records and a queue of {queue}")]
    Unusable {
        /// The class.
        class: &'static str,
        /// What is kept.
        reserve: usize,
        /// What may wait.
        queue: usize,
    },
    /// The reserves are more than there is.
    #[error("the reserves of the work classes are {reserves} records together, and a shard may hold {records_max}")]
    Oversold {
        /// What is kept for all classes.
        reserves: usize,
        /// What there is.
        records_max: usize,
    },
}

impl WorkPlan {
    /// A plan for a shard that may hold `records_max` records, over all queues.
    pub fn new(shares: [WorkShare; 6], records_max: usize) -> Result<Self, UnfitPlan> {
        for (class, share) in WorkClass::ALL.into_iter().zip(&shares) {
            let needs_reserve = !matches!(class, WorkClass::Query | WorkClass::Checkpoint);
            let lacks = [
                ("weight", share.weight == 0),
                ("queue", share.queue_max == 0),
                ("turn", share.turn_max == 0),
                ("reserve", needs_reserve && share.reserve == 0),
            ];
            let class = class.as_str();
            if let Some((what, _)) = lacks.into_iter().find(|(_, is_lacking)| *is_lacking) {
                return Err(UnfitPlan::Starved { class, what });
            }
            if share.reserve > share.queue_max {
                return Err(UnfitPlan::Unusable { class, reserve: share.reserve, queue: share.queue_max });
            }
        }
        let reserves = shares.iter().map(|share| share.reserve).sum();
        if reserves > records_max {
            return Err(UnfitPlan::Oversold { reserves, records_max });
        }
        Ok(Self(shares))
    }

    /// What a class is given.
    pub fn share(&self, class: WorkClass) -> &WorkShare {
        &self.0[class as usize]
    }

    /// The records that the other classes do at the most before a class that has work, and owes nothing, is given a turn.
    pub fn bound(&self, class: WorkClass) -> u64 {
        let others = WorkClass::ALL.into_iter().filter(|other| *other != class).map(|other| self.share(other));
        others.map(|share| share.grant().unsigned_abs() + share.turn_max as u64 - 1).sum()
    }
}

impl WorkShare {
    fn grant(&self) -> i64 {
        i64::from(self.weight) * QUANTUM
    }
}

/// Whose turn it is.
#[derive(Debug)]
pub struct WorkRound {
    plan: WorkPlan,
    /// What each class may still do; below zero, what it owes.
    credit: [i64; 6],
    /// The class that is being visited, and whether it has been granted for this visit.
    at: usize,
    granted: bool,
}

impl WorkRound {
    /// Nobody has done anything yet.
    pub fn new(plan: WorkPlan) -> Self {
        Self { plan, credit: [0; 6], at: 0, granted: false }
    }

    /// The class that is given the next turn, among those that `has_work`; `None` if none has.
    pub fn next(&mut self, has_work: impl Fn(WorkClass) -> bool) -> Option<WorkClass> {
        let ready = WorkClass::ALL.map(has_work);
        if !ready.contains(&true) {
            return None;
        }
        loop {
            let credit = &mut self.credit[self.at];
            if ready[self.at] {
                if !std::mem::replace(&mut self.granted, true) {
                    *credit = (*credit).min(0) + self.plan.0[self.at].grant();
                }
                if *credit > 0 {
                    return Some(WorkClass::ALL[self.at]);
                }
            } else {
                *credit = (*credit).min(0);
            }
            self.at = (self.at + 1) % WorkClass::ALL.len();
            self.granted = false;
        }
    }

    /// A turn of a class did so many records; one that found nothing to do costs one.
    ///
    /// # Panics
    /// If it did more than a turn may.
    pub fn did(&mut self, class: WorkClass, records: usize) {
        let turn_max = self.plan.share(class).turn_max;
        assert!(records <= turn_max, "a turn of {} does at most {turn_max} records, not {records}", class.as_str());
        self.credit[class as usize] -= i64::try_from(records.max(1)).expect("a turn is short");
    }
}

#[cfg(test)]
mod tests;
