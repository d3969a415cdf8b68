//! The reader pool: connections that only read, for reads that decide nothing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{MySql, Sqlite, SqlitePool};

use super::connection::Connection;
use super::dialect::Engine;
use super::file::FileIdentity;
use super::schema;
use super::server::Server;

/// The pool.
pub(super) struct Readers {
    connections: u32,
    timeout: Duration,
    pool: Pool,
}

enum Pool {
    /// Over the file that the writer writes.
    File { path: PathBuf, current: RwLock<(FileIdentity, SqlitePool)> },
    /// Over a server.
    Server { pool: MySqlPool, engine: Engine },
}

/// A connection of the pool. Goes back when it is dropped.
pub(super) enum Reader {
    File(PoolConnection<Sqlite>),
    Server(PoolConnection<MySql>, Engine),
}

impl Reader {
    pub(super) fn connection(&mut self) -> Connection<'_> {
        match self {
            Reader::File(connection) => Connection::sqlite(connection),
            Reader::Server(connection, engine) => Connection::MySql { connection, engine: *engine },
        }
    }
}

impl Readers {
    pub(super) fn of_file(path: PathBuf, connections: u32, timeout: Duration) -> std::io::Result<Self> {
        let file = FileIdentity::of(&path)?;
        let current = RwLock::new((file, file_pool(&path, connections, timeout)));
        Ok(Self { connections, timeout, pool: Pool::File { path, current } })
    }

    pub(super) fn of_server(server: &Arc<Server>, connections: u32, timeout: Duration) -> Self {
        let pool = MySqlPoolOptions::new()
            .max_connections(connections.max(1))
            .acquire_timeout(timeout)
            .connect_lazy_with(server.options());
        Self { connections, timeout, pool: Pool::Server { pool, engine: server.engine() } }
    }

    /// What is read from.
    pub(super) fn engine(&self) -> Engine {
        match &self.pool {
            Pool::File { .. } => Engine::Sqlite,
            Pool::Server { engine, .. } => *engine,
        }
    }

    pub(super) async fn acquire(&self) -> Result<Reader, sqlx::Error> {
        match &self.pool {
            Pool::File { current, .. } => {
                let pool = current.read().unwrap_or_else(PoisonError::into_inner).1.clone();
                Ok(Reader::File(pool.acquire().await?))
            }
            Pool::Server { pool, engine } => Ok(Reader::Server(pool.acquire().await?, *engine)),
        }
    }

    /// Moves to the file that the writer writes now, if it is another one.
    pub(super) fn follow(&self, file: &FileIdentity) {
        let Pool::File { path, current } = &self.pool else { return };
        let mut current = current.write().unwrap_or_else(PoisonError::into_inner);
        if current.0 != *file {
            *current = (*file, file_pool(path, self.connections, self.timeout));
        }
    }

    pub(super) async fn close(&self) {
        match &self.pool {
            Pool::File { current, .. } => {
                let pool = current.read().unwrap_or_else(PoisonError::into_inner).1.clone();
                pool.close().await;
            }
            Pool::Server { pool, .. } => pool.close().await,
        }
    }
}

fn file_pool(path: &Path, connections: u32, timeout: Duration) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(connections.max(1))
        .acquire_timeout(timeout)
        // The file is local: a connection does not go stale by itself.
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(schema::reader_options(path))
}
