//! Gates: which destinations' lanes are paused or closed. There is a row for each that is not open; every runtime reads
//! them all.

use crate::model::destination_lane::Gate;
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;
use crate::store::engine::dialect::Conflict;
use crate::store::engine::statement::Statement;
use crate::store::engine::values::{Values, values};
use crate::store::writer::Control;
use crate::store::writer::unit::{Answers, Unit};
use crate::store::{Store, StoreError};

/// The most gates that are read: more than there are tenants' destinations.
const GATES_MAX: u32 = 65_536;

/// A gate that is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRow {
    /// The destination.
    pub destination: DestinationName,
    /// Of this tenant's lanes; `None` for the whole destination.
    pub namespace: Option<Namespace>,
    /// Where it stands.
    pub gate: Gate,
    /// The reason, if one was given.
    pub reason: Option<String>,
    /// Since when.
    pub changed_at: Timestamp,
}

/// Who sets a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetBy {
    /// An operator, whose word counts. To open a whole destination opens every tenant's lanes.
    Operator,
    /// The destination itself, by its answer: a gate that an operator has set stays.
    Destination,
}

/// A gate to be set.
#[derive(Debug, Clone)]
pub struct GateChange {
    /// The destination.
    pub destination: DestinationName,
    /// Of this tenant's lanes; `None` for the whole destination.
    pub namespace: Option<Namespace>,
    /// Where it is to stand.
    pub gate: Gate,
    /// Why.
    pub reason: Option<String>,
    /// By whom.
    pub by: SetBy,
    /// When.
    pub now: Timestamp,
}

impl Store {
    /// Sets a gate, durably and for every runtime. Others see it when they look next, within a second.
    pub async fn set_gate(&self, change: GateChange) -> Result<(), StoreError> {
        self.writer.control(|reply| Control::SetGate(change, reply)).await
    }

    /// Every gate that is not open.
    pub async fn gates(&self) -> Result<Vec<GateRow>, StoreError> {
        let read = async {
            let mut reader = self.reader().await?.in_doubt();
            let rows = reader.connection().fetch_all(GATES, values![GATES_MAX]).await?;
            reader.is_answered();
            Ok(rows)
        };
        let rows = self.bounded(read).await?;
        let gate = |row: &crate::store::engine::connection::Row| {
            let namespace: String = row.value(1)?;
            Ok(GateRow {
                destination: row.name(0)?,
                namespace: if namespace.is_empty() { None } else { Some(row.name(1)?) },
                // Whatever else it may say: not open.
                gate: if row.value::<i64>(2)? == gate_code(Gate::Paused) { Gate::Paused } else { Gate::Closed },
                reason: row.value(3)?,
                changed_at: row.time(4)?,
            })
        };
        Ok(rows.iter().map(gate).collect::<Result<_, sqlx::Error>>()?)
    }
}

const GATES: &str = "SELECT destination, namespace, gate, reason, changed_at FROM destination_gate \
                     ORDER BY destination, namespace LIMIT ?";

const OPEN: &str = "DELETE FROM destination_gate WHERE destination = ? AND namespace = ?";

const OPEN_ALL: &str = "DELETE FROM destination_gate WHERE destination = ?";

static INSERT: Statement = Statement::insert(
    "destination_gate (destination, namespace, gate, reason, changed_at)",
    Conflict::Keep("destination, namespace"),
);

const fn gate_code(gate: Gate) -> i64 {
    match gate {
        Gate::Open => 0,
        Gate::Paused => 1,
        Gate::Closed => 2,
    }
}

/// Sets gates, in order.
pub(in crate::store) async fn apply(unit: &mut Unit<'_>, changes: Vec<GateChange>) -> Result<Answers<()>, sqlx::Error> {
    let mut answers = Vec::with_capacity(changes.len());
    for change in changes {
        set(unit, change).await?;
        answers.push(Ok(()));
    }
    Ok(answers)
}

async fn set(unit: &mut Unit<'_>, change: GateChange) -> Result<(), sqlx::Error> {
    unit.gates_changed = true;
    let destination = change.destination.as_str();
    let namespace = change.namespace.as_ref().map_or("", |namespace| namespace.as_str());
    match (change.by, change.gate, namespace) {
        (SetBy::Destination, _, _) => {}
        (SetBy::Operator, Gate::Open, "") => unit.connection.execute(OPEN_ALL, values![destination]).await.map(drop)?,
        (SetBy::Operator, _, _) => unit.connection.execute(OPEN, values![destination, namespace]).await.map(drop)?,
    }
    if change.gate == Gate::Open {
        return Ok(());
    }
    let bind = |values: &mut Values, change: GateChange| {
        values.push(change.destination.as_str());
        values.push(change.namespace.as_ref().map_or("", |namespace| namespace.as_str()));
        values.push(gate_code(change.gate)).push(change.reason).time(change.now);
    };
    INSERT.write(&mut unit.connection, vec![change], bind).await?;
    Ok(())
}
