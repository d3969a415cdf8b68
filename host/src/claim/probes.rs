//! The probes: what presses on this host is measured here, by asking the operating system and the store's pool.
//!
//! A thing that cannot be measured presses on nothing: where there is no `/proc`, or no limit, memory is not known.

use std::fs;
use std::path::{Path, PathBuf};

use metrics::{Gauge, Unit, describe_gauge, gauge};

use super::pressure::{HostPressure, Level, Probe};
use crate::env;
use crate::model::room::Room;
use crate::store::Store;

/// Where a control group says what it may have.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

const POOL_WAIT: &str = "forebay_store_pool_wait_seconds";
const MEMORY_FREE: &str = "forebay_memory_free_bytes";
const DISK_FREE: &str = "forebay_disk_free_bytes";
const PRESSURE: &str = "forebay_pressure";

/// Says what the metrics of the probes mean.
pub(super) fn describe() {
    describe_gauge!(PRESSURE, "How hard a resource presses on claims: 0 not, 1 tight, 2 exhausted");
    describe_gauge!(POOL_WAIT, Unit::Seconds, "The longest that a reader of the store waited for a connection lately");
    describe_gauge!(MEMORY_FREE, Unit::Bytes, "Memory that this process may still take");
    describe_gauge!(DISK_FREE, Unit::Bytes, "Room on the data directory's disk");
}

/// Measures; one a host.
pub struct Probes {
    store: Store,
    directory: PathBuf,
    signals: Signals,
}

struct Signals {
    levels: [Gauge; 3],
    pool_wait_seconds: Gauge,
    memory_free_bytes: Gauge,
    disk_free_bytes: Gauge,
}

impl Probes {
    /// Of the host with this store, whose files are in `directory`. Takes the metrics' handles from the recorder that
    /// is installed now.
    pub fn new(store: Store, directory: PathBuf) -> Self {
        let levels = ["pool", "memory", "disk"].map(|resource| gauge!(PRESSURE, "resource" => resource));
        let signals = Signals {
            levels,
            pool_wait_seconds: gauge!(POOL_WAIT),
            memory_free_bytes: gauge!(MEMORY_FREE),
            disk_free_bytes: gauge!(DISK_FREE),
        };
        Self { store, directory, signals }
    }

    /// Measures what happened since the last time, and what is free now. `probe` is how the store's readiness probe
    /// went.
    pub fn measure(&self, probe: Probe) -> HostPressure {
        let waits = self.store.take_pool_waits();
        let (memory, disk) = (memory(), env::disk(&self.directory));
        let pressure = HostPressure {
            probe,
            pool: Level::of_pool(waits.longest, waits.given_up),
            memory: memory.map_or(Level::Normal, Level::of_memory),
            disk: disk.map_or(Level::Normal, Level::of_disk),
        };
        for (gauge, level) in self.signals.levels.iter().zip([pressure.pool, pressure.memory, pressure.disk]) {
            gauge.set(level.code());
        }
        self.signals.pool_wait_seconds.set(waits.longest);
        for (gauge, room) in [(&self.signals.memory_free_bytes, memory), (&self.signals.disk_free_bytes, disk)] {
            if let Some(room) = room {
                gauge.set(room.free as f64);
            }
        }
        pressure
    }
}

/// Memory: the machine's, or the control group's if that leaves less.
fn memory() -> Option<Room> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| of_meminfo(&text));
    [machine, of_own_cgroup()].into_iter().flatten().min_by_key(|room| room.free)
}

/// `MemAvailable` and `MemTotal`, which are in KiB.
fn of_meminfo(text: &str) -> Option<Room> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib.saturating_mul(1024))
    };
    Some(Room { free: field("MemAvailable")?, total: field("MemTotal")? })
}

/// What this process's control group (version 2) may have, if it has a limit.
fn of_own_cgroup() -> Option<Room> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let directory = Path::new(CGROUP_ROOT).join(path);
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    of_cgroup(&read("memory.max")?, &read("memory.current")?, &read("memory.stat").unwrap_or_default())
}

/// The cache of files that nobody has touched for long goes first when memory is asked for: it is as good as free.
fn of_cgroup(max: &str, current: &str, stat: &str) -> Option<Room> {
    let total: u64 = max.trim().parse().ok()?;
    let current: u64 = current.trim().parse().ok()?;
    let cache = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse().ok()).unwrap_or(0);
    Some(Room { free: total.saturating_sub(current.saturating_sub(cache)), total })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::testing::{Fixture, pack};

    // PRS-3
    #[test]
    fn memory_is_read_as_the_kernel_writes_it() {
        let text = "MemTotal:       16266836 kB\nMemFree:          481516 kB\nMemAvailable:    9999999 kB\n";
        assert_eq!(of_meminfo(text), Some(Room { free: 9_999_999 * 1024, total: 16_266_836 * 1024 }));
        assert_eq!(of_meminfo("MemTotal: 1 kB\n"), None);
        let room = of_cgroup("1000\n", "900\n", "anon 500\ninactive_file 300\n");
        assert_eq!(room, Some(Room { free: 400, total: 1000 }));
        assert_eq!(of_cgroup("max\n", "900\n", ""), None, "no limit");
    }

    // PRS-3
    #[tokio::test]
    async fn what_is_measured_is_this_host() {
        let fixture = Fixture::with(|options| options.read_timeout = Duration::from_millis(20)).await;
        if cfg!(target_os = "linux") {
            let room = memory().unwrap();
            assert!(room.free > 0 && room.free <= room.total, "{room:?}");
        }
        let probes = Probes::new(fixture.store.clone(), fixture.directory.path().to_owned());
        assert_eq!(probes.measure(Probe::Failed).probe, Probe::Failed);
        // Readers that all wait for one another's connection, until one gives up.
        let held = fixture.store.hold_readers().await;
        assert!(fixture.store.queue_mark(&pack()).await.is_err());
        assert_eq!(probes.measure(Probe::Answered).pool, Level::Exhausted);
        drop(held);
        assert!(fixture.store.queue_mark(&pack()).await.is_ok());
        assert_eq!(probes.measure(Probe::Answered).pool, Level::Normal, "what was measured is over");
    }
}
