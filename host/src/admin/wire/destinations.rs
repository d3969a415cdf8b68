//! Destinations: what is set, what holds, what came of a change.

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
    /// By name: those of this host's configuration, those that were set, and those that were removed and are waited
    /// for.
    pub destinations: Vec<DestinationOf>,
}

/// A destination, as the asked host sees it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DestinationOf {
    /// Its name.
    pub name: String,
    /// `configuration`, `set`, or `removed`.
    pub origin: String,
    /// Which change it is; null where nothing was set under this name.
    #[schema(required = true)]
    pub version: Option<u64>,
    /// What it is called by; null where it cannot be called.
    #[schema(required = true)]
    pub settings: Option<DestinationSettings>,
    /// Why this host does not go by what was set.
    #[schema(required = true)]
    pub trouble: Option<String>,
    /// Tenants whose secret for it this host lacks.
    pub lacking: Vec<LackingSecret>,
    /// Messages that wait for it or are under way; null where nobody counted.
    #[schema(required = true)]
    pub pending: Option<PendingMessages>,
    /// When it was set first.
    #[schema(required = true)]
    pub created_at: Option<String>,
    /// When it was changed last.
    #[schema(required = true)]
    pub changed_at: Option<String>,
}

/// The keys of `[destinations.NAME]`, all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DestinationSettings {
    /// Scheme, host and port; what comes behind them may be a secret.
    pub url: String,
    /// The name of the secret, not the secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// One attempt.
    pub deadline_ms: u64,
    /// After the first failed attempt.
    pub retry_initial_ms: u64,
    /// After later ones.
    pub retry_max_ms: u64,
    /// The failed attempt that is the last.
    pub attempts_max: u32,
    /// `retry`, `hold` or `end`.
    pub uncertain: String,
    /// Answers that are retried although they would end a message.
    pub retry_statuses: Vec<String>,
    /// Of one of its lanes.
    pub in_flight_messages: u32,
    /// Of one of its lanes.
    pub in_flight_mib: u64,
    /// `none`, `exact` or `hashed`.
    pub ordering: String,
    /// Where that is `hashed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering_domains: Option<u16>,
    /// Its share beside others.
    pub weight: u32,
}

/// The body of `PUT` and `PATCH`: keys of `[destinations.NAME]`. The host says what is wrong with them.
#[derive(Debug, ToSchema)]
pub struct DestinationKeys {
    /// Where its messages are posted.
    pub url: Option<String>,
    /// The name of the secret, not the secret.
    pub secret: Option<String>,
    /// One attempt.
    pub deadline_ms: Option<u64>,
    /// After the first failed attempt.
    pub retry_initial_ms: Option<u64>,
    /// After later ones.
    pub retry_max_ms: Option<u64>,
    /// The failed attempt that is the last.
    pub attempts_max: Option<u32>,
    /// `retry`, `hold` or `end`.
    pub uncertain: Option<String>,
    /// Answers that are retried although they would end a message.
    pub retry_statuses: Option<Vec<String>>,
    /// Of one of its lanes.
    pub in_flight_messages: Option<u32>,
    /// Of one of its lanes.
    pub in_flight_mib: Option<u64>,
    /// `none`, `exact` or `hashed`.
    pub ordering: Option<String>,
    /// Where that is `hashed`.
    pub ordering_domains: Option<u16>,
    /// Its share beside others.
    pub weight: Option<u32>,
}

/// A secret that the asked host lacks.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LackingSecret {
    /// The tenant.
    pub namespace: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Messages of a destination that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingMessages {
    /// So many were counted.
    pub messages: u64,
    /// Whether there may be more.
    pub more: bool,
}

/// The answer to `PUT` and `PATCH`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DestinationSet {
    /// As it is now.
    pub destination: DestinationOf,
    /// What an operator should know about it.
    pub notes: Vec<String>,
}

/// The answer to `DELETE`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DestinationRemoved {
    /// Its name.
    pub name: String,
    /// Which change that was.
    pub version: u64,
    /// Messages that go on waiting, until it is set again.
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
        let overruled = overruled.then(|| "it was set as well: the configuration of this host counts".to_owned());
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

/// Scheme, host and port, and whether anything comes behind them.
fn without_path(url: &http::Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let behind = if url.path_and_query().is_none_or(|behind| behind == "/") { "/" } else { "/…" };
    format!("{}://{authority}{behind}", url.scheme_str().unwrap_or("https"))
}
