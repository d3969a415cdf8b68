//! The API's errors, and how each is answered: `{"error":{"code":"…","message":"…"}}`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use super::wire::{ErrorBody, ErrorDetail};
use crate::model::message::{MessageState, TooLate};
use crate::model::work_item::WorkState;
use crate::store::StoreError;
use crate::supervise::RolloutError;

/// Why a request was not done, divided by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// The request cannot be understood; the text names the parameter.
    #[error("{0}")]
    Invalid(String),
    /// The token is missing or wrong.
    #[error("send the admin token: Authorization: Bearer …")]
    Unauthorized,
    /// Without a token, only what names this machine by a loopback name is answered.
    #[error("without a token only requests to localhost or a loopback address are answered")]
    ForeignHost,
    /// There is no such thing.
    #[error("there is no {what}")]
    NotFound {
        /// What was asked for.
        what: String,
    },
    /// The path exists, with another method.
    #[error("this path does not answer this method")]
    Method,
    /// The body is too large.
    #[error("the body is larger than {bytes_max} bytes")]
    TooLarge {
        /// What is taken.
        bytes_max: usize,
    },
    /// Publish Admission came first, the message had ended, or an attempt of it may have arrived.
    #[error("it is too late: {}", too_late(.0))]
    TooLate(TooLate),
    /// Only a dead message is sent again.
    #[error("the message is {}, not dead: there is nothing to send again", .0.as_str())]
    NotDead(MessageState),
    /// It is of no more use.
    #[error("the message expired at {0} and is not sent again")]
    Expired(String),
    /// Only an uncertain message is settled by an operator.
    #[error("the message is {}, not uncertain: there is nothing to resolve", .0.as_str())]
    NotUncertain(MessageState),
    /// Only a dead WorkItem that holds up its lane can be skipped.
    #[error("the work item is {} and holds up no lane by being dead", .0.as_str())]
    NotSkippable(WorkState),
    /// Only what has ended can be replayed.
    #[error("the work item is {} and has not ended: there is nothing to replay yet", .0.as_str())]
    NotFinished(WorkState),
    /// No claim takes it now, whoever asks.
    #[error("the work item is {} and cannot be claimed now: {why}", .state.as_str())]
    NotClaimable {
        /// Where it stands.
        state: WorkState,
        /// What has to happen first.
        why: String,
    },
    /// It could be claimed, but not here and now.
    #[error("nothing was claimed: {0}; ask again")]
    NotNow(String),
    /// The older protocol replayed the Event: it gets no second child.
    #[error("an executor of the older protocol replayed its event at {0}, so it is not replayed again")]
    Fenced(String),
    /// Messages wait for what would not be there any more, or for something else then.
    #[error("{0}")]
    Pending(String),
    /// It was changed by somebody else, or is not there, or there are too many.
    #[error("nothing was changed: {0}")]
    Stale(String),
    /// The configuration has it.
    #[error("destination `{0}` is in this host's configuration: change it there, and restart")]
    Configured(String),
    /// Too many ask at once.
    #[error("too many requests at once: try again in a second")]
    Busy,
    /// The request took too long.
    #[error("the request took too long: ask for less, or see `forebay doctor`")]
    TooSlow,
    /// The host does not serve yet, or no longer.
    #[error("the host is starting or stopping: ask again when it serves (/readyz says so)")]
    NotServing,
    /// The generation that serves was not changed.
    #[error(transparent)]
    Rollout(RolloutError),
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ApiError {
    fn status(&self) -> StatusCode {
        match self {
            ApiError::Invalid(_) => StatusCode::BAD_REQUEST,
            ApiError::Unauthorized => StatusCode::UNAUTHORIZED,
            ApiError::ForeignHost => StatusCode::FORBIDDEN,
            ApiError::NotFound { .. } => StatusCode::NOT_FOUND,
            ApiError::Method => StatusCode::METHOD_NOT_ALLOWED,
            ApiError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            ApiError::Rollout(RolloutError::Refused(_)) => StatusCode::UNPROCESSABLE_ENTITY,
            ApiError::Rollout(RolloutError::NotFound(_)) => StatusCode::NOT_FOUND,
            ApiError::TooLate(_)
            | ApiError::NotDead(_)
            | ApiError::Expired(_)
            | ApiError::NotUncertain(_)
            | ApiError::NotSkippable(_)
            | ApiError::NotFinished(_)
            | ApiError::NotClaimable { .. }
            | ApiError::Fenced(_)
            | ApiError::Pending(_)
            | ApiError::Stale(_)
            | ApiError::Configured(_)
            | ApiError::Store(StoreError::Refused(_) | StoreError::Unstorable(_))
            | ApiError::Rollout(RolloutError::Conflict(_) | RolloutError::Store(StoreError::Refused(_))) => {
                StatusCode::CONFLICT
            }
            ApiError::Busy
            | ApiError::NotNow(_)
            | ApiError::NotServing
            | ApiError::Rollout(RolloutError::Busy | RolloutError::Store(_))
            | ApiError::TooSlow
            | ApiError::Store(
                StoreError::Busy { .. } | StoreError::Unavailable(_) | StoreError::Unknown(_) | StoreError::Unusable(_),
            ) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            ApiError::Invalid(_) => "invalid",
            ApiError::Unauthorized => "unauthorized",
            ApiError::ForeignHost => "foreign_host",
            ApiError::NotFound { .. } => "not_found",
            ApiError::Method => "method_not_allowed",
            ApiError::TooLarge { .. } => "too_large",
            ApiError::TooLate(_) => "too_late",
            ApiError::NotDead(_) => "not_dead",
            ApiError::Expired(_) => "expired",
            ApiError::NotUncertain(_) => "not_uncertain",
            ApiError::NotSkippable(_) => "not_skippable",
            ApiError::NotFinished(_) => "not_finished",
            ApiError::NotClaimable { .. } => "not_claimable",
            ApiError::NotNow(_) => "not_now",
            ApiError::Fenced(_) => "replayed_by_an_older_host",
            ApiError::Pending(_) => "messages_wait",
            ApiError::Stale(_) => "changed_meanwhile",
            ApiError::Configured(_) => "configured",
            ApiError::Busy | ApiError::Rollout(RolloutError::Busy) => "busy",
            ApiError::NotServing => "not_serving",
            ApiError::Rollout(RolloutError::Refused(_)) => "pack_refused",
            ApiError::Rollout(RolloutError::NotFound(_)) => "not_found",
            ApiError::Rollout(RolloutError::Conflict(_)) => "conflict",
            ApiError::TooSlow => "too_slow",
            ApiError::Store(error) | ApiError::Rollout(RolloutError::Store(error)) => store_code(error),
        }
    }

    fn state(&self) -> Option<&'static str> {
        match self {
            ApiError::TooLate(too_late) => Some(too_late.state().as_str()),
            ApiError::NotDead(state) | ApiError::NotUncertain(state) => Some(state.as_str()),
            ApiError::NotSkippable(state) | ApiError::NotFinished(state) | ApiError::NotClaimable { state, .. } => {
                Some(state.as_str())
            }
            ApiError::Invalid(_)
            | ApiError::Unauthorized
            | ApiError::ForeignHost
            | ApiError::NotFound { .. }
            | ApiError::Method
            | ApiError::TooLarge { .. }
            | ApiError::Fenced(_)
            | ApiError::Pending(_)
            | ApiError::Stale(_)
            | ApiError::Configured(_)
            | ApiError::Expired(_)
            | ApiError::Busy
            | ApiError::NotNow(_)
            | ApiError::TooSlow
            | ApiError::NotServing
            | ApiError::Rollout(_)
            | ApiError::Store(_) => None,
        }
    }
}

