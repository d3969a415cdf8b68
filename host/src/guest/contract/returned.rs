//! What a guest returned, in one form whatever version of the contract it was built for. Nothing of it is checked:
//! names may be none, times absurd, lists too long.

/// What a call of the guest came to, by the guest's own account.
pub(in crate::guest) type Returned<T> = Result<T, Failure>;

/// The records that an answer was read for: of each key, which need not have been asked for, nor be there once.
pub(in crate::guest) type Records = Vec<(String, Vec<u8>)>;

/// What `prepare` made of an event.
pub(in crate::guest) enum Prepared {
    /// It is of no interest, for this reason.
    Ignore(String),
    /// It is to be run.
    Run(Plan),
}

/// How an event is to be run.
pub(in crate::guest) struct Plan {
    pub(in crate::guest) state: Vec<u8>,
    pub(in crate::guest) reads: Vec<Read>,
}

/// Keys that are to be looked up.
pub(in crate::guest) struct Read {
    pub(in crate::guest) reader: String,
    pub(in crate::guest) keys: Vec<String>,
}

/// The request that looks up keys.
pub(in crate::guest) struct HttpRequest {
    pub(in crate::guest) method: String,
    pub(in crate::guest) path: String,
    pub(in crate::guest) headers: Vec<Header>,
    pub(in crate::guest) body: Vec<u8>,
}

/// A header.
pub(in crate::guest) struct Header {
    pub(in crate::guest) name: String,
    pub(in crate::guest) value: Vec<u8>,
}

/// What `run` or `apply` wants to happen.
pub(in crate::guest) struct Output {
    pub(in crate::guest) note: Option<String>,
    pub(in crate::guest) messages: Vec<Message>,
    pub(in crate::guest) actions: Vec<Action>,
}

/// A message for a destination.
pub(in crate::guest) struct Message {
    pub(in crate::guest) destination: String,
    pub(in crate::guest) body: Vec<u8>,
    pub(in crate::guest) content_type: String,
    pub(in crate::guest) headers: Vec<Header>,
    pub(in crate::guest) ordering_key: Option<String>,
    pub(in crate::guest) idempotency_key: Option<String>,
    pub(in crate::guest) due: Due,
    /// In milliseconds since the Unix epoch.
    pub(in crate::guest) expire_at: Option<i64>,
}

/// Work of the pack's own, for later.
pub(in crate::guest) struct Action {
    pub(in crate::guest) name: String,
    pub(in crate::guest) body: Vec<u8>,
    pub(in crate::guest) idempotency_key: Option<String>,
    pub(in crate::guest) due: Due,
}

/// When something is due.
pub(in crate::guest) enum Due {
    /// Once it is stored.
    Now,
    /// So many milliseconds after it is stored.
    After(u64),
    /// At this time, in milliseconds since the Unix epoch.
    At(i64),
}

/// Why a call did not succeed.
#[derive(Debug)]
pub(in crate::guest) enum Failure {
    /// It is to be tried again, no sooner than after so many milliseconds.
    Retry { delay_ms: Option<u64>, reason: String },
    /// The guest wants no part of it.
    Reject(String),
    /// The guest could make no sense of it.
    InvalidInput(String),
    /// Anything else.
    Other(String),
}
