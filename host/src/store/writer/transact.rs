//! How a group of requests becomes durable: in one transaction, or in several where one of the requests stands in the
//! others' way.
//!
//! | what came of an attempt | what follows |
//! |---|---|
//! | it lost against another transaction | it is done again, a bounded number of times and for a bounded time; once it has lost twice, what keeps leases goes ahead of the rest, by itself |
//! | one request fails regardless of its companions | the group is halved until that request is alone, and answered with the reason |
//! | the database does not do it, or does not answer in time | everybody is told so; whether it was at its commit is said |

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics::{counter, describe_counter};
use tokio::time::{Instant, timeout_at};

use super::durability::Changes;
use super::group::{Afterwards, Group};
use super::link::Source;
#[cfg(test)]
use super::loss::Loss;
use super::task::{Task, TaskParts};
use super::unit::{Terms, Unit};
use crate::env;
use crate::store::engine::connection::{CommitError, Connection};
use crate::store::engine::dialect::{is_conflict, is_of_a_request};
use crate::store::error::StoreError;

const CONFLICTS: &str = "forebay_store_conflicts_total";

/// Says what the metrics of this module mean.
pub fn describe() {
    describe_counter!(CONFLICTS, "Transactions that lost against another one and were repeated");
}

/// How often a transaction is begun that loses against others.
const ATTEMPTS_MAX: u32 = 10;

/// How often what keeps leases loses together with the rest.
const LOST_TOGETHER_MAX: u32 = 2;

/// The longest pause before a transaction is done again for the first time. Each further one may be twice as long.
const CONFLICT_PAUSE: Duration = Duration::from_millis(2);

/// How often a group is taken apart at most: more than it takes to find three requests in the largest one.
const SPLITS_MAX: u32 = 64;

/// How many groups keep their requests after one in which one could not be done, where they are not kept anyway:
/// whoever was beside it comes again, and so does it.
const CAREFUL_GROUPS: u32 = 64;

/// A group, or what is left of one.
struct Part {
    group: Group,
    /// How often it lost against other transactions.
    lost: u32,
}

/// What came of a part.
enum Came {
    /// It has ended.
    Ended(Result<Changes, StoreError>),
    /// These of its requests go first, by themselves.
    Apart(Box<Group>),
}

/// Why a transaction did not come about.
enum Failed {
    /// Another one was faster: nothing is written, and it may be done again at once.
    Conflict(sqlx::Error),
    /// One of its requests cannot be done: nothing is written, and the others may be done without it.
    Request(StoreError),
    /// The database, or the way to it.
    Store(StoreError),
}

impl Task {
    /// Makes a group durable, and has everybody answered.
    pub(in crate::store) async fn settle(&mut self, mut group: Group) {
        let afterwards = self.afterwards();
        let deadline = env::deadline(self.parts.patience.attempts);
        let mut splits = 0;
        let mut parts = Vec::new();
        // Others are in the way of something: it is not to be found out again at the cost of leases.
        let urgent = if std::mem::take(&mut self.contended) { group.split_urgent() } else { None };
        for group in std::iter::once(group).chain(urgent) {
            self.begin();
            parts.push(Part { group, lost: 0 });
        }
        while let Some(mut part) = parts.pop() {
            let may_split = splits < SPLITS_MAX && afterwards == Afterwards::Kept;
            match self.transact(&mut part, afterwards, may_split, deadline).await {
                Came::Ended(outcome) => {
                    self.tell(outcome.as_ref().err());
                    self.answer(part.group, outcome).await;
                }
                Came::Apart(first) => {
                    splits += 1;
                    self.begin();
                    parts.push(part);
                    parts.push(Part { group: *first, lost: 0 });
                }
            }
        }
    }

    /// Whether the next group's requests may be needed again.
    fn afterwards(&mut self) -> Afterwards {
        match self.parts.source {
            Source::Server(..) => Afterwards::Kept,
            Source::File(_) if self.careful > 0 => {
                self.careful -= 1;
                Afterwards::Kept
            }
            Source::File(_) => Afterwards::Spent,
        }
    }

    /// Applies a part, again if it loses against another transaction.
    async fn transact(&mut self, part: &mut Part, afterwards: Afterwards, may_split: bool, deadline: Instant) -> Came {
        loop {
            match self.attempt_in_time(part, afterwards, deadline).await {
                Ok(changes) => return Came::Ended(Ok(changes)),
                Err(Failed::Request(_)) if part.group.len() > 1 && may_split => {
                    return Came::Apart(Box::new(part.group.split_half()));
                }
                Err(Failed::Request(error)) => return Came::Ended(Err(self.blame(&part.group, error))),
                Err(Failed::Store(error)) => {
                    // Whatever went wrong may be wrong with the connection: the next transaction gets a new one.
                    self.link = None;
                    return Came::Ended(Err(error));
                }
                Err(Failed::Conflict(error)) => {
                    counter!(CONFLICTS).increment(1);
                    #[cfg(test)]
                    self.parts.losses.conflict();
                    tracing::debug!(%error, lost = part.lost, "a transaction lost against another one");
                    part.lost += 1;
                    self.contended |= part.lost >= LOST_TOGETHER_MAX;
                    if part.lost == ATTEMPTS_MAX || env::has_passed(deadline) {
                        let lost = format!("it lost against others {} times: {error}", part.lost);
                        return Came::Ended(Err(StoreError::Unavailable(lost)));
                    }
                    if part.lost >= LOST_TOGETHER_MAX
                        && let Some(urgent) = part.group.split_urgent()
                    {
                        return Came::Apart(Box::new(urgent));
                    }
                    env::sleep(self.pause(part.lost)).await;
                }
            }
        }
    }

