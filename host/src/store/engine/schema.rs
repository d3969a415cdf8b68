//! The files of the store: the directory's lock, the connections' settings, and the schema's version.

use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection};

use super::codes::sql;
use super::server::{self, DatabaseUrl};
use crate::store::StoreError;

/// The database, in the data directory.
const DATABASE_FILE: &str = "forebay.sqlite";

/// The lock, in the data directory. A file of its own: closing any handle to the database file would drop SQLite's
/// locks.
const LOCK_FILE: &str = "forebay.lock";

/// Of a data directory that is made: readable and writable by the host's user only.
const DIRECTORY_MODE: u32 = 0o700;

/// What the first migration writes into the file's header: "Fbay".
const APPLICATION_ID: i64 = 0x4662_6179;

/// The largest database that is checked whole when it is opened: reading it takes well under a second.
const QUICK_CHECK_BYTES_MAX: i64 = 64 * 1024 * 1024;

/// How long the writer waits when another program holds the database. Long enough for a backup to finish a step, short
/// enough to tell callers soon.
const WRITER_BUSY_MAX: Duration = Duration::from_secs(1);

/// How long a reader waits: WAL readers wait for next to nothing.
const READER_BUSY_MAX: Duration = Duration::from_secs(1);

/// Of a database that is made: a body of some kilobytes has a page of its own, where one half as large needs a chain of
/// them.
const PAGE_BYTES: u32 = 8 * 1024;

/// Prepared statements kept a connection: more than there are texts.
const STATEMENTS_MAX: usize = 512;

/// Rows that the driver's thread may be ahead of us: a whole claim or feed page without waiting for one another.
const ROW_BUFFER: usize = 1_024;

static MIGRATOR: Migrator = sqlx::migrate!("../migrations/sqlite");

/// What [`migrate`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationReport {
    /// The schema's version before; 0 for a new store.
    pub from: i64,
    /// Its version now.
    pub to: i64,
    /// What was applied, in order: version and description.
    pub applied: Vec<(i64, String)>,
}

/// Whether the directory `data` has no database, or one in which nothing was ever written.
pub fn is_missing(data: &Path) -> bool {
    let is_empty = |name: &str| std::fs::metadata(data.join(name)).is_ok_and(|metadata| metadata.len() == 0);
    let is_absent = |name: &str| !data.join(name).exists();
    let log = format!("{DATABASE_FILE}-wal");
    is_absent(DATABASE_FILE) || is_empty(DATABASE_FILE) && (is_absent(&log) || is_empty(&log))
}

/// Brings the schema of the store up to date: that of the database of `url`, or else of the one in the directory
/// `data`.
///
/// A server's database may be new; a directory must hold a database, for one that was mistyped is to stay what it is.
/// Fails, and changes nothing, if another process uses the directory, if the schema is newer than this binary, or if
/// the database is not a healthy one of Forebay's.
pub async fn migrate(data: &Path, url: Option<&DatabaseUrl>) -> Result<MigrationReport, StoreError> {
    if let Some(url) = url {
        return server::migrate(url).await;
    }
    if is_missing(data) {
        return Err(StoreError::Unusable(format!(
            "there is no store in {}: the first start of a host makes one, with its schema up to date",
            data.display()
        )));
    }
    let directory = Directory::lock(data)?;
    let mut connection = directory.create().await?;
    let report = bring_up_to_date(&mut connection, &directory.database()).await?;
    connection.close().await?;
    Ok(report)
}

