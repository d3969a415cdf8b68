//! Installed packs: their generations, and which one is active. Also the namespaces.

use bytes::Bytes;

use super::statement::Statement;
use super::stored::Columns;
use super::unit::Unit;
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
        let rows = sqlx::query(SERVING).fetch_all(&self.readers()).await?;
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
    WHERE generation.number = pack.active_generation OR EXISTS (SELECT 1 FROM work_item_counter AS counter \
    WHERE counter.pack = generation.pack AND counter.generation = generation.number AND counter.state < 4 \
    AND counter.count > 0) \
    ORDER BY generation.pack, generation.number";

/// A pack to be installed and made active.
pub(super) struct Installation {
    pack: PackName,
    digest: [u8; 32],
    manifest: String,
    component: Bytes,
    now: Timestamp,
}

static INSERT_NAMESPACES: Statement = Statement::new(
    "INSERT INTO namespace (name, created_at) SELECT * FROM (",
    2,
    ") WHERE column1 IS NOT NULL ON CONFLICT (name) DO NOTHING",
);

/// Makes namespaces known.
pub(super) async fn ensure_namespaces(
    unit: &mut Unit<'_>,
    requests: Vec<(Vec<Namespace>, Timestamp)>,
) -> Result<Vec<Result<(), StoreError>>, sqlx::Error> {
    let answers = requests.iter().map(|_| Ok(())).collect();
    let names = requests.into_iter().flat_map(|(names, now)| names.into_iter().map(move |name| (name, now))).collect();
    INSERT_NAMESPACES
        .execute(unit.connection, names, |values, (name, now)| {
            values.push(name.as_str()).time(now);
        })
        .await?;
    Ok(answers)
}

/// Installs packs, in order.
pub(super) async fn install(
    unit: &mut Unit<'_>,
    installations: Vec<Installation>,
) -> Result<Vec<Result<Installed, StoreError>>, sqlx::Error> {
    let mut answers = Vec::with_capacity(installations.len());
    for installation in installations {
        answers.push(Ok(install_one(unit, installation).await?));
    }
    Ok(answers)
}

async fn install_one(unit: &mut Unit<'_>, installation: Installation) -> Result<Installed, sqlx::Error> {
    let Installation { pack, digest, manifest, component, now } = installation;
    let row = sqlx::query(
        "SELECT (SELECT number FROM generation WHERE pack = ? AND digest = ?), \
         (SELECT max(number) FROM generation WHERE pack = ?)",
    )
    .bind(pack.as_str())
    .bind(digest.as_slice())
    .bind(pack.as_str())
    .fetch_one(&mut *unit.connection)
    .await?;
    let known: Option<u32> = row.value(0)?;
    let last: Option<u32> = row.value(1)?;
    let number = known.unwrap_or_else(|| last.unwrap_or(0) + 1);
    if known.is_none() {
        sqlx::query(
            "INSERT INTO generation (pack, number, digest, installed_at, manifest, component) VALUES (?, ?, ?, ?, ?, ?)",
        )
        .bind(pack.as_str())
        .bind(number)
        .bind(digest.as_slice())
        .bind(now.as_millis())
        .bind(manifest)
        .bind(Vec::from(component))
        .execute(&mut *unit.connection)
        .await?;
    }
    sqlx::query(
        "INSERT INTO pack (name, active_generation) VALUES (?, ?) \
         ON CONFLICT (name) DO UPDATE SET active_generation = excluded.active_generation",
    )
    .bind(pack.as_str())
    .bind(number)
    .execute(&mut *unit.connection)
    .await?;
    Ok(Installed { number: GenerationNumber(number), new: known.is_none() })
}
