//! Configuration: what an operator may set, checked once, in types that cannot be wrong.
//!
//! A setting comes from a TOML file, from an environment variable or from a command-line flag; the later of these wins.
//! Every key stands once in the table of [`keys`], which knows its type, its bounds, its environment variable and its
//! meaning; the reference in `docs/configuration.md` is written from it. A default stands once, in the section's
//! `Default`.
//!
//! Invariants:
//! - An unknown key or `FOREBAY_*` variable is an error that names the place and the nearest known key. Nothing is
//!   accepted and ignored.
//! - All problems are reported at once, and none of them repeats a value that may be a secret.
//! - Only `cli`, `app` and `telemetry` import this module. Every other module has a small options struct of its own.

mod check;
mod checkpoints;
mod destinations;
mod keys;
mod origins;
mod reference;
mod sections;
mod sources;
#[cfg(test)]
mod tests;
mod units;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use crate::model::destination::Destinations;
use crate::model::names::Namespace;
use crate::model::reading::ReaderOrigin;
use crate::secrets::Secret;

pub use checkpoints::{BucketConfig, CheckpointsConfig, CheckpointsPlace};
pub use destinations::{InFlightMax, destination, destination_value, ordering};
pub use reference::reference;
pub use sections::{
    AdminConfig, FlowConfig, GuestConfig, InboundConfig, IntakeConfig, LogConfig, LogFormat, LogLevel, PublishConfig,
    QueueProfile, RetentionConfig, ShutdownConfig, StoreConfig, TimelineConfig, TokenSource,
};

/// The shortest bearer token, in bytes: what cannot be guessed over a network.
pub const TOKEN_BYTES_MIN: usize = 16;

/// Everything that an operator may set.
#[derive(Debug, Clone)]
pub struct Config {
    /// The tenants; at least one, none twice.
    pub namespaces: Vec<Namespace>,
    /// Their shares of outbound service; that of one that is not here is 1.
    pub namespace_weights: BTreeMap<Namespace, u32>,
    /// Admission.
    pub intake: IntakeConfig,
    /// The operators' listener.
    pub admin: AdminConfig,
    /// How WorkItems are worked off.
    pub inbound: InboundConfig,
    /// How flows are run.
    pub flow: FlowConfig,
    /// The database that many hosts share, if it is not a file of this one: `mysql://user:password@host:port/database`.
    pub database_url: Option<Secret>,
    /// How the store works.
    pub store: StoreConfig,
    /// The Delay Shards.
    pub timeline: TimelineConfig,
    /// Copies of the Delay Shards' indexes.
    pub checkpoints: CheckpointsConfig,
    /// How destinations are called.
    pub publish: PublishConfig,
    /// How long what has ended is kept.
    pub retention: RetentionConfig,
    /// The engine that runs guests.
    pub guest: GuestConfig,
    /// What is logged, and how.
    pub log: LogConfig,
    /// How the host stops.
    pub shutdown: ShutdownConfig,
    /// The ways out.
    pub destinations: Destinations,
    /// Where readers call that do not call the hosts of their manifests.
    pub readers: Vec<ReaderOrigin>,
    /// Where each setting came from.
    origins: sources::Origins,
}

/// Where settings come from, the later overriding the earlier: defaults, the file, the environment, flags.
#[derive(Debug, Default)]
pub struct Sources<'a> {
    /// The TOML file.
    pub file: Option<&'a Path>,
    /// The environment; what does not begin with `FOREBAY_` is of no interest.
    pub environment: Vec<(OsString, OsString)>,
    /// Command-line flags that stand for keys.
    pub flags: Vec<FlagSetting>,
}

/// A command-line flag that stands for a key.
#[derive(Debug)]
pub struct FlagSetting {
    /// The flag, for error messages: `--intake`.
    pub flag: &'static str,
    /// The key that it sets: `intake.listen`.
    pub key: &'static str,
    /// Its value.
    pub value: String,
}

impl Config {
    /// Reads, merges and checks the settings.
    pub fn load(sources: &Sources<'_>) -> Result<Self, ConfigError> {
        let mut settings = sources::Settings::default();
        if let Some(path) = sources.file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| ConfigError::one(format!("{} cannot be read: {error}", path.display())))?;
            settings.add_file(&path.display().to_string(), &text);
        }
        settings.add_environment(&sources.environment);
        settings.add_flags(&sources.flags);
        check::check(settings)
    }
}

/// A setting that is right by itself, and that the machine or a module has no use for: its key, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The key.
    pub key: &'static str,
    /// What is wrong with it, in words that go on after its name.
    pub reason: String,
}

impl Config {
    /// What all destinations together may have in flight.
    pub fn in_flight_max(&self) -> InFlightMax {
        in_flight_max(&self.publish, &self.timeline)
    }

    /// These refusals, each with the place where its key was set.
    pub fn refused(&self, refusals: &[Refusal]) -> ConfigError {
        let problems =
            refusals.iter().map(|Refusal { key, reason }| sources::problem(&self.origins, key, reason)).collect();
        ConfigError { problems }
    }
}

fn in_flight_max(publish: &PublishConfig, timeline: &TimelineConfig) -> InFlightMax {
    let messages = publish.in_flight_max.min(timeline.claimed_max);
    InFlightMax { messages, bytes: publish.in_flight_bytes_max }
}

/// The most problems that one report lists.
const PROBLEMS_MAX: usize = 50;

/// Everything that is wrong with a configuration, a line each.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError {
    problems: Vec<String>,
}

impl ConfigError {
    fn one(problem: String) -> Self {
        Self { problems: vec![problem] }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration cannot be used:")?;
        for problem in self.problems.iter().take(PROBLEMS_MAX) {
            write!(f, "\n  {problem}")?;
        }
        match self.problems.len().checked_sub(PROBLEMS_MAX) {
            Some(more @ 1..) => write!(f, "\n  and {more} more"),
            Some(0) | None => Ok(()),
        }
    }
}
