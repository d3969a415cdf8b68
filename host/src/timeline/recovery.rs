//! Attempts that a dead owner left: they were admitted and have no outcome.
//!
//! Whether such an attempt arrived is unknown. Its destination's policy for uncertain attempts decides, and the
//! decision is recorded in SQL before the index has it. Actions are different: an action is handed off in the
//! transaction that records its outcome, so an action without an outcome was not handed off.

use std::time::Duration;

use super::clock::Interval;
use crate::model::destination::{Destinations, terms_of};
use crate::model::message::{AfterAttempt, MessageEntry, MessageState, Outcome, UncertainPolicy, after_attempt};
use crate::model::retry::RetryPolicy;
use crate::model::time::Timestamp;
use crate::store::{OutcomeRecord, ShardLease, Store, StoreError};

/// Messages that are settled together.
pub(super) const ROWS_MAX: u32 = 256;

/// The retries of a message whose destination is unknown. They are never used: the message is held for an operator.
const NO_RETRY: RetryPolicy = RetryPolicy { initial: Duration::ZERO, max: Duration::ZERO, failures_max: 1 };

/// Records outcomes for the messages among `rows` that are `publishing`, and returns all rows as they are now. A row
/// whose outcome did not count is returned as it was. `now` is trusted: by a wrong clock a message might end as expired
/// although it was published.
pub(super) async fn conclude(
    store: &Store,
    lease: ShardLease,
    destinations: &Destinations,
    mut rows: Vec<MessageEntry>,
    now: Interval,
) -> Result<Vec<MessageEntry>, StoreError> {
    let uncertain: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].state == MessageState::Publishing).collect();
    if uncertain.is_empty() {
        return Ok(rows);
    }
    let outcomes: Vec<_> = uncertain.iter().map(|at| outcome(&rows[*at], destinations, now.latest)).collect();
    let afters: Vec<_> = outcomes.iter().map(|outcome| outcome.after).collect();
    let counted = store.record_outcomes(lease, outcomes, now.latest).await?;
    for ((at, after), counted) in uncertain.into_iter().zip(afters).zip(counted) {
        if counted {
            rows[at].state = after.state();
            if let AfterAttempt::RetryAt(eligible_at) = after {
                rows[at].eligible_at = eligible_at;
            }
        }
    }
    Ok(rows)
}

fn outcome(row: &MessageEntry, destinations: &Destinations, now: Timestamp) -> OutcomeRecord {
    let (retry, policy) = match terms_of(destinations, &row.destination) {
        Some(terms) => (terms.retry, terms.uncertain),
        None => (NO_RETRY, UncertainPolicy::Hold),
    };
    let uncertain = !row.destination.is_flow();
    let outcome = if uncertain { Outcome::Unknown } else { Outcome::Retriable { retry_after: None } };
    let attempt = row.attempt.max(1);
    let after = after_attempt(row.id, attempt, row.expire_at, &outcome, &retry, policy, now);
    let error = Some("the host ended during this attempt, or could not record its outcome".to_owned());
    let (id, generation, attempt) = (row.id, row.generation, row.attempt);
    OutcomeRecord { id, generation, attempt, after, uncertain, spared: false, status: None, error }
}