    /// The answer to everything that shared a transaction with a request that cannot be done.
    fn blame(&mut self, group: &Group, error: StoreError) -> StoreError {
        if group.len() > 1 {
            self.careful = CAREFUL_GROUPS;
            return StoreError::Unavailable(format!("something that came together with it cannot be done: {error}"));
        }
        counter!("forebay_store_undone_total").increment(1);
        tracing::warn!(%error, "a request to the store cannot be done");
        error
    }

    /// A pause of random length, so that two that met do not meet again.
    fn pause(&self, lost: u32) -> Duration {
        let share = f64::from(self.parts.env.id_entropy()[0]) / f64::from(u8::MAX);
        (CONFLICT_PAUSE * 2_u32.pow(lost - 1)).mul_f64(share)
    }

    /// One attempt, for as long as it may take where a server has to answer.
    async fn attempt_in_time(
        &mut self,
        part: &mut Part,
        afterwards: Afterwards,
        deadline: Instant,
    ) -> Result<Changes, Failed> {
        let at_commit = AtomicBool::new(false);
        let attempt = self.parts.patience.attempt;
        match self.parts.source {
            Source::File(_) => self.attempt(part, afterwards, &at_commit).await,
            Source::Server(..) => {
                let until = deadline.min(env::deadline(attempt));
                let attempted = timeout_at(until, self.attempt(part, afterwards, &at_commit)).await;
                attempted.unwrap_or_else(|_| Err(Failed::late(at_commit.into_inner())))
            }
        }
    }

    async fn attempt(
        &mut self,
        part: &mut Part,
        afterwards: Afterwards,
        at_commit: &AtomicBool,
    ) -> Result<Changes, Failed> {
        let TaskParts { shard_count, stripe, lease_time, .. } = self.parts;
        #[cfg(test)]
        let loss = self.parts.losses.next();
        if let Some(durability) = &self.durability {
            durability.check()?;
        }
        let link = self.connect().await?;
        let database_now = link.prepare(part.group.rows(), lease_time).await?;
        let sequences = link.sequences.clone();
        let authority = std::mem::take(&mut link.authority);
        let mut connection = link.connection();
        connection.begin().await?;
        let terms = Terms { shard_count, stripe, database_now };
        let mut unit = Unit::new(connection, sequences, terms, part.lost);
        unit.authority = authority;
        let applied = part.group.apply(&mut unit, afterwards).await;
        let changes = Changes {
            work: unit.work_changed,
            feed: unit.feed_changed,
            gates: unit.gates_changed,
            destinations: unit.destinations_changed,
        };
        let Unit { mut connection, sequences, authority, .. } = unit;
        if let Err(error) = applied {
            return Err(undo(connection, error).await);
        }
        #[cfg(test)]
        Loss::strike(loss, Loss::BeforeCommit)?;
        at_commit.store(true, Ordering::Relaxed);
        match connection.commit().await {
            Ok(()) => {}
            Err(CommitError::Before(error)) => return Err(undo(connection, error).await),
            Err(CommitError::At(error)) => return Err(Failed::at_commit(error)),
        }
        #[cfg(test)]
        Loss::strike(loss, Loss::AfterCommit)?;
        (link.sequences, link.authority) = (sequences, authority);
        Ok(changes)
    }
}

/// Undoes a transaction. If even this fails, the connection is dropped, and the transaction with it.
async fn undo(mut connection: Connection<'_>, error: sqlx::Error) -> Failed {
    match connection.rollback().await {
        Ok(()) => error.into(),
        Err(_) => Failed::Store(StoreError::Unavailable(error.to_string())),
    }
}

impl Failed {
    /// A commit of which no answer came, or none that says that it was undone.
    fn at_commit(error: sqlx::Error) -> Self {
        if is_conflict(&error) {
            Failed::Conflict(error)
        } else {
            Failed::Store(StoreError::Unknown(error.to_string()))
        }
    }

    /// A server that did not answer in time. Without a connection to it, what it has not been told to commit it undoes.
    fn late(at_commit: bool) -> Self {
        let seen = "the database server did not answer in time".to_owned();
        Failed::Store(if at_commit { StoreError::Unknown(seen) } else { StoreError::Unavailable(seen) })
    }
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        if is_conflict(&error) {
            Failed::Conflict(error)
        } else if is_of_a_request(&error) {
            Failed::Request(error.into())
        } else {
            Failed::Store(error.into())
        }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Failed::Store(error)
    }
}
