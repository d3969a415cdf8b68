//! The sections: what each key becomes, and its default.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;
use crate::secrets::Secret;

/// `[intake]`: the admission budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IntakeConfig {
    /// Where providers deliver.
    pub listen: SocketAddr,
    /// Requests in flight.
    pub requests_max: usize,
    /// Bytes of bodies in flight.
    #[serde(rename = "bytes_max_mib", with = "units::mib")]
    pub bytes_max: usize,
    /// Bytes of one body.
    #[serde(rename = "body_max_mib", with = "units::mib")]
    pub body_bytes_max: usize,
    /// From the end of a request's head to its answer.
    #[serde(rename = "deadline_ms", with = "units::millis")]
    pub deadline: Duration,
    /// The address that providers deliver to, without a path.
    pub public_url: Option<String>,
}

/// `[admin]`: the operators' listener.
#[derive(Debug, Clone)]
pub struct AdminConfig {
    /// Where operators ask.
    pub listen: SocketAddr,
    /// Where the bearer token comes from; a listener that is not on loopback has one.
    pub token: Option<TokenSource>,
}

/// Where the admin listener's bearer token comes from.
#[derive(Debug, Clone)]
pub enum TokenSource {
    /// From a setting.
    Given(Secret),
    /// From the first line of this file.
    File(PathBuf),
}

/// `[inbound]`: how WorkItems are worked off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InboundConfig {
    /// Executors of each pack.
    pub workers_per_pack: u32,
    /// Rows of one pack that may be `processing` at once; if it is not set, as many as the workers take.
    pub max_processing_rows: Option<u32>,
    /// How the executors of a pack are divided among queue classes.
    pub queue_profile: QueueProfile,
    /// Bytes of bodies that one pack may have in memory for its executions.
    #[serde(rename = "bodies_max_mib", with = "units::mib")]
    pub bodies_bytes_max: usize,
    /// Whether each stage of an execution is timed.
    pub stage_timing: bool,
    /// How long a claim lasts unless it is renewed.
    #[serde(rename = "lease_seconds", with = "units::seconds")]
    pub lease: Duration,
    /// The ceiling of the first delay after a failure.
    #[serde(rename = "retry_initial_ms", with = "units::millis")]
    pub retry_initial: Duration,
    /// The ceiling of every delay after a failure.
    #[serde(rename = "retry_max_ms", with = "units::millis")]
    pub retry_max: Duration,
    /// The failure with this number is a WorkItem's last.
    pub failures_max: u32,
}

/// How the executors of a pack are divided among queue classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueProfile {
    /// A quarter for latency, a quarter for bulk, the rest shared.
    Reserved,
    /// A quarter for latency, a quarter that serves bulk first, the rest shared.
    DefaultHeavy,
}

/// `[flow]`: how flows are run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FlowConfig {
    /// Wall time over prepare and run together; a manifest may ask for less.
    #[serde(rename = "deadline_ms", with = "units::millis")]
    pub deadline: Duration,
}

/// `[store]`: the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// Delay Shards.
    pub shards: u16,
    /// Requests that may wait for the writer.
    pub queue_requests_max: usize,
    /// Bytes of bodies that may wait for the writer.
    #[serde(rename = "queue_max_mib", with = "units::mib")]
    pub queue_bytes_max: usize,
    /// Connections of the reader pool.
    pub readers: u32,
    /// How long a read may wait for a connection.
    #[serde(rename = "read_timeout_ms", with = "units::millis")]
    pub read_timeout: Duration,
}

/// `[timeline]`: the Delay Shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimelineConfig {
    /// How long the ownership of a shard lasts unless it is renewed.
    #[serde(rename = "lease_seconds", with = "units::seconds")]
    pub lease: Duration,
    /// The longest pause between two looks at the feed.
    #[serde(rename = "poll_ms", with = "units::millis")]
    pub poll: Duration,
    /// Messages that one shard may have claimed at once.
    pub claimed_max: usize,
    /// Block cache and write buffers of all shards together.
    #[serde(rename = "memory_mib", with = "units::mib")]
    pub memory_bytes: usize,
    /// Tenants' shares of outbound service, as `namespace=weight`.
    pub namespace_weights: Vec<String>,
    /// The widest clock interval that messages are published under.
    #[serde(rename = "clock_uncertainty_max_ms", with = "units::millis")]
    pub clock_uncertainty_max: Duration,
}

/// `[publish]`: how destinations are called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PublishConfig {
    /// Messages between claim and outcome at once.
    pub in_flight_max: usize,
    /// Bytes of their bodies and headers.
    #[serde(rename = "in_flight_mib", with = "units::mib")]
    pub in_flight_bytes_max: usize,
    /// The most of a response body that is read.
    #[serde(rename = "response_max_kib", with = "units::kib")]
    pub response_bytes_max: usize,
    /// Networks that may be called although they are not public, in CIDR notation.
    pub allow_networks: Vec<String>,
    /// Authorities whose certificates are taken beside those of the public ones.
    pub ca_file: Option<PathBuf>,
    /// Idle connections kept for one destination.
    pub idle_connections_max: usize,
    /// How long an idle connection is kept.
    #[serde(rename = "idle_timeout_seconds", with = "units::seconds")]
    pub idle_timeout: Duration,
}

