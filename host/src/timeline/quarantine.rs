//! Quarantine: torn indexes are set aside for a later analysis, and never opened again.

use std::path::{Path, PathBuf};

use crate::store::ShardId;

/// How many of a shard are kept; older ones are removed.
const KEPT_MAX: usize = 2;

/// What the name of one that is set aside has behind the index's own.
const MARK: &str = ".torn-";

/// Renames the index in `path`, if there is one. Says where it lies then. `epoch` is that of the owner that found it
/// torn.
pub(super) fn set_aside(shard: ShardId, path: &Path, epoch: u64) -> std::io::Result<Option<PathBuf>> {
    if !path.exists() {
        return Ok(None);
    }
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
    // Epochs rise, and an owner may find more than one: numbers with all their digits sort as names do.
    let aside = (0..=u16::MAX).map(|number| path.with_file_name(format!("{name}{MARK}{epoch:020}-{number:05}")));
    let aside = aside.into_iter().find(|aside| !aside.exists());
    let aside = aside.ok_or_else(|| std::io::Error::other("there are too many that were set aside"))?;
    std::fs::rename(path, &aside)?;
    if let Err(error) = remove_older(path, &format!("{name}{MARK}")) {
        tracing::warn!(shard = shard.0, %error, "indexes that were set aside long ago cannot be removed");
    }
    Ok(Some(aside))
}

fn remove_older(path: &Path, prefix: &str) -> std::io::Result<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let mut aside = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)) {
            aside.push(entry.path());
        }
    }
    aside.sort();
    for older in aside.iter().rev().skip(KEPT_MAX) {
        std::fs::remove_dir_all(older)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // TL-1
    #[test]
    fn the_newest_that_were_set_aside_are_kept() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("shard-00007");
        assert_eq!(set_aside(ShardId(7), &path, 1).unwrap(), None);
        for epoch in [9, 10, 10, 11] {
            std::fs::create_dir(&path).unwrap();
            assert!(set_aside(ShardId(7), &path, epoch).unwrap().is_some_and(|aside| aside.exists()));
            assert!(!path.exists());
        }
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(
            left,
            ["shard-00007.torn-00000000000000000010-00001", "shard-00007.torn-00000000000000000011-00000"]
        );
    }
}
