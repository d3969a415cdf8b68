//! Gates of destinations' lanes. Each gate that is not open has a row; every host reads all of them.

use crate::model::destination_lane::Gate;
use crate::model::names::{DestinationName, Namespace};
use crate::model::time::Timestamp;
use crate::store::engine::dialect::Conflict;
use crate::store::engine::row::{Column, Columns, FromColumns};
use crate::store::engine::statement::Statement;
use crate::store::engine::values::{Value, Values, values};
use crate::store::writer::Control;
use crate::store::writer::unit::{Answers, Unit};
use crate::store::{Store, StoreError};

/// The most gates of a read: more than all namespaces have destinations.
const GATES_MAX: u32 = 65_536;

/// A gate that is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRow {
    /// The destination.
    pub destination: DestinationName,
    /// The namespace; `None` for the whole destination.
    pub namespace: Option<Namespace>,
    /// The state of the gate.
    pub gate: Gate,
    /// The reason, if one was given.
    pub reason: Option<String>,
    /// The time of the change.
    pub changed_at: Timestamp,
}

/// The origin of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetBy {
    /// An operator. Opening a whole destination opens the lanes of every namespace.
    Operator,
    /// The destination, by its answer: a gate that an operator has set stays.
    Destination,
}

/// A gate to be set.
#[derive(Debug, Clone)]
pub struct GateChange {
    /// The destination.
    pub destination: DestinationName,
    /// The namespace; `None` for the whole destination.
    pub namespace: Option<Namespace>,
    /// The wanted state.
    pub gate: Gate,
    /// The reason, if one is given.
    pub reason: Option<String>,
    /// The origin.
    pub by: SetBy,
    /// Now.
    pub now: Timestamp,
}

impl Store {
    /// Sets a gate, durably and for every host. Others see the change within a second.
    pub async fn set_gate(&self, change: GateChange) -> Result<(), StoreError> {
        self.writer.control(|reply| Control::SetGate(change, reply)).await
    }

    /// The gates that are not open.
    pub async fn gates(&self) -> Result<Vec<GateRow>, StoreError> {
        self.bounded(async |connection| Ok(connection.read_all(GATES, values![GATES_MAX]).await?)).await
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

impl FromColumns for GateRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            destination: columns.next()?,
            namespace: columns.next::<Whose>()?.0,
            gate: columns.next()?,
            reason: columns.next()?,
            changed_at: columns.next()?,
        })
    }
}

/// The namespace of a gate; the empty text for the gate of a whole destination.
struct Whose(Option<Namespace>);

impl Column for Whose {
    type Stored<'r> = &'r str;

    fn of_stored(stored: &str) -> Result<Self, sqlx::Error> {
        Ok(Self(if stored.is_empty() { None } else { Some(Namespace::of_stored(stored)?) }))
    }
}

const PAUSED: i64 = 1;
const CLOSED: i64 = 2;

impl Column for Gate {
    type Stored<'r> = i64;

    fn of_stored(stored: i64) -> Result<Self, sqlx::Error> {
        // A malformed gate is not open.
        Ok(if stored == PAUSED { Gate::Paused } else { Gate::Closed })
    }
}

impl From<Gate> for Value {
    fn from(gate: Gate) -> Self {
        match gate {
            // An open gate has no row.
            Gate::Open => Value::Integer(0),
            Gate::Paused => Value::Integer(PAUSED),
            Gate::Closed => Value::Integer(CLOSED),
        }
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
    let destination = &change.destination;
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
        values.push(&change.destination);
        values.push(change.namespace.as_ref().map_or("", |namespace| namespace.as_str()));
        values.push(change.gate).push(change.reason).push(change.now);
    };
    INSERT.write(&mut unit.connection, vec![change], bind).await?;
    Ok(())
}
