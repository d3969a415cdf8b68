//! The transitions of stored messages: Publish Admission, Publish Outcome, expiry, cancel and reschedule.
//!
//! The rows that a group of requests names are read once, every request is decided on them in memory, one after the
//! other, and what changed is written once, under the predicates that it was decided on.
//!
//! | from | to | by |
//! |---|---|---|
//! | `scheduled`, `retry_wait` | `publishing` | admission, under a lease that holds |
//! | `publishing` | the state after its attempt | outcome, under a lease that is not lost |
//! | `publishing` | `handed_off`, and a WorkItem beside it | outcome of an action |
//! | `scheduled`, `retry_wait` | `expired` | expiry, under a lease that is not lost |
//! | `scheduled`, `retry_wait`, no attempt of which is uncertain | `cancelled`, or `scheduled` in a new generation | command |
//! | `dead` | `scheduled` in a new generation | redrive |
//! | `uncertain`; `scheduled`, `retry_wait` after an uncertain attempt | `retry_wait`, `published`, `dead` | resolution, by an operator |

use std::collections::HashMap;
use std::time::Duration;

use super::actions::{self, HandedOff};
use super::{Admission, AdmissionRequest, Cancelled, OutcomeRecord, Redriven, Rescheduled, Resolved};
use crate::model::ids::MessageId;
use crate::model::message::{AttemptEnd, Life, MessageState, NotRedriven, Resolution};
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;
use crate::store::engine::dialect::{Engine, Lock};
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::statement::Statement;
use crate::store::engine::values::Values;
use crate::store::error::StoreError;
use crate::store::shards::{ShardId, ShardLease, Shards};
use crate::store::work::draining::{ActionDrain, DrainTarget, DrainedRows};
use crate::store::writer::unit::{Unit, all_written};

/// A shard owner's request about some of its messages.
#[derive(Debug, Clone)]
pub(in crate::store) struct Owned<T> {
    pub(in crate::store) lease: ShardLease,
    pub(in crate::store) items: Vec<T>,
    pub(in crate::store) now: Timestamp,
}

/// A request to cancel.
#[derive(Debug, Clone)]
pub(in crate::store) struct Cancel {
    pub(in crate::store) id: MessageId,
    pub(in crate::store) now: Timestamp,
}

/// A request to reschedule.
#[derive(Debug, Clone)]
pub(in crate::store) struct Reschedule {
    pub(in crate::store) id: MessageId,
    pub(in crate::store) to: RescheduleTo,
}

/// The new time of a message.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) enum RescheduleTo {
    /// This time.
    At(Timestamp),
    /// This long after the move, which is at `now` by the caller's clock.
    After { delay: Duration, now: Timestamp },
}

/// A request to redrive.
#[derive(Debug, Clone)]
pub(in crate::store) struct Redrive {
    pub(in crate::store) ids: Vec<MessageId>,
    pub(in crate::store) now: Timestamp,
}

/// A request to resolve an uncertain message.
#[derive(Debug, Clone)]
pub(in crate::store) struct Resolve {
    pub(in crate::store) id: MessageId,
    pub(in crate::store) resolution: Resolution,
    pub(in crate::store) now: Timestamp,
}

static LOAD: Statement = Statement::lock(
    "(id)",
    "SELECT message.id, message.ordinal, message.shard, message.state, message.generation, message.attempt, \
     message.due_at, message.eligible_at, message.expire_at, message.admitted_at, message.status, message.error, \
     coalesce(message.line_seq, message.seq), message.action_generation, message.uncertain_attempts \
     FROM wanted CROSS JOIN message ON message.id = wanted.id",
    Lock::Update,
);

static SHARDS: Statement =
    Statement::select("(id)", "SELECT message.shard FROM wanted CROSS JOIN message ON message.id = wanted.id");

/// The parts of [`MOVE`], with which those of [`REMAKE`] begin.
macro_rules! moved {
    (set $row:literal) => {
        concat!(
            "state = ",
            $row,
            ".state, attempt = ",
            $row,
            ".attempt, eligible_at = ",
            $row,
            ".eligible_at, admitted_at = ",
            $row,
            ".admitted_at, status = ",
            $row,
            ".status, error = ",
            $row,
            ".error, finished_at = ",
            $row,
            ".finished_at, uncertain_attempts = ",
            $row,
            ".uncertain_attempts"
        )
    };
    (columns) => {
        "ordinal, old_state, old_generation, old_attempt, state, attempt, eligible_at, admitted_at, status, error, \
         finished_at, uncertain_attempts"
    };
    (on $row:literal) => {
        concat!(
            "message.ordinal = ",
            $row,
            ".ordinal AND message.state = ",
            $row,
            ".old_state AND message.generation = ",
            $row,
            ".old_generation AND message.attempt = ",
            $row,
            ".old_attempt"
        )
    };
}

