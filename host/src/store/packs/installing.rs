//! Installation and activation: namespaces, chunks of components, generations, and the active one of each pack.
//!
//! Invariants:
//! - A generation is stored after every chunk of its component, in a transaction that counts them.
//! - An activation holds the pack's row; so does a materialization. One of them waits for the other (MAT-2).

use std::time::Duration;

use bytes::Bytes;

use super::{Activated, Installed, Installing, NUMBERS};
use crate::model::names::{Namespace, PackName};
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;
use crate::store::engine::dialect::{Conflict, Lock};
use crate::store::engine::row::FromColumns;
use crate::store::engine::statement::Statement;
use crate::store::engine::values::{Values, values};
use crate::store::error::StoreError;
use crate::store::writer::unit::{Answers, Unit};

/// The bytes of one chunk: well within the packets and the entries of every server.
pub(in crate::store) const CHUNK_BYTES_MAX: usize = 1024 * 1024;

/// The time for which a chunk without a generation is kept: longer than any installation takes.
const ORPHANS_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// A part of a component.
#[derive(Debug, Clone)]
pub(in crate::store) struct Chunk {
    /// SHA-256 of the whole component.
    pub(in crate::store) digest: [u8; 32],
    /// The place of the chunk, from 0.
    pub(in crate::store) position: u32,
    pub(in crate::store) bytes: Bytes,
    pub(in crate::store) now: Timestamp,
}

/// A generation whose component is stored.
#[derive(Debug, Clone)]
pub(in crate::store) struct Installation {
    pub(in crate::store) pack: PackName,
    pub(in crate::store) digest: [u8; 32],
    pub(in crate::store) manifest: String,
    pub(in crate::store) component_digest: [u8; 32],
    pub(in crate::store) component_bytes: u64,
    pub(in crate::store) installing: Installing,
    pub(in crate::store) now: Timestamp,
}

/// A change of the active generation.
#[derive(Debug, Clone)]
pub(in crate::store) struct Activation {
    pub(in crate::store) pack: PackName,
    /// The generation; `None` for no active one.
    pub(in crate::store) number: Option<GenerationNumber>,
    /// The generation that has to be active before.
    pub(in crate::store) expected: Option<GenerationNumber>,
    pub(in crate::store) now: Timestamp,
}

/// No generation, in `pack.active_generation`.
const NONE_ACTIVE: u32 = 0;

const INSERT_GENERATION: &str = "\
    INSERT INTO generation (pack, number, digest, installed_at, manifest, component_digest, component_bytes) \
    VALUES (?, ?, ?, ?, ?, ?, ?)";

const STORED_BYTES: &str =
    "SELECT CAST(coalesce(sum(length(bytes)), 0) AS SIGNED) FROM component_chunk WHERE digest = ?";

const REMOVE_ORPHANS: &str = "\
    DELETE FROM component_chunk WHERE stored_at < ? AND NOT EXISTS \
    (SELECT 1 FROM generation WHERE generation.component_digest = component_chunk.digest)";

const SET_ACTIVE: &str = "UPDATE pack SET active_generation = ? WHERE name = ?";

const SET_ACTIVATED_AT: &str = "UPDATE generation SET activated_at = ? WHERE pack = ? AND number = ?";

const EXISTS: &str = "SELECT 1 FROM generation WHERE pack = ? AND number = ?";

static INSERT_NAMESPACES: Statement = Statement::insert("namespace (name, created_at)", Conflict::Keep("name"));

/// A stored chunk is as good, and becomes as young as the new one.
static STORE_CHUNK: Statement = Statement::insert(
    "component_chunk (digest, position, stored_at, bytes)",
    Conflict::Set("digest, position", "stored_at"),
);

static LOCK_PACK: Statement = Statement::lock(
    "(name)",
    "SELECT pack.active_generation FROM wanted CROSS JOIN pack ON pack.name = wanted.name",
    Lock::Update,
);

static CREATE_PACK: Statement = Statement::insert("pack (name, active_generation)", Conflict::Keep("name"));

/// Stores namespaces.
pub(in crate::store) async fn ensure_namespaces(
    unit: &mut Unit<'_>,
    requests: Vec<(Vec<Namespace>, Timestamp)>,
) -> Result<Answers<()>, sqlx::Error> {
    let answers = requests.iter().map(|_| Ok(())).collect();
    let names = requests.into_iter().flat_map(|(names, now)| names.into_iter().map(move |name| (name, now))).collect();
    INSERT_NAMESPACES
        .execute(&mut unit.connection, names, |values, (name, now)| {
            values.push(&name).push(now);
        })
        .await?;
    Ok(answers)
}

