//! Running a generation over an event to see what it would do: without effects, without log lines, measured.

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{Due, EmittedMessage, FlowOutput, LoadedGeneration, Prepared};
use crate::model::event::Event;
use crate::model::failure::Failure;

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

impl LoadedGeneration {
    /// Runs the flow as it would run for this attempt. It must end by `deadline`.
    pub async fn rehearse(&self, event: &Event, attempt: u32, deadline: Instant) -> Rehearsal {
        let mut meter = Meter { fuel: 0, muted: true };
        let outcome = match self.prepare_metered(event, attempt, deadline, &mut meter).await {
            Ok(Prepared::Ignore { reason }) => Outcome::Ignored { reason },
            Ok(Prepared::Run { state }) => match self.run_metered(event, attempt, state, deadline, &mut meter).await {
                Ok(output) => Outcome::Ran(output),
                Err(failure) => Outcome::Failed(failure),
            },
            Err(failure) => Outcome::Failed(failure),
        };
        Rehearsal { outcome, fuel: meter.fuel }
    }
}

/// SHA-256 of why an event was ignored.
pub fn ignored_digest(reason: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    text(&mut digest, "ignored");
    text(&mut digest, reason);
    digest.finalize().into()
}

/// SHA-256 of what `run` returned: every field, each behind its length, so that no two outputs share one.
pub fn output_digest(note: Option<&str>, messages: &[EmittedMessage]) -> [u8; 32] {
    let mut digest = Sha256::new();
    text(&mut digest, "ran");
    optional(&mut digest, note);
    for message in messages {
        text(&mut digest, message.destination.as_str());
        bytes(&mut digest, &message.body);
        text(&mut digest, &message.content_type);
        number(&mut digest, message.headers.len() as u64);
        for header in &message.headers {
            text(&mut digest, &header.name);
            bytes(&mut digest, &header.value);
        }
        optional(&mut digest, message.ordering_key.as_deref());
        optional(&mut digest, message.idempotency_key.as_deref());
        let (kind, value) = match message.due {
            Due::Now => (0, 0),
            Due::After(delay) => (1, u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
            Due::At(at) => (2, at.as_millis().cast_unsigned()),
        };
        number(&mut digest, kind);
        number(&mut digest, value);
        number(&mut digest, u64::from(message.expire_at.is_some()));
        number(&mut digest, message.expire_at.map_or(0, |at| at.as_millis().cast_unsigned()));
    }
    digest.finalize().into()
}

fn number(digest: &mut Sha256, number: u64) {
    digest.update(number.to_be_bytes());
}

fn bytes(digest: &mut Sha256, bytes: &[u8]) {
    number(digest, bytes.len() as u64);
    digest.update(bytes);
}

fn text(digest: &mut Sha256, text: &str) {
    bytes(digest, text.as_bytes());
}

fn optional(digest: &mut Sha256, value: Option<&str>) {
    number(digest, u64::from(value.is_some()));
    text(digest, value.unwrap_or_default());
}
