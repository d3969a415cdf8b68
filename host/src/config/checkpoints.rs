//! `[checkpoints]`: copies of the Delay Shards' indexes, in a folder or a bucket.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sources::Settings;
use super::units;
use crate::model::url;
use crate::secrets::Secret;

/// `[checkpoints]`.
#[derive(Debug, Clone)]
pub struct CheckpointsConfig {
    /// How often; `None` for only when an operator asks.
    pub every: Option<Duration>,
    /// How many of a shard are kept.
    pub kept: u32,
    /// Where.
    pub place: CheckpointsPlace,
}

/// Where checkpoints are kept.
#[derive(Debug, Clone)]
pub enum CheckpointsPlace {
    /// This folder; without one, a folder in the data directory.
    Folder(Option<PathBuf>),
    /// A bucket of an object store that speaks S3.
    Bucket(BucketConfig),
}

/// A bucket.
#[derive(Debug, Clone)]
pub struct BucketConfig {
    /// Its name.
    pub bucket: String,
    /// What the names of all objects begin with.
    pub prefix: String,
    /// Its region.
    pub region: String,
    /// Where the object store is, if it is not Amazon's.
    pub endpoint: Option<String>,
    /// The access key ID.
    pub access_key_id: String,
    /// The secret access key.
    pub secret_access_key: Secret,
    /// Certificate authorities that are trusted in addition to the public ones.
    pub ca_file: Option<PathBuf>,
}

/// The section as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CheckpointsDocument {
    #[serde(rename = "every_seconds", with = "units::seconds")]
    every: Duration,
    kept: u32,
    folder: Option<PathBuf>,
    bucket: Option<String>,
    prefix: Option<String>,
    region: String,
    endpoint: Option<String>,
    access_key_id: Option<String>,
    secret_access_key: Option<String>,
    ca_file: Option<PathBuf>,
}

impl Default for CheckpointsDocument {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(600),
            kept: 3,
            folder: None,
            bucket: None,
            prefix: None,
            region: "us-east-1".to_owned(),
            endpoint: None,
            access_key_id: None,
            secret_access_key: None,
            ca_file: None,
        }
    }
}

impl CheckpointsDocument {
    pub(super) fn check(self, settings: &mut Settings) -> CheckpointsConfig {
        let every = Some(self.every).filter(|every| !every.is_zero());
        let kept = self.kept;
        CheckpointsConfig { every, kept, place: self.place(settings) }
    }

    fn place(self, settings: &mut Settings) -> CheckpointsPlace {
        let Some(bucket) = self.bucket else {
            let of_a_bucket = [
                ("checkpoints.prefix", self.prefix.is_some()),
                ("checkpoints.endpoint", self.endpoint.is_some()),
                ("checkpoints.access_key_id", self.access_key_id.is_some()),
                ("checkpoints.secret_access_key", self.secret_access_key.is_some()),
                ("checkpoints.ca_file", self.ca_file.is_some()),
            ];
            for (key, _) in of_a_bucket.into_iter().filter(|(_, is_set)| *is_set) {
                settings.refuse(key, "is for a bucket: set `checkpoints.bucket` too");
            }
            return CheckpointsPlace::Folder(self.folder);
        };
        if self.folder.is_some() {
            settings.refuse("checkpoints.folder", "must not be set together with `checkpoints.bucket`");
        }
        if let Some(Err(error)) = self.endpoint.as_deref().map(url::parse) {
            settings.refuse("checkpoints.endpoint", format_args!("{error}, like https://s3.example.com:9000"));
        }
        let mut needed = |key, value: Option<String>| match value {
            Some(value) => value,
            None => {
                settings.refuse(key, "is needed for a bucket");
                String::new()
            }
        };
        let access_key_id = needed("checkpoints.access_key_id", self.access_key_id);
        let secret = needed("checkpoints.secret_access_key", self.secret_access_key);
        CheckpointsPlace::Bucket(BucketConfig {
            bucket,
            prefix: self.prefix.unwrap_or_default(),
            region: self.region,
            endpoint: self.endpoint,
            access_key_id,
            secret_access_key: Secret::new(secret.into_bytes()),
            ca_file: self.ca_file,
        })
    }
}
