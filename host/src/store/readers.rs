//! The reader pool: connections that only read, for reads that decide nothing.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::SqlitePoolOptions;

use super::file::FileIdentity;
use super::schema;

/// The pool, over the file that the writer writes.
pub(super) struct Readers {
    path: PathBuf,
    connections: u32,
    timeout: Duration,
    current: RwLock<(FileIdentity, SqlitePool)>,
}

impl Readers {
    pub(super) fn new(path: PathBuf, connections: u32, timeout: Duration) -> std::io::Result<Self> {
        let file = FileIdentity::of(&path)?;
        let pool = pool(&path, connections, timeout);
        Ok(Self { path, connections, timeout, current: RwLock::new((file, pool)) })
    }

    pub(super) fn pool(&self) -> SqlitePool {
        self.current.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Moves to the file that the writer writes now, if it is another one.
    pub(super) fn follow(&self, file: &FileIdentity) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.0 != *file {
            *current = (*file, pool(&self.path, self.connections, self.timeout));
        }
    }

    pub(super) async fn close(&self) {
        self.pool().close().await;
    }
}

fn pool(path: &std::path::Path, connections: u32, timeout: Duration) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(connections.max(1))
        .acquire_timeout(timeout)
        // The file is local: a connection does not go stale by itself.
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(schema::reader_options(path))
}
