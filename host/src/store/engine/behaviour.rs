//! The behaviour of a server, proved by watching it with two sessions and a row of their own.
//!
//! | shown | otherwise |
//! |---|---|
//! | a rollback undoes | refused: nothing would be all or none |
//! | a statement tells of rows that it found, changed or not | refused: a compare-and-swap would not know its winner |
//! | a locked row is kept from others | refused: a row would have two owners |
//! | a locking read sees what is there now | refused: a conflict would not converge |
//! | a shared lock keeps writers off | exclusive locks are taken instead |
//! | a transaction that says nothing is ended | what a host held that vanished is held until the server gives up its connection |

use std::time::Duration;

use sqlx::mysql::MySqlConnection;

use super::connection::Connection;
use super::dialect::Engine;
use super::row::Column;
use super::values::values;
use crate::env;
use crate::store::StoreError;

/// As long as nothing is known yet: exclusive locks are right anywhere.
pub(in crate::store) const UNPROVED: Engine = Engine::MySql { shares_locks: false };

/// The observations that statements and sessions depend on.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Proved {
    /// Whom statements are for.
    pub(in crate::store) engine: Engine,
    /// The largest packet.
    pub(in crate::store) packet_bytes: u64,
    /// The variable that bounds idle transactions, if the server obeys one.
    pub(in crate::store) idle_timeout: Option<&'static str>,
}

/// The variables that bound the seconds of an idle transaction: of MariaDB, of TiDB.
const IDLE_TIMEOUTS: [&str; 2] = ["idle_transaction_timeout", "tidb_idle_transaction_timeout"];

/// The pause before each look at an idle transaction, which should be over after a second.
const IDLE_LOOK_PAUSE: Duration = Duration::from_millis(250);

/// The most looks at it.
const IDLE_LOOKS_MAX: u32 = 16;

/// A session that leaves a transaction open.
struct Sleeper {
    variable: &'static str,
    row: String,
}

/// Two sessions that watch each other over one row of `sequence`.
struct Watch<'c> {
    first: Connection<'c>,
    second: Connection<'c>,
    row: String,
}

/// Proves what statements rely on, and finds out what they may use. Refuses a server that would lose something.
pub(in crate::store) async fn prove(
    first: &mut MySqlConnection,
    second: &mut MySqlConnection,
    idle: Option<&mut MySqlConnection>,
    packet_bytes_min: u64,
) -> Result<Proved, StoreError> {
    let mut first = Connection::MySql { connection: first, engine: UNPROVED };
    let second = Connection::MySql { connection: second, engine: UNPROVED };
    let packet_bytes = check_packet(&mut first, packet_bytes_min).await?;
    // Its own for every start: others may watch at the same time.
    let SessionNumber(number) = first.read_one("SELECT CONNECTION_ID()", values![]).await?;
    let mut watch = Watch { first, second, row: format!("proof-{number}") };
    let sleeper = match idle {
        Some(connection) => Sleeper::begin(Connection::MySql { connection, engine: UNPROVED }, number).await?,
        None => None,
    };
    watch.begin().await?;
    let engine = watch.watch().await;
    watch.end().await?;
    let engine = engine?;
    let idle_timeout = match sleeper {
        Some(sleeper) => sleeper.ended(&mut watch.second).await?,
        None => None,
    };
    Ok(Proved { engine, packet_bytes, idle_timeout })
}

/// The server's number for a session.
struct SessionNumber(i64);

impl Column for SessionNumber {
    type Stored<'r> = u64;

    fn of_stored(stored: u64) -> Result<Self, sqlx::Error> {
        Ok(Self(stored.cast_signed()))
    }
}

impl Sleeper {
    /// Begins a transaction that is to be over in a second, if that can be said to the server, and says nothing more.
    async fn begin(mut session: Connection<'_>, number: i64) -> Result<Option<Self>, sqlx::Error> {
        for variable in IDLE_TIMEOUTS {
            if session.execute(&format!("SET SESSION {variable} = 1"), values![]).await.is_ok() {
                let row = format!("idle-{number}");
                session.begin().await?;
                session.execute("INSERT INTO sequence (name, last) VALUES (?, 0)", values![row.as_str()]).await?;
                return Ok(Some(Self { variable, row }));
            }
        }
        Ok(None)
    }

