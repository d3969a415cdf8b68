//! A writer's connection: where it comes from, and what holds as long as it does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::Connection as _;
use sqlx::mysql::MySqlConnection;
use sqlx::sqlite::SqliteConnection;

use super::authority::Authority;
use super::durability::Log;
use super::wal_checkpoint;
use crate::model::time::Timestamp;
use crate::store::LeaseTime;
use crate::store::engine::connection::{Connection, database_now};
use crate::store::engine::dialect::Engine;
use crate::store::engine::file_identity::FileIdentity;
use crate::store::engine::readers::Readers;
use crate::store::engine::schema;
use crate::store::engine::sequences::Sequences;
use crate::store::engine::server::{Isolation, Server};

/// Where a writer's connections come from.
#[derive(Clone)]
pub(in crate::store) enum Source {
    /// The file in the data directory. Only one process writes to it.
    File(PathBuf),
    /// A server, which others write to as well.
    Server(Arc<Server>, Isolation),
}

impl Source {
    /// Connects, to a database that is as this process left it or, at least, one of the same shape.
    pub(in crate::store) async fn connect(&self, shards: u16, readers: &Readers) -> Result<Link, sqlx::Error> {
        let database = match self {
            Source::File(path) => {
                let database = Database::file(schema::reconnect(path, shards).await?, path).await?;
                if let Database::File { file, .. } = &database {
                    readers.follow(file);
                }
                database
            }
            Source::Server(server, isolation) => {
                let connection = server.connect(*isolation).await?;
                Database::Server { connection, engine: server.engine() }
            }
        };
        Link::new(database).await
    }

    /// Whether a connection still leads to what has the database's name.
    fn is_behind(&self, link: &Link) -> bool {
        match (self, &link.database) {
            (Source::File(path), Database::File { file, .. }) => {
                FileIdentity::of(path).is_ok_and(|current| current == *file)
            }
            (Source::File(_) | Source::Server(..), _) => true,
        }
    }

    /// Drops a connection that leads to a file which was moved away.
    pub(in crate::store) fn check(&self, link: Option<Link>) -> Option<Link> {
        link.filter(|link| self.is_behind(link))
    }
}

/// A connection, and what holds only as long as it does.
pub(in crate::store) struct Link {
    database: Database,
    pub(in crate::store) sequences: Sequences,
    pub(in crate::store) authority: Authority,
}

enum Database {
    File { connection: SqliteConnection, file: FileIdentity, log: Arc<Log> },
    Server { connection: MySqlConnection, engine: Engine },
}

impl Database {
    /// The embedded database, on a connection that leaves it to `durability` to make what it commits durable.
    async fn file(mut connection: SqliteConnection, path: &Path) -> Result<Self, sqlx::Error> {
        let file = FileIdentity::of(path)?;
        let log = Arc::new(Log::beside(path)?);
        sqlx::raw_sql("PRAGMA synchronous = NORMAL").execute(&mut connection).await?;
        Ok(Self::File { connection, file, log })
    }

    fn connection(&mut self) -> Connection<'_> {
        match self {
            Database::File { connection, .. } => Connection::sqlite(connection),
            Database::Server { connection, engine } => Connection::MySql { connection, engine: *engine },
        }
    }
}

impl Link {
    async fn new(mut database: Database) -> Result<Self, sqlx::Error> {
        let sequences = Sequences::load(&mut database.connection()).await?;
        Ok(Self { database, sequences, authority: Authority::default() })
    }

    /// The embedded database, opened and up to date.
    pub(in crate::store) async fn file(connection: SqliteConnection, path: &Path) -> Result<Self, sqlx::Error> {
        Self::new(Database::file(connection, path).await?).await
    }

    /// What has to be synced before a commit is durable.
    pub(in crate::store) fn log(&self) -> Option<Arc<Log>> {
        match &self.database {
            Database::File { log, .. } => Some(Arc::clone(log)),
            Database::Server { .. } => None,
        }
    }

    pub(in crate::store) fn connection(&mut self) -> Connection<'_> {
        self.database.connection()
    }

    /// Prepares for a transaction over `rows` rows. Returns what the database says the time is, if leases go by it.
    pub(in crate::store) async fn prepare(
        &mut self,
        rows: usize,
        lease_time: LeaseTime,
    ) -> Result<Option<Timestamp>, sqlx::Error> {
        let mut connection = self.database.connection();
        if connection.engine() == Engine::Sqlite {
            return Ok(None);
        }
        self.sequences.stock(&mut connection, rows).await?;
        database_now(&mut connection, lease_time).await
    }

    /// Folds the rest of the embedded database's log into it. Nobody writes meanwhile, so the next transaction begins a
    /// new log.
    pub(in crate::store) async fn restart_log(&mut self) -> Result<(), sqlx::Error> {
        match &mut self.database {
            Database::File { connection, .. } => wal_checkpoint::finish(connection).await,
            Database::Server { .. } => Ok(()),
        }
    }

    /// Closes the connection, and leaves the embedded database without a log.
    pub(in crate::store) async fn close(self) -> Result<(), sqlx::Error> {
        match self.database {
            Database::File { mut connection, .. } => {
                if let Err(error) = wal_checkpoint::truncate(&mut connection).await {
                    tracing::warn!(%error, "the log stays beside the database");
                }
                connection.close().await
            }
            Database::Server { connection, .. } => connection.close().await,
        }
    }
}
