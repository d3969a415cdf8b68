//! How an index keeps up with what is written to it: RocksDB's own figures, and how hard they press.
//!
//! RocksDB slows its writer down, and then stops it, when flushes and compactions fall too far behind. The shard's one
//! writer would stand there with outcomes in its hands. So it is asked before that point, and what is new waits first.

use super::database::{Broken, Database};
use super::keys::Family;
use crate::lanes::Level;

/// Files of level 0 of one column family from which on RocksDB slows writes down, and stops them: its defaults, by
/// name.
pub(super) const LEVEL0_SLOWDOWN: i32 = 20;
pub(super) const LEVEL0_STOP: i32 = 36;
/// Write buffers of one column family, with the one that is written to. RocksDB slows writes down when all but that one
/// wait to be flushed.
pub(super) const MEMTABLES_MAX: i32 = 4;
/// Bytes of one column family that wait to be compacted, from which on RocksDB slows writes down, and stops them.
pub(super) const PENDING_SLOWDOWN: usize = 8 << 30;
pub(super) const PENDING_STOP: usize = 32 << 30;

/// What presses begins at this part of where RocksDB slows down.
const TIGHT_PART: f64 = 0.75;
/// What is exhausted begins at this part of where RocksDB stops.
const EXHAUSTED_PART: f64 = 0.75;

/// What RocksDB says: of its column families, of the one that is worst off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct IndexFigures {
    /// Files of level 0.
    pub level0_files: u64,
    /// Write buffers that wait to be flushed.
    pub memtables: u64,
    /// Bytes that wait to be compacted.
    pub pending_bytes: u64,
    /// Writes are slowed down.
    pub is_delayed: bool,
    /// Writes are stopped.
    pub is_stopped: bool,
}

impl IndexFigures {
    /// As RocksDB says now.
    pub(super) fn of(database: &Database) -> Result<Self, Broken> {
        let mut figures = Self {
            is_delayed: database.property(None, "rocksdb.actual-delayed-write-rate")? > 0,
            is_stopped: database.property(None, "rocksdb.is-write-stopped")? > 0,
            ..Self::default()
        };
        for family in Family::ALL.map(Some) {
            let of = |name| database.property(family, name);
            figures.level0_files = figures.level0_files.max(of("rocksdb.num-files-at-level0")?);
            figures.memtables = figures.memtables.max(of("rocksdb.num-immutable-mem-table")?);
            figures.pending_bytes = figures.pending_bytes.max(of("rocksdb.estimate-pending-compaction-bytes")?);
        }
        Ok(figures)
    }

    /// How hard that presses.
    pub(super) fn level(&self) -> Level {
        let part = |part: f64, of: f64| (part * of).ceil() as u64;
        let (tight, exhausted) = (TIGHT_PART, EXHAUSTED_PART);
        let files = Level::below(
            self.level0_files,
            part(tight, f64::from(LEVEL0_SLOWDOWN)),
            part(exhausted, f64::from(LEVEL0_STOP)),
        );
        let pending = Level::below(
            self.pending_bytes,
            part(tight, PENDING_SLOWDOWN as f64),
            part(exhausted, PENDING_STOP as f64),
        );
        // All but the one that is written to wait: there RocksDB slows down; one fewer is the last sign before.
        let waiting_max = u64::from(MEMTABLES_MAX.unsigned_abs()) - 1;
        let memtables = Level::below(self.memtables, waiting_max - 1, waiting_max);
        let writes = match (self.is_stopped, self.is_delayed) {
            (true, _) => Level::Exhausted,
            (false, true) => Level::Tight,
            (false, false) => Level::Normal,
        };
        [files, pending, memtables, writes].into_iter().max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use rocksdb::WriteBatch;

    use super::*;
    use crate::timeline::database::Memory;

    // WRK-3
    #[test]
    fn what_lies_behind_presses_before_rocksdb_stops_the_writer() {
        let files = |level0_files| IndexFigures { level0_files, ..IndexFigures::default() }.level();
        assert_eq!([0, 14, 15, 26, 27].map(files), {
            use Level::{Exhausted, Normal, Tight};
            [Normal, Normal, Tight, Tight, Exhausted]
        });
        let memtables = |memtables| IndexFigures { memtables, ..IndexFigures::default() }.level();
        assert_eq!([1, 2, 3].map(memtables), [Level::Normal, Level::Tight, Level::Exhausted]);
        let pending = |pending_bytes| IndexFigures { pending_bytes, ..IndexFigures::default() }.level();
        assert_eq!([1 << 30, 6 << 30, 24 << 30].map(pending), [Level::Normal, Level::Tight, Level::Exhausted]);
        assert_eq!(IndexFigures { is_delayed: true, ..IndexFigures::default() }.level(), Level::Tight);
        assert_eq!(IndexFigures { is_stopped: true, ..IndexFigures::default() }.level(), Level::Exhausted);
    }

    // WRK-3
    #[test]
    fn a_real_index_whose_compactions_fall_behind_presses_and_stops_pressing_once_they_catch_up() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path(), &Memory::new(8 << 20)).unwrap();
        assert_eq!(IndexFigures::of(&database).unwrap().level(), Level::Normal);
        database.compact_by_itself(false);
        let mut levels = vec![Level::Normal];
        for files in 1..=27_u64 {
            let mut batch = WriteBatch::new();
            database.put(&mut batch, Family::Id, &files.to_be_bytes(), b"an entry");
            database.write(batch).unwrap();
            database.flush().unwrap();
            let figures = IndexFigures::of(&database).unwrap();
            assert_eq!(figures.level0_files, files);
            levels.push(figures.level());
        }
        levels.dedup();
        assert_eq!(levels, [Level::Normal, Level::Tight, Level::Exhausted]);
        database.compact_by_itself(true);
        database.compact_all();
        assert_eq!(IndexFigures::of(&database).unwrap().level(), Level::Normal);
    }
}
