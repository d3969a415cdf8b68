//! What is done to a database behind the store's back, and what is seen there.

use std::path::Path;

use sqlx::mysql::MySqlConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection as _};

use super::Fixture;
use crate::store::Patience;
use crate::store::engine::connection::Connection;
use crate::store::engine::dialect::Engine;
use crate::store::engine::schema;
use crate::store::engine::server::{Isolation, Server};
use crate::store::engine::values::Values;

/// Another connection to a store's database, as a person with a shell has.
pub(crate) enum Tampering {
    Sqlite(SqliteConnection),
    MariaDb(MySqlConnection),
}

impl Tampering {
    pub(super) async fn with(fixture: &Fixture) -> Self {
        if let Some(url) = &fixture.options.database_url {
            let patience = Patience { idle: None, ..fixture.options.patience };
            let server = Server::open(url, fixture.store.shard_count(), 0, patience).await.unwrap();
            return Self::MariaDb(server.connect(Isolation::Snapshot).await.unwrap());
        }
        // With the writer's settings: what is measured here is planned as it is there.
        let path = fixture.directory.path().join("data").join("forebay.sqlite");
        Self::Sqlite(schema::writer_options(&path).connect().await.unwrap())
    }

    /// With the database of the store in the directory `data`.
    pub(crate) async fn in_directory(data: &Path) -> Self {
        let path = data.join("forebay.sqlite");
        Self::Sqlite(SqliteConnectOptions::new().filename(path).connect().await.unwrap())
    }

    /// With a file that some other program made.
    pub(super) async fn created(path: &Path) -> Self {
        Self::Sqlite(SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.unwrap())
    }

    pub(super) fn connection(&mut self) -> Connection<'_> {
        match self {
            Self::Sqlite(connection) => Connection::sqlite(connection),
            Self::MariaDb(connection) => Connection::MySql { connection, engine: Engine::MySql { shares_locks: true } },
        }
    }

    pub(crate) async fn execute(&mut self, statement: &str) {
        self.connection().execute(statement, Values::default()).await.unwrap();
    }

    pub(crate) async fn count(&mut self, query: &str) -> i64 {
        self.connection().read_one(query, Values::default()).await.unwrap()
    }

    /// Keeps everybody from storing deliveries, until [`Tampering::let_go`].
    pub(super) async fn hold_deliveries(&mut self) {
        let mut connection = self.connection();
        let hold = connection.engine().pick("SELECT 1 FROM namespace", "SELECT 1 FROM namespace FOR UPDATE");
        connection.begin().await.unwrap();
        connection.fetch_all(hold, Values::default()).await.unwrap();
    }

    pub(super) async fn let_go(&mut self) {
        self.connection().rollback().await.unwrap();
    }

    pub(super) async fn close(self) {
        match self {
            Self::Sqlite(connection) => connection.close().await.unwrap(),
            Self::MariaDb(connection) => connection.close().await.unwrap(),
        }
    }
}
