//! Capacity: whether there is enough, beside permits and room in queues, to begin an attempt and to bring it to its
//! end.
//!
//! An attempt that has begun must be able to end: its connection takes a descriptor, its outcome takes disk and is to
//! be recorded, and the index must take in what became of it. So new attempts are begun by fewer and fewer while a
//! resource is tight, and by none while it is exhausted. What is left of it then is nobody's but those that bring to an
//! end what has begun: outcomes, control, the lease. That is the resource's reserve, and no configuration gives it
//! away.
//!
//! What cannot be measured is [`Level::Normal`]: not to know is no reason to stand still.

use crate::model::room::Room;

/// Where something is tight, this part of the claims may be open: one in so many.
const SHRUNK_PART: usize = 4;

/// With less than this part of its floor left, a thing is exhausted: one part in so many.
const EXHAUSTED_PART: u64 = 4;

/// Disk that should stay free, in bytes: what a minute of deliveries at full speed and their log take.
pub const DISK_FLOOR: u64 = 256 << 20;

/// File descriptors that should stay free: for files that RocksDB and SQLite open when they need to, and for whoever
/// asks the host why there are none.
pub const DESCRIPTORS_FLOOR: u64 = 64;

/// How hard something presses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Not at all, or it is not known.
    #[default]
    Normal,
    /// There is less of it than there should be.
    Tight,
    /// There is next to nothing of it.
    Exhausted,
}

impl Level {
    /// The number for it in metrics.
    pub const fn code(self) -> u32 {
        match self {
            Level::Normal => 0,
            Level::Tight => 1,
            Level::Exhausted => 2,
        }
    }

    /// The word for it on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Level::Normal => "normal",
            Level::Tight => "tight",
            Level::Exhausted => "exhausted",
        }
    }

    /// Of something of which `floor` should stay free. Where there is little of it in all, a part of that is enough: a
    /// small one is not tight by being small.
    pub fn of_room(room: Room, floor: u64) -> Self {
        Self::above(room.free, floor.min(room.total / EXHAUSTED_PART))
    }

    /// Of something of which so much is free, and `floor` should be.
    pub fn above(free: u64, floor: u64) -> Self {
        match free {
            free if free < floor / EXHAUSTED_PART => Level::Exhausted,
            free if free < floor => Level::Tight,
            _ => Level::Normal,
        }
    }

    /// Of something that piles up: tight from one number on, exhausted from another.
    pub fn below(used: u64, tight: u64, exhausted: u64) -> Self {
        match used {
            used if used >= exhausted => Level::Exhausted,
            used if used >= tight => Level::Tight,
            _ => Level::Normal,
        }
    }
}

/// What an attempt needs, beside a permit and room in queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Disk, where indexes are: what became of attempts is written there, and beside it.
    Disk,
    /// File descriptors of the process.
    Descriptors,
    /// Connections to destinations.
    Channels,
    /// The shard's index, which must keep up with what is written to it.
    Index,
    /// Attempts of which no outcome is on record: each is one that somebody has to find out about.
    Evidence,
}

/// How many resources there are.
pub const RESOURCES: usize = Resource::ALL.len();

impl Resource {
    /// Every resource, in the order in which the first one that presses is named.
    pub const ALL: [Resource; 5] =
        [Resource::Disk, Resource::Descriptors, Resource::Channels, Resource::Index, Resource::Evidence];

    /// The word for it in metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Resource::Disk => "disk",
            Resource::Descriptors => "descriptors",
            Resource::Channels => "channels",
            Resource::Index => "index",
            Resource::Evidence => "evidence",
        }
    }
}

/// How hard each resource presses on a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Supply {
    levels: [Level; RESOURCES],
}

impl Supply {
    /// The same, but for one resource.
    #[must_use]
    pub fn with(mut self, resource: Resource, level: Level) -> Self {
        self.levels[resource as usize] = level;
        self
    }

    /// How hard a resource presses.
    pub fn level(&self, resource: Resource) -> Level {
        self.levels[resource as usize]
    }