static MOVE: Statement =
    Statement::update("message", moved!(set "moved"), concat!("moved (", moved!(columns), ")"), moved!(on "moved"));

static REMAKE: Statement = Statement::update(
    "message",
    concat!(
        moved!(set "remade"),
        ", seq = remade.seq, generation = remade.generation, due_at = remade.due_at, line_seq = remade.line_seq"
    ),
    concat!("remade (", moved!(columns), ", seq, generation, due_at, line_seq)"),
    moved!(on "remade"),
);

/// Of rows that are held.
static REGENERATE: Statement = Statement::update(
    "message",
    "action_generation = regenerated.action_generation",
    "regenerated (ordinal, action_generation)",
    "message.ordinal = regenerated.ordinal AND message.action_generation IS NOT NULL",
);

/// A message's row, with the changes that were decided.
struct Entry {
    ordinal: i64,
    shard: ShardId,
    before: Version,
    life: Life,
    status: Option<u16>,
    error: Option<String>,
    /// The place in an ordered lane.
    place: i64,
    /// The generation that an action was read with.
    action_generation: Option<GenerationNumber>,
    /// The generation that an action was drained to since.
    drained_to: Option<GenerationNumber>,
    change: Change,
}

/// The columns by which a row is found again as it was read.
#[derive(Clone, Copy)]
struct Version {
    state: MessageState,
    generation: u32,
    attempt: u32,
}

impl Version {
    fn of(life: &Life) -> Self {
        Self { state: life.state, generation: life.generation, attempt: life.attempt }
    }
}

/// The part of an [`Entry`] that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Nothing,
    /// The progress of an attempt; the place in the feed stays.
    Moved,
    /// A command: the message appears in the feed again, with its old place in its lane.
    Remade,
    /// A command that begins a new generation: the message appears in the feed again, last in its lane.
    Begun,
}

impl Entry {
    /// The generation that applies an action.
    fn applied_by(&self) -> Option<GenerationNumber> {
        self.drained_to.or(self.action_generation)
    }

    fn moved(&mut self) {
        if self.change == Change::Nothing {
            self.change = Change::Moved;
        }
    }

    fn begun(&mut self, generation: u32) -> u32 {
        self.change = Change::Begun;
        generation
    }
}

/// The shards that messages belong to, which never changes.
pub(in crate::store) async fn shards_of(unit: &mut Unit<'_>, ids: Vec<MessageId>) -> Result<Vec<ShardId>, sqlx::Error> {
    SHARDS.fetch(&mut unit.connection, ids, Values::only, FromColumns::read).await
}

/// The messages that a group of requests names, and the shards that they belong to.
pub(in crate::store) struct Book<'s> {
    entries: HashMap<MessageId, Entry>,
    shards: &'s mut Shards,
    /// The database's time, where hosts share it.
    database_now: Option<Timestamp>,
    /// Whether other runtimes may own shards.
    is_shared: bool,
}

impl<'s> Book<'s> {
    pub(in crate::store) async fn load(
        unit: &mut Unit<'_>,
        shards: &'s mut Shards,
        mut ids: Vec<MessageId>,
    ) -> Result<Self, sqlx::Error> {
        ids.sort_unstable();
        ids.dedup();
        let is_shared = unit.connection.engine() != Engine::Sqlite;
        let entries = LOAD.fetch(&mut unit.connection, ids, Values::only, entry).await?.into_iter().collect();
        Ok(Self { entries, shards, database_now: unit.terms.database_now, is_shared })
    }

    /// The time that decides what is due or expired: the database's where hosts share it, else the caller's.
    fn time(&self, now: Timestamp) -> Timestamp {
        self.database_now.unwrap_or(now)
    }

    /// A message of the shard that `lease` holds; `None` also if the lease is lost.
    fn owned(&mut self, id: MessageId, lease: &ShardLease) -> Option<&mut Entry> {
        self.shards.ownership(lease.shard).filter(|ownership| ownership.is_held_by(lease))?;
        self.entries.get_mut(&id).filter(|entry| entry.shard == lease.shard)
    }

