//! Publish Outcomes: made durable in batches, then settled.
//!
//! A shard's outcomes take turns. Each finished attempt adds its outcome to the queue and waits for its turn; whoever
//! has the turn records everything that is queued. What arrives while one write runs is thereby written together by the
//! next: no timer, no task of its own, and a queue that holds at most what is in flight.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::Settled;
use super::claim::Claim;
use super::store_retry::StoreRetry;
use crate::model::ids::MessageId;
use crate::model::message::MessageEntry;
use crate::model::time::Timestamp;
use crate::store::{OutcomeRecord, ShardId, ShardLease, Store, StoreError};

/// Outcomes that are recorded in one call to the store.
const OUTCOMES_PER_CALL_MAX: usize = 256;

/// A finished attempt whose outcome is to be recorded.
pub(super) struct Finished {
    pub(super) claim: Claim,
    /// The lease that it was admitted under.
    pub(super) lease: ShardLease,
    pub(super) record: OutcomeRecord,
    /// What it settles as, once recorded.
    pub(super) settled: Settled,
    /// The latest that it could be when it finished.
    pub(super) at: Timestamp,
}

/// Records outcomes.
pub(super) struct Outcomes {
    store: Store,
    /// One queue a shard that this runtime has ever owned.
    queues: Mutex<HashMap<ShardId, Arc<Queue>>>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<Finished>>,
    turn: tokio::sync::Mutex<()>,
}

impl Queue {
    fn push(&self, finished: Finished) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back(finished);
    }

    /// What one call records: outcomes under one epoch, as one call is fenced by one.
    fn take(&self) -> Vec<Finished> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(epoch) = waiting.front().map(|first| first.lease.epoch) else { return Vec::new() };
        let count = waiting.iter().take(OUTCOMES_PER_CALL_MAX).take_while(|next| next.lease.epoch == epoch).count();
        waiting.drain(..count).collect()
    }
}

impl Outcomes {
    /// Into `store`.
    pub(super) fn new(store: Store) -> Self {
        Self { store, queues: Mutex::default() }
    }

    /// How many wait to be recorded.
    pub(super) fn waiting(&self) -> usize {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = |queue: &Arc<Queue>| queue.waiting.lock().unwrap_or_else(PoisonError::into_inner).len();
        queues.values().map(waiting).sum()
    }

    /// Records an outcome, alone or with others, and settles it. Returns when that is done.
    pub(super) async fn record(&self, finished: Finished) {
        let queue = self.queue(finished.lease.shard);
        queue.push(finished);
        let _turn = queue.turn.lock().await;
        loop {
            let batch = queue.take();
            if batch.is_empty() {
                return;
            }
            self.record_batch(batch).await;
        }
    }

    fn queue(&self, shard: ShardId) -> Arc<Queue> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(queues.entry(shard).or_default())
    }

    async fn record_batch(&self, batch: Vec<Finished>) {
        match self.write(&batch).await {
            Ok(counted) => {
                assert_eq!(counted.len(), batch.len(), "the store answers every outcome");
                for (finished, counted) in batch.into_iter().zip(counted) {
                    finished.claim.settle(if counted { finished.settled } else { Settled::Unrecorded });
                }
            }
            // Dropped claims settle as unrecorded: their rows stand as `publishing` until the shard's owner looks.
            Err(error) => tracing::warn!(outcomes = batch.len(), %error, "publish outcomes could not be recorded"),
        }
    }

    /// Records a batch, again and again within bounds. One answer an outcome, in order.
    async fn write(&self, batch: &[Finished]) -> Result<Vec<bool>, StoreError> {
        let records: Vec<OutcomeRecord> = batch.iter().map(|finished| finished.record.clone()).collect();
        let (Some(last), Some(now)) = (batch.last(), batch.iter().map(|finished| finished.at).max()) else {
            return Ok(Vec::new());
        };
        let mut retry = StoreRetry::new(last.lease.shard);
        let mut in_doubt = false;
        loop {
            let written = self.store.record_outcomes(last.lease, records.clone(), now).await;
            let error = match written {
                Ok(counted) if !in_doubt => return Ok(counted),
                Ok(counted) => match self.recognise(&records, counted).await {
                    Ok(counted) => return Ok(counted),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            in_doubt |= matches!(error, StoreError::Unknown(_));
            if !retry.wait(&error).await {
                return Err(error);
            }
        }
    }

    /// After a write whose fate was not known: an outcome that does not count now, but stands as it should, is our own.
    async fn recognise(&self, records: &[OutcomeRecord], mut counted: Vec<bool>) -> Result<Vec<bool>, StoreError> {
        if counted.iter().all(|counted| *counted) {
            return Ok(counted);
        }
        let ids: Vec<MessageId> = records.iter().map(|record| record.id).collect();
        let entries = self.store.message_entries(&ids).await?;
        let entries: HashMap<MessageId, MessageEntry> = entries.into_iter().map(|entry| (entry.id, entry)).collect();
        for (record, counted) in records.iter().zip(&mut counted) {
            let attempt = record.attempt - u32::from(record.spared);
            let stands = |entry: &MessageEntry| {
                (entry.generation, entry.attempt) == (record.generation, attempt) && entry.state == record.after.state()
            };
            *counted = *counted || entries.get(&record.id).is_some_and(stands);
        }
        Ok(counted)
    }
}