/// A data directory that this process alone may use, as long as this lives.
#[derive(Debug)]
pub(in crate::store) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    pub(in crate::store) fn lock(path: &Path) -> Result<Self, StoreError> {
        Self::try_lock(path)?.ok_or_else(|| {
            StoreError::Unusable(format!(
                "another process uses the data directory {}: stop it first, or choose another directory",
                path.display()
            ))
        })
    }

    /// Locks the directory, unless another process has it.
    pub(in crate::store) fn try_lock(path: &Path) -> Result<Option<Self>, StoreError> {
        let unusable = |error: std::io::Error| {
            StoreError::Unusable(format!("the data directory {} cannot be used: {error}", path.display()))
        };
        // What it holds belongs to the host's user alone.
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path).map_err(unusable)?;
        let file = path.join(LOCK_FILE);
        let lock = File::options().create(true).truncate(false).write(true).open(&file).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { path: path.to_owned(), _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(unusable(error)),
        }
    }

    pub(in crate::store) fn database(&self) -> PathBuf {
        self.path.join(DATABASE_FILE)
    }

    /// Connects to the database, and creates an empty one if there is none.
    pub(in crate::store) async fn create(&self) -> Result<SqliteConnection, StoreError> {
        let path = self.database();
        self.check_writable()?;
        let connected = writer_options(&path).create_if_missing(true).connect().await;
        connected.map_err(|error| unusable(&path, &error))
    }

    /// Refuses files that are there and cannot be written to: SQLite would open them, and say so at some later
    /// statement. Nobody has them open yet, so that no lock of SQLite's is lost by looking.
    fn check_writable(&self) -> Result<(), StoreError> {
        for ending in ["", "-wal", "-shm"] {
            let path = self.path.join(format!("{DATABASE_FILE}{ending}"));
            match File::options().write(true).open(&path) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(unwritable(&path, &error)),
            }
        }
        Ok(())
    }
}

/// Opens or creates the database for the writer, up to date and with `shards` shards.
pub(in crate::store) async fn open(directory: &Directory, shards: u16) -> Result<SqliteConnection, StoreError> {
    let mut connection = directory.create().await?;
    bring_up_to_date(&mut connection, &directory.database()).await?;
    settle_shards(&mut connection, shards).await?;
    Ok(connection)
}

/// Connects the writer again, to a database that is as this process left it or, at least, one of the same shape.
pub(in crate::store) async fn reconnect(path: &Path, shards: u16) -> Result<SqliteConnection, sqlx::Error> {
    let mut connection = writer_options(path).create_if_missing(false).connect().await?;
    let version = version(&mut connection).await?;
    if version == Version::Of(latest(&MIGRATOR)) && count_shards(&mut connection).await? == i64::from(shards) {
        return Ok(connection);
    }
    Err(sqlx::Error::Protocol(format!("{} is no longer the store that was opened", path.display())))
}

async fn count_shards(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT count(*) FROM shard").fetch_one(connection).await
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .foreign_keys(false)
        .statement_cache_capacity(STATEMENTS_MAX)
        .row_buffer_size(ROW_BUFFER)
        .pragma("temp_store", "MEMORY")
        // Else SQLite may think it clever to walk through a whole table once and to look each of its rows up in the
        // short list that a statement brings, by an index that it makes for that.
        .pragma("automatic_index", "OFF")
        .disable_statement_logging()
}

/// The connection that writes. With `synchronous=FULL` a commit is durable when it is made: migrations need it, and the
/// writer's connection has it until `durability` looks after that. The log is folded into the database by
/// `wal_checkpoint`, never by a commit.
pub(in crate::store) fn writer_options(path: &Path) -> SqliteConnectOptions {
    options(path)
        .thread_name(|_| "store-writer".to_owned())
        .page_size(PAGE_BYTES)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(WRITER_BUSY_MAX)
        .pragma("wal_autocheckpoint", "0")
        // 32 MiB: the upper levels of every index, and the pages at their growing ends.
        .pragma("cache_size", "-32768")
}

/// The connection that folds the log into the database.
pub(in crate::store) fn checkpoint_options(path: &Path) -> SqliteConnectOptions {
    writer_options(path).thread_name(|_| "store-checkpoint".to_owned()).pragma("cache_size", "-64")
}

/// A connection of the reader pool.
pub(in crate::store) fn reader_options(path: &Path) -> SqliteConnectOptions {
    options(path)
        .thread_name(|number| format!("store-reader-{number}"))
        .read_only(true)
        .busy_timeout(READER_BUSY_MAX)
        // 4 MiB each.
        .pragma("cache_size", "-4096")
}

