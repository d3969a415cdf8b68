//! The directories of a host. Whatever they hold belongs to its operator alone.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::{Launch, StartError};

/// Readable and writable by the host's user only.
const MODE: u32 = 0o700;

/// Where a host keeps what.
pub(super) struct Directories {
    /// The database, in the data directory itself.
    pub(super) data: PathBuf,
    /// The Delay Shards' index; may be deleted while the host is stopped.
    pub(super) timeline: PathBuf,
    /// Checkpoints of that index, unless they are kept elsewhere.
    pub(super) checkpoints: PathBuf,
    /// Compiled packs; may be deleted at any time.
    pub(super) cache: PathBuf,
    /// The operator's secrets.
    pub(super) secrets: PathBuf,
}

/// Makes the directories that are missing, and shows that the host may write to its own.
pub(super) fn prepare(launch: &Launch) -> Result<Directories, StartError> {
    let data = launch.data.clone();
    let directories = Directories {
        timeline: data.join("timeline"),
        checkpoints: data.join("checkpoints"),
        cache: data.join("cache"),
        secrets: secrets(launch),
        data,
    };
    make(&directories.data)?;
    make(&directories.timeline)?;
    make(&directories.cache)?;
    if launch.secrets.is_none() {
        make(&directories.secrets)?;
    }
    tempfile::tempfile_in(&directories.data)
        .map_err(|error| unusable(&directories.data, format!("the data directory cannot be written to: {error}")))?;
    Ok(directories)
}

/// Where the operator's secrets are.
pub(super) fn secrets(launch: &Launch) -> PathBuf {
    launch.secrets.clone().unwrap_or_else(|| launch.data.join("secrets"))
}

fn make(path: &Path) -> Result<(), StartError> {
    DirBuilder::new()
        .recursive(true)
        .mode(MODE)
        .create(path)
        .map_err(|error| unusable(path, format!("the directory cannot be made: {error}")))
}

fn unusable(path: &Path, reason: String) -> StartError {
    StartError::Directory { path: path.to_owned(), reason }
}
