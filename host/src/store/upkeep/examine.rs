//! Examination of a database while no host of this process has it open. It changes nothing but a row of its own, by
//! which it watches a server (`behaviour`).

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

/// The result of an examination.
#[derive(Debug)]
pub enum Examined {
    /// There is no database yet: the first start creates it.
    Missing,
    /// Another process holds the data directory, and with it the database.
    InUse,
    /// A database that can be used.
    Found(Examination),
}

/// A database that can be used.
#[derive(Debug)]
pub struct Examination {
    /// The outstanding migrations.
    pub schema: MigrationReport,
    /// The facts about the server, if it is on one.
    pub server: Option<ServerFacts>,
    /// The contents.
    pub contents: Contents,
}

/// The contents of a database.
#[derive(Debug, Default)]
pub struct Contents {
    /// The Delay Shards; 0 before the first start.
    pub shards: u64,
    /// Events without a WorkItem.
    pub coverage: CoverageGap,
    /// The counters that differ from the rows.
    pub miscounts: Vec<Miscount>,
    /// The destinations that were set while hosts ran.
    pub destinations: Vec<DestinationRow>,
}

/// The first version of the schema with destinations.
const DESTINATIONS_SINCE: i64 = 18;

/// The contents of a database, by the schema that it has.
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

/// Facts about a database server.
#[derive(Debug)]
pub struct ServerFacts {
    /// The version that it names.
    pub version: String,
    /// The largest packet that it takes, in bytes.
    pub packet_bytes: u64,
    /// The milliseconds by which its clock is ahead of this machine's.
    pub clock_ahead_ms: i64,
    /// The behaviour; `None` without the schema, with which it is watched.
    pub behaviour: Option<Behaviour>,
}

/// The behaviour of a server, besides the properties that every start proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// Whether a shared lock keeps writers off; if not, exclusive locks are taken.
    pub shares_locks: bool,
    /// Whether it ends idle transactions on request: the locks of a vanished host are then soon free.
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
    // The answer was made about half way between the question and its arrival.
    let own = (before.as_millis() + after.as_millis()) / 2;
    Ok(ServerFacts { version, packet_bytes, clock_ahead_ms: database_now.as_millis() - own, behaviour: None })
}

/// The result of a repair.
#[derive(Debug, Default)]
pub struct Repair {
    /// The WorkItems that Events lacked.
    pub coverage: CoverageRepair,
    /// The counters that differed from the rows.
    pub recounted: Vec<Miscount>,
}

/// Makes missing WorkItems, and corrects counters.
async fn repair_contents(connection: &mut Connection<'_>, env: &Env, rules: RulesOf<'_>) -> Result<Repair, StoreError> {
    let coverage = coverage::repair(connection, env, rules).await?;
    Ok(Repair { coverage, recounted: counters::recount(connection).await? })
}

/// Makes the WorkItems that Events lack, and corrects the counters: in the database of `url`, also while hosts use it,
/// or else in the one in the directory `data`. The schema is up to date.
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

/// Repairs a server's database, also while hosts use it.
async fn repair_server(url: &DatabaseUrl, env: &Env, rules: RulesOf<'_>) -> Result<Repair, StoreError> {
    let server = Server::for_repair(url);
    let mut connection = server.connect(Isolation::Snapshot).await.map_err(|error| server::unreachable(&error))?;
    let mut session = Connection::MySql { connection: &mut connection, engine: UNPROVED };
    let repair = repair_contents(&mut session, env, rules).await?;
    server::close(connection).await;
    Ok(repair)
}
