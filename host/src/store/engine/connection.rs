//! A connection to either engine.

use futures_util::TryStreamExt as _;
use sqlx::mysql::MySqlConnection;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Either, Executor as _};

use super::dialect::Engine;
use super::row::{FromColumns, Row};
use super::values::{Values, values};
use crate::model::time::Timestamp;
use crate::store::LeaseTime;

const BEGIN_SQLITE: &str = "BEGIN IMMEDIATE";

/// A borrowed connection.
pub(in crate::store) enum Connection<'c> {
    /// To the embedded database.
    Sqlite {
        /// The connection.
        connection: &'c mut SqliteConnection,
        /// Writes without an answer; they go with the next statement.
        deferred: Deferred,
    },
    /// To a server.
    MySql {
        /// The connection.
        connection: &'c mut MySqlConnection,
        /// The server's behaviour.
        engine: Engine,
    },
}

/// Statements that wait for the next one: the driver's thread is asked once for all of them.
#[derive(Default)]
pub(in crate::store) struct Deferred {
    text: String,
    values: Values,
    statements: usize,
}

impl Deferred {
    fn push(&mut self, text: &str, values: Values) {
        self.text.push_str(text);
        self.text.push(';');
        self.values.append(values);
        self.statements += 1;
    }
}

impl From<CommitError> for sqlx::Error {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Before(error) | CommitError::At(error) => error,
        }
    }
}

/// The answer to a statement.
#[derive(Default)]
struct Outcome {
    rows: Vec<Row>,
    affected: u64,
}

/// Why a transaction did not become durable.
#[derive(Debug)]
pub(in crate::store) enum CommitError {
    /// A write before the commit failed: nothing is committed.
    Before(sqlx::Error),
    /// The commit itself failed: its outcome is unknown.
    At(sqlx::Error),
}

impl<'c> Connection<'c> {
    /// To the embedded database.
    pub(in crate::store) fn sqlite(connection: &'c mut SqliteConnection) -> Self {
        Connection::Sqlite { connection, deferred: Deferred::default() }
    }
}

