//! What cannot be checked key by key: names, and keys that depend on one another.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::checkpoints::CheckpointsDocument;
use super::destinations::{DestinationDocument, InFlightMax};
use super::origins::{self, ReaderDocument};
use super::sources::Settings;
use super::{
    AdminConfig, Config, ConfigError, FlowConfig, GuestConfig, InboundConfig, IntakeConfig, LogConfig, PublishConfig,
    RetentionConfig, ShutdownConfig, StoreConfig, TOKEN_BYTES_MIN, TimelineConfig, TokenSource,
};
use crate::model::destination::Destinations;
use crate::model::names::Namespace;
use crate::model::retention::EVENTS_DAYS_MIN;
use crate::secrets::Secret;

/// What a claim must outlast a flow by, so that one late renewal costs no execution.
const LEASE_MARGIN: Duration = Duration::from_secs(5);

/// The whole configuration as it is written.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Document {
    namespaces: NamespacesDocument,
    intake: IntakeConfig,
    admin: AdminDocument,
    inbound: InboundConfig,
    flow: FlowConfig,
    database: DatabaseDocument,
    store: StoreConfig,
    timeline: TimelineConfig,
    checkpoints: CheckpointsDocument,
    publish: PublishConfig,
    retention: RetentionConfig,
    guest: GuestConfig,
    log: LogConfig,
    shutdown: ShutdownConfig,
    destinations: BTreeMap<String, DestinationDocument>,
    readers: BTreeMap<String, ReaderDocument>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
struct NamespacesDocument(Vec<String>);

impl Default for NamespacesDocument {
    fn default() -> Self {
        Self(vec!["default".to_owned()])
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AdminDocument {
    listen: SocketAddr,
    token: Option<String>,
    token_file: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DatabaseDocument {
    url: Option<String>,
}

impl Default for AdminDocument {
    fn default() -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8081)), token: None, token_file: None }
    }
}

/// Makes a configuration of settings that are right one by one.
pub(super) fn check(mut settings: Settings) -> Result<Config, ConfigError> {
    let values = std::mem::take(&mut settings.values);
    let mut document = match Document::deserialize(toml::Value::Table(values)) {
        Ok(document) => document,
        Err(error) => {
            settings.problems.push(error.message().to_owned());
            return Err(ConfigError { problems: settings.problems });
        }
    };
    check_relations(&document, &mut settings);
    if let Some(url) = document.intake.public_url.take() {
        match origins::public_url(&url) {
            Ok(url) => document.intake.public_url = Some(url),
            Err(reason) => settings.refuse("intake.public_url", reason),
        }
    }
    check_networks(&document.publish.allow_networks, &mut settings);
    let namespaces = check_namespaces(document.namespaces.0, &mut settings);
    let namespace_weights = check_weights(&document.timeline.namespace_weights, &namespaces, &mut settings);
    let admin = check_admin(document.admin, &mut settings);
    let checkpoints = document.checkpoints.check(&mut settings);
    let in_flight_max = super::in_flight_max(&document.publish, &document.timeline);
    let destinations = check_destinations(document.destinations, in_flight_max, &mut settings);
    let readers =
        document.readers.into_iter().filter_map(|(name, reader)| reader.check(&name, &mut settings)).collect();
    if !settings.problems.is_empty() {
        return Err(ConfigError { problems: settings.problems });
    }
    Ok(Config {
        namespaces,
        namespace_weights,
        intake: document.intake,
        admin,
        inbound: document.inbound,
        flow: document.flow,
        database_url: document.database.url.map(|url| Secret::new(url.into_bytes())),
        store: document.store,
        timeline: document.timeline,
        checkpoints,
        publish: document.publish,
        retention: document.retention,
        guest: document.guest,
        log: document.log,
        shutdown: document.shutdown,
        destinations,
        readers,
        origins: settings.origins,
    })
}

/// Keys that bound one another.
fn check_relations(document: &Document, settings: &mut Settings) {
    let Document { intake, admin, inbound, flow, store, retention, .. } = document;
    if intake.body_bytes_max > intake.bytes_max {
        settings.refuse("intake.body_max_mib", "must not be more than `intake.bytes_max_mib`");
    }
    if intake.body_bytes_max > store.queue_bytes_max {
        settings.refuse("intake.body_max_mib", "must not be more than `store.queue_max_mib`");
    }
    if intake.listen == admin.listen && intake.listen.port() != 0 {
        settings.refuse("admin.listen", "must differ from `intake.listen`");
    }
    if inbound.lease < flow.deadline + LEASE_MARGIN {
        let (least, margin) = ((flow.deadline + LEASE_MARGIN).as_secs_f64().ceil(), LEASE_MARGIN.as_secs());
        let reason = format!("must be at least {least}: `flow.deadline_ms` and {margin} s more");
        settings.refuse("inbound.lease_seconds", reason);
    }
    if inbound.retry_initial > inbound.retry_max {
        settings.refuse("inbound.retry_initial_ms", "must not be more than `inbound.retry_max_ms`");
    }
    if (1..EVENTS_DAYS_MIN).contains(&retention.failed_days) {
        let reason = format!(
            "must be 0, which keeps what failed, or at least {EVENTS_DAYS_MIN}: a failed event is recognized when it is \
             delivered again"
        );
        settings.refuse("retention.failed_days", reason);
    }
}

