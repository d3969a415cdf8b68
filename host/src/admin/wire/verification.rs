//! Verifications on the wire, and what runs were given to read.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Body, Outcome};
use crate::model::reading::{Reading, RecordedReads};
use crate::supervise;

/// `POST /api/v1/events/verify`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifyWish {
    /// How many events, from the newest on.
    pub last: u32,
    /// Of this pack; of all if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack: Option<String>,
}

/// What a verification saw.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Verification {
    /// Runs that came out the same.
    pub same: u64,
    /// Runs that came out otherwise.
    pub differing: u64,
    /// Runs that could not be compared.
    pub unknown: u64,
    /// Whether time ran out before all were looked at.
    pub out_of_time: bool,
    /// The newest that are not the same; of a single event, all.
    pub runs: Vec<VerifiedRun>,
}

/// One run.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct VerifiedRun {
    /// The event.
    pub event_id: String,
    /// The work item whose run it was.
    pub work_item_id: String,
    /// The generation that ran it.
    pub generation: u32,
    /// `same`, `differs` or `unknown`.
    pub verdict: String,
    /// Why it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the output hashed to, if it differs now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_sha256: Option<String>,
    /// What it hashes to now, if it differs and the flow ended well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now_sha256: Option<String>,
    /// What the flow came to now, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Outcome>,
}

/// What was read for a run.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Reads {
    /// Keys that were asked for.
    pub count: u32,
    /// Whether the records are kept; if not, they were too large.
    pub kept: bool,
    /// The records, in the order in which the run got them.
    pub records: Vec<ReadRecord>,
}

/// One record.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReadRecord {
    /// The reader.
    pub reader: String,
    /// The key.
    pub key: String,
    /// What was found; none if there was no such record.
    #[schema(required = true)]
    pub value: Option<Body>,
}

impl Reads {
    /// What is shown of reads; nothing if nothing was read.
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
