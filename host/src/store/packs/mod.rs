//! Installed packs: their generations, and the active one of each. Also the namespaces.
//!
//! `installing` writes them.

pub(super) mod installing;

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};

use self::installing::{Activation, CHUNK_BYTES_MAX, Chunk, Installation};
use crate::model::generation::GenerationStage;
use crate::model::names::{Namespace, PackName};
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;
use crate::model::work_item::WorkState;
use crate::store::engine::codes::sql;
use crate::store::engine::row::{Columns, FromColumns, Sum};
use crate::store::engine::values::values;
use crate::store::writer::Control;
use crate::store::{Store, StoreError};

/// The generations of all packs that a listing shows, newest first; older ones are left out.
pub const GENERATIONS_SHOWN_MAX: u32 = 1_000;

/// The chunks of one read.
const CHUNKS_PER_READ: i64 = 4;

/// A generation that this host is to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServingGeneration {
    /// The pack.
    pub pack: PackName,
    /// The number.
    pub number: GenerationNumber,
    /// Whether new events are admitted under it; if not, unfinished work refers to it.
    pub active: bool,
}

/// A generation without its component.
#[derive(Debug, Clone)]
pub struct Generation {
    /// The pack.
    pub pack: PackName,
    /// The number.
    pub number: GenerationNumber,
    /// Whether new events are admitted under it.
    pub active: bool,
    /// SHA-256 of the pack file.
    pub digest: [u8; 32],
    /// SHA-256 of the component; equal to `digest` for components that were stored whole.
    pub component_digest: [u8; 32],
    /// The size of the component.
    pub component_bytes: u64,
    /// The time of installation.
    pub installed_at: Timestamp,
    /// The last activation.
    pub activated_at: Option<Timestamp>,
    /// The manifest's text.
    pub manifest: String,
}

/// A generation with the work that refers to it.
#[derive(Debug, Clone)]
pub struct GenerationStatus {
    /// The generation.
    pub generation: Generation,
    /// The unfinished WorkItems by state; a state without any is left out.
    pub unfinished: BTreeMap<WorkState, u64>,
    /// The actions that are not due yet.
    pub actions: u64,
}

/// The answer to an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Installed {
    /// The generation of the pack file.
    pub number: GenerationNumber,
    /// Whether the generation is new.
    pub new: bool,
}

/// The stage of a new generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Installing {
    /// Staged: the active generation stays.
    Staged,
    /// Active, in the same transaction.
    Active,
}

/// The answer to an activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activated {
    /// The generation is active now.
    Activated {
        /// The generation before it.
        previous: Option<GenerationNumber>,
    },
    /// The generation was active already.
    Already,
    /// The active generation is not the expected one.
    Overtaken {
        /// The active generation.
        active: Option<GenerationNumber>,
    },
    /// There is no such generation.
    NotFound,
}

impl GenerationStatus {
    /// The stage of the generation.
    pub fn stage(&self) -> GenerationStage {
        let unfinished = self.unfinished.values().sum::<u64>() + self.actions;
        GenerationStage::of(self.generation.active, self.generation.activated_at.is_some(), unfinished)
    }
}

impl Store {
    /// Stores namespaces; those that are stored stay as they are.
    pub async fn ensure_namespaces(&self, names: &[Namespace], now: Timestamp) -> Result<(), StoreError> {
        let names = names.to_vec();
        self.writer.control(|reply| Control::EnsureNamespaces((names, now), reply)).await
    }

    /// Installs a pack: its component first, a chunk a transaction, then the generation. A digest that is installed
    /// already keeps its number.
    ///
    /// After a crash in between, nothing refers to the chunks: the same installation uses them, or a later one of any
    /// pack removes them.
    pub async fn install_pack(
        &self,
        pack: &PackName,
        digest: [u8; 32],
        manifest: String,
        component: Bytes,
        installing: Installing,
        now: Timestamp,
    ) -> Result<Installed, StoreError> {
        let component_digest: [u8; 32] = Sha256::digest(&component).into();
        for (position, offset) in (0..).zip((0..component.len()).step_by(CHUNK_BYTES_MAX)) {
            let bytes = component.slice(offset..component.len().min(offset + CHUNK_BYTES_MAX));
            let chunk = Chunk { digest: component_digest, position, bytes, now };
            self.writer.control(|reply| Control::StoreChunk(chunk, reply)).await?;
        }
        let component_bytes = component.len() as u64;
        let pack = pack.clone();
        let installation = Installation { pack, digest, manifest, component_digest, component_bytes, installing, now };
        self.writer.control(|reply| Control::Install(installation, reply)).await
    }