    pub(in crate::store) fn admit(&mut self, request: Owned<AdmissionRequest>) -> Result<Vec<Admission>, StoreError> {
        let Owned { lease, items, now } = request;
        let shared_now = self.is_shared.then(|| self.time(now));
        let admits = self.shards.ownership(lease.shard).is_some_and(|ownership| ownership.admits(&lease, shared_now));
        let admit = |wanted: AdmissionRequest| {
            if !admits {
                return Admission::Fenced;
            }
            let Some(entry) = self.owned(wanted.id, &lease) else { return Admission::Moved };
            let Some(attempt) = entry.life.admit(wanted.generation, now) else { return Admission::Moved };
            entry.moved();
            Admission::Admitted { attempt }
        };
        Ok(items.into_iter().map(admit).collect())
    }

    pub(in crate::store) fn record(&mut self, request: Owned<OutcomeRecord>) -> Result<Vec<bool>, StoreError> {
        let Owned { lease, items, now } = request;
        let record = |outcome: OutcomeRecord| {
            let Some(entry) = self.owned(outcome.id, &lease) else { return false };
            let OutcomeRecord { generation, attempt, after, uncertain, spared, status, error, .. } = outcome;
            if !entry.life.conclude(AttemptEnd { generation, attempt, after, uncertain, spared }, now) {
                return false;
            }
            entry.moved();
            (entry.status, entry.error) = (status, error);
            true
        };
        Ok(items.into_iter().map(record).collect())
    }

    pub(in crate::store) fn expire(&mut self, request: Owned<AdmissionRequest>) -> Result<Vec<bool>, StoreError> {
        let Owned { lease, items, now } = request;
        let expire = |wanted: AdmissionRequest| {
            let Some(entry) = self.owned(wanted.id, &lease) else { return false };
            if !entry.life.expire(wanted.generation, now) {
                return false;
            }
            entry.moved();
            true
        };
        Ok(items.into_iter().map(expire).collect())
    }

    pub(in crate::store) fn cancel(&mut self, request: Cancel) -> Result<Cancelled, StoreError> {
        let Some(entry) = self.entries.get_mut(&request.id) else { return Ok(Cancelled::NotFound) };
        if entry.life.state == MessageState::Cancelled {
            return Ok(Cancelled::Already);
        }
        if let Err(too_late) = entry.life.cancel(request.now) {
            return Ok(Cancelled::TooLate(too_late));
        }
        entry.change = Change::Remade;
        Ok(Cancelled::Cancelled)
    }

    pub(in crate::store) fn reschedule(&mut self, request: Reschedule) -> Result<Rescheduled, StoreError> {
        let due_at = match request.to {
            RescheduleTo::At(due_at) => due_at,
            RescheduleTo::After { delay, now } => self.time(now) + delay,
        };
        let Some(entry) = self.entries.get_mut(&request.id) else { return Ok(Rescheduled::NotFound) };
        Ok(match entry.life.reschedule(due_at) {
            Ok(generation) => Rescheduled::Rescheduled { generation: entry.begun(generation) },
            Err(too_late) => Rescheduled::TooLate(too_late),
        })
    }

    pub(in crate::store) fn redrive(&mut self, request: Redrive) -> Result<Vec<Redriven>, StoreError> {
        let now = self.time(request.now);
        let redrive = |id: MessageId| {
            let Some(entry) = self.entries.get_mut(&id) else { return Redriven::NotFound };
            match entry.life.redrive(now) {
                Ok(generation) => Redriven::Redriven { generation: entry.begun(generation) },
                Err(NotRedriven::Expired(expire_at)) => Redriven::Expired(expire_at),
                Err(NotRedriven::NotDead(state)) => Redriven::NotDead(state),
            }
        };
        Ok(request.ids.into_iter().map(redrive).collect())
    }

    pub(in crate::store) fn resolve(&mut self, request: Resolve) -> Result<Resolved, StoreError> {
        let now = self.time(request.now);
        let Some(entry) = self.entries.get_mut(&request.id) else { return Ok(Resolved::NotFound) };
        Ok(match entry.life.resolve(request.resolution, now) {
            Ok(()) => {
                entry.change = Change::Remade;
                Resolved::Resolved
            }
            Err(state) => Resolved::NotUncertain(state),
        })
    }

