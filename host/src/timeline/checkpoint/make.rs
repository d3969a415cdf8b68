//! Making a checkpoint, from the copy of the index to the removal of what it replaces.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::path::Path as ObjectPath;
use object_store::{ObjectStoreExt as _, PutPayload};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use tokio_util::sync::CancellationToken;

use super::manifest::{self, File, Manifest};
use super::{CheckpointError, Checkpoints, PART_BYTES, Purpose};
use crate::store::{CheckpointRow, ShardLease};
use crate::timeline::database::{Broken, Database};
use crate::timeline::keys::{self, Family};
use crate::timeline::values::ShardState;

/// What is read of a file at once when its digest is computed.
const READ_BYTES: usize = 1 << 20;

/// A checkpoint to be made.
pub(in crate::timeline) struct Job {
    /// Under which it is recorded.
    pub lease: ShardLease,
    /// Which one of this owner's.
    pub number: u64,
    pub database: Arc<Database>,
    /// Where the copy lies meanwhile: on the same disk as the index.
    pub staging: PathBuf,
    /// The shard is being given up.
    pub stop: CancellationToken,
}

/// A checkpoint that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::timeline) struct Made {
    pub row: CheckpointRow,
    /// What had to be uploaded for it.
    pub uploaded_bytes: u64,
}

/// A copy of an index.
struct IndexCopy {
    folder: PathBuf,
    /// What the index said of itself just before.
    state: ShardState,
    files: Vec<Found>,
}

/// A file of a copy.
struct Found {
    name: String,
    bytes: u64,
    digest: [u8; 32],
}

impl Checkpoints {
    /// Makes a checkpoint and has it count. Ends soon, with nothing that counts, once the job is stopped.
    pub(in crate::timeline) async fn make(&self, job: Job) -> Result<Made, CheckpointError> {
        let staging = job.staging.clone();
        let made = self.make_in_turn(job).await;
        if let Err(error) = Database::destroy(&staging) {
            tracing::warn!(path = %staging.display(), %error, "the copy of an index cannot be removed");
        }
        made
    }

    async fn make_in_turn(&self, job: Job) -> Result<Made, CheckpointError> {
        let Job { lease, number, database, staging, stop } = job;
        let _turn = tokio::select! {
            turn = self.at_once.acquire() => turn.expect("it is never closed"),
            () = stop.cancelled() => return Err(CheckpointError::Stopped),
        };
        // Never left before it is done: it has the index open.
        let copy = copy(database, staging, stop.clone()).await?;
        tokio::select! {
            made = self.put(lease, number, copy) => made,
            () = stop.cancelled() => Err(CheckpointError::Stopped),
        }
    }

    /// Uploads what of a copy is not there yet, and has it count.
    async fn put(&self, lease: ShardLease, number: u64, copy: IndexCopy) -> Result<Made, CheckpointError> {
        let IndexCopy { folder, state, files } = copy;
        let existing = self.list(lease.shard).await?;
        let known = self.known_files(&lease, &existing).await?;
        let mut manifest = Manifest {
            shard: lease.shard,
            epoch: lease.epoch,
            number,
            applied: state.applied,
            version: keys::version(),
            files: Vec::new(),
        };
        let mut uploaded_bytes = 0;
        for found in files {
            let epoch = match known.get(&found.digest) {
                Some(epoch) => *epoch,
                None => {
                    let path = self.file_path(lease.shard, lease.epoch, &found.digest);
                    self.upload(&path, &folder.join(&found.name)).await?;
                    uploaded_bytes += found.bytes;
                    lease.epoch
                }
            };
            let Found { name, bytes, digest } = found;
            manifest.files.push(File { name, bytes, digest, epoch });
        }
        let document = manifest.write(&self.root);
        let digest = manifest::digest(&document);
        let path = self.manifest_path(lease.shard, lease.epoch, number);
        self.operations.ask(Purpose::Keeping, self.objects.put(&path, PutPayload::from(document))).await?;
        let row = CheckpointRow {
            shard: lease.shard,
            epoch: lease.epoch,
            number,
            applied: state.applied,
            bytes: manifest.bytes(),
            digest,
            created_at: self.env.now(),
        };
        let kept = self.store.keep_checkpoint(lease, row.clone(), self.kept).await?.ok_or(CheckpointError::Fenced)?;
        self.clean_up(&lease, &kept, &existing).await;
        Ok(Made { row, uploaded_bytes })
    }

