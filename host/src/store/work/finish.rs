//! What an execution came to. How it becomes durable is in `finalize`.

use std::time::Duration;

use crate::model::failure::Failure;
use crate::model::ids::{LeaseToken, WorkItemId};
use crate::model::message::NewMessage;
use crate::model::reading::RunRecord;
use crate::model::time::Timestamp;
use crate::model::work_item::ClaimedWorkItem;
use crate::store::writer::Control;
use crate::store::{Store, StoreError};

/// The end of one execution.
#[derive(Debug, Clone)]
pub struct Finish {
    /// The WorkItem.
    pub work_item_id: WorkItemId,
    /// The lease it was claimed under.
    pub lease: LeaseToken,
    /// The epoch it was claimed under.
    pub epoch: u32,
    /// What becomes of it.
    pub disposition: Disposition,
    /// Under what its successor is claimed in the same transaction, if it coalesces and has one.
    pub successor: Option<Successor>,
    /// Now.
    pub now: Timestamp,
}

/// A claim of the next WorkItem by the caller that ends the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Successor {
    /// The token that it will carry; fresh for every finish.
    pub lease: LeaseToken,
    /// How long the lease lasts.
    pub lease_duration: Duration,
}

/// What becomes of a WorkItem after an execution.
#[derive(Debug, Clone)]
pub enum Disposition {
    /// It succeeded.
    Done {
        /// The flow's note for people, at most [`crate::model::failure::FAILURE_TEXT_BYTES_MAX`] bytes.
        note: Option<String>,
        /// Whether `prepare` ignored the event.
        ignored: bool,
        /// What it emits.
        messages: Vec<NewMessage>,
        /// What makes it comparable with another run.
        record: RunRecord,
    },
    /// It failed and is tried again. With [`Disposition::Dead`] the only way to spend the failure budget.
    Retry {
        /// Why.
        failure: Failure,
        /// Not before.
        run_after: Timestamp,
        /// Whether its successors pass it meanwhile.
        leaves_lane: bool,
    },
    /// It failed for good.
    Dead {
        /// Why.
        failure: Failure,
        /// Whether its successors go on without it.
        leaves_lane: bool,
    },
    /// It was not executed: it goes back as if it had not been claimed, but for the epoch.
    Release,
}

/// Whether a [`Finish`] counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    /// It is durable.
    Applied,
    /// It is durable, and the latest of its source that waited is the caller's.
    Continued(Box<ClaimedWorkItem>),
    /// The row was no longer the caller's; nothing changed.
    LeaseLost,
}

impl Finish {
    /// The messages that it brings.
    pub(in crate::store) fn messages(&self) -> &[NewMessage] {
        match &self.disposition {
            Disposition::Done { messages, .. } => messages,
            Disposition::Retry { .. } | Disposition::Dead { .. } | Disposition::Release => &[],
        }
    }

    /// How many bytes its messages' bodies have.
    pub(in crate::store) fn body_bytes(&self) -> usize {
        self.messages().iter().map(|message| message.body.len()).sum()
    }
}

impl Store {
    /// Finalizes one execution; many that arrive together share a transaction.
    pub async fn finish(&self, finish: Finish) -> Result<Finished, StoreError> {
        let largest = finish.messages().iter().map(|message| message.body.len()).max();
        self.fits(largest.unwrap_or(0))?;
        self.writer.control(|reply| Control::Finish(finish, reply)).await
    }

    /// Lets a lane go on that a dead head holds (failed-head policy `block`). Returns whether it did.
    pub async fn skip_dead(&self, id: WorkItemId) -> Result<bool, StoreError> {
        self.writer.control(|reply| Control::SkipDead(id, reply)).await
    }
}
