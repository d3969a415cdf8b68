//! Compiled code as a file: sealed with a digest, and the only place where it is taken back.
//!
//! This file holds the host's one `unsafe`: wasmtime maps what it deserializes as machine code and cannot check it.
//! What makes it sound:
//! - Only this host writes artifacts, from components that it compiled itself: nobody can hand one in.
//! - They lie in a directory that only the host's own user can enter (see `cache`).
//! - A torn, altered or misplaced file fails its digest, which covers the key that it was stored under.
//! - wasmtime itself refuses code of another version or of other settings.

#![allow(unsafe_code, reason = "the one door to `Component::deserialize`, for the reasons above")]

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

const DIGEST_BYTES: usize = 32;

/// Why a file is not the artifact that was stored under its key.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    /// It is not what was written.
    #[error("its digest does not match: it was torn or altered")]
    Altered,
    /// The engine does not take it.
    #[error("{0:#}")]
    Refused(wasmtime::Error),
}

/// The bytes of a file that keeps compiled code under `key`.
pub(super) fn seal(key: &str, code: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(DIGEST_BYTES + code.len());
    sealed.extend_from_slice(&digest(key, code));
    sealed.extend_from_slice(code);
    sealed
}

/// The component that was sealed under `key`.
pub(super) fn open(engine: &Engine, key: &str, sealed: &[u8]) -> Result<Component, Unusable> {
    let Some((stored, code)) = sealed.split_first_chunk::<DIGEST_BYTES>() else { return Err(Unusable::Altered) };
    if *stored != digest(key, code) {
        return Err(Unusable::Altered);
    }
    // SAFETY: the bytes are what `Component::serialize` gave to `seal` in this host, as the module's invariants say.
    unsafe { Component::deserialize(engine, code) }.map_err(Unusable::Refused)
}

fn digest(key: &str, code: &[u8]) -> [u8; DIGEST_BYTES] {
    Sha256::new().chain_update(key).chain_update([0]).chain_update(code).finalize().into()
}