    /// Makes a generation the active one of its pack, or none (`None`): new events are admitted under it from the
    /// commit on. With `expected`, only if the active one is that.
    pub async fn activate(
        &self,
        pack: &PackName,
        number: Option<GenerationNumber>,
        expected: Option<GenerationNumber>,
        now: Timestamp,
    ) -> Result<Activated, StoreError> {
        let activation = Activation { pack: pack.clone(), number, expected, now };
        self.writer.control(|reply| Control::Activate(activation, reply)).await
    }

    /// The active generations, and others that unfinished WorkItems or actions refer to, by pack and number.
    pub async fn serving_generations(&self) -> Result<Vec<ServingGeneration>, StoreError> {
        let mut reader = self.reader().await?;
        Ok(reader.connection().read_all(SERVING, values![]).await?)
    }

    /// One generation.
    pub async fn generation(
        &self,
        pack: &PackName,
        number: GenerationNumber,
    ) -> Result<Option<Generation>, StoreError> {
        let mut reader = self.reader().await?;
        Ok(reader.connection().read_optional(GENERATION, values![pack, number]).await?)
    }

    /// The generation of a pack file.
    pub async fn generation_of_file(
        &self,
        pack: &PackName,
        digest: [u8; 32],
    ) -> Result<Option<GenerationNumber>, StoreError> {
        let mut reader = self.reader().await?;
        let numbers = values![pack, digest, pack];
        let (known, _): (_, Option<GenerationNumber>) = reader.connection().read_one(NUMBERS, numbers).await?;
        Ok(known)
    }

    /// The generations of a pack, newest first; at most [`GENERATIONS_SHOWN_MAX`].
    pub async fn generations(&self, pack: &PackName) -> Result<Vec<Generation>, StoreError> {
        let mut reader = self.reader().await?;
        let listed = values![pack, pack, GENERATIONS_SHOWN_MAX];
        Ok(reader.connection().read_all(GENERATIONS, listed).await?)
    }

    /// All generations with the work that refers to them, by pack, newest first; at most [`GENERATIONS_SHOWN_MAX`].
    pub async fn list_generations(&self, pack: Option<&PackName>) -> Result<Vec<GenerationStatus>, StoreError> {
        let mut reader = self.reader().await?;
        let mut connection = reader.connection();
        let listed = values![pack, pack, GENERATIONS_SHOWN_MAX];
        let generations: Vec<Generation> = connection.read_all(GENERATIONS, listed).await?;
        let mut unfinished: BTreeMap<(PackName, GenerationNumber), BTreeMap<WorkState, u64>> = BTreeMap::new();
        for (key, state, Sum(count)) in connection.read_all(UNFINISHED, values![pack, pack]).await? {
            if count > 0 {
                unfinished.entry(key).or_default().insert(state, count);
            }
        }
        let actions = connection.read_all::<((PackName, GenerationNumber), u64)>(ACTIONS, values![]).await?;
        let mut actions: BTreeMap<_, _> = actions.into_iter().collect();
        let status = |generation: Generation| {
            let key = (generation.pack.clone(), generation.number);
            let unfinished = unfinished.remove(&key).unwrap_or_default();
            GenerationStatus { generation, unfinished, actions: actions.remove(&key).unwrap_or(0) }
        };
        Ok(generations.into_iter().map(status).collect())
    }

