//! A server that speaks the MySQL protocol: its address, its behaviour, and its schema.
//!
//! Every start proves the behaviour of the server instead of trusting its version: some accept statements that they do
//! not obey.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{ConnectOptions, Connection as _};
use tokio::time::timeout;

use super::behaviour::{self, Proved, UNPROVED};
use super::connection::Connection;
use super::dialect::{Conflict, Engine};
use super::patience::Patience;
use super::schema::{MigrationReport, latest, report};
use super::statement::Statement;
use super::values::values;
use crate::store::StoreError;

/// The bound on the wait for a new connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The prepared statements that a connection keeps: more than there are texts.
const STATEMENTS_MAX: usize = 512;

/// The bounds of a repair's wait for locks while hosts use the database.
const REPAIR_PATIENCE: Patience = Patience {
    lock_wait: Duration::from_secs(5),
    attempt: Duration::from_secs(60),
    attempts: Duration::from_secs(60),
    idle: None,
};

static MIGRATOR: Migrator = sqlx::migrate!("../migrations/mysql");

static CREATE_SHARDS: Statement = Statement::insert("shard (id, last_seq, epoch, lease_until)", Conflict::Keep("id"));

/// The address of a database: `mysql://user:password@host:port/database`. Its text shows no password.
#[derive(Clone)]
pub struct DatabaseUrl(MySqlConnectOptions);

/// The isolation of a transaction from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Isolation {
    /// Each statement sees all commits: for transitions, which compare the rows that they read when they write, or lock
    /// them first.
    ReadCommitted,
    /// All statements see the same snapshot: for materialization, which converges by locking reads.
    Snapshot,
}

/// A server with a database of Forebay's.
pub(in crate::store) struct Server {
    options: MySqlConnectOptions,
    proved: Proved,
    patience: Patience,
}

impl Server {
    /// Connects, proves what the server does, and brings the schema up to date.
    pub(in crate::store) async fn open(
        url: &DatabaseUrl,
        shards: u16,
        packet_bytes_min: u64,
        patience: Patience,
    ) -> Result<Self, StoreError> {
        let options = url.0.clone();
        let mut connection = connect(&options).await.map_err(|error| unreachable(&error))?;
        bring_up_to_date(&mut connection).await?;
        let mut second = connect(&options).await.map_err(|error| unreachable(&error))?;
        let mut idle = match patience.idle {
            Some(_) => Some(connect(&options).await.map_err(|error| unreachable(&error))?),
            None => None,
        };
        let proved = behaviour::prove(&mut connection, &mut second, idle.as_mut(), packet_bytes_min).await?;
        let engine = proved.engine;
        settle_shards(&mut Connection::MySql { connection: &mut connection, engine }, shards).await?;
        close(connection).await;
        close(second).await;
        Ok(Self { options, proved, patience })
    }

    /// A server whose rows are put right. What it does is not proved: a repair locks exclusively.
    pub(in crate::store) fn for_repair(url: &DatabaseUrl) -> Self {
        let proved = Proved { engine: UNPROVED, packet_bytes: 0, idle_timeout: None };
        Self { options: url.0.clone(), proved, patience: REPAIR_PATIENCE }
    }

    pub(in crate::store) fn engine(&self) -> Engine {
        self.proved.engine
    }

    /// The largest packet that it takes.
    pub(in crate::store) fn packet_bytes(&self) -> u64 {
        self.proved.packet_bytes
    }

    pub(in crate::store) fn options(&self) -> MySqlConnectOptions {
        self.options.clone()
    }

    /// A connection for a writer.
    pub(in crate::store) async fn connect(&self, isolation: Isolation) -> Result<MySqlConnection, sqlx::Error> {
        let mut connection = connect(&self.options).await?;
        let level = match isolation {
            Isolation::ReadCommitted => "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            Isolation::Snapshot => "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        };
        let mut writer = Connection::MySql { connection: &mut connection, engine: self.proved.engine };
        writer.run(level).await?;
        let lock_wait = format!("SET SESSION innodb_lock_wait_timeout = {}", self.patience.lock_wait.as_secs());
        writer.execute(&lock_wait, values![]).await?;
        // A host that vanishes says nothing more, and leaves what its transaction holds to the server.
        if let (Some(variable), Some(idle)) = (self.proved.idle_timeout, self.patience.idle) {
            writer.execute(&format!("SET SESSION {variable} = {}", idle.as_secs()), values![]).await?;
        }
        Ok(connection)
    }
}

/// The newest version of the schema on a server.
pub(in crate::store) fn latest_version() -> i64 {
    latest(&MIGRATOR)
}

