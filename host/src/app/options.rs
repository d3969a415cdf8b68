//! From the configuration to the options of each module, and the line that says what they came to.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::descriptors::Descriptors;
use super::directories::Directories;
use super::{Running, StartError};
use crate::claim::ClaimOptions;
use crate::config::{self, CheckpointsPlace, Config, QueueProfile, RetentionConfig};
use crate::execute::{ExecuteOptions, SLOTS_SAFE_MAX, rows_in_work_max};
use crate::guest::{Ceilings, GuestHost, GuestOptions, long_calls_max};
use crate::intake::IntakeOptions;
use crate::lanes::Profile;
use crate::model::retention::Keep;
use crate::model::retry::RetryPolicy;
use crate::outbound::ClientOptions;
use crate::publish::PublishOptions;
use crate::secrets::{Secret, Secrets};
use crate::store::{DatabaseUrl, LeaseTime, PACKET_MARGIN_BYTES, Patience, Store, StoreOptions};
use crate::supervise::{DestinationParts, ReadDestination, RetentionOptions, SuperviseOptions};
use crate::timeline::{AFTER_PANIC, CheckpointOptions, CheckpointPlace, Floors, S3Place, TimelineOptions};

/// The part of the time to stop that running executions get; the rest is for what comes after them.
const DRAIN_PART: f64 = 0.6;

pub(super) fn store(config: &Config, directories: &Directories) -> Result<StoreOptions, StartError> {
    Ok(StoreOptions {
        data: directories.data.clone(),
        database_url: shared_database(config)?,
        lease_time: LeaseTime::Database,
        shards: config.store.shards,
        queue_requests_max: config.store.queue_requests_max,
        queue_bytes_max: config.store.queue_bytes_max,
        readers: config.store.readers,
        read_timeout: config.store.read_timeout,
        patience: Patience::within(config.inbound.lease.min(config.timeline.lease)),
    })
}

/// Refuses a configuration that lets in what goes into no packet of the database server.
pub(super) fn check_packet(config: &Config, packet: u64) -> Result<(), StartError> {
    let wishes = [
        ("intake.body_max_mib", config.intake.body_bytes_max as u64),
        ("guest.output_max_kib", config.guest.output_bytes_max as u64),
    ];
    let needed = |bytes: u64| bytes.saturating_add(PACKET_MARGIN_BYTES);
    match wishes.into_iter().find(|(_, bytes)| needed(*bytes) > packet) {
        None => Ok(()),
        Some((key, bytes)) => Err(StartError::Packet { key, bytes, packet, needed: needed(bytes) }),
    }
}

/// The database that the host shares with others, if it does.
pub(super) fn shared_database(config: &Config) -> Result<Option<DatabaseUrl>, StartError> {
    parse_database(config).map_err(StartError::Database)
}

/// The same, or what is wrong with its URL.
pub(super) fn parse_database(config: &Config) -> Result<Option<DatabaseUrl>, String> {
    let parse = |url: &Secret| std::str::from_utf8(url.expose()).map_err(|error| error.to_string())?.parse();
    config.database_url.as_ref().map(parse).transpose()
}

pub(super) fn guest(config: &Config, directories: &Directories) -> GuestOptions {
    GuestOptions {
        cache: directories.cache.clone(),
        instances_max: config.guest.instances_max,
        long_calls_max: long_calls_max(),
        memory_bytes_max: config.guest.memory_bytes_max as u64,
        ceilings: Ceilings {
            fuel: config.guest.fuel_max_millions.saturating_mul(1_000_000),
            output_bytes: config.guest.output_bytes_max as u64,
            messages: config.guest.messages_max,
            log_bytes: config.guest.log_bytes_max as u64,
        },
        compilations_max: config.guest.compilations_max,
        compilation_time_max: config.guest.compilation_time_max,
    }
}

pub(super) fn publish(config: &Config, deny_addresses: [SocketAddr; 2]) -> PublishOptions {
    PublishOptions {
        in_flight_max: config.publish.in_flight_max,
        in_flight_bytes_max: config.publish.in_flight_bytes_max as u64,
        response_bytes_max: config.publish.response_bytes_max,
        allow_networks: config.publish.allow_networks.clone(),
        ca_file: config.publish.ca_file.clone(),
        deny_addresses: deny_addresses.into(),
        idle_connections_max: config.publish.idle_connections_max,
        idle_timeout: config.publish.idle_timeout,
    }
}

/// Those of the configuration, and the rules for those that are set while hosts run: the same.
pub(super) fn destinations(config: &Config, secrets: &Secrets, store: &Store) -> DestinationParts {
    let descriptors = Descriptors::of(config);
    DestinationParts {
        configured: config.destinations.clone(),
        namespaces: config.namespaces.clone(),
        read: read_destination(config),
        ordering: Arc::new(|document| config::ordering(&serde_json::from_str(document).ok()?)),
        advise: Arc::new(move |destinations| descriptors.advise(destinations)),
        secrets: secrets.clone(),
        store: store.clone(),
    }
}

/// Reads what is set under a destination's name, as this configuration allows it.
pub(super) fn read_destination(config: &Config) -> ReadDestination {
    let in_flight_max = config.in_flight_max();
    Arc::new(move |name, document| {
        let document = serde_json::from_str(document).map_err(|error| vec![format!("it cannot be read: {error}")])?;
        config::destination(name.as_str(), &document, in_flight_max)
    })
}

