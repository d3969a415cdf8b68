//! The codes of the API's errors, by status, each with its meaning.

use http::StatusCode;

/// A kind of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Code {
    /// The word in answers.
    pub(super) word: &'static str,
    /// Its HTTP status.
    pub(super) status: u16,
    /// Its meaning, and what the caller can do.
    pub(super) meaning: &'static str,
}

macro_rules! codes {
    ($($name:ident = $status:literal $word:literal: $meaning:literal;)*) => {
        $(pub(super) const $name: Code = Code { word: $word, status: $status, meaning: $meaning };)*

        /// All codes.
        #[cfg(test)]
        pub(super) const ALL: &[Code] = &[$($name),*];
    };
}

codes! {
    INVALID = 400 "invalid": "The request is malformed; the message names the mistake.";
    UNAUTHORIZED = 401 "unauthorized": "The bearer token is missing or wrong.";
    FOREIGN_HOST = 403 "foreign_host":
        "Without a token, the host answers only requests to a loopback name, and from browsers only those of the console.";
    NOT_FOUND = 404 "not_found": "The path, or the object that it names, does not exist.";
    METHOD = 405 "method_not_allowed": "The path exists, with another method.";

    TOO_LATE = 409 "too_late":
        "The message is being published, has ended, or may have arrived by an earlier attempt. `state` is its state.";
    NOT_DEAD = 409 "not_dead": "Only a dead message can be redriven. `state` is its state.";
    EXPIRED = 409 "expired": "The message has expired; it is not sent again.";
    NOT_UNCERTAIN = 409 "not_uncertain": "No attempt of the message is uncertain. `state` is its state.";
    NOT_SKIPPABLE = 409 "not_skippable": "The work item is not a dead head of a lane. `state` is its state.";
    NOT_FINISHED = 409 "not_finished": "The work item has not ended; only a finished one can be replayed.";
    NOT_CLAIMABLE = 409 "not_claimable": "The work item cannot be claimed now; the message says what must happen first.";
    OLDER_REPLAY = 409 "replayed_by_an_older_host":
        "An older host replayed the event in place, so its work items are not replayed again.";
    MESSAGES_WAIT = 409 "messages_wait":
        "Pending messages would lose their destination or their order; the message says how many wait. Nothing changed.";
    CHANGED_MEANWHILE = 409 "changed_meanwhile":
        "The destination has another version; the message says which. Nothing changed.";
    CONFIGURED = 409 "configured": "The destination comes from the configuration file; change it there.";
    CONFLICT = 409 "conflict": "The state of the pack does not allow it; the message says why. Nothing changed.";
    REFUSED = 409 "refused": "The store refused it; the message says why.";
    UNSTORABLE = 409 "unstorable": "The store cannot hold it.";

    TOO_LARGE = 413 "too_large": "The body is larger than the limit.";
    PACK_REFUSED = 422 "pack_refused": "The pack cannot serve; the message says why. Nothing changed.";

    NOT_NOW = 503 "not_now": "The work item could be claimed, but not now and on this host; retry.";
    BUSY = 503 "busy": "Too many requests run at once, or another preview or installation is running; retry.";
    TOO_SLOW = 503 "too_slow": "The request took too long. Its change may have been made.";
    NOT_SERVING = 503 "not_serving": "The host is starting or stopping.";
    STORE_BUSY = 503 "store_busy": "The store is at its limit; retry.";
    STORE_UNAVAILABLE = 503 "store_unavailable": "The store does not answer; retry.";
    STORE_UNKNOWN = 503 "store_outcome_unknown": "The outcome is unknown: check whether the change was made, then retry.";
    STORE_UNUSABLE = 503 "store_unusable": "The store must be opened again: restart the host.";
}

/// The errors of every operation that needs the token.
pub(super) const EVERYWHERE: &[Code] = &[UNAUTHORIZED, FOREIGN_HOST, INVALID, BUSY, TOO_SLOW];

/// The errors of every operation that reads the store.
pub(super) const OF_THE_STORE: &[Code] = &[STORE_BUSY, STORE_UNAVAILABLE, STORE_UNUSABLE];

/// Further errors of an operation that changes the store.
pub(super) const OF_CHANGES: &[Code] = &[STORE_UNKNOWN, REFUSED, UNSTORABLE];

impl Code {
    /// Its status, typed.
    pub(super) fn http(self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}
