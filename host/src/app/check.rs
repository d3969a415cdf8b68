//! Settings that are right by themselves, held against this machine and the modules that they are for: before anything
//! is started, by a start, by `forebay config --check` and by the doctor alike.

use std::path::Path;

use super::{directories, options, token};
use crate::config::{CheckpointsPlace, Config, ConfigError, Refusal};
use crate::outbound;
use crate::telemetry::{self, TelemetryError};

/// Refuses a configuration of which a start could make nothing, whole: every setting that is wrong is named.
pub fn check(config: &Config) -> Result<(), ConfigError> {
    let found = [database(config), admin_token(config), authorities(config), checkpoints(config)];
    let refusals: Vec<Refusal> = found.into_iter().flatten().collect();
    if refusals.is_empty() { Ok(()) } else { Err(config.refused(&refusals)) }
}

/// Refuses an environment of which a start could make nothing, beside what the configuration reads of it.
pub fn check_environment() -> Result<(), TelemetryError> {
    telemetry::check_filter()
}

fn refused(key: &'static str, reason: impl Into<String>) -> Vec<Refusal> {
    vec![Refusal { key, reason: reason.into() }]
}

fn database(config: &Config) -> Vec<Refusal> {
    match options::parse_database(config) {
        Ok(_) => Vec::new(),
        Err(reason) => refused("database.url", format!("cannot be used: {reason}")),
    }
}

fn admin_token(config: &Config) -> Vec<Refusal> {
    match token::read(config.admin.token.as_ref()) {
        Ok(_) => Vec::new(),
        Err(reason) => refused("admin.token_file", format!("cannot be used: {reason}")),
    }
}

/// Files of certificate authorities.
pub(super) fn authorities(config: &Config) -> Vec<Refusal> {
    let of_bucket = match &config.checkpoints.place {
        CheckpointsPlace::Bucket(bucket) => bucket.ca_file.as_deref(),
        CheckpointsPlace::Folder(_) => None,
    };
    let files = [("publish.ca_file", config.publish.ca_file.as_deref()), ("checkpoints.ca_file", of_bucket)];
    let read =
        |(key, file): (&'static str, Option<&Path>)| match file.map(|file| (file, outbound::check_authorities(file))) {
            None | Some((_, Ok(()))) => Vec::new(),
            Some((file, Err(reason))) => refused(key, format!("names {}, which {reason}", file.display())),
        };
    files.into_iter().flat_map(read).collect()
}

/// The folder of checkpoints, if one is named.
pub(super) fn checkpoints(config: &Config) -> Vec<Refusal> {
    let CheckpointsPlace::Folder(Some(folder)) = &config.checkpoints.place else { return Vec::new() };
    match directories::check(folder) {
        Ok(()) => Vec::new(),
        Err(reason) => refused("checkpoints.folder", format!("cannot be used: {reason}")),
    }
}
