//! Secrets that the operator holds: files of one directory, opened through a capability and never logged.
//!
//! `DIR/{namespace}/{name}` is a tenant's own secret, `DIR/{name}` the one that tenants share. A file holds one secret a
//! line, the newest first: during a rotation all of them verify, and the first signs.

use std::path::Path;
use std::sync::Arc;

use crate::model::names::{Namespace, SecretName};

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
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// There is no such file.
    #[error("there is no secret `{name}` for namespace `{namespace}`: write it to {namespace}/{name} or {name} in the secrets directory")]
    Missing {
        /// The tenant.
        namespace: Namespace,
        /// The secret.
        name: SecretName,
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
pub struct Secrets {}

impl Secrets {
    /// Opens the directory.
    pub fn open(directory: &Path) -> Result<Self, SecretError> {
        let _ = directory;
        todo!()
    }

    /// The secrets of this name, newest first, at least one. A changed file is seen within a few seconds.
    pub fn get(&self, namespace: &Namespace, name: &SecretName) -> Result<Arc<[Secret]>, SecretError> {
        let _ = (namespace, name);
        todo!()
    }
}