    /// A generation's component, compared with its digest.
    pub async fn component(&self, generation: &Generation) -> Result<Bytes, StoreError> {
        let expected = usize::try_from(generation.component_bytes).unwrap_or(usize::MAX);
        let mut component = BytesMut::new();
        let mut reader = self.reader().await?;
        for first in (0..).step_by(usize::try_from(CHUNKS_PER_READ).unwrap_or(1)) {
            let values = values![generation.component_digest, first, first + CHUNKS_PER_READ];
            let chunks: Vec<Bytes> = reader.connection().read_all(CHUNKS, values).await?;
            chunks.iter().for_each(|chunk| component.extend_from_slice(chunk));
            if chunks.is_empty() || component.len() >= expected {
                break;
            }
        }
        let component = component.freeze();
        // A component that was stored whole, before components had digests, is compared in size only.
        let known = generation.component_digest != generation.digest;
        let is_whole = component.len() == expected;
        if is_whole && (!known || Sha256::digest(&component)[..] == generation.component_digest) {
            return Ok(component);
        }
        Err(StoreError::Unusable(format!(
            "the component of generation {} of pack `{}` in the store is not what was installed ({} of {expected} bytes): \
             install the pack file again under another version, and activate that",
            generation.number,
            generation.pack,
            component.len()
        )))
    }
}

macro_rules! generation_columns {
    () => {
        "generation.pack, generation.number, generation.number = pack.active_generation, generation.digest, \
         generation.component_digest, generation.component_bytes, generation.installed_at, generation.activated_at, \
         generation.manifest"
    };
}

/// Actions that have neither been handed off nor ended, by the generation that applies them.
const ACTIONS: &str = "\
    SELECT action_pack, open_action, count(*) FROM message WHERE open_action IS NOT NULL GROUP BY action_pack, open_action";

/// Active generations, and those with WorkItems that may be claimed now or later, or with actions that wait.
/// Rows decide and not the counters: a generation that is not served would never be worked off. Blocked rows need no
/// look: each has a head. A subquery with a limit is run for each generation, and never becomes a table.
pub(super) const SERVING: &str = sql!(
    "SELECT generation.pack, generation.number, generation.number = pack.active_generation \
    FROM generation JOIN pack ON pack.name = generation.pack \
    WHERE generation.number = pack.active_generation OR (SELECT work_item.ordinal FROM work_item WHERE work_item.pack = generation.pack \
    AND work_item.work_type IN ({any_work_type}) AND work_item.generation = generation.number AND work_item.state IN ({claimable}) LIMIT 1) IS NOT NULL \
    OR EXISTS (SELECT 1 FROM message WHERE message.action_pack = generation.pack AND message.open_action = generation.number) \
    ORDER BY generation.pack, generation.number"
);

const GENERATION: &str = concat!(
    "SELECT ",
    generation_columns!(),
    " FROM generation JOIN pack ON pack.name = generation.pack WHERE generation.pack = ? AND generation.number = ?"
);

const GENERATIONS: &str = concat!(
    "SELECT ",
    generation_columns!(),
    " FROM generation JOIN pack ON pack.name = generation.pack WHERE (? IS NULL OR generation.pack = ?) \
     ORDER BY generation.pack, generation.number DESC LIMIT ?"
);

/// WorkItems that are neither done nor dead.
const UNFINISHED: &str = sql!(
    "SELECT pack, generation, state, CAST(sum(count) AS SIGNED) FROM work_item_counter WHERE state < {done} AND (? IS NULL OR pack = ?) \
    GROUP BY pack, generation, state"
);

/// The number of a digest, and the last number of its pack.
pub(super) const NUMBERS: &str = "\
    SELECT (SELECT number FROM generation WHERE pack = ? AND digest = ?), \
    (SELECT max(number) FROM generation WHERE pack = ?)";

const CHUNKS: &str =
    "SELECT bytes FROM component_chunk WHERE digest = ? AND position >= ? AND position < ? ORDER BY position";

impl FromColumns for ServingGeneration {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self { pack: columns.next()?, number: columns.next()?, active: columns.next()? })
    }
}

impl FromColumns for Generation {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        Ok(Self {
            pack: columns.next()?,
            number: columns.next()?,
            active: columns.next()?,
            digest: columns.next()?,
            component_digest: columns.next()?,
            component_bytes: columns.next()?,
            installed_at: columns.next()?,
            activated_at: columns.next()?,
            manifest: columns.next()?,
        })
    }
}
