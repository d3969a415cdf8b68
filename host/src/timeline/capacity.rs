//! Resources that all shards of this host share, measured regularly: disk, descriptors, connections to destinations.
//!
//! `lanes::Supply` decides by them. Each shard adds the pace of its own index and its attempts without a recorded
//! outcome.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Gauge, Unit, describe_gauge, gauge};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::database::Memory;
use crate::env;
use crate::lanes::{DESCRIPTORS_FLOOR, DISK_FLOOR, Level, Resource, Supply};
use crate::publish::{PublishLoad, Publisher};

/// The pause between two measurements.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// Connections to destinations press from so many times as many on as messages in flight and idle ones need. A request
/// that finds an idle connection after all leaves the one that it had begun to the pool, so for a moment there may be
/// two for each.
const CHANNELS_TIGHT_TIMES: usize = 2;
const CHANNELS_EXHAUSTED_TIMES: usize = 4;

const DESCRIPTORS_FREE: &str = "forebay_descriptors_free";
const CHANNELS: &str = "forebay_publish_channels";
const OUTCOMES_WAITING: &str = "forebay_publish_outcomes_waiting";
const CACHE_BYTES: &str = "forebay_timeline_memory_bytes";

/// Registers the descriptions of this module's metrics.
pub(super) fn describe() {
    describe_gauge!(DESCRIPTORS_FREE, "File descriptors that this process may still open");
    describe_gauge!(CHANNELS, "Connections to destinations that are open, under way or idle");
    describe_gauge!(OUTCOMES_WAITING, "Attempts that are over and whose outcome is about to be recorded");
    describe_gauge!(CACHE_BYTES, Unit::Bytes, "Block cache and write buffers of all shards together");
}

/// Resources that stay free on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floors {
    /// Bytes of the disk that the timeline is on.
    pub disk_bytes: u64,
    /// File descriptors of the process.
    pub descriptors: u64,
}

impl Default for Floors {
    fn default() -> Self {
        Self { disk_bytes: DISK_FLOOR, descriptors: DESCRIPTORS_FLOOR }
    }
}

/// The figures of the host.
#[derive(Clone)]
pub(super) struct HostFigures {
    pub directory: PathBuf,
    pub floors: Floors,
    pub publisher: Publisher,
    pub memory: Arc<Memory>,
}

impl HostFigures {
    /// Measures the supply for all shards. A resource that cannot be measured presses on none.
    pub(super) fn measure(&self) -> Supply {
        let PublishLoad { channels, channels_max, outcomes_waiting } = self.publisher.load();
        let descriptors = env::descriptors();
        let disk = env::disk(&self.directory).map(|room| Level::of_room(room, self.floors.disk_bytes));
        let of_descriptors = descriptors.map(|room| Level::above(room.free, self.floors.descriptors));
        if let Some(room) = descriptors {
            gauge!(DESCRIPTORS_FREE).set(room.free as f64);
        }
        gauge!(CHANNELS).set(channels as f64);
        gauge!(OUTCOMES_WAITING).set(outcomes_waiting as f64);
        let memory: Gauge = gauge!(CACHE_BYTES);
        memory.set(self.memory.used_bytes() as f64);
        let times = |times: usize| channels_max.saturating_mul(times) as u64;
        let channels = Level::below(channels as u64, times(CHANNELS_TIGHT_TIMES), times(CHANNELS_EXHAUSTED_TIMES));
        Supply::default()
            .with(Resource::Disk, disk.unwrap_or_default())
            .with(Resource::Descriptors, of_descriptors.unwrap_or_default())
            .with(Resource::Channels, channels)
    }

    /// Measures until `stop` is cancelled.
    pub(super) async fn watch(self, supply: watch::Sender<Supply>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let measured = self.measure();
            let before = supply.send_replace(measured);
            if before != measured {
                tell(&before, &measured);
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = env::sleep(MEASURE_EVERY) => {}
            }
        }
    }
}

fn tell(before: &Supply, now: &Supply) {
    for resource in Resource::ALL {
        let (before, now) = (before.level(resource), now.level(resource));
        let resource = resource.as_str();
        match now {
            _ if before == now => {}
            Level::Normal => tracing::info!(resource, "there is enough of it again: messages are sent as ever"),
            Level::Tight => tracing::warn!(resource, "there is little of it left: fewer messages are sent at once"),
            Level::Exhausted => tracing::error!(resource, "there is next to none of it left: no message is sent"),
        }
    }
}
