//! One RocksDB: opening, reading with every value checked, writing whole batches, throwing away.
//!
//! Writes go to the write-ahead log and are not made durable one by one: SQL is the truth, a crash of the process loses
//! nothing that was written, and after a crash of the machine the index is a whole earlier one, which its owner epoch
//! and its applied sequence number tell apart from the present.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBCompressionType, DBRawIterator,
    ErrorKind, Options, ReadOptions, WriteBatch, WriteBufferManager, WriteOptions,
};

use super::figures::{LEVEL0_SLOWDOWN, LEVEL0_STOP, MEMTABLES_MAX, PENDING_SLOWDOWN, PENDING_STOP};
use super::frame;
#[cfg(test)]
use super::fuse;
use super::keys::Family;

/// The part of the memory for the write buffers of all shards: one in this many.
const WRITE_BUFFER_PART: usize = 2;
/// The write buffer of one column family is flushed at this size, or at its share of a smaller budget.
const WRITE_BUFFER_BYTES_MAX: usize = 8 << 20;
/// Write-ahead logs beyond this size are removed, after a flush of the data that is only in them.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// A run of keys with this many deletions among [`DELETIONS_WINDOW`] is compacted: messages that were published leave
/// tombstones just before the messages that are due next.
const DELETIONS_TRIGGER: usize = 2_048;
const DELETIONS_WINDOW: usize = 4_096;
/// Open files a shard.
pub(super) const FILES_MAX: i32 = 256;
/// Flushes and compactions that run at once, over all shards.
const BACKGROUND_JOBS: i32 = 2;
/// Bits a key in the filters of the `id` family, for about one false answer in a hundred.
const BLOOM_BITS: f64 = 10.0;
/// A part of a table's index or filter, in bytes.
const METADATA_BLOCK_BYTES: usize = 4 << 10;
/// RocksDB's own log files that are kept, and their size.
const INFO_LOGS_MAX: usize = 2;
const INFO_LOG_BYTES_MAX: usize = 1 << 20;

