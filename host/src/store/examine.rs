//! Examination: what a database says of itself while no host of this process has it open. Changes nothing, but for the
//! row of its own by which it watches a server (`behaviour`).

use std::path::Path;

use sqlx::Connection as _;

use super::StoreError;
use super::connection::Connection;
use super::counters::{self, Miscount};
use super::coverage::{self, CoverageGap, CoverageRepair, RulesOf};
use super::destinations::{self, DestinationRow};
use super::schema::{self, Directory, MigrationReport};
use super::server::{self, DatabaseUrl};
use super::stored::values;
use crate::env::Env;

/// What was found where the store should be.
#[derive(Debug)]
pub enum Examined {
    /// Nothing yet: the first start creates it.
    Missing,
    /// Another process has the data directory, and with it the database.
    InUse,
    /// A database that can be used.
    Found(Examination),
}

/// A database that can be used.
#[derive(Debug)]
pub struct Examination {
    /// What bringing its schema up to date would do.
    pub schema: MigrationReport,
    /// What the server does, if it is on one.
    pub server: Option<ServerFacts>,
    /// What the rows say.
    pub contents: Contents,
}

/// What a database's rows say.
#[derive(Debug, Default)]
pub struct Contents {
    /// Its Delay Shards; 0 before its first start.
    pub shards: u64,
    /// Events without a WorkItem.
    pub coverage: CoverageGap,
    /// Counters that say something else than the rows.
    pub miscounts: Vec<Miscount>,
    /// Destinations that were set while hosts ran.
    pub destinations: Vec<DestinationRow>,
}

/// The version of the schema from which on destinations are in it.
const DESTINATIONS_SINCE: i64 = 18;

/// What a database holds, as far as its schema is there.
pub(super) async fn contents(
    connection: &mut Connection<'_>,
    schema: &MigrationReport,
) -> Result<Contents, StoreError> {
    if schema.from == 0 {
        return Ok(Contents::default());
    }
    let shards = connection.fetch_one("SELECT count(*) FROM shard", values![]).await?.unsigned(0)?;
    let coverage = coverage::gap(connection).await?;
    let destinations =
        if schema.from < DESTINATIONS_SINCE { Vec::new() } else { destinations::all(connection).await? };
    Ok(Contents { shards, coverage, miscounts: counters::miscounts(connection).await?, destinations })
}

/// What a database server says and does.
#[derive(Debug)]
pub struct ServerFacts {
    /// Its name for itself.
    pub version: String,
    /// The largest packet that it takes.
    pub packet_bytes: u64,
    /// How far its clock is ahead of this machine's.
    pub clock_ahead_ms: i64,
    /// What it was seen to do; `None` while the schema is not there, by which it is watched.
    pub behaviour: Option<Behaviour>,
}

/// What a server was seen to do, beside what every start proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// Whether a shared lock keeps writers off; else exclusive ones are taken.
    pub shares_locks: bool,
    /// Whether it ends a transaction of which it hears nothing, when told to: what a host held that vanished is then
    /// soon free.
    pub ends_idle_transactions: bool,
}

/// Looks at the database of `url`, or else at the one in the directory `data`.
pub async fn examine(data: &Path, url: Option<&DatabaseUrl>, env: &Env) -> Result<Examined, StoreError> {
    if let Some(url) = url {
        return server::examine(url, env).await.map(Examined::Found);
    }
    if !data.exists() {
        return Ok(Examined::Missing);
    }
    let Some(directory) = Directory::try_lock(data)? else { return Ok(Examined::InUse) };
    let Some((mut file, schema)) = schema::examine(&directory).await? else { return Ok(Examined::Missing) };
    let contents = contents(&mut Connection::sqlite(&mut file), &schema).await?;
    file.close().await?;
    Ok(Examined::Found(Examination { schema, server: None, contents }))
}

/// What was put right of what a database holds.
#[derive(Debug, Default)]
pub struct Repair {
    /// WorkItems that Events lacked.
    pub coverage: CoverageRepair,
    /// Counters that said something else than the rows.
    pub recounted: Vec<Miscount>,
}

/// Makes what is missing, and puts right what is wrong.
pub(super) async fn repair_contents(
    connection: &mut Connection<'_>,
    env: &Env,
    rules: RulesOf<'_>,
) -> Result<Repair, StoreError> {
    let coverage = coverage::repair(connection, env, rules).await?;
    Ok(Repair { coverage, recounted: counters::recount(connection).await? })
}

/// Makes the WorkItems that Events lack, and has the counters say what the rows say: in the database of `url`, also
/// while hosts use it, or else in the one in the directory `data`. The schema is up to date.
pub async fn repair(
    data: &Path,
    url: Option<&DatabaseUrl>,
    env: &Env,
    rules: RulesOf<'_>,
) -> Result<Repair, StoreError> {
    if let Some(url) = url {
        return server::repair(url, env, rules).await;
    }
    let directory = Directory::lock(data)?;
    let mut file = directory.create().await?;
    let repair = repair_contents(&mut Connection::sqlite(&mut file), env, rules).await?;
    file.close().await?;
    Ok(repair)
}
