//! The WorkItem: the row that owns an execution. Its states, and what a failure makes of it.
//!
//! ```text
//!  enqueue ──> blocked ──promote──> ready <──due── delayed
//!     └───────────────────────────>  │ ^              ^
//!                               claim│ │release       │retry
//!                                    v │              │
//!                                processing ──────────┘
//!                                 │      │
//!                           done <┘      └> dead ──skip──> (its lane moves on)
//! ```
//!
//! A *claim* also takes a `processing` row whose lease ran out; the ownership epoch rises with every claim, and token
//! and epoch are predicates of every transition out of `processing`.

use std::time::Duration;

use super::failure::{Failure, FailureClass};
use super::ids::{EventId, LeaseToken, WorkItemId};
use super::names::Namespace;
use super::pack::{FailedHeadPolicy, GenerationNumber, HeadPolicy};
use super::retry::RetryPolicy;
use super::time::Timestamp;

/// What is to be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkType {
    /// `prepare` and `run` over a delivered Event.
    ConnectorEvent,
    /// `apply` over an action that came due.
    WorkflowActionApply,
}

impl WorkType {
    /// The word for it in storage, metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            WorkType::ConnectorEvent => "connector_event",
            WorkType::WorkflowActionApply => "workflow_action_apply",
        }
    }
}

/// Where a WorkItem stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkState {
    /// Not the head of its lane.
    Blocked,
    /// May be claimed.
    Ready,
    /// May be claimed later.
    Delayed,
    /// Claimed, under a lease.
    Processing,
    /// Ended well: `run` succeeded, or `prepare` ignored the event.
    Done,
    /// Ended badly: rejected, or its failure budget is spent.
    Dead,
}

impl WorkState {
    /// Every state, in the order in which statistics name them.
    pub const ALL: [WorkState; 6] = [
        WorkState::Ready,
        WorkState::Delayed,
        WorkState::Blocked,
        WorkState::Processing,
        WorkState::Done,
        WorkState::Dead,
    ];

    /// The word for it in metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            WorkState::Blocked => "blocked",
            WorkState::Ready => "ready",
            WorkState::Delayed => "delayed",
            WorkState::Processing => "processing",
            WorkState::Done => "done",
            WorkState::Dead => "dead",
        }
    }

    /// Whether nothing more happens to it by itself.
    pub const fn is_terminal(self) -> bool {
        match self {
            WorkState::Done | WorkState::Dead => true,
            WorkState::Blocked | WorkState::Ready | WorkState::Delayed | WorkState::Processing => false,
        }
    }
}

/// A WorkItem as its claimant holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedWorkItem {
    /// Its identity.
    pub id: WorkItemId,
    /// The Event that is its input.
    pub event_id: EventId,
    /// What is to be executed.
    pub work_type: WorkType,
    /// The tenant it belongs to.
    pub namespace: Namespace,
    /// The generation that it must run on.
    pub generation: GenerationNumber,
    /// Proof of ownership.
    pub lease: LeaseToken,
    /// Ownership epoch: rises by one with every claim.
    pub epoch: u32,
    /// When the lease ends unless it is renewed.
    pub lease_until: Timestamp,
    /// How often it has been claimed, this time included: 1 for the first.
    pub attempt: u32,
    /// How much of its failure budget is spent.
    pub failures: u32,
    /// Whether it was taken over from a claimant whose lease ran out.
    pub reclaimed: bool,
    /// Whether it replays another one: what it emits is emitted again.
    pub replay: bool,
}

/// What becomes of a failed execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AfterFailure {
    /// It runs again, no sooner than `run_after`.
    Retry {
        /// When it may be claimed again.
        run_after: Timestamp,
        /// Whether it gives up its place, so that its successors pass it meanwhile.
        leaves_lane: bool,
    },
    /// It is over.
    Dead {
        /// Whether its successors go on without it.
        leaves_lane: bool,
    },
}

/// Decides what a failure makes of a WorkItem. `failures` is the budget spent before this one.
pub fn after_failure(
    id: WorkItemId,
    failures: u32,
    failure: &Failure,
    retry: &RetryPolicy,
    failed_head: FailedHeadPolicy,
    now: Timestamp,
) -> AfterFailure {
    let dead = AfterFailure::Dead { leaves_lane: failed_head.dead == HeadPolicy::Skip };
    if failure.class.is_permanent() {
        return dead;
    }
    match retry.delay_after(failures.saturating_add(1), id.as_bytes()) {
        None => dead,
        Some(backoff) => AfterFailure::Retry {
            run_after: now + wished_delay(failure, retry).unwrap_or(backoff),
            leaves_lane: failed_head.retrying == HeadPolicy::Skip,
        },
    }
}

/// The delay that the guest or a provider asked for, within the policy's bounds.
fn wished_delay(failure: &Failure, retry: &RetryPolicy) -> Option<Duration> {
    match failure.class {
        FailureClass::Retry { delay: Some(delay) } | FailureClass::ReadFailed { delay: Some(delay) } => {
            Some(delay.min(retry.max))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: RetryPolicy =
        RetryPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(60), failures_max: 3 };
    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn decide(class: FailureClass, failures: u32, policy: FailedHeadPolicy) -> AfterFailure {
        let id = WorkItemId::from_bytes([1; 16]);
        after_failure(id, failures, &Failure::new(class, "because"), &RETRY, policy, NOW)
    }

    // CLM-7
    #[test]
    fn the_budget_counts_failures_exactly() {
        for failures in 0..2 {
            let decided = decide(FailureClass::Trap, failures, FailedHeadPolicy::DEFAULT);
            assert!(matches!(decided, AfterFailure::Retry { run_after, .. } if run_after > NOW), "{failures}");
        }
        let last = decide(FailureClass::Trap, 2, FailedHeadPolicy::DEFAULT);
        assert_eq!(last, AfterFailure::Dead { leaves_lane: true });
    }

    #[test]
    fn what_cannot_succeed_is_not_tried_again() {
        for class in [FailureClass::Rejected, FailureClass::InvalidInput, FailureClass::ReadRefused] {
            assert!(matches!(decide(class, 0, FailedHeadPolicy::DEFAULT), AfterFailure::Dead { .. }));
        }
    }

    #[test]
    fn the_guests_wish_is_bounded() {
        let wish = |secs| FailureClass::Retry { delay: Some(Duration::from_secs(secs)) };
        let provider = FailureClass::ReadFailed { delay: Some(Duration::from_secs(7)) };
        let run_after = |class| match decide(class, 0, FailedHeadPolicy::DEFAULT) {
            AfterFailure::Retry { run_after, .. } => run_after.since(NOW),
            AfterFailure::Dead { .. } => panic!("the budget is not spent"),
        };
        assert_eq!(run_after(wish(5)), Duration::from_secs(5));
        assert_eq!(run_after(wish(86_400)), RETRY.max);
        assert_eq!(run_after(provider), Duration::from_secs(7));
    }

    // CLM-8
    #[test]
    fn the_failed_heads_policy_decides_about_its_lane() {
        let skip_block = FailedHeadPolicy { retrying: HeadPolicy::Skip, dead: HeadPolicy::Block };
        assert!(matches!(decide(FailureClass::Trap, 0, skip_block), AfterFailure::Retry { leaves_lane: true, .. }));
        assert_eq!(decide(FailureClass::Trap, 2, skip_block), AfterFailure::Dead { leaves_lane: false });
    }
}
