//! The hosts that share the timeline: each reports regularly, and learns of the others.
//!
//! A report is no lease. A host that is wrong about the others asks for a shard that another one owns, and is refused.

use std::time::Duration;

use super::withdrawals;
use crate::model::ids::RuntimeId;
use crate::model::time::Timestamp;
use crate::store::engine::dialect::Conflict;
use crate::store::engine::statement::Statement;
use crate::store::engine::values::values;
use crate::store::writer::Control;
use crate::store::writer::unit::{Answers, Unit};
use crate::store::{ShardId, Store, StoreError};

/// The most runtimes of an answer.
pub const RUNTIMES_MAX: u32 = 1_024;

/// The runtimes that take part in the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtimes {
    /// The live runtimes, by id.
    pub live: Vec<RuntimeId>,
    /// The shards that a runtime has withdrawn from.
    pub withdrawn: Vec<(ShardId, RuntimeId)>,
}

/// A report of a runtime.
#[derive(Debug, Clone)]
pub(in crate::store) struct Presence {
    runtime: RuntimeId,
    /// The time for which the report counts; zero for a runtime that leaves.
    duration: Duration,
    now: Timestamp,
}

impl Store {
    /// Reports a runtime as live for `duration`. Returns all live ones, itself included.
    pub async fn beat(&self, runtime: RuntimeId, duration: Duration, now: Timestamp) -> Result<Runtimes, StoreError> {
        let presence = Presence { runtime, duration, now };
        self.writer.control(|reply| Control::Beat(presence, reply)).await
    }

    /// Reports that a runtime leaves: it takes no more shards.
    pub async fn leave(&self, runtime: RuntimeId, now: Timestamp) -> Result<(), StoreError> {
        let presence = Presence { runtime, duration: Duration::ZERO, now };
        self.writer.control(|reply| Control::Beat(presence, reply)).await.map(drop)
    }
}

static SAY: Statement = Statement::insert("runtime (id, live_until)", Conflict::Set("id", "live_until"));

const KNOWN: &str = "SELECT id, live_until FROM runtime ORDER BY id LIMIT ?";

const FORGET: &str = "DELETE FROM runtime WHERE id = ?";

/// The time after which a dead runtime is forgotten, in durations of a report.
const REMEMBERED: u32 = 10;

/// Records reports, and answers with the live runtimes.
pub(in crate::store) async fn apply(
    unit: &mut Unit<'_>,
    presences: Vec<Presence>,
) -> Result<Answers<Runtimes>, sqlx::Error> {
    let mut answers = Vec::with_capacity(presences.len());
    for presence in presences {
        let now = unit.time(presence.now);
        let id = presence.runtime;
        let live_until = now + presence.duration;
        SAY.write(&mut unit.connection, vec![(id, live_until)], |values, (id, live_until)| {
            values.push(id).push(live_until);
        })
        .await?;
        let known: Vec<(RuntimeId, Timestamp)> = unit.connection.read_all(KNOWN, values![RUNTIMES_MAX]).await?;
        let mut live = Vec::with_capacity(known.len());
        for (id, until) in known {
            if until > now {
                live.push(id);
            } else if until + presence.duration * REMEMBERED < now && id != presence.runtime {
                unit.connection.execute(FORGET, values![id]).await?;
            }
        }
        answers.push(Ok(Runtimes { live, withdrawn: withdrawals::current(unit, now).await? }));
    }
    Ok(answers)
}
