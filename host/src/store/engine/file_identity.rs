//! Which file a path names. A file that was moved away or replaced under the running host still takes writes, but
//! nobody would ever read them again.

use std::path::Path;

/// Identifies a file beyond its path: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// The file that `path` names now. Only looks: opening and closing the file would drop the locks that SQLite holds.
    #[cfg(unix)]
    pub(in crate::store) fn of(path: &Path) -> std::io::Result<Self> {
        use std::os::unix::fs::MetadataExt;

        let metadata = std::fs::metadata(path)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }

    /// Where files have no such numbers, an open file cannot be replaced either.
    #[cfg(not(unix))]
    pub(in crate::store) fn of(path: &Path) -> std::io::Result<Self> {
        std::fs::metadata(path).map(|_| Self { device: 0, inode: 0 })
    }
}