/// Readers are under the rules of destinations.
pub(super) fn outbound(config: &Config, deny_addresses: [SocketAddr; 2]) -> ClientOptions {
    ClientOptions {
        allow_networks: config.publish.allow_networks.clone(),
        ca_file: config.publish.ca_file.clone(),
        deny_addresses: deny_addresses.into(),
        idle_connections_max: config.publish.idle_connections_max,
        idle_timeout: config.publish.idle_timeout,
    }
}

pub(super) fn timeline(config: &Config, directories: &Directories) -> TimelineOptions {
    TimelineOptions {
        directory: directories.timeline.clone(),
        lease: config.timeline.lease,
        poll: config.timeline.poll,
        claimed_max: config.timeline.claimed_max,
        memory_bytes: config.timeline.memory_bytes,
        floors: Floors::default(),
        after_panic: AFTER_PANIC,
        namespace_weights: config.namespace_weights.clone(),
        clock_uncertainty_max: config.timeline.clock_uncertainty_max,
        checkpoints: checkpoints(config, directories),
    }
}

fn checkpoints(config: &Config, directories: &Directories) -> CheckpointOptions {
    let place = match config.checkpoints.place.clone() {
        CheckpointsPlace::Folder(folder) => {
            CheckpointPlace::Folder(folder.unwrap_or_else(|| directories.checkpoints.clone()))
        }
        CheckpointsPlace::Bucket(bucket) => CheckpointPlace::S3(S3Place {
            bucket: bucket.bucket,
            prefix: bucket.prefix,
            region: bucket.region,
            endpoint: bucket.endpoint,
            access_key_id: bucket.access_key_id,
            secret_access_key: bucket.secret_access_key,
            ca_file: bucket.ca_file,
        }),
    };
    CheckpointOptions { place, every: config.checkpoints.every, kept: config.checkpoints.kept }
}

pub(super) fn intake(config: &Config) -> IntakeOptions {
    IntakeOptions {
        requests_max: config.intake.requests_max,
        bytes_max: config.intake.bytes_max,
        body_bytes_max: config.intake.body_bytes_max,
        deadline: config.intake.deadline,
        public_url: config.intake.public_url.clone(),
    }
}

pub(super) fn supervise(config: &Config, directories: &Directories, guests: &GuestHost) -> SuperviseOptions {
    let defaults = SuperviseOptions::default();
    let claim = ClaimOptions {
        max_processing_rows: config.inbound.max_processing_rows.and_then(NonZeroU32::new),
        calls_waiting: guests.waiting_calls(),
        ..ClaimOptions::default()
    };
    // A pool shows progress at least once a poll interval, and whenever a flow ends.
    let silence = claim.poll.max(config.flow.deadline);
    SuperviseOptions {
        namespaces: config.namespaces.clone(),
        directory: directories.data.clone(),
        execute: ExecuteOptions {
            slots: config.inbound.workers_per_pack,
            profile: profile(config.inbound.queue_profile),
            bodies_bytes_max: config.inbound.bodies_bytes_max,
            deadline_max: config.flow.deadline,
            lease: config.inbound.lease,
            retry: RetryPolicy {
                initial: config.inbound.retry_initial,
                max: config.inbound.retry_max,
                failures_max: config.inbound.failures_max,
            },
            stage_timing: config.inbound.stage_timing,
        },
        claim,
        stall: defaults.stall.max(2 * silence),
        drain: drain(config.shutdown.timeout),
        ..defaults
    }
}

pub(super) fn retention(config: &Config) -> RetentionOptions {
    let RetentionConfig { events_days, messages_days, failed_days, start_after } = config.retention;
    let keep = Keep::of_days(events_days, messages_days, (failed_days > 0).then_some(failed_days));
    RetentionOptions { keep, start_after }
}

fn profile(profile: QueueProfile) -> Profile {
    match profile {
        QueueProfile::Reserved => Profile::Reserved,
        QueueProfile::DefaultHeavy => Profile::DefaultHeavy,
    }
}

/// How long running executions get when the host stops.
fn drain(timeout: Duration) -> Duration {
    timeout.mul_f64(DRAIN_PART)
}

/// Says what the host runs with.
pub(super) fn announce(config: &Config, running: &Running) {
    let workers_per_pack = config.inbound.workers_per_pack;
    let max_processing_rows = config.inbound.max_processing_rows.unwrap_or(rows_in_work_max(workers_per_pack));
    // OBS-2
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        intake = %running.intake_addr(),
        admin = %running.admin_addr(),
        console = %running.console_url(),
        workers_per_pack,
        max_processing_rows,
        store_readers = config.store.readers,
        store_queue_requests_max = config.store.queue_requests_max,
        guest_instances_max = config.guest.instances_max,
        publish_in_flight_max = config.publish.in_flight_max,
        shards = config.store.shards,
        destinations = config.destinations.len(),
        namespaces = config.namespaces.len(),
        "the host serves"
    );
    if workers_per_pack == 0 {
        tracing::warn!("inbound.workers_per_pack is 0: this host works nothing off");
    }
    if workers_per_pack > SLOTS_SAFE_MAX {
        tracing::warn!(
            workers_per_pack,
            safe_max = SLOTS_SAFE_MAX,
            "inbound.workers_per_pack is above what is known to be safe"
        );
    }
}
