//! Fetching a checkpoint: the newest that counts and is whole, into a folder where RocksDB can open it.

use std::path::Path;

use futures_util::TryStreamExt as _;
use object_store::{Error as ObjectError, ObjectStoreExt as _};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;

use super::manifest::{self, File, MANIFEST_BYTES_MAX, Manifest};
use super::{CheckpointError, Checkpoints, Purpose};
use crate::store::{CheckpointRow, ShardId, StoreError};
use crate::timeline::database::Database;
use crate::timeline::keys;

/// Why a checkpoint is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::timeline) enum Refused {
    /// It, or a file of it, is not there.
    Missing,
    /// Something in it is not as it was written.
    Torn,
    /// It is another shard's, another store's, or of a version that this one does not know.
    Foreign,
    /// It is laid out as another version does.
    Outdated,
    /// Messages were removed since then that it may still hold.
    Trimmed,
    /// The object store cannot be asked, or this disk not be written to.
    Unreachable,
}

impl Refused {
    /// The word for it in metrics.
    pub(in crate::timeline) const fn as_str(self) -> &'static str {
        match self {
            Refused::Missing => "missing",
            Refused::Torn => "torn",
            Refused::Foreign => "foreign",
            Refused::Outdated => "outdated",
            Refused::Trimmed => "trimmed",
            Refused::Unreachable => "unreachable",
        }
    }
}

impl From<CheckpointError> for Refused {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Objects(ObjectError::NotFound { .. }) => Refused::Missing,
            CheckpointError::Copy(_)
            | CheckpointError::Disk(_)
            | CheckpointError::Objects(_)
            | CheckpointError::TooSlow
            | CheckpointError::Store(_)
            | CheckpointError::Fenced
            | CheckpointError::Stopped => {
                tracing::warn!(%error, "a checkpoint cannot be fetched");
                Refused::Unreachable
            }
        }
    }
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        CheckpointError::Disk(error).into()
    }
}

impl Checkpoints {
    /// The checkpoints of a shard that count, the newest first.
    pub(in crate::timeline) async fn of(&self, shard: ShardId) -> Result<Vec<CheckpointRow>, StoreError> {
        self.store.checkpoints_of(shard).await
    }

    /// Fetches a checkpoint into `path`, whole and checked, or leaves nothing there.
    pub(in crate::timeline) async fn fetch(&self, row: &CheckpointRow, path: &Path) -> Result<(), Refused> {
        let arriving = path.with_extension("arriving");
        let fetched = self.fetch_into(row, &arriving).await;
        let put = match fetched {
            Ok(()) => put_in_place(&arriving, path).map_err(Refused::from),
            Err(refused) => Err(refused),
        };
        if put.is_err()
            && let Err(error) = Database::destroy(&arriving)
        {
            tracing::warn!(path = %arriving.display(), %error, "what was fetched of a checkpoint cannot be removed");
        }
        put
    }

    async fn fetch_into(&self, row: &CheckpointRow, folder: &Path) -> Result<(), Refused> {
        let manifest = self.manifest(row, Purpose::Restoring).await?;
        if manifest.version != keys::version() {
            return Err(Refused::Outdated);
        }
        Database::destroy(folder)?;
        std::fs::create_dir_all(folder)?;
        for file in &manifest.files {
            self.fetch_file(row, file, folder).await?;
        }
        Ok(())
    }

    /// The manifest of a checkpoint that counts.
    pub(super) async fn manifest(&self, row: &CheckpointRow, purpose: Purpose) -> Result<Manifest, Refused> {
        let path = self.manifest_path(row.shard, row.epoch, row.number);
        let found = self.operations.ask(purpose, self.objects.get(&path)).await?;
        if found.meta.size > MANIFEST_BYTES_MAX {
            return Err(Refused::Torn);
        }
        let document = self.operations.ask(purpose, found.bytes()).await?;
        if manifest::digest(&document) != row.digest {
            return Err(Refused::Torn);
        }
        let manifest = Manifest::read(&document, &self.root).ok_or(Refused::Foreign)?;
        let is_it = (manifest.shard, manifest.epoch, manifest.number) == (row.shard, row.epoch, row.number);
        if is_it { Ok(manifest) } else { Err(Refused::Foreign) }
    }

    async fn fetch_file(&self, row: &CheckpointRow, file: &File, folder: &Path) -> Result<(), Refused> {
        let path = self.file_path(row.shard, file.epoch, &file.digest);
        let found = self.operations.ask(Purpose::Restoring, self.objects.get(&path)).await?;
        if found.meta.size != file.bytes {
            return Err(Refused::Torn);
        }
        let mut stream = found.into_stream();
        let mut written = tokio::fs::File::create_new(folder.join(&file.name)).await?;
        let mut digest = Sha256::new();
        let mut left = file.bytes;
        while let Some(chunk) = self.operations.ask(Purpose::Restoring, stream.try_next()).await? {
            left = left.checked_sub(chunk.len() as u64).ok_or(Refused::Torn)?;
            digest.update(&chunk);
            written.write_all(&chunk).await?;
        }
        // RocksDB believes that its tables are on the disk, and so are they before it sees them.
        written.sync_all().await?;
        let sum: [u8; 32] = digest.finalize().into();
        if left == 0 && sum == file.digest { Ok(()) } else { Err(Refused::Torn) }
    }
}

/// Puts what has arrived where it is opened: all of it, also if the machine loses its power meanwhile.
fn put_in_place(arriving: &Path, path: &Path) -> std::io::Result<()> {
    std::fs::File::open(arriving)?.sync_all()?;
    Database::destroy(path)?;
    std::fs::rename(arriving, path)?;
    match path.parent() {
        Some(folder) => std::fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
