//! Reading the pack files that a host is to serve.

use std::path::{Path, PathBuf};

use super::StartError;
use crate::guest::{PackFile, read_pack_file};

/// Reads and checks every file, before anything is started.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<PackFile>, StartError> {
    paths.iter().map(|path| read_one(path)).collect()
}

fn read_one(path: &Path) -> Result<PackFile, StartError> {
    let refused = |reason: String| StartError::Pack { path: path.to_owned(), reason };
    let bytes = read_pack_file(path).map_err(|error| refused(format!("the pack cannot be read: {error}")))?;
    PackFile::parse(&bytes).map_err(|error| refused(error.to_string()))
}
