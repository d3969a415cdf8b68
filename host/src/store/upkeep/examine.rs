//! Examination: what a database says of itself while no host of this process has it open. Changes nothing, but for the
//! row of its own by which it watches a server (`behaviour`).

use std::path::Path;

use sqlx::Connection as _;

use super::counters::{self, Miscount};
use super::coverage::{self, CoverageGap, CoverageRepair, RulesOf};
use crate::env::Env;
use crate::store::engine::behaviour::{self, UNPROVED};
use crate::store::engine::connection::{Connection, database_now};
use crate::store::engine::dialect::Engine;
use crate::store::engine::schema::{self, Directory, MigrationReport};
use crate::store::engine::server::{self, DatabaseUrl, Isolation, Server};
use crate::store::engine::values::values;
use crate::store::shards::destinations::{self, DestinationRow};
use crate::store::{LeaseTime, StoreError};

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
async fn contents(connection: &mut Connection<'_>, schema: &MigrationReport) -> Result<Contents, StoreError> {
    if schema.from == 0 {
        return Ok(Contents::default());
    }
    let shards = connection.read_one("SELECT count(*) FROM shard", values![]).await?;
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

/// What a server was seen to do, besides what every start proves.
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
        return examine_server(url, env).await.map(Examined::Found);
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

/// Examines a server and its database.
async fn examine_server(url: &DatabaseUrl, env: &Env) -> Result<Examination, StoreError> {
    let mut connection = server::session(url).await?;
    let schema = server::outstanding(&mut connection).await?;
    let mut facts = server_facts(&mut Connection::MySql { connection: &mut connection, engine: UNPROVED }, env).await?;
    if schema.from > 0 {
        let mut second = server::session(url).await?;
        let mut idle = server::session(url).await?;
        // The packet is a finding of its own.
        let proved = behaviour::prove(&mut connection, &mut second, Some(&mut idle), 0).await?;
        facts.behaviour = Some(Behaviour {
            shares_locks: proved.engine == Engine::MySql { shares_locks: true },
            ends_idle_transactions: proved.idle_timeout.is_some(),
        });
        server::close(second).await;
    }
    let mut session = Connection::MySql { connection: &mut connection, engine: UNPROVED };
    let contents = contents(&mut session, &schema).await?;
    server::close(connection).await;
    Ok(Examination { schema, server: Some(facts), contents })
}

async fn server_facts(connection: &mut Connection<'_>, env: &Env) -> Result<ServerFacts, StoreError> {
    let facts = "SELECT VERSION(), CAST(@@max_allowed_packet AS SIGNED)";
    let (version, packet_bytes) = connection.read_one(facts, values![]).await?;
    let before = env.now();
    let database_now = database_now(connection, LeaseTime::Database).await?.unwrap_or(before);
    let after = env.now();
    // The answer was made about half way between question and arrival.
    let own = (before.as_millis() + after.as_millis()) / 2;
    Ok(ServerFacts { version, packet_bytes, clock_ahead_ms: database_now.as_millis() - own, behaviour: None })
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
async fn repair_contents(connection: &mut Connection<'_>, env: &Env, rules: RulesOf<'_>) -> Result<Repair, StoreError> {
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
        return repair_server(url, env, rules).await;
    }
    let directory = Directory::lock(data)?;
    let mut file = directory.create().await?;
    let repair = repair_contents(&mut Connection::sqlite(&mut file), env, rules).await?;
    file.close().await?;
    Ok(repair)
}

/// Puts right what a server's database holds, also while hosts use it.
async fn repair_server(url: &DatabaseUrl, env: &Env, rules: RulesOf<'_>) -> Result<Repair, StoreError> {
    let server = Server::for_repair(url);
    let mut connection = server.connect(Isolation::Snapshot).await.map_err(|error| server::unreachable(&error))?;
    let mut session = Connection::MySql { connection: &mut connection, engine: UNPROVED };
    let repair = repair_contents(&mut session, env, rules).await?;
    server::close(connection).await;
    Ok(repair)
}