    /// The files of the newest checkpoint, by digest: those that are still there, and the epochs that they lie under.
    async fn known_files(
        &self,
        lease: &ShardLease,
        existing: &HashMap<ObjectPath, u64>,
    ) -> Result<HashMap<[u8; 32], u64>, CheckpointError> {
        let Some(newest) = self.store.checkpoints_of(lease.shard).await?.into_iter().next() else {
            return Ok(HashMap::new());
        };
        // One that cannot be read, or lies elsewhere, is of no use to this one.
        let Ok(manifest) = self.manifest(&newest, Purpose::Keeping).await else { return Ok(HashMap::new()) };
        let is_there = |file: &File| {
            let path = self.file_path(lease.shard, file.epoch, &file.digest);
            existing.get(&path) == Some(&file.bytes)
        };
        Ok(manifest.files.iter().filter(|file| is_there(file)).map(|file| (file.digest, file.epoch)).collect())
    }

    async fn upload(&self, object: &ObjectPath, path: &Path) -> Result<(), CheckpointError> {
        let mut file = tokio::fs::File::open(path).await?;
        let first = read_part(&mut file).await?;
        if first.len() < PART_BYTES {
            self.operations.ask(Purpose::Keeping, self.objects.put(object, PutPayload::from(first))).await?;
            return Ok(());
        }
        let mut upload = self.operations.ask(Purpose::Keeping, self.objects.put_multipart(object)).await?;
        let mut part = first;
        let uploaded = async {
            while !part.is_empty() {
                self.operations.ask(Purpose::Keeping, upload.put_part(PutPayload::from(part))).await?;
                part = read_part(&mut file).await?;
            }
            self.operations.ask(Purpose::Keeping, upload.complete()).await
        };
        match uploaded.await {
            Ok(_) => Ok(()),
            Err(error) => {
                // If it cannot be taken back either, the parts are the object store's to forget.
                let _ = self.operations.ask(Purpose::Keeping, upload.abort()).await;
                Err(error)
            }
        }
    }

    /// Removes what no checkpoint names that counts.
    pub(super) async fn clean_up(
        &self,
        lease: &ShardLease,
        kept: &[CheckpointRow],
        existing: &HashMap<ObjectPath, u64>,
    ) {
        let mut needed = HashSet::new();
        // Files of this epoch and of earlier ones may be needed by a manifest that cannot be read.
        let mut unknown_through = None;
        for row in kept {
            needed.insert(self.manifest_path(row.shard, row.epoch, row.number));
            match self.manifest(row, Purpose::Keeping).await {
                Ok(manifest) => {
                    let paths = manifest.files.iter().map(|file| self.file_path(row.shard, file.epoch, &file.digest));
                    needed.extend(paths);
                }
                // It lies elsewhere; or this owner has lost the shard, and a successor has replaced it that uses its
                // files.
                Err(super::Refused::Missing) => unknown_through = unknown_through.max(Some(row.epoch)),
                Err(refused) => {
                    let reason = refused.as_str();
                    tracing::warn!(shard = row.shard.0, reason, "old checkpoints are not removed now");
                    return;
                }
            }
        }
        let is_ours = |path: &&ObjectPath| {
            let epoch = self.epoch_of(lease.shard, path);
            epoch.is_some_and(|epoch| epoch <= lease.epoch && Some(epoch) > unknown_through)
        };
        self.remove(existing.keys().filter(is_ours).filter(|path| !needed.contains(path))).await;
    }
}

/// Copies an index into `folder`, on a thread where that may take its time.
async fn copy(database: Arc<Database>, folder: PathBuf, stop: CancellationToken) -> Result<IndexCopy, CheckpointError> {
    let copying = tokio::task::spawn_blocking(move || {
        Database::destroy(&folder)?;
        let state = database.get(Family::Meta, &keys::state(), ShardState::read)?;
        let state = state.ok_or(Broken::Torn { family: Family::Meta })?;
        database.copy(&folder)?;
        drop(database);
        let files = digests(&folder, &stop)?;
        Ok(IndexCopy { folder, state, files })
    });
    match copying.await {
        Ok(copied) => copied,
        Err(_panicked_or_cancelled) => Err(CheckpointError::Stopped),
    }
}

fn digests(folder: &Path, stop: &CancellationToken) -> Result<Vec<Found>, CheckpointError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        if stop.is_cancelled() {
            return Err(CheckpointError::Stopped);
        }
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            return Err(CheckpointError::Disk(std::io::Error::other("a file of the index has no name in UTF-8")));
        };
        let (bytes, digest) = digest_of(&entry.path())?;
        files.push(Found { name, bytes, digest });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

fn digest_of(path: &Path) -> std::io::Result<(u64, [u8; 32])> {
    let mut file = std::fs::File::open(path)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((bytes, digest.finalize().into())),
            read => {
                bytes += read as u64;
                digest.update(&buffer[..read]);
            }
        }
    }
}

/// The next part of a file; shorter only at its end.
async fn read_part(file: &mut tokio::fs::File) -> std::io::Result<Vec<u8>> {
    let mut part = Vec::new();
    file.take(PART_BYTES as u64).read_to_end(&mut part).await?;
    Ok(part)
}
