//! File descriptors: as many as the machine's administrator lets this process have, and whether they are enough.
//!
//! Every connection takes one. Without one left nobody is let in, and RocksDB and SQLite cannot open their files:
//! better to say so at the start than under load.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::StartError;
use crate::config::{Config, PublishConfig};
use crate::intake;
use crate::lanes::DESCRIPTORS_FLOOR;
use crate::publish;
use crate::timeline;

/// What a reader of the store, its writer and its checkpoints hold open each: the database, its log and its shared
/// memory.
const PER_STORE_CONNECTION: usize = 3;
/// The writer and the checkpoints.
const STORE_WRITERS: usize = 2;
/// Connections to destinations that are kept room for, whatever else is open.
const CHANNELS_KEPT: usize = 32;
/// Listeners, operators' connections, the runtimes' own, standard streams.
const OTHERS: usize = 64;

/// Raises this process's limit as far as it may, says so, and refuses a configuration that does not fit.
pub(super) fn provide(config: &Config) -> Result<(), StartError> {
    let limit = raise();
    match limit {
        Some(limit) => tracing::info!(limit, "file descriptors"),
        None => tracing::info!("file descriptors without limit"),
    }
    check(config, limit)
}

/// Raises the soft limit to the hard one. Returns what holds now; `None` is no limit.
fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, "the limit of file descriptors cannot be raised");
            current
        }
    }
}

/// Whether the descriptors are enough for intake, for the host's own files and for what is kept for publishing, without
/// which nothing works. That they may not
/// be enough for every publish attempt at once is a warning: such an attempt is made again.
fn check(config: &Config, limit: Option<u64>) -> Result<(), StartError> {
    let Some(limit) = limit else { return Ok(()) };
    let needed = own(config) + kept(config) + intake::descriptors(config.intake.requests_max);
    if needed as u64 > limit {
        return Err(StartError::Descriptors { requests_max: config.intake.requests_max, needed, limit });
    }
    if let Some(advice) = Descriptors::within(config, Some(limit)).advise(config.destinations.len()) {
        tracing::warn!("{advice}");
    }
    Ok(())
}

/// What there is for destinations, which may become more while the host runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descriptors {
    limit: Option<u64>,
    /// What everything else takes.
    others: usize,
    in_flight_max: usize,
    idle_connections_max: usize,
}

impl Descriptors {
    /// What this process has.
    pub(super) fn of(config: &Config) -> Self {
        Self::within(config, getrlimit(Resource::Nofile).current)
    }

    fn within(config: &Config, limit: Option<u64>) -> Self {
        let needed = own(config) + kept(config) + intake::descriptors(config.intake.requests_max);
        let PublishConfig { in_flight_max, idle_connections_max, .. } = config.publish;
        let others = needed.saturating_sub(channels_kept(config));
        Self { limit, others, in_flight_max, idle_connections_max }
    }

    /// What to do about so many destinations, if there is not enough for everything at once.
    pub(super) fn advise(&self, destinations: usize) -> Option<String> {
        let limit = self.limit?;
        let wanted = self.others + publish::channels_max(self.in_flight_max, destinations, self.idle_connections_max);
        (wanted as u64 > limit).then(|| {
            format!(
                "too few file descriptors for everything at once ({wanted} of {limit}): raise the limit (LimitNOFILE, ulimit -n), \
                 or lower intake.requests_max, publish.in_flight_max or publish.idle_connections_max"
            )
        })
    }
}

/// What the host holds open beside connections to providers and destinations.
fn own(config: &Config) -> usize {
    let store_connections = config.store.readers as usize + STORE_WRITERS;
    store_connections * PER_STORE_CONNECTION + timeline::descriptors(config.store.shards) + OTHERS
}

/// What is kept for calling destinations: without it, what has begun could not be ended. The floor stays free, for
/// publishing slows down before the last ones are taken.
fn kept(config: &Config) -> usize {
    DESCRIPTORS_FLOOR as usize + channels_kept(config)
}

fn channels_kept(config: &Config) -> usize {
    config.publish.in_flight_max.min(CHANNELS_KEPT)
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;

    // WRK-3
    #[test]
    fn a_budget_that_does_not_fit_the_limit_is_refused_with_what_to_do() {
        let defaults = config(&[]);
        assert!(check(&defaults, None).is_ok());
        assert!(check(&defaults, Some(1_024)).is_ok(), "the defaults fit the usual limit");

        let large = config(&[("intake.requests_max", "1000")]);
        let needed = own(&large) + kept(&large) + 2_000 + 64;
        assert!(check(&large, Some(needed as u64)).is_ok());
        let refused = check(&large, Some(1_024)).unwrap_err().to_string();
        let expected = format!(
            "intake.requests_max = 1000 needs {needed} file descriptors, and this process may have 1024: raise the limit \
             (LimitNOFILE, ulimit -n), or lower intake.requests_max"
        );
        assert_eq!(refused, expected);
    }

    #[test]
    fn the_limit_is_as_high_as_it_may_be() {
        let raised = raise();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!((current, raised), (maximum, maximum));
    }
}
