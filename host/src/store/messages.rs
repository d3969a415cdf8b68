//! Messages: the feed that a shard's owner reads, Publish Admission, Publish Outcome, cancel and reschedule.
//!
//! A message row carries the `seq` that its shard's head row handed out in the same transaction, so commit order is
//! sequence order. Cancel and reschedule take a new `seq`, and so appear in the feed again.

use bytes::Bytes;

use super::{ShardId, ShardLease, Store, StoreError};
use crate::model::event::Header;
use crate::model::ids::MessageId;
use crate::model::message::{AfterAttempt, MessageEntry, MessageState};
use crate::model::time::Timestamp;

/// A wish to publish, decided by compare-and-swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// The message.
    pub id: MessageId,
    /// The generation that was claimed; a reschedule since then refuses the admission.
    pub generation: u32,
}

/// Whether a message was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is `publishing`; this is the number of the attempt, 1 for the first.
    Admitted {
        /// The attempt's number.
        attempt: u32,
    },
    /// It was cancelled, rescheduled, or had ended: nothing changed. The index must forget what it held.
    Moved,
    /// The shard is no longer the caller's: nothing changed.
    Fenced,
}

/// What an attempt came to.
#[derive(Debug, Clone)]
pub struct OutcomeRecord {
    /// The message.
    pub id: MessageId,
    /// The attempt that this is the outcome of.
    pub attempt: u32,
    /// What becomes of the message.
    pub after: AfterAttempt,
    /// The destination's HTTP status, if it gave one.
    pub status: Option<u16>,
    /// What went wrong, if anything, at most [`crate::model::failure::FAILURE_TEXT_BYTES_MAX`] bytes. Never a payload.
    pub error: Option<String>,
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The message.
    pub id: MessageId,
    /// What the receiver tells duplicates by, the same on every attempt.
    pub idempotency_key: String,
    /// Its `content-type`.
    pub content_type: String,
    /// Further request headers.
    pub headers: Vec<Header>,
    /// Its body.
    pub body: Bytes,
}

/// What became of a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It will not be published.
    Cancelled,
    /// It was cancelled before.
    Already,
    /// Publish Admission came first, or it had ended.
    TooLate(MessageState),
    /// There is no such message.
    NotFound,
}

/// What became of a reschedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rescheduled {
    /// It is due at the new time.
    Rescheduled {
        /// Its new generation.
        generation: u32,
    },
    /// Publish Admission came first, or it had ended.
    TooLate(MessageState),
    /// There is no such message.
    NotFound,
}

impl Store {
    /// Entries of a shard's feed behind `after`, in sequence order. A rebuild reads it from 0 with `nonterminal_only`.
    pub async fn feed(
        &self,
        shard: ShardId,
        after: u64,
        nonterminal_only: bool,
        rows_max: u32,
    ) -> Result<Vec<MessageEntry>, StoreError> {
        let _ = (shard, after, nonterminal_only, rows_max);
        todo!()
    }

    /// The last sequence number that a shard has handed out.
    pub async fn feed_end(&self, shard: ShardId) -> Result<u64, StoreError> {
        let _ = shard;
        todo!()
    }

    /// The current entries of these messages; those that do not exist are left out.
    pub async fn message_entries(&self, ids: &[MessageId]) -> Result<Vec<MessageEntry>, StoreError> {
        let _ = ids;
        todo!()
    }

    /// Entries that stand in `publishing` with no outcome, by id, behind `after`: what a dead owner left.
    pub async fn publishing_entries(
        &self,
        shard: ShardId,
        after: Option<MessageId>,
        rows_max: u32,
    ) -> Result<Vec<MessageEntry>, StoreError> {
        let _ = (shard, after, rows_max);
        todo!()
    }

    /// Publish Admission: durable, fenced by the shard's owner epoch. One answer a request, in order.
    pub async fn admit(
        &self,
        lease: ShardLease,
        requests: Vec<AdmissionRequest>,
        now: Timestamp,
    ) -> Result<Vec<Admission>, StoreError> {
        let _ = (lease, requests, now);
        todo!()
    }

    /// Bodies of admitted messages; those that do not exist are left out.
    pub async fn payloads(&self, ids: &[MessageId]) -> Result<Vec<Payload>, StoreError> {
        let _ = ids;
        todo!()
    }

    /// Publish Outcome: durable, fenced by the shard's owner epoch and the attempt. `true` where it counted, in order.
    pub async fn record_outcomes(
        &self,
        lease: ShardLease,
        outcomes: Vec<OutcomeRecord>,
        now: Timestamp,
    ) -> Result<Vec<bool>, StoreError> {
        let _ = (lease, outcomes, now);
        todo!()
    }

    /// Ends messages whose time is over and that are not being published. `true` where it did, in order.
    pub async fn expire(
        &self,
        lease: ShardLease,
        requests: Vec<AdmissionRequest>,
        now: Timestamp,
    ) -> Result<Vec<bool>, StoreError> {
        let _ = (lease, requests, now);
        todo!()
    }

    /// Cancels a message unless Publish Admission came first.
    pub async fn cancel(&self, id: MessageId, now: Timestamp) -> Result<Cancelled, StoreError> {
        let _ = (id, now);
        todo!()
    }

    /// Moves a message to another time unless Publish Admission came first.
    pub async fn reschedule(&self, id: MessageId, due_at: Timestamp, now: Timestamp) -> Result<Rescheduled, StoreError> {
        let _ = (id, due_at, now);
        todo!()
    }
}
