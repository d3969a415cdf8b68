//! Running a generation over an event to see what it would do: without effects, without log lines, measured.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::reads::recorded;
use super::{Due, EmittedAction, EmittedMessage, FlowOutput, LoadedGeneration, Prepared};
use crate::model::event::Event;
use crate::model::failure::Failure;
use crate::model::reading::{ReadWish, Reading, RecordedReads};

/// What the guest of a call used.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Units of fuel.
    pub(super) fuel: u64,
    /// Whether its log lines are dropped.
    pub(super) muted: bool,
}

/// What a flow came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// `prepare` wants no part of the event.
    Ignored {
        /// Why, for people.
        reason: String,
    },
    /// `run` returned.
    Ran(FlowOutput),
    /// It failed.
    Failed(Failure),
}

/// A rehearsed flow.
#[derive(Debug, Clone)]
pub struct Rehearsal {
    /// What it came to.
    pub outcome: Outcome,
    /// The fuel that `prepare` and `run` used together.
    pub fuel: u64,
}

/// A flow that has been prepared, and whose reads are still to be made.
#[derive(Debug)]
pub struct Halfway {
    /// What it asks to be read; may be nothing.
    pub reads: Vec<ReadWish>,
    state: Bytes,
    meter: Meter,
}

/// What became of `prepare`.
#[derive(Debug)]
pub enum Begun {
    /// The flow ended there.
    Ended(Rehearsal),
    /// It is to be run.
    Halfway(Halfway),
}

impl LoadedGeneration {
    /// Runs the flow as it would run for this attempt, with what was read when the event was run. It must end by
    /// `deadline`.
    pub async fn rehearse(&self, event: &Event, attempt: u32, reads: &RecordedReads, deadline: Instant) -> Rehearsal {
        match self.rehearse_prepare(event, attempt, deadline).await {
            Begun::Ended(rehearsal) => rehearsal,
            Begun::Halfway(halfway) => {
                let readings = recorded(&halfway.reads, reads);
                self.rehearse_run(event, attempt, halfway, readings, deadline).await
            }
        }
    }

    /// The first half of it: `prepare`.
    pub async fn rehearse_prepare(&self, event: &Event, attempt: u32, deadline: Instant) -> Begun {
        let mut meter = Meter { fuel: 0, muted: true };
        let outcome = match self.prepare_metered(event, attempt, deadline, &mut meter).await {
            Ok(Prepared::Run { state, reads }) => return Begun::Halfway(Halfway { reads, state, meter }),
            Ok(Prepared::Ignore { reason }) => Outcome::Ignored { reason },
            Err(failure) => Outcome::Failed(failure),
        };
        Begun::Ended(Rehearsal { outcome, fuel: meter.fuel })
    }

    /// The second half: `run`, with what was read, or why it could not be.
    pub async fn rehearse_run(
        &self,
        event: &Event,
        attempt: u32,
        halfway: Halfway,
        readings: Result<Vec<Reading>, Failure>,
        deadline: Instant,
    ) -> Rehearsal {
        let Halfway { reads: _, state, mut meter } = halfway;
        let ran = match readings {
            Ok(readings) => self.run_metered(event, attempt, state, &readings, deadline, &mut meter).await,
            Err(failure) => Err(failure),
        };
        let outcome = match ran {
            Ok(output) => Outcome::Ran(output),
            Err(failure) => Outcome::Failed(failure),
        };
        Rehearsal { outcome, fuel: meter.fuel }
    }
}

impl Outcome {
    /// What the output hashes to; none if it failed.
    pub fn digest(&self) -> Option<[u8; 32]> {
        match self {
            Outcome::Ignored { reason } => Some(ignored_digest(reason)),
            Outcome::Ran(output) => Some(output.digest()),
            Outcome::Failed(_) => None,
        }
    }
}

/// What an ignored event hashes to.
pub fn ignored_digest(reason: &str) -> [u8; 32] {
    let mut digest = OutputDigest::begin("ignored");
    digest.text(reason);
    digest.end()
}

impl FlowOutput {
    /// What it hashes to: the same on every machine and in every later version of this host, as long as it says the
    /// same.
    pub fn digest(&self) -> [u8; 32] {
        let Self { note, messages, actions } = self;
        let mut digest = OutputDigest::begin("ran");
        digest.optional(note.as_deref().map(str::as_bytes));
        digest.number(messages.len() as u64);
        for message in messages {
            digest.message(message);
        }
        digest.number(actions.len() as u64);
        for action in actions {
            digest.action(action);
        }
        digest.end()
    }
}

/// SHA-256 over values, each behind its length, so that no two lists of them hash alike.
struct OutputDigest(Sha256);

impl OutputDigest {
    fn begin(kind: &str) -> Self {
        let mut digest = Self(Sha256::new_with_prefix("forebay output 1"));
        digest.text(kind);
        digest
    }

    fn end(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    fn number(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.0.update([0]),
            Some(bytes) => {
                self.0.update([1]);
                self.bytes(bytes);
            }
        }
    }

    fn time(&mut self, kind: u8, millis: u64) {
        self.0.update([kind]);
        self.number(millis);
    }

    fn message(&mut self, message: &EmittedMessage) {
        let EmittedMessage { destination, body, content_type, headers, ordering_key, idempotency_key, due, expire_at } =
            message;
        self.text(destination.as_str());
        self.bytes(body);
        self.text(content_type);
        self.number(headers.len() as u64);
        for header in headers {
            self.text(&header.name);
            self.bytes(&header.value);
        }
        self.optional(ordering_key.as_deref().map(str::as_bytes));
        self.optional(idempotency_key.as_deref().map(str::as_bytes));
        self.due(*due);
        match expire_at {
            None => self.0.update([0]),
            Some(at) => self.time(1, at.as_millis().cast_unsigned()),
        }
    }

    fn action(&mut self, action: &EmittedAction) {
        let EmittedAction { name, body, idempotency_key, due } = action;
        self.text(name);
        self.bytes(body);
        self.optional(idempotency_key.as_deref().map(str::as_bytes));
        self.due(*due);
    }

    fn due(&mut self, due: Due) {
        match due {
            Due::Now => self.time(0, 0),
            Due::After(delay) => self.time(1, u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
            Due::At(at) => self.time(2, at.as_millis().cast_unsigned()),
        }
    }
}