/// Why an index cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// A value is not as it was written.
    #[error("a value of column family `{}` is torn", family.as_str())]
    Torn { family: Family },
    /// Its directory cannot be used.
    #[error("{0}")]
    Directory(#[from] std::io::Error),
    /// RocksDB cannot go on.
    #[error("RocksDB: {0}")]
    Storage(#[from] rocksdb::Error),
}

impl Broken {
    /// Whether the content is not as it was written, as opposed to an index that cannot be reached or written to.
    pub(super) fn is_torn(&self) -> bool {
        match self {
            Broken::Torn { .. } => true,
            Broken::Directory(_) => false,
            Broken::Storage(error) => matches!(error.kind(), ErrorKind::Corruption | ErrorKind::InvalidArgument),
        }
    }
}

/// Block cache and write buffers that all shards share.
pub(super) struct Memory {
    cache: Cache,
    buffers: WriteBufferManager,
    buffer_bytes: usize,
}

impl Memory {
    /// A cache and buffers that take `bytes` together.
    pub(super) fn new(bytes: usize) -> Self {
        let cache = Cache::new_lru_cache(bytes);
        let buffer_bytes = bytes / WRITE_BUFFER_PART;
        let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(buffer_bytes, false, cache.clone());
        Self { cache, buffers, buffer_bytes }
    }

    /// The bytes in use.
    pub(super) fn used_bytes(&self) -> usize {
        self.cache.get_usage()
    }
}

/// An open RocksDB.
pub(super) struct Database {
    db: DB,
    /// Batches that were written since the database was opened.
    batches: AtomicU64,
}

impl Database {
    /// Opens the database in `path`, creating it if there is none.
    pub(super) fn open(path: &Path, memory: &Memory) -> Result<Self, Broken> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_write_buffer_manager(&memory.buffers);
        options.set_max_total_wal_size(LOG_BYTES_MAX);
        options.set_recycle_log_file_num(1);
        options.set_max_open_files(FILES_MAX);
        options.set_max_background_jobs(BACKGROUND_JOBS);
        options.set_keep_log_file_num(INFO_LOGS_MAX);
        options.set_max_log_file_size(INFO_LOG_BYTES_MAX);
        options.set_stats_dump_period_sec(0);
        let families = Family::ALL
            .map(|family| ColumnFamilyDescriptor::new(family.as_str(), Self::family_options(family, memory)));
        Ok(Self { db: DB::open_cf_descriptors(&options, path, families)?, batches: AtomicU64::new(0) })
    }

    /// Removes the database in `path`, if there is one.
    pub(super) fn destroy(path: &Path) -> std::io::Result<()> {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn family_options(family: Family, memory: &Memory) -> Options {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&memory.cache);
        blocks.set_cache_index_and_filter_blocks(true);
        // In parts, of which a look-up needs one: a whole filter of millions of keys would not fit into a part of the
        // cache, and would be read from its file, and checked, by every look-up.
        blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        blocks.set_partition_filters(true);
        blocks.set_metadata_block_size(METADATA_BLOCK_BYTES);
        blocks.set_pin_top_level_index_and_filter(true);
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
        let mut options = Options::default();
        match family {
            Family::Id => {
                blocks.set_bloom_filter(BLOOM_BITS, false);
                options.set_memtable_prefix_bloom_ratio(0.1);
                options.set_memtable_whole_key_filtering(true);
            }
            Family::Timeline | Family::InFlight | Family::Meta => {
                options.add_compact_on_deletion_collector_factory(DELETIONS_WINDOW, DELETIONS_TRIGGER, 0.0);
            }
        }
        options.set_block_based_table_factory(&blocks);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_level_compaction_dynamic_level_bytes(true);
        let share = memory.buffer_bytes / Family::ALL.len();
        options.set_max_write_buffer_number(MEMTABLES_MAX);
        options.set_level_zero_slowdown_writes_trigger(LEVEL0_SLOWDOWN);
        options.set_level_zero_stop_writes_trigger(LEVEL0_STOP);
        options.set_soft_pending_compaction_bytes_limit(PENDING_SLOWDOWN);
        options.set_hard_pending_compaction_bytes_limit(PENDING_STOP);
        options.set_write_buffer_size(share.clamp(64 << 10, WRITE_BUFFER_BYTES_MAX));
        options
    }

    /// The payload under `key`, as `read` makes it out.
    pub(super) fn get<T>(
        &self,
        family: Family,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, Broken> {
        let Some(framed) = self.db.get_pinned_cf(self.handle(family), key)? else { return Ok(None) };
        match frame::open(key, &framed).and_then(read) {
            Some(value) => Ok(Some(value)),
            None => Err(Broken::Torn { family }),
        }
    }

    /// The keys from `from` on and before `end`.
    pub(super) fn scan(&self, family: Family, from: &[u8], end: Vec<u8>) -> Scan<'_> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        let mut iterator = self.db.raw_iterator_cf_opt(self.handle(family), options);
        iterator.seek(from);
        Scan { iterator, family }
    }

    /// Writes a batch, whole or not at all.
    pub(super) fn write(&self, batch: WriteBatch) -> Result<(), Broken> {
        self.write_with(batch, &WriteOptions::default())
    }

    /// Writes a batch, whole or not at all, and returns once it is on the disk, with all that was written before it.
    pub(super) fn write_through(&self, batch: WriteBatch) -> Result<(), Broken> {
        let mut options = WriteOptions::default();
        options.set_sync(true);
        self.write_with(batch, &options)
    }

    fn write_with(&self, batch: WriteBatch, options: &WriteOptions) -> Result<(), Broken> {
        #[cfg(test)]
        fuse::burn(self.db.path(), fuse::Side::Before);
        self.db.write_opt(batch, options)?;
        self.batches.fetch_add(1, Ordering::Relaxed);
        #[cfg(test)]
        fuse::burn(self.db.path(), fuse::Side::After);
        Ok(())
    }

    /// Puts a framed value into a batch.
    pub(super) fn put(&self, batch: &mut WriteBatch, family: Family, key: &[u8], payload: &[u8]) {
        batch.put_cf(self.handle(family), key, frame::seal(key, payload));
    }

    /// Puts a deletion into a batch.
    pub(super) fn delete(&self, batch: &mut WriteBatch, family: Family, key: &[u8]) {
        batch.delete_cf(self.handle(family), key);
    }

    /// Batches that were written since the database was opened.
    pub(super) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// A property that RocksDB reports, of one column family or of the whole; 0 if there is none of this name.
    pub(super) fn property(&self, family: Option<Family>, name: &str) -> Result<u64, Broken> {
        let value = match family {
            Some(family) => self.db.property_value_cf(self.handle(family), name)?,
            None => self.db.property_value(name)?,
        };
        Ok(value.and_then(|value| value.trim().parse().ok()).unwrap_or(0))
    }

    /// Makes a copy in `path`, which must not exist: all batches that have been written, each of them whole. Tables are
    /// linked instead of copied. Other threads may go on writing meanwhile.
    pub(super) fn copy(&self, path: &Path) -> Result<(), Broken> {
        Ok(Checkpoint::new(&self.db)?.create_checkpoint(path)?)
    }

    /// Whether it compacts by itself.
    #[cfg(test)]
    pub(super) fn compact_by_itself(&self, is_on: bool) {
        let value = if is_on { "false" } else { "true" };
        for family in Family::ALL {
            self.db.set_options_cf(self.handle(family), &[("disable_auto_compactions", value)]).unwrap();
        }
    }

    /// Compacts everything now.
    #[cfg(test)]
    pub(super) fn compact_all(&self) {
        for family in Family::ALL {
            self.db.compact_range_cf(self.handle(family), None::<&[u8]>, None::<&[u8]>);
        }
    }

    /// A value as it is stored.
    #[cfg(test)]
    pub(super) fn raw(&self, family: Family, key: &[u8]) -> Vec<u8> {
        self.db.get_cf(self.handle(family), key).unwrap().unwrap()
    }

    /// Stores a value as it is.
    #[cfg(test)]
    pub(super) fn put_raw(&self, batch: &mut WriteBatch, family: Family, key: &[u8], value: &[u8]) {
        batch.put_cf(self.handle(family), key, value);
    }

    /// Writes the memory and the log into tables, so that the next opening has nothing to replay.
    pub(super) fn flush(&self) -> Result<(), Broken> {
        for family in Family::ALL {
            self.db.flush_cf(self.handle(family))?;
        }
        Ok(())
    }

    fn handle(&self, family: Family) -> &rocksdb::ColumnFamily {
        self.db.cf_handle(family.as_str()).expect("every family was opened")
    }
}

/// A walk over keys, with every value checked.
pub(super) struct Scan<'a> {
    iterator: DBRawIterator<'a>,
    family: Family,
}

impl Scan<'_> {
    /// The item that the walk is at, as `read` makes it out of key and payload; `None` behind the last key.
    pub(super) fn peek<T>(&self, read: impl FnOnce(&[u8], &[u8]) -> Option<T>) -> Result<Option<T>, Broken> {
        let Some((key, framed)) = self.iterator.item() else {
            self.iterator.status()?;
            return Ok(None);
        };
        match frame::open(key, framed).and_then(|payload| read(key, payload)) {
            Some(value) => Ok(Some(value)),
            None => Err(Broken::Torn { family: self.family }),
        }
    }

    /// Goes on to the next key.
    pub(super) fn advance(&mut self) {
        self.iterator.next();
    }
}
