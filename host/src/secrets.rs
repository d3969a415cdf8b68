//! Secrets that the operator holds: files of one directory, opened through a capability and never logged.
//!
//! `DIR/{namespace}/{name}` is a tenant's own secret, `DIR/{name}` the one that tenants share. A file holds one secret
//! a line, the newest first: during a rotation all of them verify, and messages are signed with each.
//!
//! What a pack's readers send to its provider lies in a folder of that pack, `DIR/{namespace}/{pack}.pack/{name}` or
//! `DIR/{pack}.pack/{name}`: a manifest names both the secret and where it goes, so it is given the pack's own only.
//!
//! Invariants:
//! - Nothing outside the directory is read, whatever names and symbolic links say. No name has a dot: no other secret
//!   is in a pack's folder.
//! - No error, log line or `Debug` output carries a byte of a secret; files are named relative to the directory.
//! - An empty secret does not exist: it would let everybody sign.
//! - Removing a file revokes its secrets within [`RECHECK_AFTER`]; what was read before is not held on to.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cap_std::fs::{Dir, MetadataExt};

use crate::env::Env;
use crate::model::names::{Namespace, PackName, SecretName};

/// For how long a file is taken to be as it was last read.
pub const RECHECK_AFTER: Duration = Duration::from_secs(2);

/// The largest file of secrets, in bytes.
pub const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The most secrets in one file. Each costs one keyed hash over every body that it does not verify.
pub const SECRETS_PER_FILE_MAX: usize = 8;

/// The permission bit that lets every user of the machine read a file.
const READABLE_BY_OTHERS: u32 = 0o004;

/// One secret. It shows itself to nobody: `Debug` prints no byte of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// From its bytes.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes, for a signature.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Why a secret could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// There is no such file.
    #[error(
        "there is no secret `{name}` for namespace `{namespace}`: write it to {namespace}/{file} or {file} in the secrets directory"
    )]
    Missing {
        /// The tenant.
        namespace: Namespace,
        /// The secret.
        name: SecretName,
        /// The file that would hold it for all tenants.
        file: String,
    },
    /// The file or the directory cannot be used.
    #[error("secret {what}: {reason}")]
    Unusable {
        /// Which one.
        what: String,
        /// Why.
        reason: String,
    },
}

/// The operator's secrets; clones share them.
#[derive(Clone)]
pub struct Secrets {
    shared: Arc<Shared>,
}

struct Shared {
    directory: Dir,
    env: Env,
    /// Asked for by routes, readers and destinations only, never by what a request says, so configuration bounds it.
    files: Mutex<HashMap<Wanted, CachedFile>>,
}

/// A secret that somebody asks for.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Wanted {
    namespace: Namespace,
    /// The pack that sends it, if it is for nothing else.
    sender: Option<PackName>,
    name: SecretName,
}

impl Wanted {
    /// The file that holds it for all tenants.
    fn file(&self) -> String {
        match &self.sender {
            Some(pack) => format!("{}/{}", folder_of_pack(pack), self.name),
            None => self.name.to_string(),
        }
    }
}

/// The folder, for all tenants, of what a pack's readers send.
pub fn folder_of_pack(pack: &PackName) -> String {
    format!("{pack}.pack")
}

/// What reading a secret came to, errors included: a request storm on a route without its secret reads no disk.
struct CachedFile {
    result: Result<Arc<[Secret]>, SecretError>,
    read_at: Duration,
    readable_by_others: bool,
}

/// What one file holds.
struct SecretFile {
    secrets: Arc<[Secret]>,
    readable_by_others: bool,
}

impl Secrets {
    /// Opens the directory.
    pub fn open(directory: &Path, env: Env) -> Result<Self, SecretError> {
        let opened = Dir::open_ambient_dir(directory, cap_std::ambient_authority()).map_err(|error| {
            let what = format!("directory `{}`", directory.display());
            SecretError::Unusable { what, reason: format!("cannot be opened: {error}") }
        })?;
        Ok(Self { shared: Arc::new(Shared { directory: opened, env, files: Mutex::new(HashMap::new()) }) })
    }

