//! Where checkpoints are kept: a folder, or a bucket of an object store that speaks S3.

use std::path::PathBuf;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;

use super::client::Client;
use crate::secrets::Secret;

/// A place for checkpoints.
#[derive(Debug, Clone)]
pub enum CheckpointPlace {
    /// A folder, made if it is not there. Other runtimes find checkpoints in it only if it is theirs as well.
    Folder(PathBuf),
    /// A bucket.
    S3(S3Place),
}

/// A bucket of an object store that speaks S3.
#[derive(Debug, Clone)]
pub struct S3Place {
    /// Its name.
    pub bucket: String,
    /// What the names of all objects begin with; may be empty.
    pub prefix: String,
    /// Its region.
    pub region: String,
    /// Where the store is, if it is not Amazon's: `https://host:port`.
    pub endpoint: Option<String>,
    /// Who asks.
    pub access_key_id: String,
    /// The proof of that.
    pub secret_access_key: Secret,
    /// Authorities whose certificates are taken beside the public ones.
    pub ca_file: Option<PathBuf>,
}

impl S3Place {
    /// What the names of all objects begin with, with a slash at its end unless it is empty.
    pub(super) fn prefix(&self) -> String {
        let prefix = self.prefix.trim_matches('/');
        if prefix.is_empty() { String::new() } else { format!("{prefix}/") }
    }
}

impl CheckpointPlace {
    pub(super) fn open(&self) -> Result<Arc<dyn ObjectStore>, String> {
        match self {
            CheckpointPlace::Folder(path) => {
                let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
                std::fs::create_dir_all(path).map_err(|error| named(&error))?;
                let folder = LocalFileSystem::new_with_prefix(path).map_err(|error| named(&error))?;
                Ok(Arc::new(folder.with_automatic_cleanup(true)))
            }
            CheckpointPlace::S3(place) => {
                let secret = std::str::from_utf8(place.secret_access_key.expose());
                let secret = secret.map_err(|_| "the secret access key is not text".to_owned())?;
                let mut builder = AmazonS3Builder::new()
                    .with_bucket_name(&place.bucket)
                    .with_region(&place.region)
                    .with_access_key_id(&place.access_key_id)
                    .with_secret_access_key(secret)
                    .with_http_connector(Client::new(place.ca_file.as_deref())?);
                if let Some(endpoint) = &place.endpoint {
                    builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
                }
                Ok(Arc::new(builder.build().map_err(|error| error.to_string())?))
            }
        }
    }
}