/// What a database says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// It is empty.
    New,
    /// It is one of Forebay's.
    Of(i64),
    /// It belongs to another program.
    Foreign,
}

/// The newest version of the embedded database's schema.
pub(in crate::store) fn latest_version() -> i64 {
    latest(&MIGRATOR)
}

/// The newest version that a migrator knows.
pub(in crate::store) fn latest(migrator: &Migrator) -> i64 {
    migrator.iter().map(|migration| migration.version).max().unwrap_or(0)
}

async fn version(connection: &mut SqliteConnection) -> Result<Version, sqlx::Error> {
    let application: i64 = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut *connection).await?;
    if application == APPLICATION_ID {
        let version = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations WHERE success";
        return Ok(Version::Of(sqlx::query_scalar(version).fetch_one(connection).await?));
    }
    // The migrator's own table is all that an interrupted creation leaves.
    let tables =
        "SELECT count(*) FROM sqlite_schema WHERE name <> '_sqlx_migrations' AND tbl_name <> '_sqlx_migrations'";
    let tables: i64 = sqlx::query_scalar(tables).fetch_one(connection).await?;
    Ok(if application == 0 && tables == 0 { Version::New } else { Version::Foreign })
}

async fn bring_up_to_date(connection: &mut SqliteConnection, path: &Path) -> Result<MigrationReport, StoreError> {
    let report = outstanding(connection, path).await?;
    quick_check(connection, path).await?;
    MIGRATOR.run(&mut *connection).await.map_err(|error| match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => unusable(path, &error),
        error => unhealthy(path, &error),
    })?;
    Ok(report)
}

/// Connects to the database if there is one, and says what bringing it up to date would do. Changes nothing, and checks
/// a small one whole.
pub(in crate::store) async fn examine(
    directory: &Directory,
) -> Result<Option<(SqliteConnection, MigrationReport)>, StoreError> {
    let path = directory.database();
    if !path.exists() {
        return Ok(None);
    }
    directory.check_writable()?;
    // Without the writer's settings: a file of another program is left as it is.
    let connected = options(&path).create_if_missing(false).connect().await;
    let mut connection = connected.map_err(|error| unusable(&path, &error))?;
    let report = outstanding(&mut connection, &path).await?;
    quick_check(&mut connection, &path).await?;
    Ok(Some((connection, report)))
}

/// What bringing a database up to date will do. Refuses one of another program, and one of a newer binary.
async fn outstanding(connection: &mut SqliteConnection, path: &Path) -> Result<MigrationReport, StoreError> {
    let from = match version(connection).await.map_err(|error| unusable(path, &error))? {
        Version::New => 0,
        Version::Of(version) => version,
        Version::Foreign => {
            return Err(StoreError::Unusable(format!(
                "{} belongs to another program: move it away, or choose another data directory",
                path.display()
            )));
        }
    };
    report(&MIGRATOR, from, &path.display())
}

/// What bringing `database` up to date from version `from` will do. Refuses a schema of a newer binary.
pub(in crate::store) fn report(
    migrator: &Migrator,
    from: i64,
    database: &dyn std::fmt::Display,
) -> Result<MigrationReport, StoreError> {
    let to = latest(migrator);
    if from > to {
        return Err(StoreError::Unusable(format!(
            "the schema of {database} has version {from}, and this binary knows versions up to {to}: run the newer binary, \
             or restore a backup that was made before the upgrade"
        )));
    }
    let applied = migrator.iter().filter(|migration| migration.version > from);
    let applied = applied.map(|migration| (migration.version, migration.description.to_string())).collect();
    Ok(MigrationReport { from, to, applied })
}

