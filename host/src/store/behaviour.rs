//! What a server does, proved by watching it: two sessions and a row of their own.
//!
//! | shown | otherwise |
//! |---|---|
//! | a rollback undoes | refused: nothing would be all or none |
//! | a statement tells of rows that it found, changed or not | refused: a compare-and-swap would not know its winner |
//! | a locked row is kept from others | refused: a row would have two owners |
//! | a locking read sees what is there now | refused: a conflict would not converge |
//! | a shared lock keeps writers off | exclusive locks are taken instead |

use sqlx::mysql::MySqlConnection;

use super::StoreError;
use super::connection::Connection;
use super::dialect::Engine;
use super::stored::values;

/// As long as nothing is known yet: exclusive locks are right anywhere.
pub(super) const UNPROVED: Engine = Engine::MySql { shares_locks: false };

/// Two sessions that watch each other over one row of `sequence`.
struct Watch<'c> {
    first: Connection<'c>,
    second: Connection<'c>,
    row: String,
}

/// Proves what statements rely on, and finds out what they may use. Refuses a server that would lose something.
pub(super) async fn prove(
    first: &mut MySqlConnection,
    second: &mut MySqlConnection,
    packet_bytes_min: u64,
) -> Result<Engine, StoreError> {
    let mut first = Connection::MySql { connection: first, engine: UNPROVED };
    let second = Connection::MySql { connection: second, engine: UNPROVED };
    check_packet(&mut first, packet_bytes_min).await?;
    // Its own for every start: others may watch at the same time.
    let number: i64 = first.fetch_one("SELECT CONNECTION_ID()", values![]).await?.value::<u64>(0)?.cast_signed();
    let mut watch = Watch { first, second, row: format!("proof-{number}") };
    watch.begin().await?;
    let proved = watch.watch().await;
    watch.end().await?;
    proved
}

async fn check_packet(connection: &mut Connection<'_>, bytes_min: u64) -> Result<(), StoreError> {
    let text = "SELECT CAST(@@max_allowed_packet AS SIGNED)";
    let bytes = connection.fetch_one(text, values![]).await?.unsigned(0)?;
    if bytes >= bytes_min {
        return Ok(());
    }
    Err(StoreError::Unusable(format!(
        "the database server takes packets of {bytes} bytes, and an event may need {bytes_min}: set max_allowed_packet on the \
         server to at least that, or lower intake.body_bytes_max"
    )))
}

impl<'c> Watch<'c> {
    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        self.first.execute("DELETE FROM sequence WHERE name = ?", values![self.row.as_str()]).await?;
        self.first.execute("INSERT INTO sequence (name, last) VALUES (?, 0)", values![self.row.as_str()]).await?;
        // Waits for nobody, or where that cannot be said, a second.
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
        self.session(session).fetch_one(&text, values).await?.value(0)
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