    /// The variable that the server obeys: the lock on the stored row is gone then.
    async fn ended(self, watcher: &mut Connection<'_>) -> Result<Option<&'static str>, sqlx::Error> {
        for _ in 0..IDLE_LOOKS_MAX {
            env::sleep(IDLE_LOOK_PAUSE).await;
            let insert = "INSERT INTO sequence (name, last) VALUES (?, 0)";
            if watcher.execute(insert, values![self.row.as_str()]).await.is_ok() {
                watcher.execute("DELETE FROM sequence WHERE name = ?", values![self.row.as_str()]).await?;
                return Ok(Some(self.variable));
            }
        }
        Ok(None)
    }
}

async fn check_packet(connection: &mut Connection<'_>, bytes_min: u64) -> Result<u64, StoreError> {
    let text = "SELECT CAST(@@max_allowed_packet AS SIGNED)";
    let bytes = connection.read_one(text, values![]).await?;
    if bytes >= bytes_min {
        return Ok(bytes);
    }
    Err(StoreError::Unusable(format!(
        "the database server takes packets of {bytes} bytes, and a host needs {bytes_min}: set max_allowed_packet on the server to \
         at least that"
    )))
}

impl<'c> Watch<'c> {
    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        self.first.execute("DELETE FROM sequence WHERE name = ?", values![self.row.as_str()]).await?;
        self.first.execute("INSERT INTO sequence (name, last) VALUES (?, 0)", values![self.row.as_str()]).await?;
        // No wait for locks, or a second where 0 means that.
        self.second.run("SET SESSION innodb_lock_wait_timeout = 0").await
    }

    async fn end(&mut self) -> Result<(), sqlx::Error> {
        self.first.execute("DELETE FROM sequence WHERE name = ?", values![self.row.as_str()]).await?;
        Ok(())
    }

    async fn watch(&mut self) -> Result<Engine, StoreError> {
        self.rollback_undoes().await?;
        self.found_rows_are_told().await?;
        self.locks_keep_others_off().await?;
        self.locking_reads_are_current().await?;
        Ok(Engine::MySql { shares_locks: self.shared_locks_keep_writers_off().await? })
    }

    async fn rollback_undoes(&mut self) -> Result<(), StoreError> {
        self.first.begin().await?;
        self.set(Session::First, 7).await?;
        self.first.rollback().await?;
        let undone = self.last(Session::First, "").await? == 0;
        undone
            .then_some(())
            .ok_or_else(|| refused("a rollback does not undo: use tables with transactions (InnoDB, TiDB)"))
    }

    async fn found_rows_are_told(&mut self) -> Result<(), StoreError> {
        let found = self.set(Session::First, 0).await?;
        (found == 1).then_some(()).ok_or_else(|| refused("it does not tell how many rows a statement found"))
    }

    async fn locks_keep_others_off(&mut self) -> Result<(), StoreError> {
        self.first.begin().await?;
        self.last(Session::First, " FOR UPDATE").await?;
        let kept_off = self.set(Session::Second, 1).await.is_err();
        self.first.rollback().await?;
        kept_off
            .then_some(())
            .ok_or_else(|| refused("a locked row can be changed by others (on TiDB: use pessimistic transactions)"))
    }

    /// A transaction that has seen a row, and locks it after another one changed it, must see the change or be told.
    async fn locking_reads_are_current(&mut self) -> Result<(), StoreError> {
        self.first.begin().await?;
        self.last(Session::First, "").await?;
        self.set(Session::Second, 2).await?;
        // MariaDB from 11.6 answers an error instead; the transaction is then done again.
        let current = self.last(Session::First, " FOR UPDATE").await;
        self.first.rollback().await?;
        match current {
            Ok(2) | Err(_) => Ok(()),
            Ok(_) => Err(refused("a locking read shows what was there before")),
        }
    }

    async fn shared_locks_keep_writers_off(&mut self) -> Result<bool, StoreError> {
        self.first.begin().await?;
        let locked = self.last(Session::First, " LOCK IN SHARE MODE").await.is_ok();
        let kept_off = locked && self.set(Session::Second, 3).await.is_err();
        self.first.rollback().await?;
        Ok(kept_off)
    }

    async fn set(&mut self, session: Session, last: i64) -> Result<u64, sqlx::Error> {
        let values = values![last, self.row.as_str()];
        self.session(session).execute("UPDATE sequence SET last = ? WHERE name = ?", values).await
    }

    async fn last(&mut self, session: Session, lock: &'static str) -> Result<i64, sqlx::Error> {
        let text = format!("SELECT last FROM sequence WHERE name = ?{lock}");
        let values = values![self.row.as_str()];
        self.session(session).read_one(&text, values).await
    }

    fn session(&mut self, session: Session) -> &mut Connection<'c> {
        match session {
            Session::First => &mut self.first,
            Session::Second => &mut self.second,
        }
    }
}

#[derive(Clone, Copy)]
enum Session {
    First,
    Second,
}

fn refused(why: &str) -> StoreError {
    StoreError::Unusable(format!("the database server cannot be used: {why}"))
}