    /// Of a directory that holds nothing: what would be found in one that is not there yet.
    pub fn none(env: Env) -> Result<Self, SecretError> {
        let unusable = |error: io::Error| SecretError::Unusable {
            what: "directory".to_owned(),
            reason: format!("cannot be stood in for: {error}"),
        };
        let empty = tempfile::tempdir().map_err(unusable)?;
        Self::open(empty.path(), env)
    }

    /// The secrets of this name, newest first, at least one. A changed file is seen within [`RECHECK_AFTER`].
    ///
    /// Reads a small local file at most once in that time and a map otherwise, so that it may be called where a thread
    /// must not block for long.
    pub fn get(&self, namespace: &Namespace, name: &SecretName) -> Result<Arc<[Secret]>, SecretError> {
        self.find(Wanted { namespace: namespace.clone(), sender: None, name: name.clone() })
    }

    /// The secrets of this name that a pack's readers may send, as [`Secrets::get`] finds those of everybody else.
    pub fn of_pack(
        &self,
        namespace: &Namespace,
        pack: &PackName,
        name: &SecretName,
    ) -> Result<Arc<[Secret]>, SecretError> {
        self.find(Wanted { namespace: namespace.clone(), sender: Some(pack.clone()), name: name.clone() })
    }

    fn find(&self, wanted: Wanted) -> Result<Arc<[Secret]>, SecretError> {
        let now = self.shared.env.clock.monotonic();
        let mut files = self.shared.files.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let before = files.get(&wanted);
        if let Some(file) = before
            && now.saturating_sub(file.read_at) < RECHECK_AFTER
        {
            return file.result.clone();
        }
        let warned = before.is_some_and(|file| file.readable_by_others);
        let file = self.shared.read(&wanted, now);
        if file.readable_by_others && !warned {
            let Wanted { namespace, name, .. } = &wanted;
            tracing::warn!(%namespace, %name, "every user of this machine can read this secret's file: chmod it to 0600");
        }
        let result = file.result.clone();
        files.insert(wanted, file);
        result
    }
}

impl Shared {
    fn read(&self, wanted: &Wanted, now: Duration) -> CachedFile {
        let Wanted { namespace, name, .. } = wanted;
        let shared = wanted.file();
        let found = self.read_file(&format!("{namespace}/{shared}")).and_then(|own| match own {
            Some(own) => Ok(own),
            None => self.read_file(&shared)?.ok_or_else(|| SecretError::Missing {
                namespace: namespace.clone(),
                name: name.clone(),
                file: shared,
            }),
        });
        let readable_by_others = found.as_ref().is_ok_and(|file| file.readable_by_others);
        CachedFile { result: found.map(|file| file.secrets), read_at: now, readable_by_others }
    }

    /// One file; `None` if there is none of that path.
    fn read_file(&self, path: &str) -> Result<Option<SecretFile>, SecretError> {
        let unusable = |reason: String| SecretError::Unusable { what: format!("`{path}`"), reason };
        let metadata = match self.directory.metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(unusable(format!("cannot be read: {error}"))),
        };
        // Asked before it is opened: opening a pipe would wait for a writer.
        if !metadata.is_file() {
            return Err(unusable("is not a regular file".to_owned()));
        }
        let mut bytes = Vec::new();
        let file = self.directory.open(path).map_err(|error| unusable(format!("cannot be opened: {error}")))?;
        file.take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| unusable(format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(unusable(format!("is larger than {FILE_BYTES_MAX} bytes")));
        }
        let secrets: Arc<[Secret]> = parse(&bytes).into();
        match secrets.len() {
            0 => Err(unusable("holds no secret: write one a line, the newest first".to_owned())),
            1..=SECRETS_PER_FILE_MAX => {
                Ok(Some(SecretFile { secrets, readable_by_others: metadata.mode() & READABLE_BY_OTHERS != 0 }))
            }
            count => Err(unusable(format!("holds {count} secrets; the most is {SECRETS_PER_FILE_MAX}"))),
        }
    }
}

/// Whether there is no file of that path. A shared secret may have the name of a namespace, so a path may run through a
/// file.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// One secret a line; line ends do not belong to it, and empty lines are none.
fn parse(bytes: &[u8]) -> Vec<Secret> {
    bytes
        .split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.is_empty())
        .map(Secret::new)
        .collect()
}

#[cfg(test)]
mod tests;
