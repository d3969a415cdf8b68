//! A single work item that an operator asked for: it is claimed before all others, by the same compare-and-swap and
//! under the same predicates. What may not be claimed (blocked, delayed, in work, of a generation that is not loaded)
//! is not claimed so either.

use tokio::sync::oneshot;

use super::limiter::{Admission, admit};
use super::scheduler::CentralClaimScheduler;
use crate::lanes::Shape;
use crate::model::ids::WorkItemId;
use crate::model::queue::QueueClass;
use crate::model::time::Timestamp;

/// One that is wanted.
pub(super) struct Wanted {
    pub(super) id: WorkItemId,
    pub(super) class: QueueClass,
    pub(super) answer: oneshot::Sender<WantedAnswer>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedAnswer {
    /// It is in work here.
    Claimed,
    /// It could not be claimed when it had its turn: somebody else has it, or it waits.
    NotClaimable,
    /// The limiter allows no claim now, and says why with this word.
    Denied(&'static str),
    /// The store failed or took too long.
    Failed,
}

impl CentralClaimScheduler {
    /// Gives one that is wanted its turn, if there is any, and a free executor that serves its class.
    pub(super) async fn serve_wanted(&mut self, now: Timestamp) {
        let free = |shape: &Shape| self.executors.free_of(&self.layout, *shape) > 0;
        let shapes: Vec<Shape> = Shape::ALL.into_iter().filter(free).collect();
        let serving = |class| shapes.iter().copied().find(|shape: &Shape| shape.classes().contains(class));
        let Some(wanted) = self.handle.next_wanted(|class| serving(class).is_some()) else { return };
        let Some(shape) = serving(wanted.class) else { return };
        let answer = self.claim_wanted(&wanted, shape, now).await;
        // Whoever asked may have gone away; the row is in work all the same.
        let _ = wanted.answer.send(answer);
    }

    async fn claim_wanted(&mut self, wanted: &Wanted, shape: Shape, now: Timestamp) -> WantedAnswer {
        let pressure = self.pressure(Some(shape)).await;
        let admission = admit(&pressure);
        self.signals.admitted(Some(shape), admission);
        let stale_only = match admission {
            Admission::Deny(_) => return WantedAnswer::Denied(admission.reason()),
            Admission::Grant { .. } | Admission::Shrink { .. } => false,
            Admission::StaleOnly { .. } => true,
        };
        let Some(slots) = self.executors.reserve(&self.layout, shape, 1) else {
            return WantedAnswer::Denied("no_slot");
        };
        let mut request = self.request(self.executors.generations(), shape, 1, now);
        (request.only, request.stale_only) = (Some(wanted.id), stale_only);
        let (claimed, times) = match self.claim(request).await {
            Ok(answer) => answer,
            Err(reason) => {
                self.failed(&reason);
                return WantedAnswer::Failed;
            }
        };
        let answer = if claimed.is_empty() { WantedAnswer::NotClaimable } else { WantedAnswer::Claimed };
        self.executors.dispatch(claimed, slots, times);
        answer
    }
}
