//! The cache of compiled components: a directory that belongs to the host, a file a component.
//!
//! Invariants:
//! - The directory is the host user's own and closed to everybody else; it is reached through a capability.
//! - A file is complete under its final name or not there: written aside, then renamed.
//! - Losing it, or any file of it, costs a compilation and nothing else.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use super::LoadError;
use super::artifact;
use crate::env::Env;

/// Artifacts that are kept; the oldest go first.
const ENTRIES_MAX: usize = 64;
/// The largest artifact that is taken back.
const ARTIFACT_BYTES_MAX: u64 = 512 * 1024 * 1024;
const SUFFIX: &str = ".compiled";

/// The cache of one engine.
pub(super) struct ArtifactCache {
    directory: Dir,
    compatibility: u64,
    env: Env,
    compiled: AtomicU64,
}

impl ArtifactCache {
    /// Opens the directory, makes it if it is not there, and closes it to others.
    pub(super) fn open(path: &Path, engine: &Engine, env: Env) -> Result<Self, LoadError> {
        let unusable = |error: io::Error| {
            LoadError(format!("the cache of compiled packs, {}, cannot be used: {error}", path.display()))
        };
        std::fs::create_dir_all(path).map_err(unusable)?;
        // Only its owner may do this, so that it fails where the directory is somebody else's.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).map_err(unusable)?;
        let directory = Dir::open_ambient_dir(path, ambient_authority()).map_err(unusable)?;
        // Fixed keys: the same engine finds its artifacts again after a restart.
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Self { directory, compatibility: hasher.finish(), env, compiled: AtomicU64::new(0) })
    }

    /// Components that were compiled because they were not there.
    pub(super) fn compiled(&self) -> u64 {
        self.compiled.load(Ordering::Relaxed)
    }

    /// Takes a component's compiled form from the cache, or compiles it, and keeps it unless it was given up meanwhile.
    pub(super) fn get_or_compile(
        &self,
        engine: &Engine,
        component: &[u8],
        given_up: &AtomicBool,
    ) -> Result<Component, LoadError> {
        let key = format!("{}-{:016x}{SUFFIX}", HEXLOWER.encode(&Sha256::digest(component)), self.compatibility);
        if let Some(compiled) = self.get(engine, &key) {
            return Ok(compiled);
        }
        let compiled = Component::new(engine, component)
            .map_err(|error| LoadError(format!("the component cannot be compiled: {error:#}")))?;
        self.compiled.fetch_add(1, Ordering::Relaxed);
        if given_up.load(Ordering::Relaxed) {
            return Err(LoadError("the component took too long to compile".to_owned()));
        }
        // Without its artifact a component serves as well, and is compiled again next time.
        match compiled.serialize() {
            Ok(code) => {
                if let Err(error) = self.put(&key, &artifact::seal(&key, &code)) {
                    tracing::warn!(%error, "a compiled pack was not kept in the cache");
                }
            }
            Err(error) => tracing::warn!(error = format!("{error:#}"), "a compiled pack cannot be kept"),
        }
        Ok(compiled)
    }

    fn get(&self, engine: &Engine, key: &str) -> Option<Component> {
        let mut sealed = Vec::new();
        let file = self.directory.open(key).ok()?;
        if let Err(error) = file.take(ARTIFACT_BYTES_MAX).read_to_end(&mut sealed) {
            tracing::warn!(%error, "a compiled pack cannot be read: it is compiled again");
            return None;
        }
        match artifact::open(engine, key, &sealed) {
            Ok(compiled) => Some(compiled),
            Err(error) => {
                tracing::warn!(%error, "a compiled pack in the cache is not usable: it is compiled again");
                None
            }
        }
    }

    fn put(&self, key: &str, sealed: &[u8]) -> io::Result<()> {
        let aside = format!("{}.writing", HEXLOWER.encode(&self.env.id_entropy()));
        let written = self.directory.create(&aside).and_then(|mut file| {
            file.write_all(sealed)?;
            file.sync_all()?;
            self.directory.rename(&aside, &self.directory, key)
        });
        if written.is_err() {
            let _ = self.directory.remove_file(&aside);
        }
        written.and_then(|()| self.prune())
    }

    /// Removes what is over the bound, oldest first.
    fn prune(&self) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in self.directory.entries()? {
            let entry = entry?;
            entries.push((entry.metadata()?.modified()?, entry.file_name()));
        }
        entries.sort();
        for (_, name) in entries.iter().take(entries.len().saturating_sub(ENTRIES_MAX)) {
            self.directory.remove_file(name)?;
        }
        Ok(())
    }
}
