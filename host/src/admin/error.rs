//! The API's errors and their answers: `{"error":{"code":"…","message":"…"}}`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use super::error_codes::{self, Code};
use super::wire::{ErrorBody, ErrorDetail};
use crate::model::message::{MessageState, TooLate};
use crate::model::work_item::WorkState;
use crate::store::StoreError;
use crate::supervise::RolloutError;

/// The error of a request, divided by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// The request is malformed; the text names the parameter.
    #[error("{0}")]
    Invalid(String),
    /// The token is missing or wrong.
    #[error("send the admin token: Authorization: Bearer …")]
    Unauthorized,
    /// Without a token, only requests to a loopback name are answered.
    #[error("without a token only requests to localhost or a loopback address are answered")]
    ForeignHost,
    /// The object does not exist.
    #[error("there is no {what}")]
    NotFound {
        /// Its name.
        what: String,
    },
    /// There is no such thing; if there was, it had ended, and was removed.
    #[error("there is no {what}: it never was, or it was removed; what has ended is kept {days} days ({key})")]
    NotKept {
        /// What was asked for.
        what: String,
        /// How long such things are kept.
        days: u64,
        /// The key that says so.
        key: &'static str,
    },
    /// The path exists, with another method.
    #[error("this path does not answer this method")]
    Method,
    /// The body is too large.
    #[error("the body is larger than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The message is being published, has ended, or may have arrived by an earlier attempt.
    #[error("it is too late: {}", too_late(.0))]
    TooLate(TooLate),
    /// Only a dead message can be redriven.
    #[error("the message is {}: only a dead message can be redriven", .0.as_str())]
    NotDead(MessageState),
    /// The message has expired.
    #[error("the message expired at {0} and is not sent again")]
    Expired(String),
    /// Only an uncertain message can be resolved.
    #[error("the message is {} and none of its attempts is uncertain: there is nothing to resolve", .0.as_str())]
    NotUncertain(MessageState),
    /// Only a dead head of a lane can be skipped.
    #[error("the work item is {}: only a dead work item that holds up its lane can be skipped", .0.as_str())]
    NotSkippable(WorkState),
    /// Only a finished WorkItem can be replayed.
    #[error("the work item is {}: only a work item that is done or dead can be replayed", .0.as_str())]
    NotFinished(WorkState),
    /// No host can claim it now.
    #[error("the work item is {} and cannot be claimed now: {why}", .state.as_str())]
    NotClaimable {
        /// Its state.
        state: WorkState,
        /// What has to happen first.
        why: String,
    },
    /// It can be claimed, but not now and on this host.
    #[error("nothing was claimed: {0}; retry")]
    NotNow(String),
    /// An older host replayed the Event in place: its WorkItems are not replayed.
    #[error("an older host replayed the event at {0}, so its work items are not replayed again")]
    OlderReplay(String),
    /// Pending messages would lose their destination or their order.
    #[error("{0}")]
    Pending(String),
    /// The destination has another version, or there are too many.
    #[error("nothing was changed: {0}")]
    Stale(String),
    /// The destination comes from the configuration.
    #[error("destination `{0}` is in this host's configuration: change it there, and restart")]
    Configured(String),
    /// Too many requests at once.
    #[error("too many requests at once: retry in a second")]
    Busy,
    /// The request took too long.
    #[error("the request took too long: ask for less, or run `forebay doctor`")]
    TooSlow,
    /// The host is starting or stopping.
    #[error("the host is starting or stopping: retry when /readyz says that it is ready")]
    NotServing,
    /// The active generation was not changed.
    #[error(transparent)]
    Rollout(RolloutError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ApiError {
    /// Its code.
    pub(super) fn code(&self) -> Code {
        match self {
            ApiError::Invalid(_) => error_codes::INVALID,
            ApiError::Unauthorized => error_codes::UNAUTHORIZED,
            ApiError::ForeignHost => error_codes::FOREIGN_HOST,
            ApiError::NotFound { .. } | ApiError::NotKept { .. } => error_codes::NOT_FOUND,
            ApiError::Method => error_codes::METHOD,
            ApiError::TooLarge { .. } => error_codes::TOO_LARGE,
            ApiError::TooLate(_) => error_codes::TOO_LATE,
            ApiError::NotDead(_) => error_codes::NOT_DEAD,
            ApiError::Expired(_) => error_codes::EXPIRED,
            ApiError::NotUncertain(_) => error_codes::NOT_UNCERTAIN,
            ApiError::NotSkippable(_) => error_codes::NOT_SKIPPABLE,
            ApiError::NotFinished(_) => error_codes::NOT_FINISHED,
            ApiError::NotClaimable { .. } => error_codes::NOT_CLAIMABLE,
            ApiError::NotNow(_) => error_codes::NOT_NOW,
            ApiError::OlderReplay(_) => error_codes::OLDER_REPLAY,
            ApiError::Pending(_) => error_codes::MESSAGES_WAIT,
            ApiError::Stale(_) => error_codes::CHANGED_MEANWHILE,
            ApiError::Configured(_) => error_codes::CONFIGURED,
            ApiError::Busy | ApiError::Rollout(RolloutError::Busy) => error_codes::BUSY,
            ApiError::NotServing => error_codes::NOT_SERVING,
            ApiError::Rollout(RolloutError::Refused(_)) => error_codes::PACK_REFUSED,
            ApiError::Rollout(RolloutError::NotFound(_)) => error_codes::NOT_FOUND,
            ApiError::Rollout(RolloutError::Conflict(_)) => error_codes::CONFLICT,
            ApiError::TooSlow => error_codes::TOO_SLOW,
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
            | ApiError::NotKept { .. }
            | ApiError::Method
            | ApiError::TooLarge { .. }
            | ApiError::OlderReplay(_)
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

/// Why it is too late, as part of a sentence.
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

fn store_code(error: &StoreError) -> Code {
    match error {
        StoreError::Busy { .. } => error_codes::STORE_BUSY,
        StoreError::Unavailable(_) => error_codes::STORE_UNAVAILABLE,
        StoreError::Unknown(_) => error_codes::STORE_UNKNOWN,
        StoreError::Refused(_) => error_codes::REFUSED,
        StoreError::Unstorable(_) => error_codes::UNSTORABLE,
        StoreError::Unusable(_) => error_codes::STORE_UNUSABLE,
    }
}

impl From<RolloutError> for ApiError {
    fn from(error: RolloutError) -> Self {
        ApiError::Rollout(error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = self.code();
        let status = code.http();
        let body = ErrorBody {
            error: ErrorDetail {
                code: code.word.to_owned(),
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
