//! How much memory a call may take, summed over everything in its store.
//!
//! A refused growth is an ordinary answer to the guest, which may go on without; if it ends badly after one, that is
//! why.

use wasmtime::ResourceLimiter;

use super::engine::{MEMORIES_PER_CALL, TABLE_ELEMENTS_MAX, TABLES_PER_CALL};

/// Instances of core modules and components in one store.
const INSTANCES_MAX: usize = 32;

/// The memory of one call.
pub(super) struct MemoryLimits {
    bytes_max: usize,
    bytes: usize,
    refused: Option<Refusal>,
}

/// What a guest asked for and did not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// So many bytes of memory in all.
    Memory {
        /// What it would then have had.
        wanted: usize,
    },
    /// A table of so many entries.
    Table {
        /// What the table would then have had.
        wanted: usize,
    },
}

impl MemoryLimits {
    /// None taken, so much to take.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX), bytes: 0, refused: None }
    }

    /// What was last asked for in vain.
    pub(super) fn refused(&self) -> Option<Refusal> {
        self.refused
    }
}

impl ResourceLimiter for MemoryLimits {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.bytes.saturating_add(desired.saturating_sub(current));
        if wanted > self.bytes_max {
            self.refused = Some(Refusal::Memory { wanted });
            return Ok(false);
        }
        self.bytes = wanted;
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if desired > TABLE_ELEMENTS_MAX {
            self.refused = Some(Refusal::Table { wanted: desired });
            return Ok(false);
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn memories(&self) -> usize {
        MEMORIES_PER_CALL as usize
    }

    fn tables(&self) -> usize {
        TABLES_PER_CALL as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // GST-3
    #[test]
    fn memories_count_together() {
        let mut limits = MemoryLimits::new(100);
        assert!(limits.memory_growing(0, 60, None).unwrap());
        assert!(limits.memory_growing(0, 40, None).unwrap());
        assert_eq!(limits.refused(), None);
        assert!(!limits.memory_growing(40, 41, None).unwrap());
        assert_eq!(limits.refused(), Some(Refusal::Memory { wanted: 101 }));
        assert!(limits.memory_growing(40, 40, None).unwrap());
    }
}
