//! Destinations on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rfc3339;
use crate::model::destination::Destination;
use crate::model::destination_lane::Ordering;
use crate::model::message::UncertainPolicy;
use crate::store;
use crate::supervise::DestinationEntry;

/// `GET /api/v1/destinations`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Destinations {
    /// Destinations of the host's configuration, those that were set, and removed ones with pending messages, by name.
    pub items: Vec<DestinationOf>,
}

/// A destination, seen by this host.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DestinationOf {
    /// Its name.
    pub name: String,
    /// `configuration`, `set` or `removed`.
    pub origin: String,
    /// Version of its last change; null if it was never set.
    #[schema(required = true)]
    pub version: Option<u64>,
    /// Its settings; null if it cannot be called.
    #[schema(required = true)]
    pub settings: Option<DestinationSettings>,
    /// Why this host does not use what was set.
    #[schema(required = true)]
    pub trouble: Option<String>,
    /// Namespaces whose secret for it this host lacks.
    pub lacking: Vec<LackingSecret>,
    /// Messages to it that have not ended; null in a list, which does not count them.
    #[schema(required = true)]
    pub pending: Option<PendingMessages>,
    /// Time at which it was first set.
    #[schema(required = true)]
    pub created_at: Option<String>,
    /// Time of its last change.
    #[schema(required = true)]
    pub changed_at: Option<String>,
}

/// All keys of `[destinations.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DestinationSettings {
    /// Scheme, host and port; the rest may be a secret and is left out.
    pub url: String,
    /// Name of the secret, not the secret itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Time for one attempt.
    pub deadline_ms: u64,
    /// Pause after the first failed attempt.
    pub retry_initial_ms: u64,
    /// Longest pause between attempts.
    pub retry_max_ms: u64,
    /// Failed attempts until a message is dead.
    pub attempts_max: u32,
    /// What follows an uncertain attempt: `retry`, `hold` or `end`.
    pub uncertain: String,
    /// Statuses that are retried instead of ending a message.
    pub retry_statuses: Vec<String>,
    /// Messages in flight of one lane.
    pub in_flight_messages: u32,
    /// MiB in flight of one lane.
    pub in_flight_mib: u64,
    /// `none`, `exact` or `hashed`.
    pub ordering: String,
    /// Number of ordering domains if `ordering` is `hashed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering_domains: Option<u16>,
    /// Its share of service relative to other destinations of the namespace.
    pub weight: u32,
}

/// The body of `PUT` and `PATCH`: keys of `[destinations.NAME]`, with the rules of the configuration.
#[derive(Debug, ToSchema)]
pub struct DestinationKeys {
    /// The URL to which messages are posted.
    pub url: Option<String>,
    /// Name of the secret, not the secret itself.
    pub secret: Option<String>,
    /// Time for one attempt.
    pub deadline_ms: Option<u64>,
    /// Pause after the first failed attempt.
    pub retry_initial_ms: Option<u64>,
    /// Longest pause between attempts.
    pub retry_max_ms: Option<u64>,
    /// Failed attempts until a message is dead.
    pub attempts_max: Option<u32>,
    /// What follows an uncertain attempt: `retry`, `hold` or `end`.
    pub uncertain: Option<String>,
    /// Statuses that are retried instead of ending a message.
    pub retry_statuses: Option<Vec<String>>,
    /// Messages in flight of one lane.
    pub in_flight_messages: Option<u32>,
    /// MiB in flight of one lane.
    pub in_flight_mib: Option<u64>,
    /// `none`, `exact` or `hashed`.
    pub ordering: Option<String>,
    /// Number of ordering domains if `ordering` is `hashed`.
    pub ordering_domains: Option<u16>,
    /// Its share of service relative to other destinations of the namespace.
    pub weight: Option<u32>,
}

/// A secret that this host lacks.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LackingSecret {
    /// The namespace.
    pub namespace: String,
    /// The problem.
    pub reason: String,
}

/// A count of messages to a destination that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingMessages {
    /// Messages that were counted.
    pub messages: u64,
    /// Whether there may be more.
    pub more: bool,
}

/// The answer to `PUT` and `PATCH`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DestinationSet {
    /// The destination after the change.
    pub destination: DestinationOf,
    /// Remarks for the operator.
    pub notes: Vec<String>,
}

/// The answer to `DELETE`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DestinationRemoved {
    /// Its name.
    pub name: String,
    /// Version of this change.
    pub version: u64,
    /// Messages that wait until it is set again.
    pub pending: PendingMessages,
}

impl From<DestinationEntry> for DestinationOf {
    fn from(entry: DestinationEntry) -> Self {
        let DestinationEntry { name, destination, configured, set, trouble, lacking } = entry;
        let is_removed = set.as_ref().is_some_and(|row| row.removed);
        let origin = match (configured, is_removed) {
            (true, _) => "configuration",
            (false, true) => "removed",
            (false, false) => "set",
        };
        let overruled = configured && set.is_some() && !is_removed;
        let overruled = overruled.then(|| "it was set as well; this host uses its configuration".to_owned());
        Self {
            name: name.to_string(),
            origin: origin.to_owned(),
            version: set.as_ref().map(|row| row.version),
            settings: destination.as_ref().map(DestinationSettings::from),
            trouble: trouble.or(overruled),
            lacking: lacking
                .into_iter()
                .map(|(namespace, reason)| LackingSecret { namespace: namespace.to_string(), reason })
                .collect(),
            pending: None,
            created_at: set.as_ref().map(|row| rfc3339(row.created_at)),
            changed_at: set.as_ref().map(|row| rfc3339(row.changed_at)),
        }
    }
}

impl From<&Destination> for DestinationSettings {
    fn from(destination: &Destination) -> Self {
        let millis = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let (ordering, ordering_domains) = match destination.ordering {
            Ordering::None => ("none", None),
            Ordering::Exact => ("exact", None),
            Ordering::Hashed { domains } => ("hashed", Some(domains)),
        };
        let uncertain = match destination.uncertain {
            UncertainPolicy::Retry => "retry",
            UncertainPolicy::Hold => "hold",
            UncertainPolicy::End => "end",
        };
        Self {
            url: without_path(&destination.url),
            secret: destination.secret.as_ref().map(ToString::to_string),
            deadline_ms: millis(destination.deadline),
            retry_initial_ms: millis(destination.retry.initial),
            retry_max_ms: millis(destination.retry.max),
            attempts_max: destination.retry.failures_max,
            uncertain: uncertain.to_owned(),
            retry_statuses: destination.retry_statuses.iter().map(u16::to_string).collect(),
            in_flight_messages: destination.limits.messages,
            in_flight_mib: destination.limits.bytes >> 20,
            ordering: ordering.to_owned(),
            ordering_domains,
            weight: destination.weight,
        }
    }
}

impl From<store::Pending> for PendingMessages {
    fn from(pending: store::Pending) -> Self {
        Self { messages: pending.messages, more: pending.more }
    }
}

/// Scheme, host and port, with `…` in place of a path or query.
fn without_path(url: &http::Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let behind = if url.path_and_query().is_none_or(|behind| behind == "/") { "/" } else { "/…" };
    format!("{}://{authority}{behind}", url.scheme_str().unwrap_or("https"))
}
