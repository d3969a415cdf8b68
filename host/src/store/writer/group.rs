//! What the writer takes together: requests sorted by kind, each with the place where its answer goes.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::kinds::{Control, Kinds, Order};
use super::unit::Unit;
use crate::store::error::StoreError;
use crate::store::work::enqueue::{Delivery, Enqueued};

/// Where an answer goes.
pub(in crate::store) type Reply<A> = oneshot::Sender<Result<A, StoreError>>;

/// A delivery that waits for the writer. Its share of the queue's bytes is free again when it is answered.
pub(in crate::store) struct Waiting {
    pub(in crate::store) delivery: Delivery,
    pub(in crate::store) reply: Reply<Enqueued>,
    pub(in crate::store) permit: OwnedSemaphorePermit,
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
        self.body_bytes += control.body_bytes();
        match self.kinds.push(control) {
            Some(Order::RestartLog) => self.restart_log = true,
            Some(Order::Close(reply)) => self.close = Some(reply),
            None => {}
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

    /// Takes out the requests that keep leases, if there are both such and others.
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