fn check_namespaces(names: Vec<String>, settings: &mut Settings) -> Vec<Namespace> {
    if names.is_empty() {
        settings.refuse("namespaces", "must name at least one namespace");
    }
    let mut seen = BTreeSet::new();
    for name in names {
        match name.parse::<Namespace>() {
            Ok(namespace) if seen.contains(&namespace) => {
                settings.refuse("namespaces", format_args!("names `{namespace}` twice"));
            }
            Ok(namespace) => {
                seen.insert(namespace);
            }
            Err(error) => settings.refuse("namespaces", format_args!("is wrong: {error}")),
        }
    }
    seen.into_iter().collect()
}

/// The largest weight of a tenant, as of a destination.
const WEIGHT_MAX: u32 = 1_000;

/// `namespace=weight` each.
fn check_weights(texts: &[String], known: &[Namespace], settings: &mut Settings) -> BTreeMap<Namespace, u32> {
    const KEY: &str = "timeline.namespace_weights";
    let mut weights = BTreeMap::new();
    for text in texts {
        let parsed =
            text.split_once('=').map(|(name, weight)| (name.trim().parse::<Namespace>(), weight.trim().parse()));
        match parsed {
            Some((Ok(namespace), Ok(weight))) if (1..=WEIGHT_MAX).contains(&weight) => {
                if !known.contains(&namespace) {
                    settings.refuse(KEY, format_args!("weighs `{namespace}`, which `namespaces` does not name"));
                } else if weights.insert(namespace.clone(), weight).is_some() {
                    settings.refuse(KEY, format_args!("weighs `{namespace}` twice"));
                }
            }
            Some(_) | None => {
                let shown: String = text.chars().take(80).collect();
                let reason =
                    format!("has `{shown}`, and must have `namespace=weight` with a weight from 1 to {WEIGHT_MAX}");
                settings.refuse(KEY, reason);
            }
        }
    }
    weights
}

fn check_admin(admin: AdminDocument, settings: &mut Settings) -> AdminConfig {
    let token = match (admin.token, admin.token_file) {
        (None, None) => None,
        (Some(token), None) => {
            if token.len() < TOKEN_BYTES_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                let reason = format!("must be at least {TOKEN_BYTES_MIN} visible ASCII characters");
                settings.refuse("admin.token", reason);
            }
            Some(TokenSource::Given(Secret::new(token.into_bytes())))
        }
        (None, Some(file)) => Some(TokenSource::File(file.into())),
        (Some(_), Some(file)) => {
            settings.refuse("admin.token_file", "must not be set together with `admin.token`");
            Some(TokenSource::File(file.into()))
        }
    };
    if token.is_none() && !admin.listen.ip().is_loopback() {
        let reason = "is not a loopback address: set `admin.token` or `admin.token_file` too, or listen on 127.0.0.1";
        settings.refuse("admin.listen", reason);
    }
    AdminConfig { listen: admin.listen, token }
}

fn check_networks(networks: &[String], settings: &mut Settings) {
    for network in networks {
        if !is_network(network) {
            let reason =
                format!("contains `{network}`, which is no network in CIDR notation, like 10.20.0.0/16 or fd00::/8");
            settings.refuse("publish.allow_networks", reason);
        }
    }
}

fn is_network(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    match (address.parse(), prefix.parse::<u8>()) {
        (Ok(IpAddr::V4(_)), Ok(bits)) => bits <= 32,
        (Ok(IpAddr::V6(_)), Ok(bits)) => bits <= 128,
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// `in_flight_max` is what all destinations together may have in flight.
fn check_destinations(
    documents: BTreeMap<String, DestinationDocument>,
    in_flight_max: InFlightMax,
    settings: &mut Settings,
) -> Destinations {
    let checked = documents.into_iter().filter_map(|(name, document)| document.check(&name, in_flight_max, settings));
    checked.collect()
}

/// Every key's default, as TOML writes it; keys without one are missing. Destinations and readers have theirs under
/// `NAME`.
pub(super) fn defaults() -> toml::Table {
    let mut document = Document::default();
    document.destinations.insert(super::keys::NAME_PART.to_owned(), DestinationDocument::default());
    document.readers.insert(super::keys::NAME_PART.to_owned(), ReaderDocument::default());
    toml::Table::try_from(document).expect("the defaults can be written as TOML")
}