/// Why it is too late, in words.
fn too_late(too_late: &TooLate) -> String {
    match too_late {
        TooLate::Stands(MessageState::Uncertain) => {
            "the outcome of its last attempt is unknown: ask the receiver, then run `forebay message resolve ID --as retry|published|dead`"
                .to_owned()
        }
        TooLate::Stands(state) => format!("the message is {}", state.as_str()),
        TooLate::MayHaveArrived(state) => format!(
            "the message is {}, and the outcome of an earlier attempt is unknown: ask the receiver, then run `forebay message resolve ID --as retry|published|dead`",
            state.as_str()
        ),
    }
}

fn store_code(error: &StoreError) -> &'static str {
    match error {
        StoreError::Busy { .. } => "store_busy",
        StoreError::Unavailable(_) => "store_unavailable",
        StoreError::Unknown(_) => "store_outcome_unknown",
        StoreError::Refused(_) => "refused",
        StoreError::Unstorable(_) => "unstorable",
        StoreError::Unusable(_) => "store_unusable",
    }
}

impl From<RolloutError> for ApiError {
    fn from(error: RolloutError) -> Self {
        ApiError::Rollout(error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let body = ErrorBody {
            error: ErrorDetail {
                code: self.code().to_owned(),
                message: self.to_string(),
                state: self.state().map(str::to_owned),
            },
        };
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

pub(super) async fn no_such_path() -> ApiError {
    ApiError::NotFound { what: "such path".to_owned() }
}

pub(super) async fn no_such_method() -> ApiError {
    ApiError::Method
}
