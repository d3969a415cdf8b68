//! Pressure: how hard what was measured presses. Pure: what measures is in `probes`, what is decided by it in
//! `limiter`.

use std::time::Duration;

use crate::lanes::DISK_FLOOR;
pub use crate::lanes::Level;
use crate::model::room::Room;

/// A reader of the store waits for a connection, now and then, as soon as there are more of them than connections.
/// Longer than this, reads queue up faster than they are answered.
const POOL_WAIT_TIGHT: Duration = Duration::from_millis(100);

/// Who waits as long as this for a connection is about to give up, and with it whoever asked.
const POOL_WAIT_EXHAUSTED: Duration = Duration::from_secs(1);

/// Memory that should stay free, as one part in so many of all there is, within the bounds below.
const MEMORY_PART: u64 = 20;
const MEMORY_FLOOR_MIN: u64 = 64 * MIB;
const MEMORY_FLOOR_MAX: u64 = 512 * MIB;

const MIB: u64 = 1024 * 1024;

/// What the last readiness probe of the store said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Probe {
    /// It answered, or was not asked yet.
    #[default]
    Answered,
    /// It did not, or not in time.
    Failed,
}

/// What presses on the whole host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostPressure {
    /// Whether the last readiness probe of the store succeeded.
    pub probe: Probe,
    /// Waits for the store's connections.
    pub pool: Level,
    /// Memory.
    pub memory: Level,
    /// Disk, where the data directory is.
    pub disk: Level,
}

impl Level {
    /// Of waits for a connection: the longest since the last measurement, and whether anybody gave up.
    pub fn of_pool(longest: Duration, given_up: u64) -> Self {
        if given_up > 0 || longest >= POOL_WAIT_EXHAUSTED {
            Level::Exhausted
        } else if longest >= POOL_WAIT_TIGHT {
            Level::Tight
        } else {
            Level::Normal
        }
    }

    /// Of memory.
    pub fn of_memory(room: Room) -> Self {
        Self::above(room.free, (room.total / MEMORY_PART).clamp(MEMORY_FLOOR_MIN, MEMORY_FLOOR_MAX))
    }

    /// Of disk.
    pub fn of_disk(room: Room) -> Self {
        Self::of_room(room, DISK_FLOOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // PRS-3
    #[test]
    fn a_wait_for_a_connection_presses_by_its_length_and_one_given_up_presses_most() {
        let ms = Duration::from_millis;
        assert_eq!(Level::of_pool(ms(99), 0), Level::Normal);
        assert_eq!(Level::of_pool(ms(100), 0), Level::Tight);
        assert_eq!(Level::of_pool(ms(1_000), 0), Level::Exhausted);
        assert_eq!(Level::of_pool(ms(0), 1), Level::Exhausted);
    }

    // PRS-3
    #[test]
    fn memory_and_disk_press_by_what_is_left() {
        let gib = 1024 * MIB;
        let memory = |free, total| Level::of_memory(Room { free, total });
        assert_eq!(memory(513 * MIB, 64 * gib), Level::Normal);
        assert_eq!(memory(511 * MIB, 64 * gib), Level::Tight);
        assert_eq!(memory(127 * MIB, 64 * gib), Level::Exhausted);
        assert_eq!(memory(64 * MIB, gib / 2), Level::Normal, "a small machine keeps less free");
        assert_eq!(memory(63 * MIB, gib / 2), Level::Tight);
        let disk = |free, total| Level::of_disk(Room { free, total });
        assert_eq!(disk(256 * MIB, 100 * gib), Level::Normal);
        assert_eq!(disk(255 * MIB, 100 * gib), Level::Tight);
        assert_eq!(disk(63 * MIB, 100 * gib), Level::Exhausted);
        assert_eq!(disk(30 * MIB, 100 * MIB), Level::Normal);
        assert_eq!(disk(5 * MIB, 100 * MIB), Level::Exhausted);
    }
}
