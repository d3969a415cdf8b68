//! Installed packs: their generations, and which one is active. Also the namespaces.

use bytes::Bytes;

use super::{Store, StoreError};
use crate::model::names::{Namespace, PackName};
use crate::model::pack::GenerationNumber;
use crate::model::time::Timestamp;

/// A generation as it is stored.
#[derive(Debug, Clone)]
pub struct Generation {
    /// The pack.
    pub pack: PackName,
    /// Its number.
    pub number: GenerationNumber,
    /// Whether new events are admitted under it.
    pub active: bool,
    /// SHA-256 of the pack file.
    pub digest: [u8; 32],
    /// The manifest's text.
    pub manifest: String,
    /// The component.
    pub component: Bytes,
}

/// What an installation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Installed {
    /// The generation that is active now.
    pub number: GenerationNumber,
    /// Whether it is new.
    pub new: bool,
}

impl Store {
    /// Makes namespaces known; those that are already known stay as they are.
    pub async fn ensure_namespaces(&self, names: &[Namespace], now: Timestamp) -> Result<(), StoreError> {
        let _ = (names, now);
        todo!()
    }

    /// Installs a pack and makes it active, in one transaction. One whose digest is already installed is only activated.
    pub async fn install_pack(
        &self,
        pack: &PackName,
        digest: [u8; 32],
        manifest: String,
        component: Bytes,
        now: Timestamp,
    ) -> Result<Installed, StoreError> {
        let _ = (pack, digest, manifest, component, now);
        todo!()
    }

    /// The active generations, and older ones that unfinished WorkItems still refer to.
    pub async fn serving_generations(&self) -> Result<Vec<Generation>, StoreError> {
        todo!()
    }
}
