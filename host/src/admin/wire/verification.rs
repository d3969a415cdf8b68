//! Verifications and recorded reads on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Body, Outcome};
use crate::model::reading::{Reading, RecordedReads};
use crate::supervise;

/// The body of `POST /api/v1/events/verify`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifyWish {
    /// Number of events, newest first.
    pub last: u32,
    /// Only events of this pack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack: Option<String>,
}

/// The result of a verification.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Verification {
    /// Runs with the same output.
    pub same: u64,
    /// Runs with another output.
    pub differing: u64,
    /// Runs that could not be compared.
    pub unknown: u64,
    /// Whether time ran out before all events were compared.
    pub out_of_time: bool,
    /// The newest runs that are not the same; for a single event, all of its runs.
    pub runs: Vec<VerifiedRun>,
}

/// A verified run.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct VerifiedRun {
    /// The event.
    pub event_id: String,
    /// Its work item.
    pub work_item_id: String,
    /// The pack's generation that ran it.
    pub generation: u32,
    /// `same`, `differs` or `unknown`.
    pub verdict: String,
    /// Why it could not be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// SHA-256 of the recorded output, if the outputs differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_sha256: Option<String>,
    /// SHA-256 of the present output, if the outputs differ and the flow succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now_sha256: Option<String>,
    /// The present result of the flow, if the outputs differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Outcome>,
}

/// The reads of a run.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Reads {
    /// Number of keys.
    pub count: u32,
    /// Whether the records are kept; false if they were too large.
    pub kept: bool,
    /// The records, in the order of the run.
    pub records: Vec<ReadRecord>,
}

/// A record.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReadRecord {
    /// The reader.
    pub reader: String,
    /// The key.
    pub key: String,
    /// Its value; null if the reader has no such record.
    #[schema(required = true)]
    pub value: Option<Body>,
}

impl Reads {
    /// The reads, or `None` if there were none.
    pub(super) fn of(reads: &RecordedReads) -> Option<Self> {
        match reads {
            RecordedReads::Kept(readings) if readings.is_empty() => None,
            RecordedReads::Kept(readings) => Some(Self {
                count: u32::try_from(readings.len()).unwrap_or(u32::MAX),
                kept: true,
                records: readings.iter().map(ReadRecord::from).collect(),
            }),
            RecordedReads::TooLarge { count, .. } => Some(Self { count: *count, kept: false, records: Vec::new() }),
        }
    }
}

impl From<&Reading> for ReadRecord {
    fn from(reading: &Reading) -> Self {
        Self {
            reader: reading.reader.to_string(),
            key: reading.key.clone(),
            value: reading.value.as_ref().map(|value| Body::of(value)),
        }
    }
}

impl From<supervise::Verification> for Verification {
    fn from(verification: supervise::Verification) -> Self {
        Self {
            same: verification.same,
            differing: verification.differing,
            unknown: verification.unknown,
            out_of_time: verification.out_of_time,
            runs: verification.named.into_iter().map(VerifiedRun::from).collect(),
        }
    }
}

impl From<supervise::Verified> for VerifiedRun {
    fn from(verified: supervise::Verified) -> Self {
        let hex = |digest: &[u8; 32]| data_encoding::HEXLOWER.encode(digest);
        let run = Self {
            event_id: verified.event.to_string(),
            work_item_id: verified.work_item.to_string(),
            generation: verified.generation.0,
            verdict: "same".to_owned(),
            reason: None,
            recorded_sha256: None,
            now_sha256: None,
            now: None,
        };
        match verified.verdict {
            supervise::Verdict::Same => run,
            supervise::Verdict::Unknown { reason } => {
                Self { verdict: "unknown".to_owned(), reason: Some(reason), ..run }
            }
            supervise::Verdict::Differs { recorded, now } => Self {
                verdict: "differs".to_owned(),
                recorded_sha256: Some(hex(&recorded)),
                now_sha256: now.digest().as_ref().map(hex),
                now: Some((&now).into()),
                ..run
            },
        }
    }
}
