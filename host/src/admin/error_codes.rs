//! The words by which programs tell the API's errors apart, each with its status and what it means.

use http::StatusCode;

/// One kind of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Code {
    /// As it is written in answers.
    pub(super) word: &'static str,
    /// Its HTTP status.
    pub(super) status: u16,
    /// What it means, and what the one who asked can do.
    pub(super) meaning: &'static str,
}

macro_rules! codes {
    ($($name:ident = $status:literal $word:literal: $meaning:literal;)*) => {
        $(pub(super) const $name: Code = Code { word: $word, status: $status, meaning: $meaning };)*

        /// All of them.
        #[cfg(test)]
        pub(super) const ALL: &[Code] = &[$($name),*];
    };
}

codes! {
    INVALID = 400 "invalid": "The request cannot be understood; the message names what is wrong with it.";
    UNAUTHORIZED = 401 "unauthorized": "The bearer token is missing or wrong.";
    FOREIGN_HOST = 403 "foreign_host":
        "Without a token, only requests to a loopback name are answered, and of a browser's only those of the console.";
    NOT_FOUND = 404 "not_found": "There is no such thing, or no such path.";
    METHOD = 405 "method_not_allowed": "The path exists, with another method.";
    TOO_LARGE = 413 "too_large": "The body is larger than what is taken.";
    PACK_REFUSED = 422 "pack_refused": "The pack cannot serve; the message says why. Nothing changed.";
    TOO_LATE = 409 "too_late":
        "Publish Admission came first, the message has ended, or an attempt of it may have arrived. `state` says where it stands.";
    NOT_DEAD = 409 "not_dead": "Only a dead message is sent again. `state` says where it stands.";
    EXPIRED = 409 "expired": "The message is of no more use: it is not sent again.";
    NOT_UNCERTAIN = 409 "not_uncertain": "No attempt of the message is uncertain. `state` says where it stands.";
    NOT_SKIPPABLE = 409 "not_skippable": "The work item holds up no lane by being dead. `state` says where it stands.";
    NOT_FINISHED = 409 "not_finished": "The work item has not ended: there is nothing to replay yet.";
    NOT_CLAIMABLE = 409 "not_claimable": "Nobody may claim the work item now; the message says what has to happen first.";
    OLDER_REPLAY = 409 "replayed_by_an_older_host": "An older host replayed its event, which it had run again.";
    MESSAGES_WAIT = 409 "messages_wait":
        "Messages wait for the destination, and would have none, or stand in another order; the message says how many. Nothing changed.";
    CHANGED_MEANWHILE = 409 "changed_meanwhile": "It is not the version that was meant; the message says which it is. Nothing changed.";
    CONFIGURED = 409 "configured": "The host's configuration has it, and is changed where it is written.";
    CONFLICT = 409 "conflict": "What serves does not allow it; the message says why. Nothing changed.";
    REFUSED = 409 "refused": "The store does not allow it; the message says why.";
    UNSTORABLE = 409 "unstorable": "The store cannot hold it.";
    NOT_NOW = 503 "not_now": "It could be claimed, but not here and now: ask again.";
    BUSY = 503 "busy": "Too many ask at once, or one preview or installation runs already: ask again.";
    TOO_SLOW = 503 "too_slow": "The request took too long. What it asked for may have been done.";
    NOT_SERVING = 503 "not_serving": "The host is starting or stopping.";
    STORE_BUSY = 503 "store_busy": "The store has as much to do as it takes: ask again.";
    STORE_UNAVAILABLE = 503 "store_unavailable": "The store does not answer: ask again.";
    STORE_UNKNOWN = 503 "store_outcome_unknown": "Nobody knows whether the store did it: look, then ask again.";
    STORE_UNUSABLE = 503 "store_unusable": "The store must be opened anew: restart the host.";
}

/// What every operation that asks for the token may answer.
pub(super) const EVERYWHERE: &[Code] = &[UNAUTHORIZED, FOREIGN_HOST, INVALID, BUSY, TOO_SLOW];

/// What every operation may answer that asks the store.
pub(super) const OF_THE_STORE: &[Code] = &[STORE_BUSY, STORE_UNAVAILABLE, STORE_UNUSABLE];

/// What an operation may answer, besides, that changes what is stored.
pub(super) const OF_CHANGES: &[Code] = &[STORE_UNKNOWN, REFUSED, UNSTORABLE];

impl Code {
    /// Its status as HTTP has it.
    pub(super) fn http(self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}
