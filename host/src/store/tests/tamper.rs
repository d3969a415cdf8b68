//! What is done to a database behind the store's back, and what is seen there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::mysql::MySqlConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection as _};

use super::Fixture;
use crate::model::queue::QueueClasses;
use crate::store::ClaimRequest;
use crate::store::claiming;
use crate::store::connection::Connection;
use crate::store::dialect::Engine;
use crate::store::sequences::Sequences;
use crate::store::server::{Isolation, Server};
use crate::store::stored::Values;
use crate::store::unit::{Terms, Unit};

/// Another connection to a store's database, as a person with a shell has.
pub(crate) enum Tampering {
    Sqlite(SqliteConnection),
    MariaDb(MySqlConnection),
}

impl Tampering {
    pub(super) async fn with(fixture: &Fixture) -> Self {
        if let Some(url) = &fixture.options.database_url {
            let server = Server::open(url, fixture.store.shard_count(), 0).await.unwrap();
            return Self::MariaDb(server.connect(Isolation::Snapshot).await.unwrap());
        }
        Self::in_directory(&fixture.directory.path().join("data")).await
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

    pub(super) async fn count(&mut self, query: &str) -> i64 {
        self.connection().fetch_one(query, Values::default()).await.unwrap().value(0).unwrap()
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

impl Fixture {
    /// What the engine does for a claim of 32 rows, which is then undone: virtual machine steps of SQLite, rows that a
    /// server's handlers read.
    pub(super) async fn claim_cost(&self) -> u64 {
        self.claim_cost_of(QueueClasses::ALL).await
    }

    /// The same for a claim of these classes.
    pub(super) async fn claim_cost_of(&self, classes: QueueClasses) -> u64 {
        let mut tampering = Tampering::with(self).await;
        let mut cost = 0;
        // The second time, the pages are cached and the statements prepared.
        for _ in 0..2 {
            let counter = Arc::new(AtomicU64::new(0));
            if let Tampering::Sqlite(connection) = &mut tampering {
                let counted = Arc::clone(&counter);
                connection.lock_handle().await.unwrap().set_progress_handler(1, move || {
                    counted.fetch_add(1, Ordering::Relaxed);
                    true
                });
            }
            let before = tampering.rows_read().await;
            self.claim_and_undo(&mut tampering, classes).await;
            cost = tampering.rows_read().await - before + counter.load(Ordering::Relaxed);
            if let Tampering::Sqlite(connection) = &mut tampering {
                connection.lock_handle().await.unwrap().remove_progress_handler();
            }
        }
        tampering.close().await;
        cost
    }

    async fn claim_and_undo(&self, tampering: &mut Tampering, classes: QueueClasses) {
        let mut connection = tampering.connection();
        connection.begin().await.unwrap();
        let terms = Terms { shard_count: 1, stripe: 0, database_now: None };
        let mut unit = Unit::new(connection, Sequences::default(), terms, 0);
        let answers = claiming::apply(&mut unit, vec![ClaimRequest { classes, ..self.request(32) }]).await.unwrap();
        assert_eq!(answers[0].as_ref().unwrap().len(), 32);
        unit.connection.rollback().await.unwrap();
    }
}

impl Tampering {
    /// Rows that the server has read for this session; 0 where there is no server.
    async fn rows_read(&mut self) -> u64 {
        let Self::MariaDb(_) = self else { return 0 };
        let text = "SELECT CAST(sum(variable_value) AS SIGNED) FROM information_schema.session_status \
                    WHERE variable_name LIKE 'HANDLER_READ%'";
        u64::try_from(self.count(text).await).unwrap()
    }
}
