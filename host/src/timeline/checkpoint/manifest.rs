//! The manifest of a checkpoint: whose it is, and the name, size and digest of each of its files.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::store::ShardId;

/// The layout that this version writes, and the only one that it reads.
const FORMAT: u32 = 2;
/// The largest manifest that is read.
pub(super) const MANIFEST_BYTES_MAX: u64 = 16 << 20;
/// The longest file name; RocksDB's own are shorter.
const NAME_BYTES_MAX: usize = 64;

/// A checkpoint's manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) shard: ShardId,
    pub(super) epoch: u64,
    pub(super) number: u64,
    /// At least this much of the feed is in it.
    pub(super) applied: u64,
    /// The version of the index's keys and values.
    pub(super) version: u8,
    pub(super) files: Vec<File>,
}

/// A file of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) digest: [u8; 32],
    /// The epoch of the owner that uploaded it.
    pub(super) epoch: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: u32,
    store: String,
    shard: u16,
    epoch: u64,
    number: u64,
    applied: u64,
    index_version: u8,
    files: Vec<FileDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDocument {
    name: String,
    bytes: u64,
    sha256: String,
    epoch: u64,
}

impl Manifest {
    /// The bytes of all files together.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// As it is stored; `store` is what it lies under.
    pub(super) fn write(&self, store: &str) -> Vec<u8> {
        let files = self.files.iter().map(|file| FileDocument {
            name: file.name.clone(),
            bytes: file.bytes,
            sha256: HEXLOWER.encode(&file.digest),
            epoch: file.epoch,
        });
        let document = Document {
            format: FORMAT,
            store: store.to_owned(),
            shard: self.shard.0,
            epoch: self.epoch,
            number: self.number,
            applied: self.applied,
            index_version: self.version,
            files: files.collect(),
        };
        serde_json::to_vec(&document).expect("numbers and texts can be written as JSON")
    }

    /// Reads [`Manifest::write`]; `None` for anything else, and for one of another store.
    pub(super) fn read(bytes: &[u8], store: &str) -> Option<Self> {
        let document: Document = serde_json::from_slice(bytes).ok()?;
        if document.format != FORMAT || document.store != store {
            return None;
        }
        let file = |file: FileDocument| {
            let digest = HEXLOWER.decode(file.sha256.as_bytes()).ok()?.try_into().ok()?;
            is_file_name(&file.name).then_some(File { name: file.name, bytes: file.bytes, digest, epoch: file.epoch })
        };
        Some(Self {
            shard: ShardId(document.shard),
            epoch: document.epoch,
            number: document.number,
            applied: document.applied,
            version: document.index_version,
            files: document.files.into_iter().map(file).collect::<Option<_>>()?,
        })
    }
}

/// SHA-256.
pub(super) fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Whether it names a file in the folder itself, as RocksDB names its own.
fn is_file_name(name: &str) -> bool {
    !name.starts_with('.')
        && (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str) -> Manifest {
        let file = File { name: name.to_owned(), bytes: 7, digest: [9; 32], epoch: 2 };
        Manifest { shard: ShardId(3), epoch: 4, number: 1, applied: 70, version: 2, files: vec![file] }
    }

    // TL-2
    #[test]
    fn a_manifest_is_read_as_it_was_written_and_by_its_own_store() {
        let written = manifest("000012.sst");
        assert_eq!(Manifest::read(&written.write("ours"), "ours"), Some(written.clone()));
        assert_eq!(Manifest::read(&written.write("theirs"), "ours"), None);
        assert_eq!(Manifest::read(b"{}", "ours"), None);
        let newer = String::from_utf8(written.write("ours")).unwrap().replace("\"format\":2", "\"format\":3");
        assert_eq!(Manifest::read(newer.as_bytes(), "ours"), None);
    }

    // TL-2
    #[test]
    fn a_file_name_that_leads_out_of_the_folder_is_none() {
        for name in ["", "..", "../CURRENT", "a/b", ".hidden", "/etc/passwd", "a\\b", "ä"] {
            assert_eq!(Manifest::read(&manifest(name).write("ours"), "ours"), None, "{name}");
        }
    }
}