/// Stores chunks of components. The first chunk of a component also removes orphaned ones.
pub(in crate::store) async fn store_chunks(
    unit: &mut Unit<'_>,
    chunks: Vec<Chunk>,
) -> Result<Answers<()>, sqlx::Error> {
    let answers = chunks.iter().map(|_| Ok(())).collect();
    if let Some(first) = chunks.iter().find(|chunk| chunk.position == 0) {
        let before = first.now.as_millis().saturating_sub(i64::try_from(ORPHANS_KEPT.as_millis()).unwrap_or(i64::MAX));
        unit.connection.execute(REMOVE_ORPHANS, values![before]).await?;
    }
    STORE_CHUNK
        .execute(&mut unit.connection, chunks, |values, chunk| {
            values.push(chunk.digest).push(chunk.position).push(chunk.now).push(chunk.bytes);
        })
        .await?;
    Ok(answers)
}

/// Installs packs, in order.
pub(in crate::store) async fn install(
    unit: &mut Unit<'_>,
    installations: Vec<Installation>,
) -> Result<Answers<Installed>, sqlx::Error> {
    let mut answers = Vec::with_capacity(installations.len());
    for installation in installations {
        answers.push(install_one(unit, installation).await?);
    }
    Ok(answers)
}

async fn install_one(
    unit: &mut Unit<'_>,
    installation: Installation,
) -> Result<Result<Installed, StoreError>, sqlx::Error> {
    let Installation { pack, digest, manifest, component_digest, component_bytes, installing, now } = installation;
    CREATE_PACK
        .execute(&mut unit.connection, vec![pack.clone()], |values, pack| {
            values.push(&pack).push(NONE_ACTIVE);
        })
        .await?;
    lock_pack(unit, &pack).await?;
    let (known, last): (Option<u32>, Option<u32>) =
        unit.connection.read_one(NUMBERS, values![&pack, digest, &pack]).await?;
    let number = known.unwrap_or_else(|| last.unwrap_or(0) + 1);
    if known.is_none() {
        let stored: u64 = unit.connection.read_one(STORED_BYTES, values![component_digest]).await?;
        if stored != component_bytes {
            return Ok(Err(StoreError::Unavailable(format!(
                "{stored} of the component's {component_bytes} bytes are stored: install it again"
            ))));
        }
        let generation = values![&pack, number, digest, now, manifest, component_digest, component_bytes];
        unit.connection.execute(INSERT_GENERATION, generation).await?;
    }
    let number = GenerationNumber(number);
    match installing {
        Installing::Staged => {}
        Installing::Active => set_active(unit, &pack, Some(number), now).await?,
    }
    Ok(Ok(Installed { number, new: known.is_none() }))
}

/// Applies activations, in order.
pub(in crate::store) async fn activate(
    unit: &mut Unit<'_>,
    activations: Vec<Activation>,
) -> Result<Answers<Activated>, sqlx::Error> {
    let mut answers = Vec::with_capacity(activations.len());
    for activation in activations {
        answers.push(Ok(activate_one(unit, activation).await?));
    }
    Ok(answers)
}

async fn activate_one(unit: &mut Unit<'_>, activation: Activation) -> Result<Activated, sqlx::Error> {
    let Activation { pack, number, expected, now } = activation;
    let Some(active) = lock_pack(unit, &pack).await? else { return Ok(Activated::NotFound) };
    let active = Some(GenerationNumber(active)).filter(|active| active.0 != NONE_ACTIVE);
    if let Some(number) = number
        && unit.connection.fetch_optional(EXISTS, values![&pack, number]).await?.is_none()
    {
        return Ok(Activated::NotFound);
    }
    if expected.is_some() && expected != active {
        return Ok(Activated::Overtaken { active });
    }
    if active == number {
        return Ok(Activated::Already);
    }
    set_active(unit, &pack, number, now).await?;
    Ok(Activated::Activated { previous: active })
}

/// Holds a pack's row until the transaction ends. Returns its active generation, if there is such a pack.
async fn lock_pack(unit: &mut Unit<'_>, pack: &PackName) -> Result<Option<u32>, sqlx::Error> {
    let bind = |values: &mut Values, pack: PackName| {
        values.push(&pack);
    };
    let found = LOCK_PACK.fetch(&mut unit.connection, vec![pack.clone()], bind, FromColumns::read).await?;
    Ok(found.into_iter().next())
}

async fn set_active(
    unit: &mut Unit<'_>,
    pack: &PackName,
    number: Option<GenerationNumber>,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let code = number.map_or(NONE_ACTIVE, |number| number.0);
    unit.connection.execute(SET_ACTIVE, values![code, pack]).await?;
    if let Some(number) = number {
        unit.connection.execute(SET_ACTIVATED_AT, values![now, pack, number]).await?;
    }
    Ok(())
}