/// `[retention]`: how long what has ended is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionConfig {
    /// Days for Events.
    pub events_days: u32,
    /// Days for messages.
    pub messages_days: u32,
    /// Days for what failed; 0 keeps it.
    pub failed_days: u32,
    /// For how long the clock must have gone evenly before anything is removed.
    #[serde(rename = "start_after_seconds", with = "units::seconds")]
    pub start_after: Duration,
}

/// `[guest]`: the engine that runs guests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuestConfig {
    /// Instances that may live at once.
    pub instances_max: u32,
    /// The most memory that a manifest may ask for.
    #[serde(rename = "memory_max_mib", with = "units::mib")]
    pub memory_bytes_max: usize,
    /// The most fuel that a manifest may ask for, in millions of units.
    pub fuel_max_millions: u64,
    /// The most output that a manifest may ask for.
    #[serde(rename = "output_max_kib", with = "units::kib")]
    pub output_bytes_max: usize,
    /// The most messages that a manifest may ask for.
    pub messages_max: u32,
    /// The most log text that a manifest may ask for.
    #[serde(rename = "log_max_kib", with = "units::kib")]
    pub log_bytes_max: usize,
    /// Compilations that may run at once.
    pub compilations_max: usize,
    /// How long one may take.
    #[serde(rename = "compilation_max_seconds", with = "units::seconds")]
    pub compilation_time_max: Duration,
}

/// `[log]`: what is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// How a line looks.
    pub format: LogFormat,
    /// The least level that is logged.
    pub level: LogLevel,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The least level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What needs an operator.
    Error,
    /// What may come to need one.
    Warn,
    /// The host's own milestones.
    Info,
    /// Every decision.
    Debug,
    /// Everything.
    Trace,
}

/// `[shutdown]`: how the host stops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShutdownConfig {
    /// From the signal to the exit.
    #[serde(rename = "timeout_seconds", with = "units::seconds")]
    pub timeout: Duration,
}

impl Default for IntakeConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            // Twice as many connections are served; with the store's files they fit the usual limit of 1,024
            // descriptors.
            requests_max: 256,
            bytes_max: 256 * units::MIB,
            body_bytes_max: 25 * units::MIB,
            deadline: Duration::from_secs(10),
            public_url: None,
        }
    }
}

impl Default for InboundConfig {
    fn default() -> Self {
        Self {
            workers_per_pack: 64,
            max_processing_rows: None,
            queue_profile: QueueProfile::Reserved,
            bodies_bytes_max: 64 * units::MIB,
            stage_timing: false,
            lease: Duration::from_secs(30),
            retry_initial: Duration::from_secs(1),
            retry_max: Duration::from_secs(600),
            failures_max: 8,
        }
    }
}

impl Default for FlowConfig {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10) }
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            shards: 1,
            queue_requests_max: 8_192,
            queue_bytes_max: 128 * units::MIB,
            readers: 4,
            read_timeout: Duration::from_secs(5),
        }
    }
}

impl Default for TimelineConfig {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            poll: Duration::from_millis(500),
            claimed_max: 1_024,
            memory_bytes: 64 * units::MIB,
            namespace_weights: Vec::new(),
            clock_uncertainty_max: Duration::from_secs(1),
        }
    }
}

impl Default for PublishConfig {
    fn default() -> Self {
        Self {
            in_flight_max: 512,
            in_flight_bytes_max: 256 * units::MIB,
            response_bytes_max: 64 * units::KIB,
            allow_networks: Vec::new(),
            ca_file: None,
            idle_connections_max: 32,
            idle_timeout: Duration::from_secs(60),
        }
    }
}

impl Default for RetentionConfig {
    fn default() -> Self {
        // Ten minutes are enough for NTP to set a clock that came up wrong.
        Self { events_days: 30, messages_days: 30, failed_days: 0, start_after: Duration::from_secs(600) }
    }
}

impl Default for GuestConfig {
    fn default() -> Self {
        Self {
            instances_max: 128,
            memory_bytes_max: 256 * units::MIB,
            fuel_max_millions: 100_000,
            // Goes into the smallest packet that a database server may have.
            output_bytes_max: 30 * units::MIB,
            messages_max: 1_024,
            log_bytes_max: units::MIB,
            compilations_max: 1,
            // An engine for JavaScript takes half a minute of a core of its own.
            compilation_time_max: Duration::from_secs(300),
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: LogLevel::Info }
    }
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(25) }
    }
}
