//! The directories of a host. Whatever they hold belongs to its operator alone.

use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::{Launch, StartError};
use crate::store;

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

/// Whether a directory can be written to, or made where it is to be. Leaves nothing behind.
pub(super) fn check(path: &Path) -> Result<(), String> {
    if path.as_os_str().as_bytes().contains(&0) {
        return Err("it has a NUL byte in its name".to_owned());
    }
    let existing = path.ancestors().find(|place| place.exists()).unwrap_or(Path::new("/"));
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
    if !existing.is_dir() {
        return Err(format!("{} is not a directory", existing.display()));
    }
    tempfile::tempfile_in(existing)
        .map(drop)
        .map_err(|error| format!("{} cannot be written to: {error}", existing.display()))
}

/// Refuses a data directory that holds what belongs to a store, and no store: a disk that is not mounted, a restoration
/// that was not finished. To begin anew there would make the loss look like an empty house.
pub(super) fn check_store(data: &Path) -> Result<(), StartError> {
    if !store::is_missing(data) {
        return Ok(());
    }
    let holds_something = |name: &&str| std::fs::read_dir(data.join(name)).is_ok_and(|mut held| held.next().is_some());
    let left: Vec<&str> = ["timeline", "checkpoints"].into_iter().filter(holds_something).collect();
    if left.is_empty() {
        return Ok(());
    }
    let left = left.join(" and ");
    Err(unusable(
        data,
        format!(
            "it holds {left} of a store, and the store's database forebay.sqlite is missing or empty: mount the right disk, or \
             restore the database from a backup; to begin with an empty store, move {left} away"
        ),
    ))
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