    /// What presses, and how hard.
    pub fn pressing(&self) -> impl Iterator<Item = (Resource, Level)> + '_ {
        Resource::ALL
            .into_iter()
            .map(|resource| (resource, self.level(resource)))
            .filter(|(_, level)| *level > Level::Normal)
    }

    /// How many claims may be open, of the `max` of a shard that nothing presses on.
    pub fn claims_max(&self, max: usize) -> usize {
        match self.levels.iter().max().copied().unwrap_or_default() {
            Level::Normal => max,
            // Something goes on, if slowly: only by that is it found out that it can.
            Level::Tight => (max / SHRUNK_PART).max(1).min(max),
            Level::Exhausted => 0,
        }
    }

    /// Whether what is new may be written to the index. While it may not, what it takes is kept for what became of
    /// attempts.
    pub fn index_takes_new(&self) -> bool {
        self.level(Resource::Index) < Level::Exhausted
    }
}

/// The level of attempts without an outcome, of the `max` of a shard: from a quarter on it is tight, and half of the
/// shard's claims are kept for finding out.
pub fn evidence_level(without_outcome: usize, max: usize) -> Level {
    let part = |part: usize| max.div_ceil(part).max(1) as u64;
    Level::below(without_outcome as u64, part(4), part(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    // WRK-3
    #[test]
    fn whatever_is_tight_leaves_a_quarter_of_the_claims_and_whatever_is_exhausted_none() {
        assert_eq!(Supply::default().claims_max(1_024), 1_024);
        for resource in Resource::ALL {
            let with = |level| Supply::default().with(resource, level);
            assert_eq!(with(Level::Tight).claims_max(1_024), 256, "{resource:?}");
            assert_eq!(with(Level::Tight).claims_max(1), 1, "{resource:?}: it goes on, if slowly");
            assert_eq!(with(Level::Exhausted).claims_max(1_024), 0, "{resource:?}");
            assert_eq!(with(Level::Exhausted).index_takes_new(), resource != Resource::Index);
            assert_eq!(with(Level::Tight).pressing().collect::<Vec<_>>(), [(resource, Level::Tight)]);
            // Room in one makes up for none in another.
            for other in Resource::ALL.into_iter().filter(|other| *other != resource) {
                assert_eq!(with(Level::Exhausted).with(other, Level::Tight).claims_max(1_024), 0);
            }
        }
    }

    // WRK-3
    #[test]
    fn more_pressure_never_allows_more() {
        let levels = [Level::Normal, Level::Tight, Level::Exhausted];
        let supply = |number: usize| {
            let digit = |place: usize| levels[number / levels.len().pow(u32::try_from(place).unwrap()) % levels.len()];
            Resource::ALL
                .into_iter()
                .enumerate()
                .fold(Supply::default(), |supply, (place, resource)| supply.with(resource, digit(place)))
        };
        for number in 0..levels.len().pow(u32::try_from(RESOURCES).unwrap()) {
            let here = supply(number);
            for (resource, level) in Resource::ALL.into_iter().flat_map(|one| levels.map(|level| (one, level))) {
                if level >= here.level(resource) {
                    assert!(here.with(resource, level).claims_max(64) <= here.claims_max(64));
                }
            }
        }
    }

    // WRK-3
    #[test]
    fn attempts_without_an_outcome_leave_half_of_the_claims_to_those_who_find_out() {
        let level = |without| evidence_level(without, 64);
        assert_eq!([0, 15, 16, 31, 32, 64].map(level), {
            use Level::{Exhausted, Normal, Tight};
            [Normal, Normal, Tight, Tight, Exhausted, Exhausted]
        });
        assert_eq!((evidence_level(0, 1), evidence_level(1, 1)), (Level::Normal, Level::Exhausted));
    }

    // PRS-3, WRK-3
    #[test]
    fn what_is_left_presses_by_its_floor_and_a_small_thing_is_not_tight_by_being_small() {
        let level = |free, total| Level::of_room(Room { free, total }, 256);
        assert_eq!(level(256, 100_000), Level::Normal);
        assert_eq!(level(255, 100_000), Level::Tight);
        assert_eq!(level(63, 100_000), Level::Exhausted);
        assert_eq!((level(30, 100), level(24, 100), level(5, 100)), (Level::Normal, Level::Tight, Level::Exhausted));
    }
}
