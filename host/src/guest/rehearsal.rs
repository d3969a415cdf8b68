//! Running a generation over an event to see what it would do: without effects, without log lines, measured.

use tokio::time::Instant;

use super::{FlowOutput, LoadedGeneration, Prepared};
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
