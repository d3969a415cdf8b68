//! Retention: how long what has ended is kept, and what to say of what may have been removed.

use std::time::Duration;

use axum::Json;
use axum::extract::State;

use super::error::ApiError;
use super::parameters::Parameters;
use super::{AdminParts, wire};
use crate::model::ids::{EventId, MessageId, WorkItemId};
use crate::model::retention::DAY;

/// How long what has ended is kept, how much is past that, and how far the keeper is.
pub(super) async fn show(
    State(parts): State<AdminParts>,
    parameters: Parameters,
) -> Result<Json<wire::Retention>, ApiError> {
    parameters.finish()?;
    let standing = parts.keeper.standing().await?;
    Ok(Json(wire::Retention::of(parts.keeper.keep(), &standing, &parts.keeper.progress())))
}

impl AdminParts {
    pub(super) fn no_event(&self, id: EventId) -> ApiError {
        self.not_of_an_event(format!("event {id}"))
    }

    pub(super) fn no_work_item(&self, id: WorkItemId) -> ApiError {
        self.not_of_an_event(format!("work item {id}"))
    }

    pub(super) fn no_message(&self, id: MessageId) -> ApiError {
        let days = in_days(self.keeper.keep().messages);
        ApiError::NotKept { what: format!("message {id}"), days, key: "retention.messages_days" }
    }

    fn not_of_an_event(&self, what: String) -> ApiError {
        ApiError::NotKept { what, days: in_days(self.keeper.keep().events), key: "retention.events_days" }
    }
}

fn in_days(duration: Duration) -> u64 {
    duration.as_secs() / DAY.as_secs()
}
