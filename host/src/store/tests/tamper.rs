//! Changes to the database behind the store's back.

use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use super::Fixture;

/// Another connection to a store's database, as a person with a shell has.
pub(crate) struct Tampering(pub(super) SqliteConnection);

impl Tampering {
    pub(super) async fn with(fixture: &Fixture) -> Self {
        Self::in_directory(&fixture.directory.path().join("data")).await
    }

    /// With the database of the store in the directory `data`.
    pub(crate) async fn in_directory(data: &Path) -> Self {
        let path = data.join("forebay.sqlite");
        Self(SqliteConnectOptions::new().filename(path).connect().await.unwrap())
    }

    pub(crate) async fn execute(&mut self, statement: &str) {
        sqlx::query(AssertSqlSafe(statement)).execute(&mut self.0).await.unwrap();
    }

    pub(super) async fn count(&mut self, query: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut self.0).await.unwrap()
    }

    pub(super) async fn close(self) {
        self.0.close().await.unwrap();
    }
}