/// Brings the schema of a server's database up to date.
pub(in crate::store) async fn migrate(url: &DatabaseUrl) -> Result<MigrationReport, StoreError> {
    let mut connection = session(url).await?;
    let report = bring_up_to_date(&mut connection).await?;
    close(connection).await;
    Ok(report)
}

impl FromStr for DatabaseUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        // The URL may hold a password: an error repeats nothing of it.
        let wrong = |why: &str| format!("{why}: write it as mysql://user:password@host:port/database");
        if !url.starts_with("mysql://") && !url.starts_with("mariadb://") {
            return Err(wrong("it does not begin with mysql://"));
        }
        let options = MySqlConnectOptions::from_str(url).map_err(|_| wrong("it is no URL of a database"))?;
        if options.get_database().is_none_or(str::is_empty) {
            return Err(wrong("it names no database"));
        }
        let options = options.charset("utf8mb4").collation("utf8mb4_bin").statement_cache_capacity(STATEMENTS_MAX);
        Ok(Self(options.disable_statement_logging()))
    }
}

#[cfg(test)]
impl DatabaseUrl {
    /// The same database, for another user without a password.
    pub(in crate::store) fn for_user(&self, user: &str) -> Self {
        Self(self.0.clone().username(user))
    }

    /// The same database, reached by another socket.
    pub(in crate::store) fn through(&self, socket: &std::path::Path) -> Self {
        Self(self.0.clone().socket(socket))
    }

    /// The socket that it is reached by.
    pub(in crate::store) fn socket(&self) -> std::path::PathBuf {
        self.0.get_socket().expect("the tests' server has one").clone()
    }

    /// The database's name.
    pub(in crate::store) fn database(&self) -> &str {
        self.0.get_database().unwrap_or_default()
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.0.get_database().unwrap_or_default();
        write!(formatter, "DatabaseUrl({}:{}/{database})", self.0.get_host(), self.0.get_port())
    }
}

/// A connection to the server of `url`, with nothing set.
pub(in crate::store) async fn session(url: &DatabaseUrl) -> Result<MySqlConnection, StoreError> {
    connect(&url.0).await.map_err(|error| unreachable(&error))
}

async fn connect(options: &MySqlConnectOptions) -> Result<MySqlConnection, sqlx::Error> {
    match timeout(CONNECT_TIMEOUT, options.connect()).await {
        Ok(connected) => connected,
        Err(_) => Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "it did not answer in time"))),
    }
}

pub(in crate::store) async fn close(connection: MySqlConnection) {
    if let Err(error) = connection.close().await {
        tracing::debug!(%error, "a connection was not closed well");
    }
}

pub(in crate::store) fn unreachable(error: &sqlx::Error) -> StoreError {
    StoreError::Unavailable(format!("the database server cannot be reached: {error}"))
}

async fn bring_up_to_date(connection: &mut MySqlConnection) -> Result<MigrationReport, StoreError> {
    let report = outstanding(connection).await?;
    MIGRATOR.run(&mut *connection).await.map_err(|error| unusable(&error))?;
    Ok(report)
}

/// The outstanding migrations of a database. Refuses a database of another program or of a newer binary.
pub(in crate::store) async fn outstanding(connection: &mut MySqlConnection) -> Result<MigrationReport, StoreError> {
    let mut session = Connection::MySql { connection, engine: UNPROVED };
    let tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()";
    let names: Vec<String> = session.read_all(tables, values![]).await.map_err(|error| unusable(&error))?;
    let version = if names.iter().any(|name| name == "_sqlx_migrations") {
        let text = "SELECT CAST(coalesce(max(version), 0) AS SIGNED) FROM _sqlx_migrations WHERE success";
        session.read_one(text, values![]).await.map_err(|error| unusable(&error))?
    } else if names.is_empty() {
        0
    } else {
        return Err(unusable(&"it holds tables of another program"));
    };
    report(&MIGRATOR, version, &"the database")
}

fn unusable(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Unusable(format!(
        "the schema of the database cannot be brought up to date ({error}): give it a database of its own, whose user \
         may create tables"
    ))
}

async fn settle_shards(connection: &mut Connection<'_>, shards: u16) -> Result<(), StoreError> {
    let known = count_shards(connection).await?;
    if known == 0 {
        // Runtimes may start together: the second one finds the rows and changes nothing.
        let ids: Vec<u16> = (0..shards).collect();
        let bind = |values: &mut super::values::Values, id: u16| {
            values.push(id).push(0_u32).push(0_u32).push(0_u32);
        };
        CREATE_SHARDS.execute(connection, ids, bind).await?;
    }
    super::schema::check_shards(count_shards(connection).await?, shards)
}

async fn count_shards(connection: &mut Connection<'_>) -> Result<i64, sqlx::Error> {
    connection.read_one("SELECT count(*) FROM shard", values![]).await
}
