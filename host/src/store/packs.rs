//! Installed packs: their generations, and which one is active. Also the namespaces.

use bytes::Bytes;

use super::dialect::{Conflict, Lock};
use super::statement::Statement;
use super::stored::{Values, values};
use super::unit::{Answers, Unit};
use super::writer::Control;
use super::{Store, StoreError};
use crate::model::names::{Namespace, PackName};
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;

/// A generation as it is stored.
#[derive(Debug, Clone)]
pub struct Generation {
    /// The pack.
    pub pack: PackName,
    /// Its number.
    pub number: GenerationNumber,
    /// Whether new events are admitted under it.
    pub active: bool,
    /// SHA-256 of the pack file.
    pub digest: [u8; 32],
    /// The manifest's text.
    pub manifest: String,
    /// The component.
    pub component: Bytes,
}

/// What an installation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Installed {
    /// The generation that is active now.
    pub number: GenerationNumber,
    /// Whether it is new.
    pub new: bool,
}

impl Store {
    /// Makes namespaces known; those that are already known stay as they are.
    pub async fn ensure_namespaces(&self, names: &[Namespace], now: Timestamp) -> Result<(), StoreError> {
        let names = names.to_vec();
        self.writer.control(|reply| Control::EnsureNamespaces(names, now, reply)).await
    }

    /// Installs a pack and makes it active, in one transaction. One whose digest is already installed is only activated.
    pub async fn install_pack(
        &self,
        pack: &PackName,
        digest: [u8; 32],
        manifest: String,
        component: Bytes,
        now: Timestamp,
    ) -> Result<Installed, StoreError> {
        let installation = Installation { pack: pack.clone(), digest, manifest, component, now };
        self.writer.control(|reply| Control::Install(installation, reply)).await
    }

    /// The active generations, and older ones that unfinished WorkItems still refer to.
    pub async fn serving_generations(&self) -> Result<Vec<Generation>, StoreError> {
        let mut reader = self.reader().await?;
        let rows = reader.connection().fetch_all(SERVING, values![]).await?;
        let generations = rows.iter().map(|row| {
            Ok(Generation {
                pack: row.name(0)?,
                number: GenerationNumber(row.unsigned_32(1)?),
                active: row.value(2)?,
                digest: row.digest(3)?,
                manifest: row.value(4)?,
                component: row.blob(5)?,
            })
        });
        generations.collect::<Result<_, sqlx::Error>>().map_err(StoreError::from)
    }
}

/// Active generations, and those with WorkItems that are neither done (4) nor dead (5).
const SERVING: &str = "\
    SELECT generation.pack, generation.number, generation.number = pack.active_generation, generation.digest, \
    generation.manifest, generation.component \
    FROM generation JOIN pack ON pack.name = generation.pack \
    WHERE generation.number = pack.active_generation OR (SELECT sum(counter.count) FROM work_item_counter AS counter \
    WHERE counter.pack = generation.pack AND counter.generation = generation.number AND counter.state < 4) > 0 \
    ORDER BY generation.pack, generation.number";

/// The number that a digest has, and the last one of its pack.
const NUMBERS: &str = "\
    SELECT (SELECT number FROM generation WHERE pack = ? AND digest = ?), \
    (SELECT max(number) FROM generation WHERE pack = ?)";

const INSERT_GENERATION: &str = "\
    INSERT INTO generation (pack, number, digest, installed_at, manifest, component) VALUES (?, ?, ?, ?, ?, ?)";

/// A pack to be installed and made active.
#[derive(Debug, Clone)]
pub(super) struct Installation {
    pack: PackName,
    digest: [u8; 32],
    manifest: String,
    component: Bytes,
    now: Timestamp,
}

static INSERT_NAMESPACES: Statement = Statement::insert("namespace (name, created_at)", 2, Conflict::Keep("name"));

static LOCK_PACK: Statement = Statement::lock(
    "(name)",
    1,
    "SELECT pack.active_generation FROM wanted CROSS JOIN pack ON pack.name = wanted.name",
    Lock::Update,
);

static ACTIVATE: Statement =
    Statement::insert("pack (name, active_generation)", 2, Conflict::Set("name", "active_generation"));

/// Makes namespaces known.
pub(super) async fn ensure_namespaces(
    unit: &mut Unit<'_>,
    requests: Vec<(Vec<Namespace>, Timestamp)>,
) -> Result<Answers<()>, sqlx::Error> {
    let answers = requests.iter().map(|_| Ok(())).collect();
    let names = requests.into_iter().flat_map(|(names, now)| names.into_iter().map(move |name| (name, now))).collect();
    INSERT_NAMESPACES
        .execute(&mut unit.connection, names, |values, (name, now)| {
            values.push(name.as_str()).time(now);
        })
        .await?;
    Ok(answers)
}

/// Installs packs, in order.
pub(super) async fn install(
    unit: &mut Unit<'_>,
    installations: Vec<Installation>,
) -> Result<Answers<Installed>, sqlx::Error> {
    let mut answers = Vec::with_capacity(installations.len());
    for installation in installations {
        answers.push(Ok(install_one(unit, installation).await?));
    }
    Ok(answers)
}

async fn install_one(unit: &mut Unit<'_>, installation: Installation) -> Result<Installed, sqlx::Error> {
    let Installation { pack, digest, manifest, component, now } = installation;
    let bind_name = |values: &mut Values, pack: PackName| {
        values.push(pack.as_str());
    };
    LOCK_PACK.execute(&mut unit.connection, vec![pack.clone()], bind_name).await?;
    let numbers = values![pack.as_str(), digest.as_slice(), pack.as_str()];
    let row = unit.connection.fetch_one(NUMBERS, numbers).await?;
    let known = row.optional_unsigned_32(0)?;
    let last = row.optional_unsigned_32(1)?;
    let number = known.unwrap_or_else(|| last.unwrap_or(0) + 1);
    if known.is_none() {
        let generation =
            values![pack.as_str(), number, digest.as_slice(), now.as_millis(), manifest, Vec::from(component)];
        unit.connection.execute(INSERT_GENERATION, generation).await?;
    }
    let activate = |values: &mut Values, pack: PackName| {
        values.push(pack.as_str()).push(number);
    };
    ACTIVATE.execute(&mut unit.connection, vec![pack], activate).await?;
    Ok(Installed { number: GenerationNumber(number), new: known.is_none() })
}
