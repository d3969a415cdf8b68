//! Logs and metrics: where they go and how they look. What is logged and counted is decided where it happens.
//!
//! Invariant: no payload, secret, token or raw provider identifier is in a log line, a metric or its labels; labels
//! take few values.

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat, LogLevel};

/// A filter by module; overrides the configured level.
const FILTER_VARIABLE: &str = "FOREBAY_LOG";

/// What an author is shown.
const AUTHOR_FILTER: &str = "warn,guest=trace";

/// How often histograms are drained between two scrapes, so that they take no more memory than that.
pub const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Durations from 50 µs (a guest call) to 60 s (a slow destination).
const SECONDS_BUCKETS: [f64; 19] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0, 60.0,
];

/// How many things were done together.
const COUNT_BUCKETS: [f64; 12] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0, 2_048.0];

/// Sends log lines to standard error. The first call of a process counts.
pub fn start_logging(config: &LogConfig) -> Result<(), TelemetryError> {
    let filter = filter(level_word(config.level))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A line that cannot be written, because the disk is full, is lost. Saying so on standard error would panic
        // there.
        .log_internal_errors(false);
    // A second host in the same process logs to where the first does.
    let _ = match config.format {
        LogFormat::Text => lines.with_ansi(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    Ok(())
}

/// Sends log lines to standard error, for somebody who writes a pack: all that guests say, and of the host what may be
/// wrong.
pub fn start_author_logging() -> Result<(), TelemetryError> {
    let filter = filter(AUTHOR_FILTER)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time();
    let _ = lines.log_internal_errors(false).with_ansi(false).try_init();
    Ok(())
}

/// Whether the environment's filter, if it has one, can be used.
pub fn check_filter() -> Result<(), TelemetryError> {
    filter("").map(|_| ())
}

/// The filter of the environment, or else this one.
fn filter(otherwise: &str) -> Result<EnvFilter, TelemetryError> {
    match std::env::var(FILTER_VARIABLE) {
        Ok(directives) if !directives.is_empty() => EnvFilter::try_new(&directives)
            .map_err(|error| TelemetryError(format!("{FILTER_VARIABLE} is no log filter: {error}"))),
        Ok(_) | Err(_) => Ok(EnvFilter::new(otherwise)),
    }
}

/// The process's metrics. The first call starts to record them.
pub fn metrics() -> Result<PrometheusHandle, TelemetryError> {
    static HANDLE: OnceLock<Result<PrometheusHandle, String>> = OnceLock::new();
    HANDLE.get_or_init(|| install_recorder().map_err(|error| error.to_string())).clone().map_err(TelemetryError)
}

fn install_recorder() -> Result<PrometheusHandle, metrics_exporter_prometheus::BuildError> {
    PrometheusBuilder::new()
        .set_buckets(&COUNT_BUCKETS)?
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS_BUCKETS)?
        .install_recorder()
}

/// Logs and metrics cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TelemetryError(String);

const fn level_word(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // OBS-1
    #[test]
    fn durations_and_counts_have_buckets_of_their_own() {
        let metrics_of_this_process = metrics().unwrap();
        metrics::histogram!("forebay_telemetry_test_seconds").record(0.000_2);
        metrics::histogram!("forebay_telemetry_test_rows").record(100.0);
        let text = metrics_of_this_process.render();
        assert!(text.contains("forebay_telemetry_test_seconds_bucket{le=\"0.00025\"} 1"), "{text}");
        assert!(text.contains("forebay_telemetry_test_rows_bucket{le=\"128\"} 1"), "{text}");
        assert!(metrics().is_ok(), "a second host in the same process records to the same place");
    }
}