    /// Moves actions that wait for a generation to another one, or ends them.
    pub(in crate::store) fn drain(&mut self, request: ActionDrain) -> Result<DrainedRows, StoreError> {
        let ActionDrain { from, target, ids, now } = request;
        let mut rows = 0;
        for id in ids {
            let waits = |entry: &&mut Entry| entry.life.state.waits() && entry.applied_by() == Some(from);
            let Some(entry) = self.entries.get_mut(&id).filter(waits) else { continue };
            rows += 1;
            match target {
                DrainTarget::Generation(to) => entry.drained_to = Some(to),
                DrainTarget::DeadLetter => {
                    entry.life.end(MessageState::Dead, now);
                    entry.error = Some(format!("an operator drained generation {from} and had its work end"));
                    entry.change = Change::Remade;
                }
            }
        }
        Ok(DrainedRows(rows))
    }

    /// Writes the changes.
    pub(in crate::store) async fn save(self, unit: &mut Unit<'_>) -> Result<(), sqlx::Error> {
        let (mut moved, mut remade, mut handed_off) = (Vec::new(), Vec::new(), Vec::new());
        let mut regenerated = Vec::new();
        for entry in self.entries.into_values() {
            regenerated.extend(entry.drained_to.map(|generation| (entry.ordinal, generation)));
            let changed = match entry.change {
                Change::Nothing => continue,
                Change::Moved => &mut moved,
                Change::Remade | Change::Begun => &mut remade,
            };
            unit.count_message(Some(entry.before.state), entry.life.state);
            if let (MessageState::HandedOff, Some(at)) = (entry.life.state, entry.life.finished_at) {
                handed_off.push(HandedOff { message: entry.ordinal, at });
            }
            changed.push(entry);
        }
        write_moved(unit, moved).await?;
        write_remade(unit, self.shards, remade).await?;
        REGENERATE
            .write(&mut unit.connection, regenerated, |values, (ordinal, generation)| {
                values.push(ordinal).push(generation);
            })
            .await?;
        actions::hand_off(unit, handed_off).await
    }
}

fn entry(columns: &mut Columns<'_>) -> Result<(MessageId, Entry), sqlx::Error> {
    let (id, ordinal, shard) = columns.next()?;
    let mut life = Life {
        state: columns.next()?,
        generation: columns.next()?,
        attempt: columns.next()?,
        due_at: columns.next()?,
        eligible_at: columns.next()?,
        expire_at: columns.next()?,
        admitted_at: columns.next()?,
        finished_at: None,
        uncertain_attempts: 0,
    };
    let (status, error, place, action_generation) = columns.next()?;
    life.uncertain_attempts = columns.next()?;
    let entry = Entry {
        ordinal,
        shard,
        before: Version::of(&life),
        life,
        status,
        error,
        place,
        action_generation,
        drained_to: None,
        change: Change::Nothing,
    };
    Ok((id, entry))
}

/// The values of [`MOVE`], with which those of [`REMAKE`] begin.
fn bind_moved(values: &mut Values, entry: &mut Entry) {
    let (Version { state, generation, attempt }, life) = (entry.before, entry.life);
    values.push(entry.ordinal).push(state).push(generation).push(attempt);
    values.push(life.state).push(life.attempt).push(life.eligible_at);
    values.push(life.admitted_at).push(entry.status).push(entry.error.take());
    values.push(life.finished_at).push(life.uncertain_attempts);
}

async fn write_moved(unit: &mut Unit<'_>, entries: Vec<Entry>) -> Result<(), sqlx::Error> {
    let expected = entries.len();
    let written =
        MOVE.execute(&mut unit.connection, entries, |values, mut entry| bind_moved(values, &mut entry)).await?;
    all_written(written, expected)
}

async fn write_remade(unit: &mut Unit<'_>, shards: &mut Shards, entries: Vec<Entry>) -> Result<(), sqlx::Error> {
    unit.feed_changed |= !entries.is_empty();
    let expected = entries.len();
    let placed = entries.into_iter().map(|entry| (shards.next_seq(entry.shard), entry)).collect();
    let written = REMAKE
        .execute(&mut unit.connection, placed, |values, (seq, mut entry)| {
            bind_moved(values, &mut entry);
            values.push(seq).push(entry.life.generation).push(entry.life.due_at);
            values.push(if entry.change == Change::Begun { seq } else { entry.place });
        })
        .await?;
    all_written(written, expected)
}
