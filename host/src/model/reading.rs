//! Batch reads: what an event asks to be read, and what was read for it.

use bytes::Bytes;

use super::names::{PackName, ReaderName};

/// Where a pack's readers call, if not the hosts of its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderOrigin {
    /// The pack.
    pub pack: PackName,
    /// The reader; all of the pack's if none.
    pub reader: Option<ReaderName>,
    /// Scheme, host and port, and a path that goes before the reader's own.
    pub origin: http::Uri,
}

/// A wish to read records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadWish {
    /// The reader, one of the manifest's.
    pub reader: ReaderName,
    /// The keys to look up, none twice.
    pub keys: Vec<String>,
}

/// What was found for one key of one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The reader.
    pub reader: ReaderName,
    /// The key.
    pub key: String,
    /// The record, or none if the reader has none of this key.
    pub value: Option<Bytes>,
}

/// What is on record of a run that succeeded, so that it can be run again and compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    /// The hash of its output.
    pub output_digest: [u8; 32],
    /// What was read for it.
    pub reads: RecordedReads,
}

impl RunRecord {
    /// Of a run whose output nobody has hashed, and that read nothing.
    pub fn none() -> Self {
        Self { output_digest: [0; 32], reads: RecordedReads::NONE }
    }
}

/// What was read for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedReads {
    /// All of it, in the order in which `run` got it; empty if nothing was read.
    Kept(Vec<Reading>),
    /// It was too much to be kept.
    TooLarge {
        /// How many records it was.
        count: u32,
        /// How many bytes they had.
        bytes: u64,
    },
}

/// Bytes of keys and records that are kept of one run.
pub const RECORDED_BYTES_MAX: u64 = 256 * 1024;

impl RecordedReads {
    /// Nothing was read.
    pub const NONE: RecordedReads = RecordedReads::Kept(Vec::new());

    /// What is kept of these readings.
    pub fn of(readings: Vec<Reading>) -> Self {
        let size = |reading: &Reading| {
            let value = reading.value.as_ref().map_or(0, Bytes::len);
            (reading.reader.as_str().len() + reading.key.len() + value) as u64
        };
        let bytes = readings.iter().map(size).sum();
        if bytes <= RECORDED_BYTES_MAX {
            return RecordedReads::Kept(readings);
        }
        RecordedReads::TooLarge { count: u32::try_from(readings.len()).unwrap_or(u32::MAX), bytes }
    }
}