/// Checks a small database whole. A large one is trusted for what reading its schema says: damage in its pages is found
/// when they are read.
async fn quick_check(connection: &mut SqliteConnection, path: &Path) -> Result<(), StoreError> {
    let damaged = |error: sqlx::Error| unusable(path, &error);
    let pages: i64 = sqlx::query_scalar("PRAGMA page_count").fetch_one(&mut *connection).await.map_err(damaged)?;
    let page: i64 = sqlx::query_scalar("PRAGMA page_size").fetch_one(&mut *connection).await.map_err(damaged)?;
    if pages.saturating_mul(page) > QUICK_CHECK_BYTES_MAX {
        return Ok(());
    }
    let found: String = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(connection).await.map_err(damaged)?;
    if found == "ok" { Ok(()) } else { Err(unhealthy(path, &found)) }
}

async fn settle_shards(connection: &mut SqliteConnection, shards: u16) -> Result<(), StoreError> {
    if shards == 0 {
        return Err(StoreError::Unusable("a store needs at least one shard".to_owned()));
    }
    let known = count_shards(connection).await?;
    if known == 0 {
        let mut creation = connection.begin().await?;
        for shard in 0..shards {
            sqlx::query("INSERT INTO shard (id, last_seq, epoch, lease_until) VALUES (?, 0, 0, 0)")
                .bind(shard)
                .execute(&mut *creation)
                .await?;
        }
        creation.commit().await?;
        return Ok(());
    }
    if known == i64::from(shards) {
        // The directory is locked: the former owner of a shard is gone, and its messages need not wait for its lease.
        sqlx::query("UPDATE shard SET owner = NULL WHERE owner IS NOT NULL").execute(&mut *connection).await?;
        // The same holds for claims: the next one takes these rows over, with a new epoch.
        sqlx::query(sql!("UPDATE work_item SET turn = 0 WHERE state = {processing} AND state IN ({claimable})"))
            .execute(&mut *connection)
            .await?;
        return Ok(());
    }
    check_shards(known, shards)
}

/// Refuses a number of shards other than that which a store was created with.
pub(in crate::store) fn check_shards(known: i64, shards: u16) -> Result<(), StoreError> {
    if known == i64::from(shards) {
        return Ok(());
    }
    Err(StoreError::Unusable(format!(
        "the store was created with {known} shards, and the configuration says {shards}: the number cannot be changed, set \
         it to {known}"
    )))
}

/// SQLite's codes for what its surroundings do to it, and not what is in its file: PERM, BUSY, LOCKED, NOMEM, READONLY,
/// INTERRUPT, IOERR, FULL, CANTOPEN (<https://www.sqlite.org/rescode.html>).
const SURROUNDINGS: [i64; 9] = [3, 5, 6, 7, 8, 9, 10, 13, 14];

/// Whether an error says nothing against what is in the file.
fn is_from_outside(error: &sqlx::Error) -> bool {
    let code = match error {
        sqlx::Error::Database(error) => error.code().and_then(|code| code.parse::<i64>().ok()),
        sqlx::Error::Io(_) => return true,
        _ => None,
    };
    // The low byte is the code, the rest says more about it.
    code.is_some_and(|code| SURROUNDINGS.contains(&(code & 0xff)))
}

/// Why a database cannot be opened. Only one that is damaged is to be replaced.
fn unusable(path: &Path, error: &sqlx::Error) -> StoreError {
    if is_from_outside(error) { unwritable(path, error) } else { unhealthy(path, error) }
}

fn unwritable(path: &Path, cause: &dyn std::fmt::Display) -> StoreError {
    StoreError::Unusable(format!(
        "{} cannot be used now ({cause}): let the host's user write to it and to its folder (chown, chmod u+w), and see that the \
         disk has room; nothing says that the database is damaged",
        path.display()
    ))
}

fn unhealthy(path: &Path, cause: &dyn std::fmt::Display) -> StoreError {
    StoreError::Unusable(format!(
        "{} is not a healthy Forebay database ({cause}): restore it from a backup, or move it and its `-wal` and `-shm` \
         files away to begin with an empty store",
        path.display()
    ))
}
