//! The counters against the rows that they count, scope by scope. They are the same, unless something went wrong or
//! the database was changed by hand: each transaction counts what it moves.

use std::time::Duration;

use super::transaction::in_transaction;
use crate::env;
use crate::model::message::MessageState;
use crate::model::work_item::WorkState;
use crate::store::engine::codes::sql;
use crate::store::engine::connection::Connection;
use crate::store::engine::dialect::Engine;
use crate::store::engine::row::{Columns, FromColumns};
use crate::store::engine::sequences::Sequences;
use crate::store::engine::values::{Values, values};
use crate::store::writer::unit::{COUNT_MESSAGES, COUNT_WORK_ITEMS, Scope, Unit};
use crate::store::{Store, StoreError};

/// The number of looks in a row that have to see a difference: a look at a database in use may lack one of two
/// transactions that ended while it was taken.
const LOOKS: u32 = 3;

/// The pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// The stripe to which corrections are added: to a sum, one stripe is as good as another.
const STRIPE: u32 = 0;

/// A counter that differs from the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miscount {
    /// The counter in words: a state, and for WorkItems pack and generation.
    pub of: String,
    /// The number of the counter, which may be below zero.
    pub counted: i64,
    /// The number of rows.
    pub rows: i64,
}

/// The first column of a count of WorkItems.
const WORK_ITEMS: i64 = 0;

/// Of the work types that this program knows; `SIGNED`, because a sum is a decimal number on some engines.
const MISCOUNTS: &str = sql!(
    "SELECT 0, pack, work_type, generation, state, CAST(sum(counted) AS SIGNED), CAST(sum(stored) AS SIGNED) FROM (\
    SELECT pack, work_type, generation, state, count AS counted, 0 AS stored FROM work_item_counter WHERE work_type IN ({any_work_type}) \
    UNION ALL SELECT pack, work_type, generation, state, 0, count(*) FROM work_item WHERE work_type IN ({any_work_type}) \
    GROUP BY pack, work_type, generation, state) AS compared \
    GROUP BY pack, work_type, generation, state HAVING sum(counted) <> sum(stored) \
    UNION ALL SELECT 1, '', 0, 0, state, CAST(sum(counted) AS SIGNED), CAST(sum(stored) AS SIGNED) FROM (\
    SELECT state, count AS counted, 0 AS stored FROM message_counter \
    UNION ALL SELECT state, 0, count(*) FROM message GROUP BY state) AS compared_messages \
    GROUP BY state HAVING sum(counted) <> sum(stored)"
);

/// All counters, and the gaps between them.
const HOLD: [&str; 2] =
    ["SELECT count FROM work_item_counter FOR UPDATE", "SELECT count FROM message_counter FOR UPDATE"];

impl Store {
    /// The counters that differ from the rows, at one moment. The cost grows with the tables.
    pub async fn miscounts(&self) -> Result<Vec<Miscount>, StoreError> {
        let mut reader = self.reader().await?;
        Ok(look(&mut reader.connection()).await?)
    }
}

/// The counters that keep differing from the rows.
pub(in crate::store) async fn miscounts(connection: &mut Connection<'_>) -> Result<Vec<Miscount>, StoreError> {
    let mut believed = look(connection).await?;
    for _ in 1..LOOKS {
        if believed.is_empty() {
            break;
        }
        env::sleep(LOOK_PAUSE).await;
        let seen = look(connection).await?;
        believed.retain(|miscount| seen.contains(miscount));
    }
    Ok(believed)
}

/// Corrects the counters, also while hosts use the database. Returns those that were wrong.
///
/// Every transaction that moves a row writes its counter, at its end. With all counters held, no transaction is
/// between the two, and reads from then on are of one moment.
pub(in crate::store) async fn recount(connection: &mut Connection<'_>) -> Result<Vec<Miscount>, StoreError> {
    if miscounts(connection).await?.is_empty() {
        return Ok(Vec::new());
    }
    let recount = async |unit: &mut Unit<'_>| recount_held(&mut unit.connection).await;
    in_transaction(connection, &mut Sequences::default(), recount).await
}

async fn recount_held(connection: &mut Connection<'_>) -> Result<Vec<Miscount>, sqlx::Error> {
    if connection.engine() != Engine::Sqlite {
        for hold in HOLD {
            connection.fetch_all(hold, values![]).await?;
        }
    }
    let miscounts: Vec<(Counter, i64, i64)> = connection.read_all(MISCOUNTS, values![]).await?;
    for (counter, counted, rows) in &miscounts {
        counter.add(connection, rows - counted).await?;
    }
    Ok(miscounts.into_iter().map(Miscount::of).collect())
}

async fn look(connection: &mut Connection<'_>) -> Result<Vec<Miscount>, sqlx::Error> {
    Ok(connection.read_all(MISCOUNTS, values![]).await?.into_iter().map(Miscount::of).collect())
}

/// A counter, over all of its stripes.
enum Counter {
    WorkItems(Scope, WorkState),
    Messages(MessageState),
}

impl FromColumns for Counter {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        if columns.next::<i64>()? == WORK_ITEMS {
            return Ok(Self::WorkItems(columns.next()?, columns.next()?));
        }
        columns.skip(3);
        Ok(Self::Messages(columns.next()?))
    }
}

impl Counter {
    async fn add(&self, connection: &mut Connection<'_>, missing: i64) -> Result<(), sqlx::Error> {
        match self {
            Counter::WorkItems(scope, state) => {
                let bind = |values: &mut Values, (scope, state): (&Scope, WorkState)| {
                    scope.bind(values);
                    values.push(state).push(STRIPE).push(missing);
                };
                COUNT_WORK_ITEMS.write(connection, vec![(scope, *state)], bind).await
            }
            Counter::Messages(state) => {
                let bind = |values: &mut Values, state: MessageState| {
                    values.push(state).push(STRIPE).push(missing);
                };
                COUNT_MESSAGES.write(connection, vec![*state], bind).await
            }
        }
    }
}

impl Miscount {
    fn of((counter, counted, rows): (Counter, i64, i64)) -> Self {
        let of = match counter {
            Counter::WorkItems(Scope { pack, work_type, generation }, state) => format!(
                "{} work items ({}) of generation {generation} of pack `{pack}`",
                state.as_str(),
                work_type.as_str()
            ),
            Counter::Messages(state) => format!("{} messages", state.as_str()),
        };
        Self { of, counted, rows }
    }
}
