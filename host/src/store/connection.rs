//! A connection to either engine, and the rows that it gives.

use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Decode, MySql, Row as _, SqlSafeStr, Sqlite, Type};

use super::dialect::Engine;
use super::stored::Values;

/// A connection, for as long as somebody uses it.
pub(super) enum Connection<'c> {
    /// To the embedded database.
    Sqlite {
        /// The connection.
        connection: &'c mut SqliteConnection,
        /// Writes that nobody has asked the outcome of yet.
        deferred: Deferred,
    },
    /// To a server.
    MySql {
        /// The connection.
        connection: &'c mut MySqlConnection,
        /// What the server is seen to do.
        engine: Engine,
    },
}

/// Writes that wait for the next statement. The driver's thread is asked once for all of them.
#[derive(Default)]
pub(super) struct Deferred {
    text: String,
    values: Values,
}

impl Deferred {
    /// These, and behind them one more statement.
    fn before(&mut self, text: &str, values: Values) -> (String, Values) {
        let mut whole = std::mem::take(self);
        whole.text.push_str(text);
        whole.values.append(values);
        (whole.text, whole.values)
    }
}

impl<'c> Connection<'c> {
    /// To the embedded database.
    pub(super) fn sqlite(connection: &'c mut SqliteConnection) -> Self {
        Connection::Sqlite { connection, deferred: Deferred::default() }
    }
}

impl Connection<'_> {
    /// Whom statements are for.
    pub(super) fn engine(&self) -> Engine {
        match self {
            Connection::Sqlite { .. } => Engine::Sqlite,
            Connection::MySql { engine, .. } => *engine,
        }
    }

    /// The same connection, for a transaction that begins and ends with it.
    pub(super) fn reborrow(&mut self) -> Connection<'_> {
        match self {
            Connection::Sqlite { connection, deferred } => {
                assert!(deferred.text.is_empty(), "no transaction is under way");
                Connection::sqlite(connection)
            }
            Connection::MySql { connection, engine } => Connection::MySql { connection, engine: *engine },
        }
    }

    /// Begins a transaction: on SQLite as the one that will write.
    pub(super) async fn begin(&mut self) -> Result<(), sqlx::Error> {
        self.run(self.engine().pick("BEGIN IMMEDIATE", "START TRANSACTION")).await
    }

    /// Makes a transaction durable.
    pub(super) async fn commit(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Connection::Sqlite { connection, deferred } => {
                let (text, values) = deferred.before("COMMIT", Values::default());
                let committed = sqlx::query_with(AssertSqlSafe(text), values.into_sqlite());
                committed.execute(&mut **connection).await.map(|_| ())
            }
            Connection::MySql { .. } => self.run("COMMIT").await,
        }
    }

    /// Undoes a transaction.
    pub(super) async fn rollback(&mut self) -> Result<(), sqlx::Error> {
        if let Connection::Sqlite { deferred, .. } = self {
            *deferred = Deferred::default();
        }
        self.run("ROLLBACK").await
    }

    /// Writes, at the latest before the next statement that is asked for its outcome, or with the commit.
    pub(super) async fn write(&mut self, text: &'static str, values: Values) -> Result<(), sqlx::Error> {
        match self {
            Connection::Sqlite { deferred, .. } => {
                (deferred.text, deferred.values) = deferred.before(text, values);
                deferred.text.push(';');
                Ok(())
            }
            Connection::MySql { .. } => self.execute(text, values).await.map(|_| ()),
        }
    }

    /// Does the writes that wait.
    async fn flush(&mut self) -> Result<(), sqlx::Error> {
        if let Connection::Sqlite { connection, deferred } = self
            && !deferred.text.is_empty()
        {
            let Deferred { text, values } = std::mem::take(deferred);
            sqlx::query_with(AssertSqlSafe(text), values.into_sqlite()).execute(&mut **connection).await?;
        }
        Ok(())
    }

    /// Runs a statement that is no query, without preparing it.
    pub(super) async fn run(&mut self, text: &'static str) -> Result<(), sqlx::Error> {
        match self {
            Connection::Sqlite { connection, .. } => sqlx::raw_sql(text).execute(&mut **connection).await.map(|_| ()),
            Connection::MySql { connection, .. } => sqlx::raw_sql(text).execute(&mut **connection).await.map(|_| ()),
        }
    }

    /// Runs a statement. Returns how many rows it concerned: those that it found, changed by it or not.
    pub(super) async fn execute(&mut self, text: impl SqlSafeStr, values: Values) -> Result<u64, sqlx::Error> {
        self.flush().await?;
        Ok(match self {
            Connection::Sqlite { connection, .. } => {
                sqlx::query_with(text, values.into_sqlite()).execute(&mut **connection).await?.rows_affected()
            }
            Connection::MySql { connection, .. } => {
                sqlx::query_with(text, values.into_mysql()).execute(&mut **connection).await?.rows_affected()
            }
        })
    }

    /// Reads all rows that a statement gives.
    pub(super) async fn fetch_all(&mut self, text: impl SqlSafeStr, values: Values) -> Result<Vec<Row>, sqlx::Error> {
        self.flush().await?;
        Ok(match self {
            Connection::Sqlite { connection, .. } => {
                let rows = sqlx::query_with(text, values.into_sqlite()).fetch_all(&mut **connection).await?;
                rows.into_iter().map(Row::Sqlite).collect()
            }
            Connection::MySql { connection, .. } => {
                let rows = sqlx::query_with(text, values.into_mysql()).fetch_all(&mut **connection).await?;
                rows.into_iter().map(Row::MySql).collect()
            }
        })
    }

    /// Reads the first row that a statement gives, if it gives any.
    pub(super) async fn fetch_optional(
        &mut self,
        text: impl SqlSafeStr,
        values: Values,
    ) -> Result<Option<Row>, sqlx::Error> {
        self.flush().await?;
        Ok(match self {
            Connection::Sqlite { connection, .. } => {
                let row = sqlx::query_with(text, values.into_sqlite()).fetch_optional(&mut **connection).await?;
                row.map(Row::Sqlite)
            }
            Connection::MySql { connection, .. } => {
                let row = sqlx::query_with(text, values.into_mysql()).fetch_optional(&mut **connection).await?;
                row.map(Row::MySql)
            }
        })
    }

    /// Reads the one row that a statement gives.
    pub(super) async fn fetch_one(&mut self, text: impl SqlSafeStr, values: Values) -> Result<Row, sqlx::Error> {
        self.fetch_optional(text, values).await?.ok_or(sqlx::Error::RowNotFound)
    }
}

/// A row that either engine gave.
pub(super) enum Row {
    Sqlite(SqliteRow),
    MySql(MySqlRow),
}

/// A value that both drivers read from a column.
pub(super) trait Column<'r>: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, MySql> + Type<MySql> {}

impl<'r, T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, MySql> + Type<MySql>> Column<'r> for T {}

impl Row {
    /// The value of a column, by its place.
    pub(super) fn value<'r, T: Column<'r>>(&'r self, index: usize) -> Result<T, sqlx::Error> {
        match self {
            Row::Sqlite(row) => row.try_get(index),
            Row::MySql(row) => row.try_get(index),
        }
    }
}
