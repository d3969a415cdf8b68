//! The reader pool: connections that only read, for reads that decide nothing.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{MySql, Sqlite, SqlitePool};

use super::connection::Connection;
use super::dialect::Engine;
use super::file_identity::FileIdentity;
use super::schema;
use super::server::Server;
use crate::env::Env;

/// The pool.
pub(in crate::store) struct Readers {
    connections: u32,
    timeout: Duration,
    pool: Pool,
    env: Env,
    waits: Waits,
}

/// Waits for a connection since they were last taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolWaits {
    /// The longest of those that ended.
    pub longest: Duration,
    /// How many ended without a connection.
    pub given_up: u64,
}

#[derive(Default)]
struct Waits {
    longest_micros: AtomicU64,
    given_up: AtomicU64,
}

enum Pool {
    /// Over the file that the writer writes.
    File { path: PathBuf, current: RwLock<(FileIdentity, SqlitePool)> },
    /// Over a server.
    Server { pool: MySqlPool, engine: Engine },
}

/// A connection of the pool. Goes back when it is dropped, unless it is [`Reader::in_doubt`].
pub(in crate::store) struct Reader {
    connection: Option<Pooled>,
    in_doubt: bool,
}

enum Pooled {
    File(PoolConnection<Sqlite>),
    Server(PoolConnection<MySql>, Engine),
}

impl Reader {
    fn of(connection: Pooled) -> Self {
        Self { connection: Some(connection), in_doubt: false }
    }

    pub(in crate::store) fn connection(&mut self) -> Connection<'_> {
        match self.connection.as_mut().expect("it is taken when it is dropped") {
            Pooled::File(connection) => Connection::sqlite(connection),
            Pooled::Server(connection, engine) => Connection::MySql { connection, engine: *engine },
        }
    }

    /// From here on the connection is closed if this is dropped: whoever asks may stop waiting, and a connection whose
    /// server has silently gone would be waited for by whoever has it next.
    pub(in crate::store) fn in_doubt(mut self) -> Self {
        self.in_doubt = true;
        self
    }

    /// What was asked is answered.
    pub(in crate::store) fn is_answered(&mut self) {
        self.in_doubt = false;
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        match self.connection.take() {
            Some(Pooled::Server(connection, _)) if self.in_doubt => drop(connection.detach()),
            Some(_) | None => {}
        }
    }
}

impl Readers {
    pub(in crate::store) fn of_file(
        path: PathBuf,
        connections: u32,
        timeout: Duration,
        env: Env,
    ) -> std::io::Result<Self> {
        let file = FileIdentity::of(&path)?;
        let current = RwLock::new((file, file_pool(&path, connections, timeout)));
        Ok(Self { connections, timeout, pool: Pool::File { path, current }, env, waits: Waits::default() })
    }

    pub(in crate::store) fn of_server(server: &Arc<Server>, connections: u32, timeout: Duration, env: Env) -> Self {
        let pool = MySqlPoolOptions::new()
            .max_connections(connections.max(1))
            .acquire_timeout(timeout)
            .connect_lazy_with(server.options());
        let pool = Pool::Server { pool, engine: server.engine() };
        Self { connections, timeout, pool, env, waits: Waits::default() }
    }

    /// How many connections there are at most.
    #[cfg(test)]
    pub(in crate::store) fn connections(&self) -> u32 {
        self.connections
    }

    /// How long a read waits for a connection, and one that is bounded for its answer.
    pub(in crate::store) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What is read from.
    pub(in crate::store) fn engine(&self) -> Engine {
        match &self.pool {
            Pool::File { .. } => Engine::Sqlite,
            Pool::Server { engine, .. } => *engine,
        }
    }

    /// Waits for a connection.
    pub(in crate::store) async fn acquire(&self) -> Result<Reader, sqlx::Error> {
        let since = self.env.clock.monotonic();
        let reader = self.acquire_one().await;
        let waited = self.env.clock.monotonic().saturating_sub(since);
        let waited = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.waits.longest_micros.fetch_max(waited, Ordering::Relaxed);
        if matches!(reader, Err(sqlx::Error::PoolTimedOut)) {
            self.waits.given_up.fetch_add(1, Ordering::Relaxed);
        }
        reader
    }

    /// How long it took to get one since this was last asked.
    pub(in crate::store) fn take_waits(&self) -> PoolWaits {
        PoolWaits {
            longest: Duration::from_micros(self.waits.longest_micros.swap(0, Ordering::Relaxed)),
            given_up: self.waits.given_up.swap(0, Ordering::Relaxed),
        }
    }

    async fn acquire_one(&self) -> Result<Reader, sqlx::Error> {
        match &self.pool {
            Pool::File { current, .. } => {
                let pool = current.read().unwrap_or_else(PoisonError::into_inner).1.clone();
                Ok(Reader::of(Pooled::File(pool.acquire().await?)))
            }
            Pool::Server { pool, engine } => Ok(Reader::of(Pooled::Server(pool.acquire().await?, *engine))),
        }
    }

    /// Moves to the file that the writer writes now, if it is another one.
    pub(in crate::store) fn follow(&self, file: &FileIdentity) {
        let Pool::File { path, current } = &self.pool else { return };
        let mut current = current.write().unwrap_or_else(PoisonError::into_inner);
        if current.0 != *file {
            *current = (*file, file_pool(path, self.connections, self.timeout));
        }
    }

    pub(in crate::store) async fn close(&self) {
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
