//! What a dead owner left: attempts that were admitted and have no outcome.
//!
//! Nobody knows what such an attempt did. Its destination's policy for uncertain attempts decides, and what it decides
//! is recorded in SQL before the index hears of it. An action is another matter: it is handed off in the transaction
//! that records it, so one without an outcome has not been.

use std::time::Duration;

use super::clock::Interval;
use crate::model::destination::{Destinations, terms_of};
use crate::model::message::{AfterAttempt, MessageEntry, MessageState, Outcome, UncertainPolicy, after_attempt};
use crate::model::retry::RetryPolicy;
use crate::model::time::Timestamp;
use crate::store::{OutcomeRecord, ShardLease, Store, StoreError};

/// Messages that are settled together.
pub(super) const ROWS_MAX: u32 = 256;

/// How a message is retried whose destination is not configured: it is held for an operator, so this is never asked.
const NO_RETRY: RetryPolicy = RetryPolicy { initial: Duration::ZERO, max: Duration::ZERO, failures_max: 1 };

/// Records what becomes of the messages among `rows` that stand in `publishing` with nobody behind them, and gives all
/// rows as they are now; one whose outcome did not count is left as it was. `now` is trusted: a message that a wrong
/// clock would end as expired may have been published.
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