impl Connection<'_> {
    /// The engine.
    pub(in crate::store) fn engine(&self) -> Engine {
        match self {
            Connection::Sqlite { .. } => Engine::Sqlite,
            Connection::MySql { engine, .. } => *engine,
        }
    }

    /// The same connection, for a transaction that begins and ends with it.
    pub(in crate::store) fn reborrow(&mut self) -> Connection<'_> {
        match self {
            Connection::Sqlite { connection, deferred } => {
                assert!(deferred.text.is_empty(), "no transaction is under way");
                Connection::sqlite(connection)
            }
            Connection::MySql { connection, engine } => Connection::MySql { connection, engine: *engine },
        }
    }

    /// Begins a transaction: on SQLite as the one writer, and with its first statement.
    pub(in crate::store) async fn begin(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Connection::Sqlite { deferred, .. } => {
                deferred.push(BEGIN_SQLITE, Values::default());
                Ok(())
            }
            Connection::MySql { .. } => self.run("START TRANSACTION").await,
        }
    }

    /// Makes a transaction durable.
    pub(in crate::store) async fn commit(&mut self) -> Result<(), CommitError> {
        match self {
            Connection::Sqlite { connection, deferred } => {
                let mut all = std::mem::take(deferred);
                let before = all.statements;
                all.push("COMMIT", Values::default());
                let mut outcomes = Vec::new();
                ask(connection, all, &mut outcomes).await.map_err(|error| match outcomes.len() < before {
                    true => CommitError::Before(error),
                    false => CommitError::At(error),
                })
            }
            Connection::MySql { .. } => self.run("COMMIT").await.map_err(CommitError::At),
        }
    }

    /// Undoes a transaction.
    pub(in crate::store) async fn rollback(&mut self) -> Result<(), sqlx::Error> {
        if let Connection::Sqlite { deferred, .. } = self {
            let unsent = std::mem::take(deferred);
            if unsent.text.starts_with(BEGIN_SQLITE) {
                return Ok(());
            }
        }
        self.run("ROLLBACK").await
    }

    /// Writes: with the next statement that has an answer, or with the commit.
    pub(in crate::store) async fn write(&mut self, text: &'static str, values: Values) -> Result<(), sqlx::Error> {
        match self {
            Connection::Sqlite { deferred, .. } => {
                deferred.push(text, values);
                Ok(())
            }
            Connection::MySql { .. } => self.execute(text, values).await.map(|_| ()),
        }
    }

    /// Runs a statement without values, and without preparing it.
    pub(in crate::store) async fn run(&mut self, text: &'static str) -> Result<(), sqlx::Error> {
        match self {
            Connection::Sqlite { connection, .. } => sqlx::raw_sql(text).execute(&mut **connection).await.map(|_| ()),
            Connection::MySql { connection, .. } => sqlx::raw_sql(text).execute(&mut **connection).await.map(|_| ()),
        }
    }

    /// Runs a statement. Returns the number of rows that it found, changed or not.
    pub(in crate::store) async fn execute(&mut self, text: &str, values: Values) -> Result<u64, sqlx::Error> {
        Ok(self.ask(vec![(text, values)]).await?.pop().unwrap_or_default().affected)
    }

    /// Reads all rows of a statement.
    pub(in crate::store) async fn fetch_all(&mut self, text: &str, values: Values) -> Result<Vec<Row>, sqlx::Error> {
        Ok(self.ask(vec![(text, values)]).await?.pop().unwrap_or_default().rows)
    }

    /// Reads all rows of each of these statements.
    pub(in crate::store) async fn fetch_each(
        &mut self,
        reads: Vec<(&str, Values)>,
    ) -> Result<Vec<Vec<Row>>, sqlx::Error> {
        Ok(self.ask(reads).await?.into_iter().map(|outcome| outcome.rows).collect())
    }

    /// Reads the first row of a statement, if there is one.
    pub(in crate::store) async fn fetch_optional(
        &mut self,
        text: &str,
        values: Values,
    ) -> Result<Option<Row>, sqlx::Error> {
        Ok(self.fetch_all(text, values).await?.into_iter().next())
    }

    /// Reads all rows of a statement, each as one value.
    pub(in crate::store) async fn read_all<T: FromColumns>(
        &mut self,
        text: &str,
        values: Values,
    ) -> Result<Vec<T>, sqlx::Error> {
        self.fetch_all(text, values).await?.iter().map(Row::read).collect()
    }

    /// Reads the first row that a statement gives, if it gives any, as one value.
    pub(in crate::store) async fn read_optional<T: FromColumns>(
        &mut self,
        text: &str,
        values: Values,
    ) -> Result<Option<T>, sqlx::Error> {
        self.fetch_optional(text, values).await?.as_ref().map(Row::read).transpose()
    }

    /// Reads the first row of a statement as one value.
    pub(in crate::store) async fn read_one<T: FromColumns>(
        &mut self,
        text: &str,
        values: Values,
    ) -> Result<T, sqlx::Error> {
        self.read_optional(text, values).await?.ok_or(sqlx::Error::RowNotFound)
    }

    /// The answer to each of these statements. The embedded database is asked for all of them at once.
    async fn ask(&mut self, statements: Vec<(&str, Values)>) -> Result<Vec<Outcome>, sqlx::Error> {
        let mut outcomes = Vec::with_capacity(statements.len());
        match self {
            Connection::Sqlite { connection, deferred } => {
                let mut all = std::mem::take(deferred);
                let before = all.statements;
                statements.into_iter().for_each(|(text, values)| all.push(text, values));
                ask(connection, all, &mut outcomes).await?;
                outcomes.drain(..before.min(outcomes.len()));
            }
            Connection::MySql { connection, .. } => {
                for (text, values) in statements {
                    let mut answer = connection.fetch_many(sqlx::query_with(AssertSqlSafe(text), values.into_mysql()));
                    let mut outcome = Outcome::default();
                    while let Some(step) = answer.try_next().await? {
                        match step {
                            Either::Left(done) => outcome.affected = done.rows_affected(),
                            Either::Right(row) => outcome.rows.push(Row::MySql(row)),
                        }
                    }
                    outcomes.push(outcome);
                }
            }
        }
        Ok(outcomes)
    }
}

/// Asks the embedded database all of it at once. `outcomes` gets one for each statement that ended.
async fn ask(connection: &mut SqliteConnection, all: Deferred, outcomes: &mut Vec<Outcome>) -> Result<(), sqlx::Error> {
    if all.statements == 0 {
        return Ok(());
    }
    let mut answer = connection.fetch_many(sqlx::query_with(AssertSqlSafe(all.text), all.values.into_sqlite()));
    let mut rows = Vec::new();
    while let Some(step) = answer.try_next().await? {
        match step {
            Either::Left(done) => {
                outcomes.push(Outcome { rows: std::mem::take(&mut rows), affected: done.rows_affected() });
            }
            Either::Right(row) => rows.push(Row::Sqlite(row)),
        }
    }
    Ok(())
}

/// The database's time, in milliseconds.
const DATABASE_NOW: &str = "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)";

/// The database's time, if it measures leases. With an embedded database the host's own clock does.
pub(in crate::store) async fn database_now(
    connection: &mut Connection<'_>,
    lease_time: LeaseTime,
) -> Result<Option<Timestamp>, sqlx::Error> {
    match (connection.engine(), lease_time) {
        (Engine::Sqlite, _) | (_, LeaseTime::Runtime) => Ok(None),
        (Engine::MySql { .. }, LeaseTime::Database) => connection.read_one(DATABASE_NOW, values![]).await.map(Some),
    }
}
