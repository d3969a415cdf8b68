//! Checkpoints: folding the write-ahead log into the database.
//!
//! A commit never does it. A task of its own copies what is in the log, on a connection of its own, while commits go on
//! (PASSIVE). Under steady load a few frames are always newer than its copy, and the log would grow for ever; so once
//! nearly all of it is copied it asks the writer to copy the rest, which takes no longer than a large commit, and the
//! next commit restarts the log.

use std::path::PathBuf;
use std::sync::Arc;

use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions, Row};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::kinds::{Control, Order};
use crate::env::spawn;
use crate::store::engine::schema;

/// How much is written, by estimate, between two checkpoints.
const CHECKPOINT_BYTES: usize = 8 * 1024 * 1024;

/// What a row costs besides bodies, by estimate: its share of the pages of tables and indexes.
const ROW_BYTES: usize = 8 * 1024;

/// The log is restarted once it has this many frames (of about 8 KiB)...
const RESTART_FRAMES_MIN: i64 = 2_048;

/// ...and at most this many of them are left to copy...
const RESTART_REST_MAX: i64 = 512;

/// ...or, whatever it costs the next commit, once it has this many: the log is bounded.
const LOG_FRAMES_MAX: i64 = 65_536;

/// The writer's hold of the checkpoint task.
pub(in crate::store) struct Checkpointer {
    due: Arc<Notify>,
    written: usize,
    task: JoinHandle<()>,
}

impl Checkpointer {
    /// Counts what a commit wrote, and calls the task when it is enough.
    pub(in crate::store) fn written(&mut self, rows: usize, body_bytes: usize) {
        self.written += rows * ROW_BYTES + body_bytes;
        if self.written >= CHECKPOINT_BYTES {
            self.written = 0;
            self.due.notify_one();
        }
    }

    /// Ends the task.
    pub(in crate::store) async fn stop(self) {
        self.task.abort();
        // Cancelled is how it ends.
        let _ = self.task.await;
    }
}

/// Starts the task.
pub(in crate::store) fn start(path: PathBuf, writer: mpsc::WeakSender<Control>) -> Checkpointer {
    let due = Arc::new(Notify::new());
    let task = spawn("store-checkpoint", run(path, Arc::clone(&due), writer));
    Checkpointer { due, written: 0, task }
}

async fn run(path: PathBuf, due: Arc<Notify>, writer: mpsc::WeakSender<Control>) {
    loop {
        due.notified().await;
        match copy(&path).await {
            Ok(log) if log.is_to_restart() => {
                let Some(writer) = writer.upgrade() else { return };
                // A full queue is a busy writer: the next checkpoint asks again.
                let _ = writer.try_send(Control::Writer(Order::RestartLog));
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "a checkpoint failed"),
        }
    }
}

/// A connection for each checkpoint: it costs little compared with the copying, and follows a file that was replaced.
async fn copy(path: &std::path::Path) -> Result<Log, sqlx::Error> {
    let mut connection = schema::checkpoint_options(path).connect().await?;
    let log = checkpoint(&mut connection, "PRAGMA wal_checkpoint(PASSIVE)").await?;
    sqlx::Connection::close(connection).await?;
    Ok(log)
}

/// How far the log is copied.
#[derive(Debug, Clone, Copy)]
struct Log {
    frames: i64,
    copied: i64,
}

impl Log {
    fn is_to_restart(self) -> bool {
        let nearly_copied = self.frames >= RESTART_FRAMES_MIN && self.frames - self.copied <= RESTART_REST_MAX;
        nearly_copied || self.frames >= LOG_FRAMES_MAX
    }
}

async fn checkpoint(connection: &mut SqliteConnection, statement: &'static str) -> Result<Log, sqlx::Error> {
    let row = sqlx::query(statement).fetch_one(connection).await?;
    Ok(Log { frames: row.try_get(1)?, copied: row.try_get(2)? })
}

/// The writer's part: copies what is left. The next transaction begins the log anew unless a reader still needs it.
pub(in crate::store) async fn finish(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)").await.map(|_| ())
}

/// Copies everything and empties the log.
pub(in crate::store) async fn truncate(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    checkpoint(connection, "PRAGMA wal_checkpoint(TRUNCATE)").await.map(|_| ())
}
